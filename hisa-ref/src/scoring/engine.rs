//! One query row against a range of keys.

use super::heads::{HeadSums, error_bound};
use super::kernel;
use super::keys::{LANES, Lanes, PackedKeys, Panel};
use super::row::{GROUP, PackedRow, QUAD, RowClass};
use super::scalar;
use crate::exact::NAN;
use fearless_simd::{Simd, dispatch};
use std::ops::Range;

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
    let mut dots = [[Lanes::ZERO; GROUP]; 2];
    let mut key = range.start;
    let mut out = out;
    while key < range.end {
        let lane = key % LANES;
        let taken = (LANES - lane).min(range.end - key);
        let panel = keys.panel(key / LANES);
        let [low, high] = sum_heads(simd, row, panel, &mut dots).ends(panel.factors, bound);
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

/// Sums over all heads for one panel; `dots` is scratch space.
#[inline(always)]
fn sum_heads<S: Simd>(
    simd: S,
    row: &PackedRow<'_>,
    panel: Panel<'_>,
    [dots, rest_dots]: &mut [[Lanes; GROUP]; 2],
) -> HeadSums<S> {
    let mut sums = HeadSums::new(simd);
    for (index, group) in row.groups().enumerate() {
        let first = index * GROUP;
        let heads = (row.heads() - first).min(GROUP);
        group_dots(simd, panel.lanes, || group.iter(), heads, dots);
        if let Some(rest) = panel.rest {
            let words = || {
                rest.positions
                    .iter()
                    .map(|&position| &group[position as usize])
            };
            group_dots(simd, &rest.lanes, words, heads, rest_dots);
            sums.add(
                simd,
                row,
                panel,
                first,
                (&dots[..heads], Some(&rest_dots[..heads])),
            );
        } else {
            sums.add(simd, row, panel, first, (&dots[..heads], None));
        }
    }
    sums
}

/// Dots with the first `heads` of a group, as many at a time as there are registers for.
#[inline(always)]
fn group_dots<'a, S: Simd, I: Iterator<Item = &'a [i32; GROUP]>>(
    simd: S,
    keys: &[Lanes],
    words: impl Fn() -> I,
    heads: usize,
    out: &mut [Lanes; GROUP],
) {
    if heads == GROUP && simd.level().as_avx512().is_some() {
        return kernel::dots::<S, GROUP>(simd, keys, words(), 0, out);
    }
    for first in (0..heads).step_by(QUAD) {
        kernel::dots::<S, QUAD>(simd, keys, words(), first, out);
    }
}
