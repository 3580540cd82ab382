//! Sums without rounding: a wide fixed-point accumulator, and its closing roundings.
//!
//! The scalar definitions add with these types. The fast paths add in f64 with an error interval
//! and come here only where that interval does not decide the last rounding.

/// 2^-149, the unit every finite f32 is a multiple of.
pub(crate) const F32_UNIT_EXPONENT: i32 = -149;

const LIMBS: usize = 8;

/// A signed 512-bit integer; the caller knows what one unit is worth.
///
/// Room: the largest sum of the spec (2^16 heads, weights and scales of any finite size) needs
/// 370 bits, pooling with its extra division bits 391.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactSum {
    /// Two's complement, least significant limb first.
    limbs: [u64; LIMBS],
}

impl ExactSum {
    /// Zero.
    pub const ZERO: Self = Self { limbs: [0; LIMBS] };

    /// Adds `value * 2^shift`.
    ///
    /// `shift` is at most 383, so that any `i128` stays inside the accumulator.
    ///
    /// # Panics
    /// For a larger shift.
    pub fn add_shifted(&mut self, value: i128, shift: u32) {
        assert!(shift <= 383, "shift {shift} leaves the accumulator");
        let (limb, bits) = ((shift / 64) as usize, shift % 64);
        let low = value as u128;
        // The 128-bit value shifted by less than 64 spans three limbs; above them, its sign.
        let sign = if value < 0 { u64::MAX } else { 0 };
        let words = [low as u64, (low >> 64) as u64, sign];
        let mut carry = false;
        for (i, slot) in self.limbs.iter_mut().enumerate().skip(limb) {
            let high = words[(i - limb).min(2)];
            let below = if i > limb {
                words[(i - limb - 1).min(2)]
            } else {
                0
            };
            let word = if bits == 0 {
                high
            } else {
                high << bits | below >> (64 - bits)
            };
            let (sum, c1) = slot.overflowing_add(word);
            let (sum, c2) = sum.overflowing_add(u64::from(carry));
            *slot = sum;
            carry = c1 || c2;
        }
    }

