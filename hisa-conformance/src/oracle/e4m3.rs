//! The e4m3 format (OCP, finite only): decode, and encode of an exact ratio.

use num_bigint::BigUint;

use super::round::{SIGN, floor_ratio, floor_small, is_nan};
use super::small::Parts;

/// Code of every computed NaN.
pub const NAN_CODE: u8 = 0x7F;
/// Code of the largest finite value, 448.
pub const MAX_CODE: u8 = 0x7E;
/// Sign bit of a code.
pub const SIGN_BIT: u8 = 0x80;
/// A decoded code counts units of `2^UNIT`, the smallest subnormal.
pub const UNIT: i64 = -9;

/// What encoding does with a magnitude above 464, the last one that rounds to 448.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Finite overflow and infinities become `±448`; every NaN becomes 0x7F.
    Saturating,
    /// Finite overflow, infinities and NaN become the NaN of the argument's sign.
    NonSaturating,
}

/// Magnitude of a code without its sign, in units of `2^-9`. The NaN code gives what would be the
/// next finite value, 480.
const fn units(code: u8) -> i32 {
    let (field, fraction) = (code >> 3, (code & 7) as i32);
    match field {
        0 => fraction,
        _ => (8 + fraction) << (field - 1),
    }
}

/// Value of a code in units of `2^-9` (at most `448 * 512` in magnitude); `None` for both NaNs.
/// SPEC V.1.
pub fn decode(code: u8) -> Option<i32> {
    let magnitude = code & !SIGN_BIT;
    match (magnitude, code & SIGN_BIT != 0) {
        (NAN_CODE, _) => None,
        (_, false) => Some(units(magnitude)),
        (_, true) => Some(-units(magnitude)),
    }
}

/// Code nearest to `±num / den`, ties to the even code; the sign is kept even on zero.
/// `den` must not be zero. SPEC V.2.
pub fn encode_ratio(negative: bool, num: &BigUint, den: &BigUint, overflow: Overflow) -> u8 {
    encode_count(negative, floor_ratio(num, den, HALF_UNITS), overflow)
}

/// Shift to units of `2^-10`, in which the midpoint of two neighbours is the sum of their units.
const HALF_UNITS: i64 = 1 - UNIT;

/// The midpoint after each finite code that is not negative, in units of `2^-10`.
const MIDPOINTS: [u64; NAN_CODE as usize] = {
    let mut midpoints = [0; NAN_CODE as usize];
    let mut code = 0;
    while code < NAN_CODE {
        midpoints[code as usize] = (units(code) + units(code + 1)).unsigned_abs() as u64;
        code += 1;
    }
    midpoints
};

/// Code nearest to a magnitude of `count` units of `2^-10`, and something less than a unit if
/// there is `more`.
fn encode_count(negative: bool, (count, more): (u64, bool), overflow: Overflow) -> u8 {
    // Midpoints ascend. On one of them exactly, the even code wins.
    let below = MIDPOINTS.partition_point(|&midpoint| midpoint < count) as u8;
    let on_midpoint = MIDPOINTS.get(usize::from(below)) == Some(&count);
    let code = below + u8::from(on_midpoint && (more || below % 2 == 1));
    if code < NAN_CODE {
        signed(negative, code)
    } else {
        encode_infinity(negative, overflow)
    }
}

/// Code of an f32 given by its bits.
pub fn encode_f32(bits: u32, overflow: Overflow) -> u8 {
    if is_nan(bits) && overflow == Overflow::NonSaturating {
        return signed(bits & SIGN != 0, NAN_CODE);
    }
    encode_quotient(bits, 1f32.to_bits(), overflow)
}

/// Code of the extended real `x / scale`, for the bits of an f32 and of a scale that is not zero
/// and not negative. A NaN quotient is 0x7F; a finite value over infinity is a zero of its sign.
pub fn encode_quotient(x: u32, scale: u32, overflow: Overflow) -> u8 {
    let (negative, magnitude) = (x & SIGN != 0, x & !SIGN);
    if is_nan(x) || is_nan(scale) {
        return NAN_CODE;
    }
    match (Parts::of(magnitude), Parts::of(scale)) {
        (None, None) => NAN_CODE,
        (None, Some(_)) => encode_infinity(negative, overflow),
        (Some(_), None) => signed(negative, 0),
        (Some(x), Some(scale)) => {
            let shift = i64::from(x.shift) - i64::from(scale.shift) + HALF_UNITS;
            let (num, den) = (
                x.significand.unsigned_abs(),
                scale.significand.unsigned_abs(),
            );
            encode_count(negative, floor_small(num.into(), den, shift), overflow)
        }
    }
}

fn encode_infinity(negative: bool, overflow: Overflow) -> u8 {
    match overflow {
        Overflow::Saturating => signed(negative, MAX_CODE),
        Overflow::NonSaturating => signed(negative, NAN_CODE),
    }
}

fn signed(negative: bool, code: u8) -> u8 {
    if negative { SIGN_BIT | code } else { code }
}

#[cfg(test)]
mod tests {
    use super::Overflow::{NonSaturating, Saturating};
    use super::*;

    fn encode(x: f32) -> u8 {
        encode_f32(x.to_bits(), Saturating)
    }

    /// The value as the format's definition gives it, in machine floats.
    fn by_definition(code: u8) -> f64 {
        let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from(code >> 3 & 0xF);
        let fraction = f64::from(code & 7) / 8.0;
        match exponent {
            0 => sign * 2f64.powi(-6) * fraction,
            _ => sign * 2f64.powi(exponent - 7) * (1.0 + fraction),
        }
    }

