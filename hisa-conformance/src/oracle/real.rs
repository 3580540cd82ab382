//! Extended reals: exact integers in a fixed unit, plus the values that IEEE adds.

use num_bigint::{BigInt, BigUint};

use super::round::{INFINITY, NAN, SIGN, is_nan, round_f32};

/// An extended real. The unit of a finite value is a power of two that the context fixes:
/// products multiply units, sums need equal ones.
///
/// Zero has no sign here, as in the specification.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Real {
    Nan,
    Infinite { negative: bool },
    Finite(BigInt),
}

impl Real {
    pub(super) fn zero() -> Self {
        Self::Finite(BigInt::ZERO)
    }

    /// An integer count of the unit.
    pub(super) fn int(count: i64) -> Self {
        Self::Finite(count.into())
    }

    /// An f32, in units of its smallest subnormal.
    pub(super) fn from_f32(x: f32) -> Self {
        let bits = x.to_bits();
        let negative = bits & SIGN != 0;
        if is_nan(bits) {
            Self::Nan
        } else if bits & !SIGN == INFINITY {
            Self::Infinite { negative }
        } else {
            let magnitude = BigInt::from(finite_units(bits & !SIGN));
            Self::Finite(if negative { -magnitude } else { magnitude })
        }
    }

    /// IEEE sum: opposite infinities and NaN give NaN. SPEC V.7.
    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Finite(a), Self::Finite(b)) => Self::Finite(a + b),
            (Self::Infinite { negative }, Self::Finite(_))
            | (Self::Finite(_), Self::Infinite { negative }) => Self::Infinite { negative },
            (Self::Infinite { negative: a }, Self::Infinite { negative: b }) if a == b => {
                Self::Infinite { negative: a }
            }
            _ => Self::Nan,
        }
    }

    /// IEEE product: zero times infinity and NaN give NaN. SPEC V.7.
    pub(super) fn times(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Finite(a), Self::Finite(b)) => Self::Finite(a * b),
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            _ if self.is_zero() || other.is_zero() => Self::Nan,
            _ => Self::Infinite {
                negative: self.is_negative() != other.is_negative(),
            },
        }
    }

    /// The f32 nearest to this value over `divisor`, where the unit is `2^exp`.
    pub(super) fn over_to_f32(&self, divisor: usize, exp: i64) -> f32 {
        f32::from_bits(match self {
            Self::Nan => NAN,
            Self::Infinite { negative: false } => INFINITY,
            Self::Infinite { negative: true } => SIGN | INFINITY,
            Self::Finite(count) => {
                round_f32(self.is_negative(), count.magnitude(), &divisor.into(), exp)
            }
        })
    }

    fn is_zero(&self) -> bool {
        matches!(self, Self::Finite(count) if *count == BigInt::ZERO)
    }

    fn is_negative(&self) -> bool {
        match self {
            Self::Nan => false,
            Self::Infinite { negative } => *negative,
            Self::Finite(count) => *count < BigInt::ZERO,
        }
    }
}

/// The f32 of these non-negative finite bits, in units of the smallest subnormal.
pub(super) fn finite_units(bits: u32) -> BigUint {
    let (field, fraction) = (bits >> 23, bits & 0x7F_FFFF);
    match field {
        0 => fraction.into(),
        _ => BigUint::from(fraction | 1 << 23) << (field - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::round::LEAST;

    const PLUS: Real = Real::Infinite { negative: false };
    const MINUS: Real = Real::Infinite { negative: true };

    #[test]
    fn f32_values_survive_the_round_trip() {
        for bits in [
            0,
            1,
            0x007F_FFFF,
            0x0080_0000,
            0x3F80_0001,
            0x7F7F_FFFF,
            INFINITY,
            NAN,
        ] {
            assert_eq!(
                Real::from_f32(f32::from_bits(bits))
                    .over_to_f32(1, LEAST)
                    .to_bits(),
                bits
            );
        }
        assert_eq!(Real::from_f32(-1.5).over_to_f32(1, LEAST), -1.5);
        assert_eq!(Real::from_f32(f32::NEG_INFINITY), MINUS);
        assert_eq!(Real::from_f32(-0.0), Real::zero());
        assert_eq!(Real::from_f32(f32::from_bits(0xFF80_0001)), Real::Nan);
    }

    /// SPEC V.7.
    #[test]
    fn sums_follow_ieee() {
        assert_eq!(Real::int(2).plus(Real::int(-3)), Real::int(-1));
        assert_eq!(PLUS.plus(PLUS), PLUS);
        assert_eq!(PLUS.plus(MINUS), Real::Nan);
        assert_eq!(MINUS.plus(Real::int(5)), MINUS);
        assert_eq!(Real::int(5).plus(PLUS), PLUS);
        assert_eq!(Real::Nan.plus(PLUS), Real::Nan);
        assert_eq!(Real::int(0).plus(Real::Nan), Real::Nan);
    }

    /// SPEC V.7.
    #[test]
    fn products_follow_ieee() {
        assert_eq!(Real::int(2).times(&Real::int(-3)), Real::int(-6));
        assert_eq!(PLUS.times(&Real::int(-3)), MINUS);
        assert_eq!(MINUS.times(&MINUS), PLUS);
        assert_eq!(PLUS.times(&Real::zero()), Real::Nan);
        assert_eq!(Real::zero().times(&MINUS), Real::Nan);
        assert_eq!(Real::Nan.times(&Real::zero()), Real::Nan);
    }
}
