//! Sizes, parameters and windows: what a case by address and a problem by value have in common.

use super::{Candidates, Offsets, Search, offsets};
use hisa_ref::{Rank, Window};
use std::ops::Range;

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// M, query rows.
    Rows,
    /// N, keys.
    Keys,
    /// H, heads.
    Heads,
    /// D, dimensions of a head.
    Dims,
}

/// A parameter that is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// m, blocks kept.
    BlockTopk,
    /// K, tokens kept.
    TopkTokens,
    /// B, keys of a block.
    BlockSize,
}

/// A value with sizes, windows and parameters.
pub trait Shape: Sized {
    /// Number of rows, keys, heads or dimensions.
    fn extent(&self, extent: Extent) -> usize;

    /// Without some of them; windows move with the keys. `None` where the windows come from
    /// offsets and rows or keys are asked for.
    fn without(&self, extent: Extent, range: Range<usize>) -> Option<Self>;

    /// The windows; `None` where they come from offsets.
    fn rows(&self) -> Option<&[Window]>;

    /// With these windows, as many as there are.
    fn with_windows(&self, rows: Vec<Window>) -> Option<Self>;

    /// With the windows written row by row.
    fn by_rows(&self) -> Option<Self>;

    /// Where the windows come from.
    fn offsets(&self) -> Option<Offsets>;

    /// With windows from other offsets, and the M and N they stand for.
    fn with_offsets(&self, offsets: &Offsets) -> Option<Self>;

    /// A parameter.
    fn param(&self, param: Param) -> usize;

    /// With another value of a parameter.
    fn with_param(&self, param: Param, value: usize) -> Option<Self>;

    /// What block scores are rounded to.
    fn with_rank(&self, rank: Rank) -> Option<Self>;
}

/// Rows that are tried alone, and rows whose windows are simplified one by one.
const SINGLE_ROWS: usize = 16;

/// Everything but values.
pub(super) fn simplify<T: Candidates + Shape>(search: &mut Search<'_, T>) {
    search.change(Shape::by_rows);
    offsets::simplify(search);
    for row in 0..search.best().extent(Extent::Rows).min(SINGLE_ROWS) {
        if search.change(|best| only_row(best, row)) {
            break;
        }
    }
    search.drop_parts(
        |best| best.extent(Extent::Rows),
        |best, rows| keeping_one(best, Extent::Rows, rows),
    );
    halve(search);
    for (extent, floor) in [(Extent::Keys, 0), (Extent::Heads, 1), (Extent::Dims, 1)] {
        search.lower(
            floor,
            |best| best.extent(extent),
            |best, len| best.without(extent, len..best.extent(extent)),
        );
    }
    for param in [Param::BlockTopk, Param::TopkTokens, Param::BlockSize] {
        search.lower(
            1,
            |best| best.param(param),
            |best, value| best.with_param(param, value),
        );
    }
    for extent in [Extent::Keys, Extent::Heads, Extent::Dims] {
        search.drop_parts(
            |best| best.extent(extent),
            |best, range| keeping_one(best, extent, range),
        );
    }
    windows(search);
    search.change(|best| best.with_rank(Rank::Bf16));
}

fn only_row<T: Shape>(best: &T, row: usize) -> Option<T> {
    let rows = best.extent(Extent::Rows);
    best.without(Extent::Rows, row + 1..rows)?
        .without(Extent::Rows, 0..row)
}

/// A case of no row, head or dimension says nothing to people.
fn keeping_one<T: Shape>(best: &T, extent: Extent, range: Range<usize>) -> Option<T> {
    if range.len() == best.extent(extent) {
        return None;
    }
    best.without(extent, range)
}

/// Keys, windows, block size and K halved together: a fault of tails or of blocks dropped keeps
/// its shape.
fn halve<T: Candidates + Shape>(search: &mut Search<'_, T>) {
    let half = |best: &T| {
        let n = best.extent(Extent::Keys);
        let halved = |window: &Window| match *window {
            Window::PADDING => Window::PADDING,
            Window { ks, ke } => Window {
                ks: ks / 2,
                ke: ke / 2,
            },
        };
        let rows = best.rows()?.iter().map(halved).collect();
        let mut smaller = best.with_windows(rows)?;
        smaller = smaller.without(Extent::Keys, n / 2..n)?;
        for param in [Param::BlockSize, Param::TopkTokens] {
            let value = smaller.param(param).div_ceil(2);
            smaller = smaller.with_param(param, value)?;
        }
        Some(smaller)
    };
    while search.best().extent(Extent::Keys) > 1 && search.change(half) {}
}

/// Whole windows first, then starts towards 0 and ends towards N.
fn windows<T: Candidates + Shape>(search: &mut Search<'_, T>) {
    let whole = |best: &T| Window {
        ks: 0,
        ke: i32::try_from(best.extent(Extent::Keys)).unwrap_or(i32::MAX),
    };
    search.change(|best| best.with_windows(vec![whole(best); best.rows()?.len()]));
    let set = |best: &T, row: usize, window: Window| {
        let mut rows = best.rows()?.to_vec();
        *rows.get_mut(row)? = window;
        best.with_windows(rows)
    };
    for row in 0..search.best().extent(Extent::Rows).min(SINGLE_ROWS) {
        if search.change(|best| set(best, row, whole(best))) {
            continue;
        }
        let at = |best: &T| best.rows().and_then(|rows| rows.get(row)).copied();
        search.change(|best| {
            let empty = at(best)?.is_empty();
            empty.then(|| set(best, row, Window { ks: 0, ke: 0 }))?
        });
        search.lower(
            0,
            |best| at(best).map_or(0, |window| usize::try_from(window.ks).unwrap_or(0)),
            |best, ks| {
                let (ks, ke) = (i32::try_from(ks).ok()?, at(best)?.ke);
                set(best, row, Window { ks, ke })
            },
        );
        search.lower(
            0,
            |best| {
                let end = at(best).map_or(0, |window| usize::try_from(window.ke).unwrap_or(0));
                best.extent(Extent::Keys).saturating_sub(end)
            },
            |best, short| {
                let ke = i32::try_from(best.extent(Extent::Keys).checked_sub(short)?).ok()?;
                let ks = at(best)?.ks;
                set(best, row, Window { ks, ke })
            },
        );
    }
}

/// A window once some keys are gone.
pub(super) fn cut(window: Window, gone: &Range<usize>) -> Window {
    if window == Window::PADDING {
        return window;
    }
    let (start, end) = (gone.start as i64, gone.end as i64);
    let moved = |bound: i32| {
        let bound = i64::from(bound);
        let bound = if bound >= end {
            bound - (end - start)
        } else {
            bound.min(start)
        };
        bound as i32
    };
    Window {
        ks: moved(window.ks),
        ke: moved(window.ke),
    }
}
