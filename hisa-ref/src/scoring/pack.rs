//! Keys and query rows in the order the kernel reads them.

use super::limbs::{KEY_LIMIT, Limbs, QUERY_LIMIT, RowSplitter};
use super::scalar::DOT_UNIT_EXPONENT;
use crate::fp8::E4M3;
use crate::input::{Keys, Queries};
use fearless_simd::{Level, dispatch};
use rayon::prelude::*;

/// Keys per panel: the lanes of one vector of `i32`.
pub(super) const LANES: usize = 16;
/// Query heads per group of the packed row.
pub(super) const GROUP: usize = 16;
/// Query heads that every SIMD level can take at once.
pub(super) const QUAD: usize = 4;
/// Panels per parallel task.
const PANELS_PER_TASK: usize = 64;
/// Below this many codes, other threads cost more than they give.
const PARALLEL_CODES: usize = 1 << 18;

/// One word per key of a panel, on a cache line of its own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Lanes(pub(super) [i32; LANES]);

impl Lanes {
    pub(super) const ZERO: Self = Self([0; LANES]);
}

/// Keys repacked for scoring, with the keys themselves behind them (SPEC S).
///
/// Sixteen consecutive keys form a panel. It holds `main` of each key (see the row rule in
/// `scoring/limbs.rs`) as ceil(D/2) vectors, one word of two `i16` per key; the few words of
/// `rest`; and one factor per key. Takes 2 bytes per code beside the keys.
#[derive(Debug)]
pub struct PackedKeys<'k> {
    source: Source<'k>,
    pub(super) level: Level,
    /// [panels][ceil(D/2)].
    lanes: Vec<Lanes>,
    /// `scale * 2^shift * 2^-18` of every key, exact; NaN where only the definition may answer.
    factors: Vec<[f64; LANES]>,
    /// `rest` of the panels that have any.
    rests: Vec<Option<Box<PanelRest>>>,
}

/// The keys as they were given.
#[derive(Debug, Clone, Copy)]
struct Source<'k> {
    codes: &'k [E4M3],
    scales: &'k [f32],
    head_dim: usize,
}

impl<'k> Source<'k> {
    #[inline(always)]
    fn key(&self, index: usize) -> &'k [E4M3] {
        &self.codes[index * self.head_dim..][..self.head_dim]
    }
}

/// `rest` of the keys of one panel, as extra positions for the kernel.
#[derive(Debug)]
pub(super) struct PanelRest {
    /// Pair positions, ascending.
    pub(super) positions: Vec<u32>,
    /// The words at those positions; zero for keys without one there.
    pub(super) lanes: Vec<Lanes>,
    /// `2^-shift` of every key.
    pub(super) inverse: [f64; LANES],
}

/// One panel as the kernel takes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel<'a> {
    pub(super) lanes: &'a [Lanes],
    pub(super) factors: &'a [f64; LANES],
    pub(super) rest: Option<&'a PanelRest>,
}

impl<'k> PackedKeys<'k> {
    /// Repacks all N keys, on rayon's threads where there are many.
    #[must_use]
    pub fn new(keys: &'k Keys<'_>) -> Self {
        Self::at(Level::new(), keys)
    }

