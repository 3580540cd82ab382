//! Keys in the order the kernel reads them.

use super::limbs::{KEY_LIMIT, Limbs, RowSplitter};
use super::scalar::DOT_UNIT_EXPONENT;
use crate::fp8::E4M3;
use crate::input::Keys;
use fearless_simd::{Level, dispatch};
use rayon::prelude::*;

/// Keys per panel: the lanes of one vector of `i32`.
pub(super) const LANES: usize = 16;
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
    /// `[panels][ceil(D/2)]`.
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

/// `2^exponent`, for exponents of normal f64 numbers.
#[inline(always)]
pub(super) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
