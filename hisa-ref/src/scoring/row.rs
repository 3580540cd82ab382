//! Query rows in the order the kernel reads them.

use super::keys::power_of_two;
use super::limbs::{Limbs, QUERY_LIMIT, RowSplitter};
use crate::fp8::E4M3;
use crate::input::Queries;
use fearless_simd::{Level, dispatch};

/// Query heads per group of the packed row.
pub(super) const GROUP: usize = 16;
/// Query heads that every SIMD level can take at once.
pub(super) const QUAD: usize = 4;

/// What a packed row can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RowClass {
    /// Fit for the kernel.
    #[default]
    Packed,
    /// A NaN code or weight: every score is NaN.
    NaN,
    /// An infinite weight, or a head too wide for its limbs: only the definition may answer.
    Definition,
}

/// One query row repacked for scoring; a reusable buffer (SPEC S).
///
/// Heads of zero weight contribute exactly nothing and are left out. The others are reordered,
/// which the spec allows because it adds real numbers: heads without `rest` first, and within
/// either part positive weights before negative ones. That gives four segments without branches,
/// and the sums of positive and of negative terms whose total is the magnitude of the sum.
#[derive(Debug, Default, Clone)]
pub struct PackedRow<'q> {
    pub(super) codes: &'q [E4M3],
    pub(super) weights: &'q [f32],
    pub(super) class: RowClass,
    pub(super) head_dim: usize,
    /// ceil(D/2).
    pairs: usize,
    /// Ends of the segments `+`, `-`, `+ with rest`, `- with rest`, counted in packed heads.
    pub(super) ends: [usize; 4],
    /// [ceil(heads/16)][ceil(D/2)], one word of two `i16` per head. Past the last head comes
    /// anything: those dots are not used.
    groups: Vec<[i32; GROUP]>,
    /// `|weight| * 2^shift` of every packed head, exact.
    pub(super) factors: Vec<f64>,
    /// `rest` of the heads from `ends[1]` on.
    rests: Vec<HeadRest>,
    /// Position and word of every nonzero word of `rest`, by head.
    rest_words: Vec<(u32, i32)>,
    splitter: RowSplitter,
    main: Vec<i32>,
    heads: Vec<Head>,
}

/// Where a head's `rest` lies among the words.
#[derive(Debug, Clone, Copy, Default)]
struct HeadRest {
    start: usize,
    end: usize,
    /// `2^-shift`.
    inverse: f64,
}

/// A head between splitting and placing.
#[derive(Debug, Clone, Copy)]
struct Head {
    segment: usize,
    factor: f64,
    rest: HeadRest,
}

impl<'q> PackedRow<'q> {
    /// Replaces the content by row `row` of `queries`, which must exist.
    pub(crate) fn pack_unchecked(&mut self, queries: &'q Queries<'_>, row: usize) {
        self.pack_at(Level::new(), queries, row);
    }

    pub(super) fn pack_at(&mut self, level: Level, queries: &'q Queries<'_>, row: usize) {
        self.codes = queries.row(row);
        self.weights = queries.row_weights(row);
        let d = queries.head_dim();
        (self.head_dim, self.pairs) = (d, d.div_ceil(2));
        self.class = dispatch!(level, _ => self.split_heads(d));
        if self.class == RowClass::Packed {
            dispatch!(level, _ => self.place_heads());
        }
    }

    /// Heads in the given order: `main`, segment, factor and `rest` of each.
    #[inline(always)]
    fn split_heads(&mut self, d: usize) -> RowClass {
        self.heads.clear();
        self.main.clear();
        self.rest_words.clear();
        let mut class = RowClass::Packed;
        for (codes, &weight) in self.codes.chunks_exact(d).zip(self.weights) {
            let limbs = self.splitter.split(codes, QUERY_LIMIT);
            if limbs == Limbs::NaN || weight.is_nan() {
                return RowClass::NaN;
            }
            let Limbs::Fit { shift, has_rest } = limbs else {
                class = RowClass::Definition;
                continue;
            };
            if weight.is_infinite() {
                class = RowClass::Definition;
            }
            if weight == 0.0 {
                continue;
            }
            let start = self.rest_words.len();
            if has_rest {
                let words = self.splitter.rest(shift);
                self.rest_words
                    .extend(words.map(|(position, word)| (position as u32, word)));
            }
            let end = self.rest_words.len();
            self.main.extend_from_slice(self.splitter.main());
            self.heads.push(Head {
                segment: usize::from(weight < 0.0) + 2 * usize::from(has_rest),
                factor: f64::from(weight.abs()) * power_of_two(shift as i32),
                rest: HeadRest {
                    start,
                    end,
                    inverse: power_of_two(-(shift as i32)),
                },
            });
        }
        class
    }

    /// Heads by segment, their words spread over the groups.
    #[inline(always)]
    fn place_heads(&mut self) {
        let count = self.heads.len();
        let mut next = [0; 4];
        for head in &self.heads {
            next[head.segment] += 1;
        }
        let mut total = 0;
        for (slot, end) in next.iter_mut().zip(&mut self.ends) {
            let start = total;
            total += *slot;
            (*slot, *end) = (start, total);
        }
        self.groups
            .resize(count.div_ceil(GROUP) * self.pairs, [0; GROUP]);
        self.factors.resize(count, 0.0);
        self.rests.resize(count - self.ends[1], HeadRest::default());
        for (head, main) in self.heads.iter().zip(self.main.chunks_exact(self.pairs)) {
            let place = next[head.segment];
            next[head.segment] += 1;
            self.factors[place] = head.factor;
            if place >= self.ends[1] {
                self.rests[place - self.ends[1]] = head.rest;
            }
            let group = &mut self.groups[place / GROUP * self.pairs..][..self.pairs];
            for (words, &word) in group.iter_mut().zip(main) {
                words[place % GROUP] = word;
            }
        }
    }

    /// Number of packed heads.
    #[inline(always)]
    pub(super) fn heads(&self) -> usize {
        self.factors.len()
    }

    /// The words of every sixteen heads, one vector per pair position.
    #[inline(always)]
    pub(super) fn groups(&self) -> impl Iterator<Item = &[[i32; GROUP]]> {
        self.groups.chunks_exact(self.pairs)
    }

    /// `rest` of a packed head, as positions and words, and its `2^-shift`.
    #[inline(always)]
    pub(super) fn rest(&self, head: usize) -> (&[(u32, i32)], f64) {
        let rest = self.rests[head - self.ends[1]];
        (&self.rest_words[rest.start..rest.end], rest.inverse)
    }
}
