//! Shortcuts in machine integers, for values that fit.
//!
//! Every step is exact or gives `None`, and then the caller does the same in big integers.

use super::round::{INFINITY, SIGN};

/// An f32 as `significand * 2^(shift - 149)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Signed, below `2^24` in magnitude.
    pub significand: i64,
    /// From 0 to 253.
    pub shift: u32,
}

impl Parts {
    /// The parts of these f32 bits; `None` for NaN and infinities.
    pub(super) fn of(bits: u32) -> Option<Self> {
        let magnitude = bits & !SIGN;
        if magnitude >= INFINITY {
            return None;
        }
        let (field, fraction) = (magnitude >> 23, i64::from(magnitude & 0x7F_FFFF));
        let (significand, shift) = match field {
            0 => (fraction, 0),
            _ => (fraction | 1 << 23, field - 1),
        };
        let negative = bits & SIGN != 0;
        Some(Self {
            significand: if negative { -significand } else { significand },
            shift,
        })
    }

    /// Parts of all values; `None` if one of them is not finite.
    pub(super) fn of_all(values: &[f32]) -> Option<Vec<Self>> {
        values.iter().map(|x| Self::of(x.to_bits())).collect()
    }
}

/// The smallest shift of a factor that is not zero; 0 if all are.
pub(super) fn least_shift(factors: &[Parts]) -> u32 {
    let factors = factors.iter().filter(|factor| factor.significand != 0);
    factors.map(|factor| factor.shift).min().unwrap_or(0)
}

/// `sum factor * count` in units of `2^(least - 149)`, for the [`least_shift`] of the factors;
/// `None` where an `i128` does not hold it.
pub(super) fn sum_of_products(
    factors: &[Parts],
    least: u32,
    counts: impl Iterator<Item = i64>,
) -> Option<i128> {
    let mut sum = 0i128;
    for (factor, count) in factors.iter().zip(counts) {
        let product = i128::from(factor.significand) * i128::from(count);
        if product != 0 {
            sum = sum.checked_add(times_power(product, factor.shift - least)?)?;
        }
    }
    Some(sum)
}

/// `value * 2^shift`; `None` where an `i128` does not hold it.
fn times_power(value: i128, shift: u32) -> Option<i128> {
    // The sign takes a bit, too.
    (shift < value.unsigned_abs().leading_zeros()).then(|| value << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_value() {
        for x in [0.0, -0.0, 1.5, -448.0, f32::MIN_POSITIVE, f32::MAX, 1e-45] {
            let Parts { significand, shift } = Parts::of(x.to_bits()).unwrap();
            let value = significand as f64 * 2f64.powi(shift as i32 - 149);
            assert_eq!(value, f64::from(x));
        }
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(Parts::of(x.to_bits()), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_none() {
        assert_eq!(times_power(-3, 2), Some(-12));
        assert_eq!(times_power(1, 126), Some(1 << 126));
        assert_eq!(times_power(1, 127), None);
        assert_eq!(times_power(i128::MIN, 0), None);
        let far = [1.0f32, f32::MAX].map(|x| Parts::of(x.to_bits()).unwrap());
        let least = least_shift(&far);
        assert_eq!(sum_of_products(&far, least, [1, 1].into_iter()), None);
        assert_eq!(
            sum_of_products(&far, least, [1, 0].into_iter()),
            Some(1 << 23)
        );
    }
}
