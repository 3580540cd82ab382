//! A problem by value.

use super::sizes::{Extent, Param, Shape, cut};
use super::{Candidates, Offsets, Search, sizes};
use crate::case::Tensors;
use crate::problem::Problem;
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::{E4M3, HisaParams, Overflow, Rank, Strictness, Window, Windows};
use ndarray::{Array, Axis, RemoveAxis};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

impl Candidates for Problem {
    fn is_valid(&self) -> bool {
        let spec = self.spec.as_ref();
        self.inputs.indexer_input().is_ok()
            && spec.is_none_or(|spec| {
                let windows = spec.resolve(self.m(), self.n());
                windows.is_ok_and(|windows| windows == self.inputs.windows)
            })
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let tensors = &self.inputs.tensors;
        self.sizes().hash(&mut hasher);
        tensors.digest().hash(&mut hasher);
        if let Some(x) = &self.x {
            x.shape().hash(&mut hasher);
            crate::case::digest_rows(x).hash(&mut hasher);
        }
        let params = &self.inputs.params;
        (params.block_size(), params.block_topk()).hash(&mut hasher);
        (params.topk_tokens(), params.rank() == Rank::Bf16).hash(&mut hasher);
        self.inputs.windows.rows().hash(&mut hasher);
        (&self.spec, &self.quantize.format, &self.pieces).hash(&mut hasher);
        let overflow = self.quantize.overflow == Overflow::Saturating;
        (overflow, self.inputs.strictness == Strictness::Strict).hash(&mut hasher);
        hasher.finish()
    }

    fn sizes(&self) -> [usize; 4] {
        [self.m(), self.n(), self.h(), self.d()]
    }

    fn simplify(search: &mut Search<'_, Self>) {
        search.change(|best| {
            let x = None;
            Some(Self { x, ..best.clone() })
        });
        sizes::simplify(search);
        rows_for_quantize(search);
        options(search);
        let q = |p: &Self| p.inputs.tensors.q.len();
        simple_values(search, q, |p| p.inputs.tensors.q.as_slice_mut(), &CODES);
        let k = |p: &Self| p.inputs.tensors.k.len();
        simple_values(search, k, |p| p.inputs.tensors.k.as_slice_mut(), &CODES);
        let s = |p: &Self| p.inputs.tensors.k_scale.len();
        simple_values(
            search,
            s,
            |p| p.inputs.tensors.k_scale.as_slice_mut(),
            &FLOATS,
        );
        let w = |p: &Self| p.inputs.tensors.weights.len();
        simple_values(
            search,
            w,
            |p| p.inputs.tensors.weights.as_slice_mut(),
            &FLOATS,
        );
        let x = |p: &Self| p.x.as_ref().map_or(0, Array::len);
        simple_values(search, x, |p| p.x.as_mut()?.as_slice_mut(), &FLOATS_OF_X);
    }
}

impl Shape for Problem {
    fn extent(&self, extent: Extent) -> usize {
        let [m, n, h, d] = self.sizes();
        match extent {
            Extent::Rows => m,
            Extent::Keys => n,
            Extent::Heads => h,
            Extent::Dims => d,
        }
    }

    fn without(&self, extent: Extent, gone: Range<usize>) -> Option<Self> {
        if self.spec.is_some() && matches!(extent, Extent::Rows | Extent::Keys) {
            return None;
        }
        let kept: Vec<usize> = (0..self.extent(extent))
            .filter(|at| !gone.contains(at))
            .collect();
        if extent == Extent::Rows {
            return Some(self.with_rows(&kept));
        }
        let mut problem = self.clone();
        let Tensors {
            q,
            k,
            k_scale,
            weights,
        } = &mut problem.inputs.tensors;
        match extent {
            Extent::Keys => {
                *k = selected(k, Axis(0), &kept);
                *k_scale = selected(k_scale, Axis(0), &kept);
                let rows = self.inputs.windows.rows().iter();
                let rows = rows.map(|&window| cut(window, &gone)).collect();
                problem.inputs.windows = Windows::new(rows, kept.len()).ok()?;
                problem.pieces = pieces_without(&self.pieces, &gone);
            }
            Extent::Heads => {
                *q = selected(q, Axis(1), &kept);
                *weights = selected(weights, Axis(1), &kept);
            }
            Extent::Dims => {
                *q = selected(q, Axis(2), &kept);
                *k = selected(k, Axis(1), &kept);
            }
            Extent::Rows => return None,
        }
        Some(problem)
    }

    fn rows(&self) -> Option<&[Window]> {
        let rows = self.inputs.windows.rows();
        self.spec.is_none().then_some(rows)
    }

    fn with_windows(&self, rows: Vec<Window>) -> Option<Self> {
        self.rows()?;
        let mut problem = self.clone();
        problem.inputs.windows = Windows::new(rows, self.n()).ok()?;
        Some(problem)
    }

    fn by_rows(&self) -> Option<Self> {
        let spec = None;
        Some(Self {
            spec,
            ..self.clone()
        })
    }

    fn offsets(&self) -> Option<Offsets> {
        Offsets::of(self.spec.as_ref()?)
    }