    /// [`Self::new`] for one SIMD level, which scoring then uses too.
    pub(super) fn at(level: Level, keys: &'k Keys<'_>) -> Self {
        let source = Source {
            codes: keys.codes(),
            scales: keys.scales(),
            head_dim: keys.head_dim(),
        };
        let (panels, pairs) = (keys.len().div_ceil(LANES), keys.head_dim().div_ceil(2));
        let mut lanes = vec![Lanes::ZERO; panels * pairs];
        let mut factors = vec![[0.0; LANES]; panels];
        let mut rests: Vec<Option<Box<PanelRest>>> = Vec::new();
        rests.resize_with(panels, || None);
        if source.codes.len() < PARALLEL_CODES {
            dispatch!(level, _ => pack_panels(source, 0, &mut lanes, &mut factors, &mut rests));
        } else {
            let lanes = lanes.par_chunks_mut(PANELS_PER_TASK * pairs);
            let factors = factors.par_chunks_mut(PANELS_PER_TASK);
            let rests = rests.par_chunks_mut(PANELS_PER_TASK);
            let tasks = lanes.zip(factors).zip(rests).enumerate();
            tasks.for_each(|(task, ((lanes, factors), rests))| {
                let first = task * PANELS_PER_TASK;
                dispatch!(level, _ => pack_panels(source, first, lanes, factors, rests));
            });
        }
        Self {
            source,
            level,
            lanes,
            factors,
            rests,
        }
    }

    /// Number of keys, N.
    #[must_use]
    pub fn len(&self) -> usize {
        self.source.scales.len()
    }

    /// True where there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Head dimension, D.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.source.head_dim
    }

    /// Codes and scale of one key, as given.
    pub(super) fn raw(&self, index: usize) -> (&'k [E4M3], f32) {
        (self.source.key(index), self.source.scales[index])
    }

    #[inline(always)]
    pub(super) fn panel(&self, index: usize) -> Panel<'_> {
        let pairs = self.source.head_dim.div_ceil(2);
        Panel {
            lanes: &self.lanes[index * pairs..][..pairs],
            factors: &self.factors[index],
            rest: self.rests[index].as_deref(),
        }
    }
}

/// Packs as many panels as `factors` has room for, starting with panel `first`.
#[inline(always)]
fn pack_panels(
    keys: Source<'_>,
    first: usize,
    lanes: &mut [Lanes],
    factors: &mut [[f64; LANES]],
    rests: &mut [Option<Box<PanelRest>>],
) {
    let mut splitter = RowSplitter::default();
    let pairs = keys.head_dim.div_ceil(2);
    let panels = lanes.chunks_exact_mut(pairs).zip(factors).zip(rests);
    for (index, ((lanes, factors), rest)) in panels.enumerate() {
        let start = (first + index) * LANES;
        let mut shifts = [0; LANES];
        let mut words = Vec::new();
        for key in start..(start + LANES).min(keys.scales.len()) {
            let lane = key - start;
            let limbs = splitter.split(keys.key(key), KEY_LIMIT);
            let Limbs::Fit { shift, has_rest } = limbs else {
                factors[lane] = f64::NAN;
                continue;
            };
            factors[lane] =
                f64::from(keys.scales[key]) * power_of_two(shift as i32 + DOT_UNIT_EXPONENT);
            shifts[lane] = shift;
            for (vector, &word) in lanes.iter_mut().zip(splitter.main()) {
                vector.0[lane] = word;
            }
            if has_rest {
                words.extend(
                    splitter
                        .rest(shift)
                        .map(|(position, word)| (position, lane, word)),
                );
            }
        }
        if !words.is_empty() {
            *rest = Some(Box::new(panel_rest(words, shifts)));
        }
    }
}

/// Gathers `(position, lane, word)` of one panel by position.
fn panel_rest(mut words: Vec<(usize, usize, i32)>, shifts: [u32; LANES]) -> PanelRest {
    words.sort_unstable_by_key(|&(position, ..)| position);
    let inverse = shifts.map(|shift| power_of_two(-(shift as i32)));
    let mut rest = PanelRest {
        positions: Vec::new(),
        lanes: Vec::new(),
        inverse,
    };
    for group in words.chunk_by(|a, b| a.0 == b.0) {
        let mut vector = Lanes::ZERO;
        for &(position, lane, word) in group {
            vector.0[lane] = word;
            if lane == group[0].1 {
                rest.positions.push(position as u32);
            }
        }
        rest.lanes.push(vector);
    }
    rest
}

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

/// `2^exponent`, for exponents of normal f64 numbers.
#[inline(always)]
pub(super) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
