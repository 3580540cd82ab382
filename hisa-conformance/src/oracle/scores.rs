//! The scoring rule, and the stages that apply it: `block_scores`, `token_scores` and the flat
//! scores of `dsa`.

use super::e4m3;
use super::real::Real;
use super::round::{LEAST, NAN, round_small};
use super::small::{Parts, least_shift, sum_of_products};
use super::windows::{window_blocks, window_keys};
use super::{OracleInput, OracleParams};

/// Scores of each row against the pooled keys `[Nb, D]` with their scales `[Nb]`: `[M, Nb]`,
/// `-inf` outside the row's block window. SPEC 3.0 to 3.3.
pub fn block_scores(
    input: &OracleInput,
    params: &OracleParams,
    pooled_k: &[u8],
    pooled_scale: &[f32],
) -> Vec<f32> {
    let scorer = Scorer::new(input, pooled_k, pooled_scale);
    let mut scores = Vec::new();
    for (row, &window) in input.windows.iter().enumerate() {
        let blocks = window_blocks(window, params.block_size);
        scores.extend((0..pooled_scale.len()).map(|block| {
            if blocks.contains(&block) {
                scorer.score(row, block)
            } else {
                f32::NEG_INFINITY
            }
        }));
    }
    scores
}

/// Scores of each row against the keys of its selected blocks `block_ids` `[M, m]`: `[M, m * B]`.
/// Slot `t * B + i` is key `block_ids[t] * B + i`; `-inf` where there is no block and where the
/// key is outside the row's window. SPEC 6.0 to 6.2.
pub fn token_scores(input: &OracleInput, params: &OracleParams, block_ids: &[i32]) -> Vec<f32> {
    let scorer = Scorer::new(input, &input.k, &input.k_scale);
    let mut scores = Vec::new();
    for (row, &window) in input.windows.iter().enumerate() {
        let keys = window_keys(window);
        for slot in 0..params.slots() {
            let key = params
                .slot_key(row, slot, block_ids)
                .filter(|key| keys.contains(key));
            scores.push(key.map_or(f32::NEG_INFINITY, |key| scorer.score(row, key)));
        }
    }
    scores
}

/// Scores of each row against every key: `[M, N]`, `-inf` outside the row's window. SPEC 9.2.
pub fn flat_scores(input: &OracleInput) -> Vec<f32> {
    let scorer = Scorer::new(input, &input.k, &input.k_scale);
    let mut scores = Vec::new();
    for (row, &window) in input.windows.iter().enumerate() {
        let keys = window_keys(window);
        scores.extend((0..input.n).map(|key| {
            if keys.contains(&key) {
                scorer.score(row, key)
            } else {
                f32::NEG_INFINITY
            }
        }));
    }
    scores
}

/// Everything the rule needs, decoded once.
struct Scorer<'a> {
    heads: usize,
    /// Query vectors, `heads` for each row.
    queries: Vectors,
    /// `[M, H]`.
    weights: &'a [f32],
    /// For each row the least shift of its weights, and their parts; none if one is not finite.
    short_weights: Vec<Option<(u32, Vec<Parts>)>>,
    keys: Vectors,
    /// One for each key.
    scales: &'a [f32],
}

impl<'a> Scorer<'a> {
    fn new(input: &'a OracleInput, keys: &[u8], scales: &'a [f32]) -> Self {
        let short = |row| {
            let parts = Parts::of_all(row)?;
            Some((least_shift(&parts), parts))
        };
        Self {
            heads: input.h,
            queries: Vectors::decode(&input.q, input.d),
            weights: &input.weights,
            short_weights: input.weights.chunks(input.h).map(short).collect(),
            keys: Vectors::decode(keys, input.d),
            scales,
        }
    }

    /// `scale * sum_h w[h] * max(0, q[h] . key)` in extended reals, rounded once.
    /// SPEC S.1 to S.7, V.8.
    fn score(&self, row: usize, key: usize) -> f32 {
        let heads = row * self.heads..(row + 1) * self.heads;
        if heads.clone().any(|head| self.queries.has_nan[head]) || self.keys.has_nan[key] {
            return f32::from_bits(NAN);
        }
        let relus = heads.map(|head| std::cmp::max(self.queries.dot(head, &self.keys, key), 0));
        self.short_score(row, key, relus.clone())
            .unwrap_or_else(|| self.long_score(row, key, relus))
    }

