//! A case by its address.

use super::sizes::{Extent, Param, Shape, cut};
use super::{Candidates, Offsets, Search, sizes, values};
use crate::case::{Case, Patch, Target, WindowSource};
use hisa_ref::{Rank, Window};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

impl Candidates for Case {
    fn is_valid(&self) -> bool {
        self.check().is_ok() && self.params().is_ok() && self.windows().is_ok()
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn sizes(&self) -> [usize; 4] {
        [self.m, self.n, self.h, self.d]
    }

    fn simplify(search: &mut Search<'_, Self>) {
        let before = search.improvements();
        sizes::simplify(search);
        patches(search);
        values::simplify(search);
        patch_bits(search);
        seed(search);
        if search.improvements() == before {
            other_seeds(search);
        }
    }
}

impl Shape for Case {
    fn extent(&self, extent: Extent) -> usize {
        match extent {
            Extent::Rows => self.m,
            Extent::Keys => self.n,
            Extent::Heads => self.h,
            Extent::Dims => self.d,
        }
    }

    fn without(&self, extent: Extent, gone: Range<usize>) -> Option<Self> {
        let mut case = self.clone();
        let size = match extent {
            Extent::Rows => &mut case.m,
            Extent::Keys => &mut case.n,
            Extent::Heads => &mut case.h,
            Extent::Dims => &mut case.d,
        };
        *size = size.checked_sub(gone.len())?;
        match (&mut case.windows.source, extent) {
            (WindowSource::Rows(rows), Extent::Rows) if case.windows.shard.is_none() => {
                rows.drain(gone.start..gone.end.min(rows.len()));
            }
            (WindowSource::Rows(rows), Extent::Keys) => {
                rows.iter_mut()
                    .for_each(|window| *window = cut(*window, &gone));
            }
            (_, Extent::Rows | Extent::Keys) => return None,
            _ => {}
        }
        let patches = case.patches.iter();
        case.patches = patches
            .filter_map(|patch| moved(*patch, extent, &gone))
            .collect();
        Some(case)
    }

    fn rows(&self) -> Option<&[Window]> {
        match &self.windows.source {
            WindowSource::Rows(rows) => Some(rows),
            _ => None,
        }
    }

    fn with_windows(&self, rows: Vec<Window>) -> Option<Self> {
        self.rows()?;
        let mut case = self.clone();
        case.windows.source = WindowSource::Rows(rows);
        Some(case)
    }

    fn by_rows(&self) -> Option<Self> {
        self.to_rows().ok()
    }

    fn offsets(&self) -> Option<Offsets> {
        Offsets::of(&self.windows)
    }

    fn with_offsets(&self, offsets: &Offsets) -> Option<Self> {
        let mut case = self.clone();
        (case.windows, case.m, case.n) = offsets.spec();
        let no_row = case.m == 0 && self.m > 0;
        // Without its shard a case has more rows than it had.
        if no_row || case.m > self.m && case.m > 1 << 12 {
            return None;
        }
        case.drop_stray_patches();
        Some(case)
    }

    fn param(&self, param: Param) -> usize {
        match param {
            Param::BlockTopk => self.block_topk,
            Param::TopkTokens => self.topk_tokens,
            Param::BlockSize => self.block_size,
        }
    }

    fn with_param(&self, param: Param, value: usize) -> Option<Self> {
        let mut case = self.clone();
        match param {
            Param::BlockTopk => case.block_topk = value,
            Param::TopkTokens => case.topk_tokens = value,
            Param::BlockSize => case.block_size = value,
        }
        Some(case)
    }

    fn with_rank(&self, rank: Rank) -> Option<Self> {
        let case = self.clone();
        Some(Self { rank, ..case })
    }
}

/// The axis of a patch's tensor that an extent is, if any.
const fn axis_of(target: Target, extent: Extent) -> Option<usize> {
    match (target, extent) {
        (Target::Q | Target::W, Extent::Rows) => Some(0),
        (Target::K | Target::S | Target::X, Extent::Keys) => Some(0),
        (Target::Q | Target::W, Extent::Heads) => Some(1),
        (Target::Q, Extent::Dims) => Some(2),
        (Target::K | Target::X, Extent::Dims) => Some(1),
        _ => None,
    }
}

/// A patch once part of an axis is gone; `None` where its element is.
fn moved(mut patch: Patch, extent: Extent, gone: &Range<usize>) -> Option<Patch> {
    let Some(axis) = axis_of(patch.target, extent) else {
        return Some(patch);
    };
    if let Some(at) = &mut patch.index[axis] {
        let place = *at as usize;
        if gone.contains(&place) {
            return None;
        }
        if place >= gone.end {
            *at -= u32::try_from(gone.len()).ok()?;
        }
    }
    Some(patch)
}

/// The last resort: what is dropped takes its values with it, and what stays is drawn from the
/// seed anew. Where no smaller case fails, one may under another seed.
fn other_seeds(search: &mut Search<'_, Case>) {
    let smaller = [1, 2, 3, 4, usize::MAX];
    for extent in [Extent::Rows, Extent::Keys, Extent::Dims, Extent::Heads] {
        let len = search.best().extent(extent);
        for kept in smaller.map(|kept| kept.min(len / 2)) {
            // Windows differ from row to row: any of the first rows may be the one to keep.
            let starts = if extent == Extent::Rows { 4 } else { 1 };
            let starts = 0..starts.min(len - kept);
            let picks = starts.flat_map(|start| (0..SMALL_SEEDS).map(move |seed| (start, seed)));
            let found = kept > 0
                && search.first_of(picks, |best, (start, seed)| {
                    let case = best.without(extent, start + kept..len)?;
                    let case = case.without(extent, 0..start)?;
                    Some(Case { seed, ..case })
                });
            if found {
                return;
            }
        }
    }
}

fn patches(search: &mut Search<'_, Case>) {
    search.drop_parts(
        |best| best.patches.len(),
        |best, gone| {
            let mut case = best.clone();
            case.patches.drain(gone);
            Some(case)
        },
    );
}

/// Most patches whose bits are simplified.
const PATCHES_SIMPLIFIED: usize = 64;
/// Codes 0 and 1.
const SIMPLE_CODES: [u32; 2] = [0x00, 0x38];
/// Floats 1 and 0.
const SIMPLE_FLOATS: [u32; 2] = [0x3F80_0000, 0];

fn patch_bits(search: &mut Search<'_, Case>) {
    for place in 0..search.best().patches.len().min(PATCHES_SIMPLIFIED) {
        let patch = search.best().patches[place];
        let simple = if patch.target.is_code() {
            SIMPLE_CODES
        } else {
            SIMPLE_FLOATS
        };
        let simpler = simple.into_iter().take_while(|&bits| bits != patch.bits);
        search.first_of(simpler, |best, bits| {
            let mut case = best.clone();
            case.patches.get_mut(place)?.bits = bits;
            Some(case)
        });
    }
}

/// Seeds that are tried instead of a larger one.
const SMALL_SEEDS: u64 = 16;

fn seed(search: &mut Search<'_, Case>) {
    let simpler = 0..search.best().seed.min(SMALL_SEEDS);
    search.first_of(simpler, |best, seed| {
        let case = best.clone();
        Some(Case { seed, ..case })
    });
}