    /// True for zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.limbs == [0; LIMBS]
    }

    /// True below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.limbs[LIMBS - 1] >> 63 == 1
    }

    /// Sign and magnitude.
    fn split(&self) -> (bool, [u64; LIMBS]) {
        let negative = self.is_negative();
        let mut magnitude = self.limbs;
        if negative {
            let mut carry = true;
            for limb in &mut magnitude {
                (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
            }
        }
        (negative, magnitude)
    }

    /// The real number `self * factor * 2^unit_exponent` rounded once to f32: nearest, ties to
    /// even, gradual underflow, overflow to infinity, and zero as `+0.0` also where it was
    /// reached by underflow from below.
    ///
    /// # Panics
    /// Where `self * factor` needs more than 512 bits.
    #[must_use]
    pub fn scaled_to_f32(&self, factor: i32, unit_exponent: i32) -> f32 {
        let (negative, mut magnitude) = self.split();
        let mut carry = 0u128;
        for limb in &mut magnitude {
            let product = u128::from(*limb) * u128::from(factor.unsigned_abs()) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        assert!(carry == 0, "the product leaves the accumulator");
        signed(
            negative != (factor < 0),
            round_f32(&magnitude, unit_exponent, false),
        )
    }

    /// The real number `self * 2^unit_exponent / divisor`, rounded once to f32.
    ///
    /// The caller leaves at least 33 bits of `self` below the least f32 subnormal, so that the
    /// integer quotient and a sticky remainder decide the rounding.
    ///
    /// # Panics
    /// For a divisor of 0.
    #[must_use]
    pub fn divided_to_f32(&self, divisor: u32, unit_exponent: i32) -> f32 {
        let (negative, mut magnitude) = self.split();
        let mut remainder = 0u128;
        for limb in magnitude.iter_mut().rev() {
            let dividend = remainder << 64 | u128::from(*limb);
            *limb = (dividend / u128::from(divisor)) as u64;
            remainder = dividend % u128::from(divisor);
        }
        signed(
            negative,
            round_f32(&magnitude, unit_exponent, remainder != 0),
        )
    }

    /// `|self| * 2^unit_exponent` rounded upward to f64, for bounds.
    #[must_use]
    pub fn magnitude_up(&self, unit_exponent: i32) -> f64 {
        let (_, magnitude) = self.split();
        let Some(top) = top_bit(&magnitude) else {
            return 0.0;
        };
        let drop = top.saturating_sub(52);
        let mut kept = bits_from(&magnitude, drop);
        if any_below(&magnitude, drop) {
            kept += 1;
        }
        // kept is at most 2^53 and the exponent stays far inside f64, so both steps are exact.
        kept as f64 * 2f64.powi(drop as i32 + unit_exponent)
    }
}

/// Sign on a magnitude; zero stays `+0.0`.
fn signed(negative: bool, magnitude: f32) -> f32 {
    if negative && magnitude != 0.0 {
        -magnitude
    } else {
        magnitude
    }
}

fn top_bit(magnitude: &[u64; LIMBS]) -> Option<u32> {
    let limb = magnitude.iter().rposition(|&limb| limb != 0)?;
    Some(limb as u32 * 64 + 63 - magnitude[limb].leading_zeros())
}

/// The 64 bits from position `low` upward.
fn bits_from(magnitude: &[u64; LIMBS], low: u32) -> u64 {
    let (limb, bits) = ((low / 64) as usize, low % 64);
    let below = magnitude.get(limb).map_or(0, |&word| word >> bits);
    let above = magnitude.get(limb + 1).map_or(0, |&word| word);
    if bits == 0 {
        below
    } else {
        below | above << (64 - bits)
    }
}

/// True where any bit below position `low` is set.
fn any_below(magnitude: &[u64; LIMBS], low: u32) -> bool {
    let (limb, bits) = ((low / 64) as usize, low % 64);
    magnitude.iter().take(limb).any(|&word| word != 0)
        || magnitude
            .get(limb)
            .is_some_and(|&word| word & ((1 << bits) - 1) != 0)
}

/// `magnitude * 2^unit_exponent`, plus something below one unit if `sticky`, to nearest even.
fn round_f32(magnitude: &[u64; LIMBS], unit_exponent: i32, sticky: bool) -> f32 {
    let Some(top) = top_bit(magnitude) else {
        return 0.0;
    };
    // Exponent of the last bit the result keeps: 24 significant bits, or the subnormal grid.
    let last = (top as i32 + unit_exponent - 23).max(F32_UNIT_EXPONENT);
    let drop = last - unit_exponent;
    if drop <= 0 {
        // Everything fits: at most 24 bits, shifted up to the grid of the result.
        debug_assert!(!sticky, "the quotient has too few bits below the result");
        return assemble(bits_from(magnitude, 0) << -drop, last);
    }
    if drop > top as i32 + 1 {
        return 0.0; // below half of the least subnormal
    }
    let drop = drop as u32;
    let kept = bits_from(magnitude, drop);
    let half = bits_from(magnitude, drop - 1) & 1 == 1;
    let rest = sticky || any_below(magnitude, drop - 1);
    let up = half && (rest || kept & 1 == 1);
    assemble(kept + u64::from(up), last)
}

/// `mantissa * 2^exponent`, mantissa at most 2^24, exponent at least -149: exact, or infinity.
fn assemble(mantissa: u64, exponent: i32) -> f32 {
    // Two exact steps in f64, whose range holds every case; the last one overflows as f32 does.
    (mantissa as f64 * 2f64.powi(exponent.min(200))) as f32
}

/// `x` as `mantissa * 2^exponent` with an exponent of at least -149; `x` is finite.
#[must_use]
pub(crate) fn decompose(x: f32) -> (i32, i32) {
    let bits = x.to_bits();
    let field = ((bits >> 23) & 0xFF) as i32;
    let fraction = (bits & 0x007F_FFFF) as i32;
    let (magnitude, exponent) = if field == 0 {
        (fraction, -149)
    } else {
        (fraction | 0x0080_0000, field - 150)
    };
    (
        if bits >> 31 == 1 {
            -magnitude
        } else {
            magnitude
        },
        exponent,
    )
}

/// The NaN the reference writes, 0x7FC00000.
pub const NAN: f32 = f32::from_bits(0x7FC0_0000);

/// What a sum in the extended reals came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extended {
    Finite(ExactSum),
    /// An infinity and its sign: true below zero.
    Infinite(bool),
    NaN,
}

/// A sum of products `integer * f32` in the extended reals: IEEE 754 without any rounding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtendedSum {
    finite: ExactSum,
    positive_infinity: bool,
    negative_infinity: bool,
    nan: bool,
    /// Extra bits below the unit of the products.
    extra_bits: u32,
}

impl ExtendedSum {
    /// An empty sum in units of 2^(-149 - `extra_bits`) times the unit of the integers.
    pub(crate) fn new(extra_bits: u32) -> Self {
        Self {
            finite: ExactSum::ZERO,
            positive_infinity: false,
            negative_infinity: false,
            nan: false,
            extra_bits,
        }
    }

