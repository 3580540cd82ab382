//! The two roundings of the specification, decided on integers: real to f32, and f32 to bf16.

use num_bigint::BigUint;

/// Bits of the NaN that every computed f32 NaN is.
pub const NAN: u32 = 0x7FC0_0000;
/// Bits of `+inf`.
pub const INFINITY: u32 = 0x7F80_0000;
/// Sign bit of an f32.
pub const SIGN: u32 = 0x8000_0000;
/// Every finite f32 is a whole number of units of `2^LEAST`, the smallest subnormal.
pub const LEAST: i64 = -149;

/// `floor(num / den * 2^shift)`, capped at `u64::MAX`, and whether anything was cut off.
///
/// `den` must not be zero.
pub(super) fn floor_ratio(num: &BigUint, den: &BigUint, shift: i64) -> (u64, bool) {
    let (scaled, lost) = if shift >= 0 {
        (num << shift, false)
    } else {
        let cut = shift.unsigned_abs();
        (
            num >> cut,
            num.trailing_zeros().is_some_and(|zeros| zeros < cut),
        )
    };
    let floor = &scaled / den;
    let lost = lost || &floor * den != scaled;
    (u64::try_from(floor).unwrap_or(u64::MAX), lost)
}

/// As [`floor_ratio`], in machine integers where they hold the numbers.
pub(super) fn floor_small(num: u128, den: u64, shift: i64) -> (u64, bool) {
    let (scaled, lost) = if shift >= 0 {
        if num != 0 && shift >= i64::from(num.leading_zeros()) {
            return floor_ratio(&num.into(), &den.into(), shift);
        }
        (if num == 0 { 0 } else { num << shift }, false)
    } else {
        match u32::try_from(shift.unsigned_abs()) {
            Ok(cut @ 0..128) => (num >> cut, num & ((1 << cut) - 1) != 0),
            _ => (0, num != 0),
        }
    };
    let den = u128::from(den);
    let (floor, rest) = match (u64::try_from(scaled), u64::try_from(den)) {
        (Ok(scaled), Ok(den)) => (u128::from(scaled / den), u128::from(scaled % den)),
        _ => (scaled / den, scaled % den),
    };
    (u64::try_from(floor).unwrap_or(u64::MAX), lost || rest != 0)
}

/// The f32 bits nearest to `±num / den * 2^exp`: ties to even, gradual underflow, overflow to
/// infinity; a zero result is `+0.0` whatever the sign. `den` must not be zero. SPEC V.4 and V.6.
pub fn round_f32(negative: bool, num: &BigUint, den: &BigUint, exp: i64) -> u32 {
    let bits = (num.bits() as i64, den.bits() as i64);
    round(negative, bits, exp, |shift| floor_ratio(num, den, shift))
}

/// As [`round_f32`], for numbers that machine integers hold.
pub(super) fn round_small(negative: bool, num: u128, den: u64, exp: i64) -> u32 {
    let num_bits = i64::from(u128::BITS - num.leading_zeros());
    let bits = (num_bits, i64::from(u64::BITS - den.leading_zeros()));
    round(negative, bits, exp, |shift| floor_small(num, den, shift))
}

/// The rounding of a ratio with so many bits in its numerator and denominator; `floor` counts it
/// in units of `2^(exp - shift)`.
fn round(
    negative: bool,
    (num_bits, den_bits): (i64, i64),
    exp: i64,
    floor: impl FnOnce(i64) -> (u64, bool),
) -> u32 {
    if num_bits == 0 {
        return 0;
    }
    // The value lies strictly between 2^(top - 1) and 2^(top + 1), so that counting it in units
    // of 2^(top - 25) gives 25 or 26 bits: a significand of 24, one bit that decides the
    // rounding, and at most one too many.
    let top = num_bits - den_bits + exp;
    let mut unit = std::cmp::max(top - 25, LEAST - 1);
    let (mut count, mut lost) = floor(exp - unit);
    if count >= 1 << 25 {
        lost |= count % 2 == 1;
        count /= 2;
        unit += 1;
    }
    let significand = count / 2;
    let up = count % 2 == 1 && (lost || significand % 2 == 1);

    // The significand's leading bit adds one to the exponent field, and so does a carry out of
    // the rounding; a subnormal has neither.
    let field = (unit + 1 - LEAST).unsigned_abs();
    let magnitude = (field << 23) + significand + u64::from(up);
    let magnitude = u32::try_from(magnitude).map_or(INFINITY, |bits| bits.min(INFINITY));
    if negative && magnitude != 0 {
        SIGN | magnitude
    } else {
        magnitude
    }
}

/// f32 bits rounded to bf16, returned as the f32 bits of the same value: ties to even, overflow
/// to infinity; every NaN becomes [`NAN`]. SPEC V.3.
pub fn round_bf16(bits: u32) -> u32 {
    if is_nan(bits) {
        return NAN;
    }
    let (kept, rest) = (bits >> 16, bits & 0xFFFF);
    let up = rest > 0x8000 || (rest == 0x8000 && kept % 2 == 1);
    (kept + u32::from(up)) << 16
}

