//! Keys that pool without loss, so that a program can say what a block's score is.

use super::codes::encode;
use hisa_ref::E4M3;

/// 0, then 2^-9, 2^-5, 2^-1, 2^3, 2^7, 2^7, then zeros: hexadecimal digits for programmed blocks.
pub(super) fn basis(out: &mut [E4M3]) {
    out.fill(E4M3::ZERO);
    let powers = [0.0, 1.0 / 512.0, 1.0 / 32.0, 0.5, 8.0, 128.0, 128.0];
    for (code, power) in out.iter_mut().zip(powers) {
        *code = encode(power);
    }
}

/// Smallest D that holds a programmed block: 448 and six digits.
pub const BLOCKS_DIM_MIN: usize = 7;
/// Bits of the smallest block score that can be programmed, 2^-28, apart from zero.
pub const BLOCK_SCORE_MIN: u32 = 0x3180_0000;
/// Bits of the largest block score that can be programmed, just below 2^124.
pub const BLOCK_SCORE_MAX: u32 = 0x7D7F_FFFF;

/// True where a block can be made to have exactly this score: +0.0, or from 2^-28 to 2^124.
#[must_use]
pub const fn is_block_score(bits: u32) -> bool {
    bits == 0 || (BLOCK_SCORE_MIN <= bits && bits <= BLOCK_SCORE_MAX)
}

/// A key whose dot with a `basis` query, times the scale it returns, is exactly the f32 with
/// these bits; a block of such keys pools to the same codes and scale.
///
/// Dimension 0 is 448, so that pooling finds its scale again; dimension j of 1..=6 holds
/// hexadecimal digit j - 1 of the 24-bit significand, lowest first, in units of 2^-9 (the last
/// one 2^-5). The scale is 2^(E - 132) for the biased exponent E; 1 for the value zero.
pub(super) fn block_key(bits: u32, out: &mut [E4M3]) -> f32 {
    out.fill(E4M3::ZERO);
    if let Some(first) = out.first_mut() {
        *first = E4M3::from_bits(0x7E);
    }
    if bits == 0 {
        return 1.0;
    }
    let significand = 0x80_0000 | (bits & 0x7F_FFFF);
    for (digit, code) in out.iter_mut().skip(1).take(6).enumerate() {
        let unit = if digit == 5 { 1.0 / 32.0 } else { 1.0 / 512.0 };
        *code = encode((significand >> (4 * digit) & 0xF) as f32 * unit);
    }
    f32::from_bits(((bits >> 23) - 5) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programmed_blocks_have_the_programmed_score() {
        let mut query = [E4M3::ZERO; 9];
        basis(&mut query);
        for bits in [
            0,
            0x3F80_0000,
            0x3F80_8001,
            0x3F81_8000,
            BLOCK_SCORE_MIN,
            BLOCK_SCORE_MAX,
        ] {
            assert!(is_block_score(bits));
            let mut key = [E4M3::NAN; 9];
            let scale = block_key(bits, &mut key);
            let dot: f64 = query
                .iter()
                .zip(&key)
                .map(|(q, k)| f64::from(q.to_f32() * k.to_f32()))
                .sum();
            assert_eq!(((dot * f64::from(scale)) as f32).to_bits(), bits);
        }
        assert!(!is_block_score(BLOCK_SCORE_MAX + 1) && !is_block_score(1));
    }
}
