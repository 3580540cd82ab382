//! From dots to scores: the sum over heads in f64, its error interval, and the last rounding.
//!
//! # The interval
//!
//! Let `u = 2^-53`, and let `t_h = |w_h| * max(0, dot_h)` be the terms of the n packed heads. Dots
//! and factors enter exactly, so a term suffers at most one rounding, of its product, and then at
//! most n of additions. All terms of one sign are added by themselves: the computed sums of the
//! positive and the negative ones, `P'` and `N'`, therefore satisfy
//! `|P' - P| <= g P` and `|N' - N| <= g N` with `g = (n+1)u / (1 - (n+1)u)`. Fusing a
//! multiplication with its addition only removes roundings.
//!
//! The score before its rounding is `s = f (P - N)` with an exact key factor `f`. Subtraction and
//! product add a relative `2u`, forming either end `x -+ e` another `u` of `|x| + e`, and `P + N`
//! exceeds `P' + N'` by at most the factor `1 + 2(n+1)u`. With `e = c |f| (P' + N')`, itself
//! computed with three roundings, `c = (n + 16) u` covers `n + 4` first-order terms and leaves
//! twelve `u` for those of higher order, which stay below one `u` for n up to 2^16. Nothing
//! underflows or overflows: nonzero products are multiples of 2^-149 * 2^-44, factors at least
//! 2^-167, all sums below 2^400.
//!
//! Rounding to f32 is monotonic. Where both ends give one f32, it is the score; elsewhere the
//! scalar definition decides. `P' + N' = 0` means that every term is zero: the interval is a
//! point, and the score `+0.0`.

use super::kernel::{head_rest_dots, rest_rest_dots};
use super::keys::{LANES, Lanes, Panel};
use super::row::PackedRow;
use fearless_simd::{Simd, SimdBase, f64x8, i32x16, prelude::*};
use std::ops::Range;

/// Sixteen numbers, one per key of a panel.
#[derive(Debug, Clone, Copy)]
struct Wide<S: Simd>([f64x8<S>; 2]);

impl<S: Simd> Wide<S> {
    #[inline(always)]
    fn zero(simd: S) -> Self {
        Self([f64x8::splat(simd, 0.0); 2])
    }

    #[inline(always)]
    fn from_dots(simd: S, dots: i32x16<S>) -> Self {
        let dots: [i32; LANES] = dots.into();
        let half = |at| f64x8::simd_from(simd, std::array::from_fn(|i| f64::from(dots[at + i])));
        Self([half(0), half(8)])
    }

    #[inline(always)]
    fn from_array(simd: S, values: &[f64; LANES]) -> Self {
        let [low, high] = values.as_chunks::<8>().0 else {
            return Self::zero(simd);
        };
        Self([f64x8::simd_from(simd, *low), f64x8::simd_from(simd, *high)])
    }

    /// `self + a * b`, fused or not.
    #[inline(always)]
    fn add_product(&mut self, a: Self, b: Self) {
        for ((sum, a), b) in self.0.iter_mut().zip(a.0).zip(b.0) {
            *sum = a.mul_add(b, *sum);
        }
    }

    #[inline(always)]
    fn splat(simd: S, value: f64) -> Self {
        Self([f64x8::splat(simd, value); 2])
    }

    #[inline(always)]
    fn relu(self, simd: S) -> Self {
        Self(self.0.map(|half| half.max(f64x8::splat(simd, 0.0))))
    }
}

/// Running sums of one panel: positive terms, and negated negative ones.
#[derive(Debug)]
pub(super) struct HeadSums<S: Simd> {
    positive: Wide<S>,
    negative: Wide<S>,
}

impl<S: Simd> HeadSums<S> {
    #[inline(always)]
    pub(super) fn new(simd: S) -> Self {
        Self {
            positive: Wide::zero(simd),
            negative: Wide::zero(simd),
        }
    }

