//! The one order of scores: higher first, NaN after `-inf`, both zeros equal.

use std::cmp::Reverse;

use super::round::{SIGN, is_nan};

/// Rank of f32 bits: a higher rank is a better score, equal ranks tie. SPEC V.5.
pub fn rank(bits: u32) -> i64 {
    let magnitude = i64::from(bits & !SIGN);
    if is_nan(bits) {
        i64::MIN
    } else if bits & SIGN == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// Sort key of a candidate: ascending keys put the best score first, ties by lower `id`.
pub(super) fn best_first(score: f32, id: usize) -> (Reverse<i64>, usize) {
    (Reverse(rank(score.to_bits())), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_then_nan() {
        let falling = [
            f32::INFINITY,
            f32::MAX,
            1.0,
            f32::from_bits(1),
            0.0,
            -f32::from_bits(1),
            -1.0,
            f32::MIN,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        for pair in falling.windows(2) {
            assert!(
                rank(pair[0].to_bits()) > rank(pair[1].to_bits()),
                "{pair:?}"
            );
        }
    }

    #[test]
    fn br_32_zeros_tie_and_so_do_all_nans() {
        assert_eq!(rank(0.0f32.to_bits()), rank((-0.0f32).to_bits()));
        assert_eq!(rank(0x7F80_0001), rank(0xFFFF_FFFF));
        assert!(best_first(-0.0, 1) < best_first(0.0, 2));
        assert!(best_first(0.0, 1) < best_first(-0.0, 2));
    }
}