    /// Adds `integer * factor`.
    pub(crate) fn add_product(&mut self, integer: i64, factor: f32) {
        if factor.is_finite() {
            let (mantissa, exponent) = decompose(factor);
            let shift = (exponent - F32_UNIT_EXPONENT) as u32 + self.extra_bits;
            self.finite
                .add_shifted(i128::from(integer) * i128::from(mantissa), shift);
        } else if factor.is_nan() || integer == 0 {
            self.nan = true;
        } else if (factor > 0.0) == (integer > 0) {
            self.positive_infinity = true;
        } else {
            self.negative_infinity = true;
        }
    }

    pub(crate) fn poison(&mut self) {
        self.nan = true;
    }

    pub(crate) fn total(&self) -> Extended {
        match (self.nan, self.positive_infinity, self.negative_infinity) {
            (true, _, _) | (_, true, true) => Extended::NaN,
            (_, true, _) => Extended::Infinite(false),
            (_, _, true) => Extended::Infinite(true),
            _ => Extended::Finite(self.finite),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(terms: &[(i128, u32)]) -> ExactSum {
        let mut sum = ExactSum::ZERO;
        for &(value, shift) in terms {
            sum.add_shifted(value, shift);
        }
        sum
    }

    /// SPEC V.4.
    #[test]
    fn adding_and_taking_away_leaves_zero() {
        for shift in [0, 1, 63, 64, 65, 127, 128, 200, 383] {
            for value in [1, -1, i128::MAX, i128::MIN + 1, 1 << 100] {
                let mut total = sum(&[(value, shift), (3, 7)]);
                let lowered = value < 0 && (shift > 8 || value < -384);
                assert_eq!(total.is_negative(), lowered, "{value} << {shift}");
                total.add_shifted(-value, shift);
                assert_eq!(total, sum(&[(384, 0)]), "{value} << {shift}");
                total.add_shifted(-3, 7);
                assert!(total.is_zero() && !total.is_negative());
            }
        }
    }

    #[test]
    fn carries_run_through_all_limbs() {
        let mut total = sum(&[(-1, 0)]);
        total.add_shifted(1, 383);
        // 2^383 - 1: 383 ones.
        assert_eq!(top_bit(&total.split().1), Some(382));
        total.add_shifted(1, 0);
        assert_eq!(top_bit(&total.split().1), Some(383));
    }

    /// SPEC V.6.
    #[test]
    fn one_rounding_to_nearest_even() {
        let round = |value: i128, shift: u32, exponent: i32| {
            sum(&[(value, shift)]).scaled_to_f32(1, exponent).to_bits()
        };
        assert_eq!(round(1, 0, 0), 1f32.to_bits());
        assert_eq!(round(-3, 0, -1), (-1.5f32).to_bits());
        assert_eq!(
            round((1 << 24) + 1, 0, 0),
            16_777_216f32.to_bits(),
            "tie to even, down"
        );
        assert_eq!(
            round((1 << 24) + 3, 0, 0),
            16_777_220f32.to_bits(),
            "tie to even, up"
        );
        assert_eq!(
            round((1 << 25) + 3, 0, 0),
            33_554_436f32.to_bits(),
            "above half"
        );
        assert_eq!(
            round((1 << 30) + (1 << 6) + 1, 0, 0),
            1_073_741_952f32.to_bits()
        );
        assert_eq!(
            round((1 << 25) - 1, 0, 0),
            33_554_432f32.to_bits(),
            "carry to 2^25"
        );
        assert_eq!(round(1, 300, -300), 1f32.to_bits());
        assert_eq!(round(0, 0, 0), 0);
    }

    /// SPEC V.6.
    #[test]
    fn subnormals_and_overflow() {
        let round = |value: i128, exponent| sum(&[(value, 0)]).scaled_to_f32(1, exponent).to_bits();
        assert_eq!(round(1, -149), 1);
        assert_eq!(round(1, -150), 0, "half of the least: tie to even zero");
        assert_eq!(round(-1, -150), 0, "underflow from below is +0.0");
        assert_eq!(round(3, -150), 2, "1.5 units: tie to even");
        assert_eq!(round(3, -151), 1, "0.75 units");
        assert_eq!(round(5, -152), 1, "0.625 units");
        assert_eq!(round(1, -151), 0);
        assert_eq!(round(1, -400), 0);
        assert_eq!(
            round((1 << 24) - 1, -150),
            0x0080_0000,
            "up into the normals"
        );
        assert_eq!(round((1 << 24) - 1, 104), f32::MAX.to_bits());
        assert_eq!(round((1 << 25) - 1, 103), f32::INFINITY.to_bits());
        assert_eq!(
            round((1 << 26) - 3, 102),
            f32::MAX.to_bits(),
            "below the halfway point"
        );
        assert_eq!(round(-1, 128), f32::NEG_INFINITY.to_bits());
        assert_eq!(round(1, 300), f32::INFINITY.to_bits());
    }

    #[test]
    fn factors_multiply_before_the_rounding() {
        let half = sum(&[((1 << 24) + 1, 0)]);
        assert_eq!(
            half.scaled_to_f32(3, 0),
            50_331_652.0,
            "3 * (2^24 + 1), tie to even"
        );
        assert_eq!(half.scaled_to_f32(-3, 0), -50_331_652.0);
        assert_eq!(half.scaled_to_f32(0, 0).to_bits(), 0);
        assert_eq!(sum(&[(-5, 0)]).scaled_to_f32(-2, 0), 10.0);
    }

    #[test]
    fn division_rounds_the_real_quotient() {
        let divide = |value: i128, divisor| sum(&[(value, 64)]).divided_to_f32(divisor, -64);
        assert_eq!(divide(1, 3), 1.0 / 3.0);
        assert_eq!(divide(-2, 3), -2.0 / 3.0);
        assert_eq!(divide(0, 7).to_bits(), 0);
        assert_eq!(divide(i128::from(u32::MAX) * 5, u32::MAX), 5.0);
        // A quotient just above a tie: only the remainder tells.
        let tie = ((1 << 24) + 1) * 3;
        assert_eq!(divide(tie, 3), 16_777_216.0);
        let mut above = sum(&[(tie, 64)]);
        above.add_shifted(1, 0);
        assert_eq!(above.divided_to_f32(3, -64), 16_777_218.0);
    }

    /// SPEC S.8.
    #[test]
    fn magnitudes_round_upward() {
        assert_eq!(
            sum(&[(1 << 53, 0)]).magnitude_up(0),
            9_007_199_254_740_992.0
        );
        assert_eq!(
            sum(&[((1 << 53) + 1, 0)]).magnitude_up(0),
            9_007_199_254_740_994.0
        );
        assert_eq!(sum(&[(-7, 3)]).magnitude_up(-3), 7.0);
        assert_eq!(ExactSum::ZERO.magnitude_up(5), 0.0);
        assert_eq!(sum(&[(1, 128), (1, 0)]).magnitude_up(-128), 1f64.next_up());
    }

    #[test]
    fn decompose_gives_the_value_back() {
        for bits in [
            0,
            1,
            0x007F_FFFF,
            0x0080_0000,
            0x3F80_0001,
            0x7F7F_FFFF,
            0x8000_0001,
        ] {
            let x = f32::from_bits(bits);
            let (mantissa, exponent) = decompose(x);
            assert_eq!(
                (f64::from(mantissa) * 2f64.powi(exponent)) as f32,
                x,
                "{bits:#x}"
            );
            assert!(exponent >= -149 && mantissa.abs() < 1 << 24);
        }
    }

    /// SPEC V.7.
    #[test]
    fn extended_reals_follow_ieee() {
        let total = |terms: &[(i64, f32)]| {
            let mut sum = ExtendedSum::new(0);
            terms
                .iter()
                .for_each(|&(integer, factor)| sum.add_product(integer, factor));
            sum.total()
        };
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(total(&[(2, inf), (1, 1.0)]), Extended::Infinite(false));
        assert_eq!(total(&[(-2, inf)]), Extended::Infinite(true));
        assert_eq!(total(&[(2, -inf)]), Extended::Infinite(true));
        assert_eq!(total(&[(-2, -inf), (1, inf)]), Extended::Infinite(false));
        assert_eq!(total(&[(1, inf), (1, -inf)]), Extended::NaN);
        assert_eq!(total(&[(0, inf)]), Extended::NaN);
        assert_eq!(total(&[(0, nan)]), Extended::NaN);
        assert_eq!(total(&[(1, nan), (1, inf)]), Extended::NaN);
        assert_eq!(
            total(&[(3, 1.0), (-3, 1.0)]),
            Extended::Finite(ExactSum::ZERO)
        );
        let mut poisoned = ExtendedSum::new(0);
        poisoned.poison();
        assert_eq!(poisoned.total(), Extended::NaN);
    }
}