    /// Adds the heads `first .. first + dots.len()` of `row`, whose dots with the panel's `main`
    /// are given, and with its `rest` where it has one.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        simd: S,
        row: &PackedRow<'_>,
        panel: Panel<'_>,
        first: usize,
        (dots, rest_dots): (&[Lanes], Option<&[Lanes]>),
    ) {
        let mut start = first;
        for (segment, &end) in row.ends.iter().enumerate() {
            let end = end.min(first + dots.len());
            if start >= end {
                continue;
            }
            let sum = if segment % 2 == 0 {
                &mut self.positive
            } else {
                &mut self.negative
            };
            let (heads, local) = (start..end, start - first..end - first);
            let factors = &row.factors[heads.clone()];
            let rest_dots = rest_dots.map(|rest_dots| &rest_dots[local.clone()]);
            match (segment < 2, rest_dots, panel.rest) {
                (true, None, _) | (true, _, None) => add_plain(simd, sum, &dots[local], factors),
                (true, Some(rest_dots), Some(rest)) => {
                    let inverse = Wide::from_array(simd, &rest.inverse);
                    let dots = dots[local].iter().zip(rest_dots);
                    for ((dots, rest_dots), &factor) in dots.zip(factors) {
                        let mut dot = wide(simd, dots);
                        dot.add_product(wide(simd, rest_dots), inverse);
                        sum.add_product(dot.relu(simd), Wide::splat(simd, factor));
                    }
                }
                (false, ..) => {
                    add_heads_with_rest(simd, sum, row, panel, heads, &dots[local], rest_dots)
                }
            }
            start = end;
        }
    }

    /// Both ends of the interval of every key, rounded to f32; equal ends are the score.
    #[inline(always)]
    pub(super) fn ends(self, factors: &[f64; LANES], bound: f64) -> [[f32; LANES]; 2] {
        let mut ends = [[0.0; LANES]; 2];
        let [positive, negative] = [self.positive, self.negative].map(|sum| {
            let mut out = [0.0; LANES];
            sum.0[0].store_slice(&mut out[..8]);
            sum.0[1].store_slice(&mut out[8..]);
            out
        });
        for lane in 0..LANES {
            let (p, n, factor) = (positive[lane], negative[lane], factors[lane]);
            let score = (p - n) * factor;
            let error = (p + n) * factor.abs() * bound;
            ends[0][lane] = (score - error) as f32;
            ends[1][lane] = (score + error) as f32;
        }
        ends
    }
}

/// `c` of the module, for the row's number of heads.
pub(super) fn error_bound(row: &PackedRow<'_>) -> f64 {
    (row.heads() + 16) as f64 * (f64::EPSILON / 2.0)
}

#[inline(always)]
fn wide<S: Simd>(simd: S, dots: &Lanes) -> Wide<S> {
    Wide::from_dots(simd, i32x16::simd_from(simd, dots.0))
}

/// Heads and keys without `rest`: the dot with `main` is the whole of it.
#[inline(always)]
fn add_plain<S: Simd>(simd: S, sum: &mut Wide<S>, dots: &[Lanes], factors: &[f64]) {
    for (dots, &factor) in dots.iter().zip(factors) {
        let dots = i32x16::simd_from(simd, dots.0).max(i32x16::splat(simd, 0));
        sum.add_product(Wide::from_dots(simd, dots), Wide::splat(simd, factor));
    }
}

/// Heads that have a `rest`.
///
/// In units of `2^(shifts of head and key)` the dot is `main.main + main.rest * 2^-key +
/// rest.main * 2^-head + rest.rest * 2^-(key+head)`. Each part and each partial sum is an integer
/// below 2^53 times the last of these powers, so f64 holds it exactly in any order.
#[inline(always)]
fn add_heads_with_rest<S: Simd>(
    simd: S,
    sum: &mut Wide<S>,
    row: &PackedRow<'_>,
    panel: Panel<'_>,
    heads: Range<usize>,
    dots: &[Lanes],
    rest_dots: Option<&[Lanes]>,
) {
    for (index, (head, dots)) in heads.zip(dots).enumerate() {
        let (words, inverse) = row.rest(head);
        let mut dot = wide(simd, dots);
        let mut low = Wide::from_dots(simd, head_rest_dots(simd, panel.lanes, words));
        if let (Some(rest), Some(rest_dots)) = (panel.rest, rest_dots) {
            let key_inverse = Wide::from_array(simd, &rest.inverse);
            dot.add_product(wide(simd, &rest_dots[index]), key_inverse);
            let lowest = rest_rest_dots(simd, &rest.positions, &rest.lanes, words);
            low.add_product(Wide::from_dots(simd, lowest), key_inverse);
        }
        dot.add_product(low, Wide::splat(simd, inverse));
        sum.add_product(dot.relu(simd), Wide::splat(simd, row.factors[head]));
    }
}
