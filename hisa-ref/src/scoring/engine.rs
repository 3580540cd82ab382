//! One query row against a range of keys.

use super::heads::{HeadSums, error_bound};
use super::kernel;
use super::pack::{LANES, Lanes, PackedKeys, PackedRow, Panel, QUAD, RowClass};
use super::scalar;
use crate::exact::NAN;
use fearless_simd::{Simd, dispatch};
use std::ops::Range;

/// Quads whose dots are kept at a time.
const BATCH: usize = 4;

/// `out[i]` becomes the score of `row` against key `range.start + i`, with the bits of
/// [`scalar::score`]. The range lies within the keys, `out` is as long, and D agrees.
pub(crate) fn score_keys(
    row: &PackedRow<'_>,
    keys: &PackedKeys<'_>,
    range: Range<usize>,
    out: &mut [f32],
) {
    debug_assert_eq!(range.len(), out.len());
    match row.class {
        RowClass::NaN => out.fill(NAN),
        RowClass::Definition => {
            for (key, out) in range.zip(out) {
                *out = by_definition(row, keys, key);
            }
        }
        RowClass::Packed => dispatch!(keys.level, simd => sweep(simd, row, keys, range, out)),
    }
}

/// The score as the definition gives it, with a short cut for NaN.
#[cold]
fn by_definition(row: &PackedRow<'_>, keys: &PackedKeys<'_>, key: usize) -> f32 {
    let (codes, scale) = keys.raw(key);
    if scale.is_nan() || codes.iter().any(|code| code.is_nan()) {
        return NAN;
    }
    scalar::score(row.codes, row.weights, codes, scale)
}

/// Panel by panel; the first and the last one may reach beyond the range.
#[inline(always)]
fn sweep<S: Simd>(
    simd: S,
    row: &PackedRow<'_>,
    keys: &PackedKeys<'_>,
    range: Range<usize>,
    out: &mut [f32],
) {
    let bound = error_bound(row);
    let mut key = range.start;
    let mut out = out;
    while key < range.end {
        let lane = key % LANES;
        let taken = (LANES - lane).min(range.end - key);
        let panel = keys.panel(key / LANES);
        let [low, high] = sum_heads(simd, row, panel).ends(panel.factors, bound);
        let (scores, left) = out.split_at_mut(taken);
        let mut sure = true;
        for ((score, low), high) in scores.iter_mut().zip(&low[lane..]).zip(&high[lane..]) {
            // Ends that differ leave a NaN; adding zero turns -0.0 into +0.0.
            *score = if low == high { low + 0.0 } else { f32::NAN };
            sure &= low == high;
        }
        if !sure {
            settle(row, keys, key, scores);
        }
        key += taken;
        out = left;
    }
}

/// Asks the definition for every score that is NaN, the first one being that of `key`.
#[cold]
fn settle(row: &PackedRow<'_>, keys: &PackedKeys<'_>, key: usize, scores: &mut [f32]) {
    for (key, score) in (key..).zip(scores) {
        if score.is_nan() {
            *score = by_definition(row, keys, key);
        }
    }
}

/// Sums over all heads for one panel.
#[inline(always)]
fn sum_heads<S: Simd>(simd: S, row: &PackedRow<'_>, panel: Panel<'_>) -> HeadSums<S> {
    let mut sums = HeadSums::new(simd);
    let mut dots = [[Lanes::ZERO; QUAD]; BATCH];
    let quads = row.heads().div_ceil(QUAD);
    let mut quad = 0;
    while quad < quads {
        let batch = (quads - quad).min(BATCH);
        if batch == BATCH && simd.level().as_avx512().is_some() {
            let operands = std::array::from_fn(|i| row.quad(quad + i));
            kernel::dots::<S, BATCH>(simd, panel.lanes, operands, &mut dots);
        } else {
            for (i, dots) in dots.iter_mut().enumerate().take(batch) {
                let operands = [row.quad(quad + i)];
                kernel::dots::<S, 1>(simd, panel.lanes, operands, std::array::from_mut(dots));
            }
        }
        let first = quad * QUAD;
        let heads = (row.heads() - first).min(BATCH * QUAD);
        let dots = &dots.as_flattened()[..heads];
        if let Some(rest) = panel.rest {
            let mut rest_dots = [[Lanes::ZERO; QUAD]; BATCH];
            for (i, out) in rest_dots.iter_mut().enumerate().take(batch) {
                let operand = row.quad(quad + i);
                let sums = kernel::key_rest_dots(simd, &rest.positions, &rest.lanes, operand);
                *out = sums.map(|sums| Lanes(sums.into()));
            }
            sums.add(
                simd,
                row,
                panel,
                first,
                (dots, Some(&rest_dots.as_flattened()[..heads])),
            );
        } else {
            sums.add(simd, row, panel, first, (dots, None));
        }
        quad += batch;
    }
    sums
}