    /// The first rows and keys stay: a fault of windows does not look at values.
    fn with_offsets(&self, offsets: &Offsets) -> Option<Self> {
        let (spec, m, n) = offsets.spec();
        let no_row = m == 0 && self.m() > 0;
        if no_row || m > self.m() || n > self.n() {
            return None;
        }
        let windows = spec.resolve(m, n).ok()?;
        let plain = self.by_rows()?;
        let all = Window { ks: 0, ke: 0 };
        let plain = plain.with_windows(vec![all; self.m()])?;
        let plain = plain.without(Extent::Rows, m..self.m())?;
        let mut problem = plain.without(Extent::Keys, n..self.n())?;
        problem.inputs.windows = windows;
        problem.spec = Some(spec);
        Some(problem)
    }

    fn param(&self, param: Param) -> usize {
        let params = &self.inputs.params;
        match param {
            Param::BlockTopk => params.block_topk(),
            Param::TopkTokens => params.topk_tokens(),
            Param::BlockSize => params.block_size(),
        }
    }

    fn with_param(&self, param: Param, value: usize) -> Option<Self> {
        let of = |other: Param| {
            if other == param {
                value
            } else {
                self.param(other)
            }
        };
        let (b, m, k) = (
            of(Param::BlockSize),
            of(Param::BlockTopk),
            of(Param::TopkTokens),
        );
        let params = HisaParams::new(b, m, k).ok()?;
        let mut problem = self.clone();
        problem.inputs.params = params.with_rank(self.inputs.params.rank());
        Some(problem)
    }

    fn with_rank(&self, rank: Rank) -> Option<Self> {
        let mut problem = self.clone();
        problem.inputs.params = self.inputs.params.with_rank(rank);
        Some(problem)
    }
}

/// `select` leaves an array in the order of memory it had; values are edited row-major.
fn selected<T: Copy, D: RemoveAxis>(
    array: &Array<T, D>,
    axis: Axis,
    kept: &[usize],
) -> Array<T, D> {
    array.select(axis, kept).as_standard_layout().into_owned()
}

/// Ends of pieces once some keys are gone.
fn pieces_without(pieces: &[usize], gone: &Range<usize>) -> Vec<usize> {
    let lost = |end: usize| end.clamp(gone.start, gone.end) - gone.start;
    pieces.iter().map(|&end| end - lost(end)).collect()
}

/// `x` has rows and columns of its own.
fn rows_for_quantize(search: &mut Search<'_, Problem>) {
    for axis in [Axis(0), Axis(1)] {
        search.drop_parts(
            |best| best.x.as_ref().map_or(0, |x| x.len_of(axis)),
            |best, gone| {
                let x = best.x.as_ref()?;
                let kept: Vec<usize> = (0..x.len_of(axis))
                    .filter(|at| !gone.contains(at))
                    .collect();
                (!kept.is_empty()).then_some(())?;
                let x = Some(selected(x, axis, &kept));
                Some(Problem { x, ..best.clone() })
            },
        );
    }
}

/// The plain way to quantise, one piece, strict.
fn options(search: &mut Search<'_, Problem>) {
    search.change(|best| {
        let format = ScaleFormat::F32;
        let quantize = QuantizeOptions {
            format,
            ..best.quantize
        };
        Some(Problem {
            quantize,
            ..best.clone()
        })
    });
    search.change(|best| {
        let overflow = Overflow::Saturating;
        let quantize = QuantizeOptions {
            overflow,
            ..best.quantize
        };
        Some(Problem {
            quantize,
            ..best.clone()
        })
    });
    search.drop_parts(
        |best| best.pieces.len() - 1,
        |best, gone| {
            let mut problem = best.clone();
            problem.pieces.drain(gone);
            Some(problem)
        },
    );
    search.change(|best| {
        let mut problem = best.clone();
        problem.inputs.strictness = Strictness::Strict;
        Some(problem)
    });
}

/// A value simple enough to stand in for others.
trait Simple: Copy {
    fn same(self, other: Self) -> bool;
}

impl Simple for E4M3 {
    fn same(self, other: Self) -> bool {
        self == other
    }
}

impl Simple for f32 {
    fn same(self, other: Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

const CODES: [E4M3; 4] = [
    E4M3::ZERO,
    E4M3::from_bits(0x38),
    E4M3::from_bits(0xB8),
    E4M3::from_bits(0x40),
];
const FLOATS: [f32; 4] = [1.0, 0.0, -1.0, 2.0];
const FLOATS_OF_X: [f32; 3] = [0.0, 1.0, -1.0];

/// Replaces elements by the simple values, the simplest first: all, halves, down to single ones.
/// An element that already is a simpler value stays.
fn simple_values<V: Simple>(
    search: &mut Search<'_, Problem>,
    len: fn(&Problem) -> usize,
    elements: fn(&mut Problem) -> Option<&mut [V]>,
    simple: &[V],
) {
    for (rank, &value) in simple.iter().enumerate() {
        search.drop_parts(len, |best, range| {
            let mut problem = best.clone();
            let mut changed = false;
            for element in elements(&mut problem)?.get_mut(range)? {
                let simpler = simple[..=rank].iter().any(|known| known.same(*element));
                if !simpler {
                    *element = value;
                    changed = true;
                }
            }
            changed.then_some(problem)
        });
    }
}
