//! Stage `block_pool`: the mean key of every block, as codes and a scale.

use super::e4m3::{self, Overflow, encode_quotient};
use super::quantize::over_448;
use super::real::Real;
use super::round::{LEAST, SIGN, round_small};
use super::small::{Parts, least_shift, sum_of_products};

/// Lower clamp of a pooled scale: the f32 nearest to 1e-10.
const LEAST_SCALE: u32 = 0x2EDB_E6FF;

/// Pools keys `k` `[N, d]` with `k_scale` `[N]` in flat blocks of `block_size`: `pooled_k`
/// `[Nb, d]` and `pooled_scale` `[Nb]`. The last block holds what is left, and its mean divides
/// by that count. SPEC 2.0 to 2.7.
pub fn block_pool(k: &[u8], k_scale: &[f32], d: usize, block_size: usize) -> (Vec<u8>, Vec<f32>) {
    let mut pooled_k = Vec::new();
    let mut pooled_scale = Vec::new();
    for (keys, scales) in k
        .chunks(block_size.saturating_mul(d))
        .zip(k_scale.chunks(block_size))
    {
        let parts = Parts::of_all(scales);
        let parts = parts.map(|parts| (least_shift(&parts), parts));
        let mean = |column: usize| {
            let codes = keys.iter().skip(column).step_by(d).copied();
            let short = parts.as_ref();
            let short = short.and_then(|(least, parts)| short_mean(codes.clone(), parts, *least));
            short.unwrap_or_else(|| long_mean(codes, scales))
        };
        let means: Vec<u32> = (0..d).map(mean).collect();
        let scale = scale_of(&means);
        pooled_k.extend(
            means
                .iter()
                .map(|&x| encode_quotient(x, scale, Overflow::Saturating)),
        );
        pooled_scale.push(f32::from_bits(scale));
    }
    (pooled_k, pooled_scale)
}

/// f32 bits of the mean of `code * scale`; `None` where it takes more than machine integers.
fn short_mean(
    codes: impl Iterator<Item = u8> + Clone,
    scales: &[Parts],
    least: u32,
) -> Option<u32> {
    if codes.clone().any(|code| e4m3::decode(code).is_none()) {
        return None;
    }
    let units = codes.filter_map(e4m3::decode).map(i64::from);
    let sum = sum_of_products(scales, least, units)?;
    let exp = e4m3::UNIT + LEAST + i64::from(least);
    Some(round_small(
        sum < 0,
        sum.unsigned_abs(),
        scales.len() as u64,
        exp,
    ))
}

/// f32 bits of the mean of `code * scale` in extended reals.
fn long_mean(codes: impl Iterator<Item = u8>, scales: &[f32]) -> u32 {
    let value = |code| e4m3::decode(code).map_or(Real::Nan, |units| Real::int(units.into()));
    let values = codes.map(value).zip(scales);
    let products = values.map(|(value, &scale)| value.times(&Real::from_f32(scale)));
    let sum = products.fold(Real::zero(), Real::plus);
    sum.over_to_f32(scales.len(), e4m3::UNIT + LEAST).to_bits()
}