    #[test]
    fn br_76_all_256_codes_decode() {
        for code in 0..=255u8 {
            match decode(code) {
                None => assert!(code == 0x7F || code == 0xFF),
                Some(units) => assert_eq!(f64::from(units) / 512.0, by_definition(code)),
            }
        }
        assert_eq!(decode(0x80), Some(0));
        assert_eq!(
            (1..8).map(decode).collect::<Vec<_>>(),
            (1..8).map(Some).collect::<Vec<_>>()
        );
        assert_eq!(decode(0x7E), Some(448 * 512));
        assert_eq!((decode(0x38), decode(0xB8)), (Some(512), Some(-512)));
    }

    /// The same quotient in big integers.
    #[test]
    fn quotients_are_those_of_big_integers() {
        use crate::oracle::real::finite_units;
        let mut state = 1u32;
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 1) % 0x7F80_0000
        };
        for step in 0..20_000 {
            let (x, any) = (draw(), draw());
            // Mostly a scale near the value, or every code is an end of the range.
            let scale = if step % 8 == 0 {
                any
            } else {
                (x / 2 + any % 0x0A00_0000).max(1)
            };
            for overflow in [Saturating, NonSaturating] {
                let big = encode_ratio(false, &finite_units(x), &finite_units(scale), overflow);
                assert_eq!(
                    encode_quotient(x, scale, overflow),
                    big,
                    "{x:#x} / {scale:#x}"
                );
            }
        }
    }

    #[test]
    fn every_finite_code_encodes_to_itself() {
        for code in (0..=255u8).filter(|code| code & 0x7F != 0x7F) {
            let x = (by_definition(code) as f32).to_bits();
            assert_eq!(encode_f32(x, Saturating), code);
            assert_eq!(encode_f32(x, NonSaturating), code);
        }
    }

    #[test]
    fn br_73_overflow_table() {
        let next = f32::from_bits(464f32.to_bits() + 1);
        for (x, saturating, non_saturating) in [
            (448.0, 0x7E, 0x7E),
            (464.0, 0x7E, 0x7E),
            (next, 0x7E, 0x7F),
            (464.0001, 0x7E, 0x7F),
            (465.0, 0x7E, 0x7F),
            (480.0, 0x7E, 0x7F),
            (1e30, 0x7E, 0x7F),
            (f32::MAX, 0x7E, 0x7F),
            (f32::INFINITY, 0x7E, 0x7F),
        ] {
            assert_eq!(encode_f32(x.to_bits(), Saturating), saturating, "{x}");
            assert_eq!(
                encode_f32(x.to_bits(), NonSaturating),
                non_saturating,
                "{x}"
            );
            assert_eq!(
                encode_f32((-x).to_bits(), Saturating),
                0x80 | saturating,
                "-{x}"
            );
            assert_eq!(
                encode_f32((-x).to_bits(), NonSaturating),
                0x80 | non_saturating,
                "-{x}"
            );
        }
    }

    /// SPEC V.8.
    #[test]
    fn br_73_nan() {
        for nan in [0x7FC0_0000, 0x7F80_0001, 0x7FFF_FFFF] {
            assert_eq!(encode_f32(nan, Saturating), 0x7F);
            assert_eq!(encode_f32(SIGN | nan, Saturating), 0x7F);
            assert_eq!(encode_f32(nan, NonSaturating), 0x7F);
            assert_eq!(encode_f32(SIGN | nan, NonSaturating), 0xFF);
        }
    }

    #[test]
    fn br_75_every_midpoint_and_its_neighbours() {
        for code in 0..0x7E {
            let mid = ((by_definition(code) + by_definition(code + 1)) / 2.0) as f32;
            let even = if code % 2 == 0 { code } else { code + 1 };
            let (below, above) = (mid.to_bits() - 1, mid.to_bits() + 1);
            for (bits, expected) in [(below, code), (mid.to_bits(), even), (above, code + 1)] {
                assert_eq!(encode_f32(bits, Saturating), expected, "{bits:#010X}");
                assert_eq!(encode_f32(SIGN | bits, NonSaturating), 0x80 | expected);
            }
        }
        assert_eq!(encode_f32(0x3F88_0001, Saturating), 0x39);
    }

    /// SPEC V.4.
    #[test]
    fn zeros_keep_their_sign() {
        assert_eq!((encode(0.0), encode(-0.0)), (0x00, 0x80));
        assert_eq!((encode(1e-30), encode(-1e-30)), (0x00, 0x80));
    }

    #[test]
    fn quotients_are_rounded_once_and_follow_ieee() {
        let quotient =
            |x: f32, scale: f32| encode_quotient(x.to_bits(), scale.to_bits(), Saturating);
        assert_eq!(quotient(3.0, 2.0), encode(1.5));
        assert_eq!(quotient(-1.0, f32::INFINITY), 0x80);
        assert_eq!(quotient(f32::NEG_INFINITY, f32::INFINITY), 0x7F);
        assert_eq!(quotient(f32::NEG_INFINITY, 2.0), 0xFE);
        assert_eq!(quotient(-1.0, f32::NAN), 0x7F);
        // 17 * (1 + 2^-40) is not an f32, and only the real quotient sees that it is above 17.
        let num = BigUint::from(17u64 << 40) + 17u32;
        assert_eq!(
            encode_ratio(false, &num, &(1u64 << 40).into(), Saturating),
            encode(18.0)
        );
        assert_eq!(encode(17.0), encode(16.0));
    }
}