    /// `None` where it takes more than machine integers.
    fn short_score(&self, row: usize, key: usize, relus: impl Iterator<Item = i64>) -> Option<f32> {
        let (least, weights) = self.short_weights[row].as_ref()?;
        let scale = Parts::of(self.scales[key].to_bits())?;
        let sum = sum_of_products(weights, *least, relus)?;
        let score = sum.checked_mul(scale.significand.into())?;
        let exp = UNIT + i64::from(*least) + i64::from(scale.shift);
        let bits = round_small(score < 0, score.unsigned_abs(), 1, exp);
        Some(f32::from_bits(bits))
    }

    fn long_score(&self, row: usize, key: usize, relus: impl Iterator<Item = i64>) -> f32 {
        let weights = self.weights[row * self.heads..].iter();
        let weights = weights.map(|&weight| Real::from_f32(weight));
        let terms = weights
            .zip(relus)
            .map(|(weight, relu)| weight.times(&Real::int(relu)));
        let sum = terms.fold(Real::zero(), Real::plus);
        let score = sum.times(&Real::from_f32(self.scales[key]));
        score.over_to_f32(1, UNIT)
    }
}

/// A product of weight, query, key and scale counts units of two to this.
const UNIT: i64 = 2 * LEAST + 2 * e4m3::UNIT;

/// Decoded e4m3 vectors of equal length.
struct Vectors {
    d: usize,
    /// In units of `2^-9`; zero where the code is NaN.
    units: Vec<i32>,
    /// Whether a vector has a NaN code.
    has_nan: Vec<bool>,
}

impl Vectors {
    fn decode(codes: &[u8], d: usize) -> Self {
        let has_nan = |vector: &[u8]| vector.iter().any(|&code| e4m3::decode(code).is_none());
        Self {
            d,
            units: codes
                .iter()
                .map(|&code| e4m3::decode(code).unwrap_or(0))
                .collect(),
            has_nan: codes.chunks_exact(d).map(has_nan).collect(),
        }
    }

    fn units(&self, index: usize) -> &[i32] {
        &self.units[index * self.d..(index + 1) * self.d]
    }