fn scale_of(means: &[u32]) -> u32 {
    // Without their sign, bits that are not NaN are ordered like the values, and NaN is above.
    let amax = means.iter().map(|bits| bits & !SIGN).fold(0, std::cmp::max);
    over_448(amax).max(LEAST_SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::e4m3::{decode, encode_f32};

    fn code(x: f32) -> u8 {
        encode_f32(x.to_bits(), Overflow::Saturating)
    }

    fn codes(row: &[f32]) -> Vec<u8> {
        row.iter().map(|&x| code(x)).collect()
    }

    fn scale(amax: f32) -> f32 {
        f32::from_bits(over_448(amax.to_bits()))
    }

    #[test]
    fn mean_of_scaled_keys() {
        let k = codes(&[1.0, -2.0, 3.0, 4.0, 5.0, 448.0]);
        let (pooled, scales) = block_pool(&k, &[1.0, 0.5, 2.0], 2, 2);
        // Means (1.25, 0) and (10, 896).
        assert_eq!(scales, [scale(1.25), 2.0]);
        assert_eq!(pooled, codes(&[448.0, 0.0, 5.0, 448.0]));
    }

    #[test]
    fn no_keys_no_blocks() {
        assert_eq!(block_pool(&[], &[], 3, 2), (vec![], vec![]));
    }

    #[test]
    fn br_21_a_nan_code_poisons_its_block_only() {
        let mut k = vec![code(1.0); 16 * 4];
        k[16 + 3] = 0xFF;
        let (pooled, scales) = block_pool(&k, &[1.0; 4], 16, 2);
        assert!(pooled[..16].iter().all(|&code| code == 0x7F));
        assert_eq!(scales[0].to_bits(), 0x7FC0_0000);
        assert!(pooled[16..].iter().all(|&c| c == 0x7E));
    }

    #[test]
    fn special_scales_follow_ieee() {
        let inf = f32::INFINITY;
        let k = codes(&[1.0, -1.0]);
        let pool = |k: &[u8], scales: &[f32]| {
            let (pooled, scales) = block_pool(k, scales, 2, scales.len());
            (pooled, scales[0].to_bits())
        };
        assert_eq!(pool(&k, &[inf]), (vec![0x7F, 0x7F], inf.to_bits()));
        assert_eq!(
            pool(&codes(&[1.0, 0.0]), &[inf]),
            (vec![0x7F, 0x7F], 0x7FC0_0000)
        );
        assert_eq!(pool(&k, &[f32::NAN]), (vec![0x7F, 0x7F], 0x7FC0_0000));
        // inf - inf
        assert_eq!(
            pool(&codes(&[1.0, 1.0, -1.0, 1.0]), &[inf, inf]).1,
            0x7FC0_0000
        );
        // Only the first mean overflows, the others are finite over infinity.
        let k = codes(&[448.0, -1.0]);
        assert_eq!(pool(&k, &[f32::MAX]), (vec![0x7F, 0x80], inf.to_bits()));
        // A negative scale flips the mean.
        assert_eq!(pool(&k, &[-1.0]), (codes(&[-448.0, 1.0]), 1f32.to_bits()));
    }

    #[test]
    fn br_42_a_tail_of_one_key() {
        let k = vec![code(1.0); 65];
        assert_eq!(
            block_pool(&k, &[2.0; 65], 1, 128),
            (vec![0x7E], vec![scale(2.0)])
        );
        let (pooled, scales) = block_pool(&k[..5], &[1.0, 1.0, 1.0, 1.0, 3.0], 1, 4);
        assert_eq!(
            (pooled, scales),
            (vec![0x7E, 0x7E], vec![scale(1.0), scale(3.0)])
        );
    }

    #[test]
    fn br_44_every_residue_divides_by_the_real_count() {
        for n in 1..=24usize {
            let k_scale: Vec<f32> = (1..=n).map(|i| i as f32).collect();
            let (_, scales) = block_pool(&vec![code(1.0); n], &k_scale, 1, 8);
            assert_eq!(scales.len(), n.div_ceil(8));
            let first = n.next_multiple_of(8) - 7;
            let mean = (first + n) as f32 / 2.0;
            assert_eq!(scales[scales.len() - 1], scale(mean), "{n}");
        }
    }

    #[test]
    fn br_57_blocks_ignore_sequences() {
        // Sequences of 3 and 5 keys would make three blocks of 4 if they restarted.
        let (_, scales) = block_pool(
            &[code(1.0); 8],
            &[1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0],
            1,
            4,
        );
        assert_eq!(scales, [scale(2.0), scale(1.0)]);
    }

    #[test]
    fn br_79_zero_and_cancelling_blocks() {
        let floor = f32::from_bits(LEAST_SCALE);
        for pair in [[0.0, 0.0], [1.0, -1.0]] {
            assert_eq!(
                block_pool(&codes(&pair), &[1.0, 1.0], 1, 2),
                (vec![0x00], vec![floor])
            );
        }
        assert_eq!(
            block_pool(&[code(1.0)], &[0.0], 1, 2),
            (vec![0x00], vec![floor])
        );
        // One zero key among others counts as a key.
        assert_eq!(
            block_pool(&codes(&[0.0, 1.0]), &[1.0, 1.0], 1, 2).1,
            [scale(0.5)]
        );
    }

    #[test]
    fn br_85_a_quotient_just_above_a_tie() {
        let s = f32::from_bits(0x3C75_C28F);
        let (pooled, scales) = block_pool(&codes(&[16.0, 448.0, 18.0, 448.0]), &[s, s], 2, 2);
        assert_eq!(pooled, codes(&[18.0, 448.0]));
        assert_eq!(scales[0], scale(448.0 * s));
    }

    #[test]
    fn br_89_small_scales_keep_their_precision() {
        let s = 0.0005;
        let k = codes(&[1.0, 0.0, 1.0, 0.0]);
        assert_eq!(
            block_pool(&k, &[s, s], 2, 2),
            (vec![0x7E, 0x00], vec![scale(s)])
        );
    }

    #[test]
    fn the_mean_is_rounded_to_f32_before_the_quotient() {
        // The third key moves the first mean by far less than half an ulp of 17, which is a tie.
        let k = codes(&[16.0, 448.0, 18.0, 448.0, 1.0, 0.0, 0.0, 0.0]);
        let (pooled, scales) = block_pool(&k, &[2.0, 2.0, 2f32.powi(-30), 1.0], 2, 4);
        assert_eq!((pooled[0], scales[0]), (code(16.0), 1.0));
        assert_eq!(decode(pooled[1]), Some(448 * 512));
    }
}