/// Whether these f32 bits are a NaN of any sign and payload.
pub fn is_nan(bits: u32) -> bool {
    bits & !SIGN > INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(num: u64, den: u64, exp: i64) -> u32 {
        let bits = round_f32(false, &num.into(), &den.into(), exp);
        assert_eq!(bits, round_small(false, num.into(), den, exp));
        bits
    }

    #[test]
    fn machine_integers_give_what_big_ones_give() {
        let mut state = 1u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 1 >> (state % 63)
        };
        for _ in 0..20_000 {
            let num = u128::from(draw()) << (draw() % 65) | u128::from(draw());
            let (den, exp) = (draw() | 1, (draw() % 600) as i64 - 400);
            let (big_num, big_den) = (num.into(), den.into());
            let big = round_f32(true, &big_num, &big_den, exp);
            assert_eq!(round_small(true, num, den, exp), big, "{num} {den} {exp}");
            for shift in [exp, exp / 4, exp / 16] {
                let big = floor_ratio(&big_num, &big_den, shift);
                assert_eq!(floor_small(num, den, shift), big, "{num} {den} {shift}");
            }
        }
    }

    #[test]
    fn whole_numbers_are_kept() {
        for x in [1u32, 2, 3, 448, 1 << 23, (1 << 24) - 1, 1 << 24] {
            assert_eq!(round(x.into(), 1, 0), (x as f32).to_bits());
        }
        assert_eq!(
            round_f32(true, &3u32.into(), &4u32.into(), 0),
            (-0.75f32).to_bits()
        );
    }

    #[test]
    fn ties_go_to_the_even_neighbour() {
        // 2^24 + 1 is halfway between 2^24 (even) and 2^24 + 2 (odd); 2^24 + 3 the other way.
        assert_eq!(round((1 << 24) + 1, 1, 0), 16_777_216f32.to_bits());
        assert_eq!(round((1 << 24) + 3, 1, 0), 16_777_220f32.to_bits());
        // A hair off the tie decides it.
        assert_eq!(
            round((1 << 44) + (1 << 20) + 1, 1, -20),
            16_777_218f32.to_bits()
        );
        assert_eq!(
            round((1 << 44) + (1 << 20) - 1, 1, -20),
            16_777_216f32.to_bits()
        );
        // The deciding bit may be the second one below the significand.
        assert_eq!(round((1 << 25) + 3, 1, 0), 33_554_436f32.to_bits());
        assert_eq!(round((1 << 25) + 1, 1, 0), 33_554_432f32.to_bits());
        // A tie that carries into the next binade.
        assert_eq!(round((1 << 25) - 1, 1, 0), 33_554_432f32.to_bits());
    }

    /// SPEC V.6.
    #[test]
    fn ratios_are_rounded_once() {
        assert_eq!(round(1, 3, 0), (1.0f32 / 3.0).to_bits());
        assert_eq!(round(2, 3, 0), (2.0f32 / 3.0).to_bits());
        assert_eq!(round(1, 3, -149), 0);
        assert_eq!(round(2, 3, -149), 1);
    }

    #[test]
    fn underflow_is_gradual() {
        assert_eq!(round(1, 1, -149), 1);
        assert_eq!(round(1, 1, -150), 0); // tie between 0 and 1, even is 0
        assert_eq!(round(3, 1, -150), 2); // tie between 1 and 2, even is 2
        assert_eq!(round((1 << 30) + 1, 1, -180), 1);
        assert_eq!(round((1 << 30) - 1, 1, -180), 0);
        assert_eq!(round(1, 1, -1000), 0);
        assert_eq!(round((1 << 23) - 1, 1, -149), 0x007F_FFFF);
        assert_eq!(round((1 << 24) - 1, 1, -150), 0x0080_0000); // up into the normals
        assert_eq!(round((1 << 24) + 1, 1, -150), 0x0080_0000);
    }

    #[test]
    fn overflow_starts_at_the_tie_above_the_largest() {
        assert_eq!(round((1 << 24) - 1, 1, 104), 0x7F7F_FFFF);
        assert_eq!(round((1 << 25) - 1, 1, 103), INFINITY);
        assert_eq!(round((1 << 45) - (1 << 20) - 1, 1, 83), 0x7F7F_FFFF);
        assert_eq!(round(1, 1, 128), INFINITY);
        assert_eq!(round(1, 1, 100_000), INFINITY);
        let minus = round_f32(true, &1u32.into(), &1u32.into(), 128);
        assert_eq!(minus, SIGN | INFINITY);
    }

    /// SPEC V.4.
    #[test]
    fn zero_has_no_sign() {
        assert_eq!(round_f32(true, &0u32.into(), &7u32.into(), 500), 0);
        assert_eq!(round_f32(true, &1u32.into(), &1u32.into(), -500), 0);
    }

    /// An f64 quotient of two f32 values is too fine to spoil the rounding to f32 after it, so
    /// the machine's arithmetic is a second opinion here.
    #[test]
    fn agrees_with_machine_division() {
        let mut state = 1u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) + 1
        };
        for step in 0..20_000 {
            let (num, den, exp) = (draw(), draw(), step % 300 - 155);
            let machine = num as f64 / den as f64 * 2f64.powi(exp);
            assert_eq!(round(num, den, exp.into()), (machine as f32).to_bits());
        }
    }

    #[test]
    fn bf16_is_half_even_and_keeps_nan() {
        for (bits, rounded) in [
            (0, 0),
            (SIGN, SIGN),
            (0x0000_8000, 0),
            (0x0000_8001, 0x0001_0000),
            (0x7F7F_7FFF, 0x7F7F_0000),
            (0x7F7F_8000, INFINITY),
            (0xFF7F_FFFF, SIGN | INFINITY),
            (INFINITY, INFINITY),
            (0xFF80_0001, NAN),
        ] {
            assert_eq!(round_bf16(bits), rounded, "{bits:#010X}");
        }
    }

    #[test]
    fn br_93_bf16_ties_and_low_payload_nan() {
        assert_eq!(round_bf16(0x3F80_8001), 0x3F81_0000);
        assert_eq!(round_bf16(0x3F80_8000), 0x3F80_0000);
        assert_eq!(round_bf16(0x3F81_8000), 0x3F82_0000);
        assert!(is_nan(round_bf16(0x7F80_0001)));
    }
}