    /// Dot product in units of `2^-18`, of vectors without NaN. A product is below `2^36`, so
    /// that fewer than `2^27` of them cannot overflow.
    fn dot(&self, index: usize, other: &Self, other_index: usize) -> i64 {
        let pairs = self.units(index).iter().zip(other.units(other_index));
        pairs.map(|(&a, &b)| i64::from(a) * i64::from(b)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::e4m3::{Overflow, encode_f32};

    const INF: f32 = f32::INFINITY;

    fn codes(row: &[f32]) -> Vec<u8> {
        row.iter()
            .map(|x| encode_f32(x.to_bits(), Overflow::Saturating))
            .collect()
    }

    /// Scores of one row of `weights.len()` query vectors against `scales.len()` keys.
    fn scores(q: &[f32], weights: &[f32], k: &[f32], scales: &[f32]) -> Vec<f32> {
        score_codes(codes(q), weights, codes(k), scales)
    }

    fn score_codes(q: Vec<u8>, weights: &[f32], k: Vec<u8>, scales: &[f32]) -> Vec<f32> {
        flat_scores(&OracleInput {
            m: 1,
            n: scales.len(),
            h: weights.len(),
            d: q.len() / weights.len(),
            q,
            k,
            k_scale: scales.to_vec(),
            weights: weights.to_vec(),
            windows: vec![(0, scales.len() as i32)],
        })
    }

    fn bits(scores: &[f32]) -> Vec<u32> {
        scores.iter().map(|score| score.to_bits()).collect()
    }

    #[test]
    fn br_87_negative_heads_do_not_count() {
        let identity = [1.0, 0.0, 0.0, 1.0];
        let k = [3.0, -2.0, 2.0, 0.0];
        assert_eq!(scores(&identity, &[1.0, 1.0], &k, &[1.0, 1.0]), [3.0, 2.0]);
    }

    /// SPEC S.1 and S.4.
    #[test]
    fn weights_of_either_sign_are_summed_exactly() {
        let q = [1.0, 1.0, 1.0];
        let tiny = f32::from_bits(1);
        assert_eq!(
            scores(&q, &[f32::MAX, tiny, -f32::MAX], &[1.0], &[1.0]),
            [tiny]
        );
        assert_eq!(
            scores(&q, &[f32::MAX, 0.0, f32::MAX], &[1.0], &[0.5]),
            [f32::MAX]
        );
        assert_eq!(
            scores(&q, &[f32::MAX, 0.0, f32::MAX], &[1.0], &[1.0]),
            [INF]
        );
    }

    #[test]
    fn br_33_zero_scores_have_no_sign() {
        let zero = [0u32, 0];
        assert_eq!(
            bits(&scores(&[-0.0], &[-1.0], &[1.0, -1.0], &[1.0, 1.0])),
            zero
        );
        assert_eq!(
            bits(&scores(&[1.0], &[-1.0], &[1.0, 1.0], &[0.0, -0.0])),
            zero
        );
        let tiny = f32::from_bits(1);
        assert_eq!(
            bits(&scores(&[1.0], &[-0.25], &[1.0, 1.0], &[tiny, tiny])),
            zero
        );
    }

    #[test]
    fn br_88_the_scale_is_outside_the_relu() {
        let k = [1.0, -1.0, -1.0, 0.0, 1.0];
        let row = scores(&[1.0], &[1.0], &k, &[-1.0, -1.0, f32::NAN, INF, -INF]);
        assert_eq!(row[..2], [-1.0, 0.0]);
        assert_eq!(bits(&row[2..]), [NAN, NAN, (-INF).to_bits()]);
    }

    #[test]
    fn special_weights_follow_ieee() {
        let q = [1.0, 1.0];
        let one = |weights: &[f32], k: f32| scores(&q, weights, &[k], &[1.0])[0].to_bits();
        assert_eq!(one(&[INF, 1.0], 1.0), INF.to_bits());
        assert_eq!(one(&[-INF, 1.0], 1.0), (-INF).to_bits());
        assert_eq!(one(&[INF, -INF], 1.0), NAN);
        assert_eq!(one(&[INF, 1.0], -1.0), NAN); // inf * ReLU(-1)
        assert_eq!(one(&[-f32::NAN, 1.0], 0.0), NAN);
    }

    #[test]
    fn a_nan_code_makes_the_score_nan() {
        let k = vec![0x38, 0x38, 0xFF, 0x38];
        let row = score_codes(vec![0x38, 0xB8], &[0.0], k, &[1.0, 1.0]);
        assert_eq!(bits(&row), [0, NAN]);
        let row = score_codes(
            vec![0x38, 0x38, 0x7F, 0x38],
            &[1.0, 0.0],
            vec![0xB8; 2],
            &[1.0],
        );
        assert_eq!(bits(&row), [NAN]);
    }

    #[test]
    fn br_91_the_dot_is_exact() {
        let mut q = vec![2.0; 32];
        let mut k = vec![2.0; 64];
        (q[0], q[1], k[0], k[1]) = (448.0, 448.0, 448.0, -448.0);
        (k[32..64]).fill(1.0);
        (k[32], k[33]) = (0.0, 0.0);
        assert_eq!(scores(&q, &[1.0], &k, &[1.0, 1.0]), [120.0, 60.0]);
    }

    #[test]
    fn br_92_weights_keep_their_precision() {
        let w = 1.0 + 2f32.powi(-9);
        let identity = [1.0, 0.0, 0.0, 1.0];
        let k = [0.0, 1.0, 1.0, 0.0];
        assert_eq!(scores(&identity, &[w, 1.0], &k, &[1.0, 1.0]), [1.0, w]);
    }

    #[test]
    fn br_101_heads_without_weight_change_nothing() {
        let row = scores(
            &[1.5, 7.0, -3.0],
            &[0.3, 0.0, 0.0],
            &[5.0, -1.0],
            &[0.1, 2.0],
        );
        assert_eq!(row, scores(&[1.5], &[0.3], &[5.0, -1.0], &[0.1, 2.0]));
    }

    #[test]
    fn subnormal_scores_are_gradual() {
        // 3 * 2^-150 is a tie between one and two units of 2^-149.
        assert_eq!(
            bits(&scores(
                &[3.0],
                &[2f32.powi(-75)],
                &[1.0],
                &[2f32.powi(-75)]
            )),
            [2]
        );
    }
}
