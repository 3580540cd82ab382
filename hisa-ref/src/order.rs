//! The total order on scores: value descending, zeros equal, NaN after -inf (SPEC V.5).

/// Integer that sorts as the spec orders scores: larger ranks first. Both zeros map to one
/// number and every NaN to 0, below `-inf`.
///
/// `f32::total_cmp` would not do: it splits the zeros and puts NaN above +inf (BR-32, BR-112).
#[must_use]
pub const fn rank_key(score: f32) -> u32 {
    if score.is_nan() {
        return 0;
    }
    let bits = score.to_bits();
    if bits << 1 == 0 {
        return 0x8000_0000;
    }
    if bits >> 31 == 0 {
        bits | 0x8000_0000
    } else {
        !bits
    }
}

/// Scalar definition of the order: `Less` where `a` ranks before `b`, judged by value alone.
#[must_use]
pub fn compare_scores(a: f32, b: f32) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => std::cmp::Ordering::Equal,
        (true, false) => std::cmp::Ordering::Greater,
        (false, true) => std::cmp::Ordering::Less,
        (false, false) => {
            if a > b {
                std::cmp::Ordering::Less
            } else if a < b {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integer_key_agrees_with_the_comparison() {
        let values = [
            f32::INFINITY,
            f32::MAX,
            1.0,
            f32::from_bits(0x3F7F_FFFF),
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            0.0,
            -0.0,
            f32::from_bits(0x8000_0001),
            -1.0,
            f32::MIN,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::from_bits(0xFF80_0001),
            f32::from_bits(0x7FFF_FFFF),
        ];
        for a in values {
            for b in values {
                assert_eq!(
                    compare_scores(a, b),
                    rank_key(b).cmp(&rank_key(a)),
                    "{a:?} {b:?}"
                );
            }
        }
    }

    /// SPEC V.4 and V.5.
    #[test]
    fn br_32_zeros_are_equal_and_nan_is_last() {
        assert_eq!(rank_key(0.0), rank_key(-0.0));
        assert!(rank_key(f32::NAN) < rank_key(f32::NEG_INFINITY));
        assert!(rank_key(-f32::NAN) < rank_key(f32::NEG_INFINITY));
    }
}
