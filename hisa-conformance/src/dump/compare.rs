//! Outputs against the reference, value by value.
//!
//! What the specification leaves open is not compared: block scores outside the block window, the
//! order of block ids and blocks outside the window, the sign of a zero, the payload of a NaN.
//! Everything else counts, also differences that a port's arithmetic entitles it to: whether a
//! difference is within a bound is not decided here.

use super::input::InputDump;
use super::output::OutputDump;
use super::params::Indexer;
use crate::measure::{same_code, same_value};
use hisa_ref::E4M3;
use hisa_ref::params::block_count;
use ndarray::{ArrayBase, ArrayView2, Axis, Dimension};

/// The first element of a tensor that is not what the reference computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the tensor.
    pub tensor: &'static str,
    /// Coordinates of the element; the row alone where rows are compared as sets; none where the
    /// shapes differ.
    pub at: Vec<usize>,
    /// What the reference computes.
    pub expected: String,
    /// What was found.
    pub got: String,
    /// How many more elements of the tensor differ.
    pub more: usize,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.at.is_empty() {
            " shape".to_owned()
        } else {
            format!("{:?}", self.at)
        };
        let (tensor, expected, got) = (self.tensor, &self.expected, &self.got);
        write!(f, "FAIL {tensor}{place}: expected {expected}, got {got}")?;
        match self.more {
            0 => Ok(()),
            more => write!(f, "; {more} more differ"),
        }
    }
}

/// The first difference of each tensor that both sides hold, in the order of the stages.
///
/// `expected` is the reference's outputs for `input`. Slots and token scores are compared by the
/// key they stand for, according to each side's own block ids.
#[must_use]
pub fn compare(input: &InputDump, expected: &OutputDump, got: &OutputDump) -> Vec<Difference> {
    let b = input.params().hisa.block_size();
    let windows = input.windows().rows();
    let in_block_window = |row: usize, block: usize| windows[row].blocks(b).contains(&block);
    let anywhere = |_: usize, _: usize| true;
    macro_rules! plain {
        ($name:ident, $same:expr, $show:expr, $compared:expr) => {
            both(&expected.$name, &got.$name)
                .and_then(|(e, g)| by_place(stringify!($name), e, g, $same, $show, $compared))
        };
    }
    [
        plain!(codes, same_code, show_code, anywhere),
        plain!(scale, same_value, show_f32, anywhere),
        plain!(pooled_k, same_code, show_code, anywhere),
        plain!(pooled_scale, same_value, show_f32, anywhere),
        plain!(block_scores, same_value, show_f32, in_block_window),
        plain!(block_mask, same_value, show_f32, anywhere),
        block_ids(input, expected, got),
        token_scores(input, expected, got),
        slots(input, expected, got),
        plain!(indices, same_id, show_id, anywhere),
        plain!(flat_scores, same_value, show_f32, anywhere),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn both<'a, T>(expected: &'a Option<T>, got: &'a Option<T>) -> Option<(&'a T, &'a T)> {
    expected.as_ref().zip(got.as_ref())
}

fn same_id(left: i32, right: i32) -> bool {
    left == right
}

fn show_code(code: E4M3) -> String {
    format!("{} ({:#04x})", code.to_f32(), code.to_bits())
}

fn show_f32(value: f32) -> String {
    format!("{value:e} ({:#010x})", value.to_bits())
}

fn show_id(id: i32) -> String {
    id.to_string()
}

fn shapes(tensor: &'static str, expected: &[usize], got: &[usize]) -> Option<Difference> {
    let (at, more) = (Vec::new(), 0);
    let different = expected != got;
    let (expected, got) = (format!("{expected:?}"), format!("{got:?}"));
    different.then_some(Difference {
        tensor,
        at,
        expected,
        got,
        more,
    })
}

/// Element by element; `compared(row, column)` says which elements count.
fn by_place<T: Copy, D: Dimension>(
    tensor: &'static str,
    expected: &ArrayBase<ndarray::OwnedRepr<T>, D>,
    got: &ArrayBase<ndarray::OwnedRepr<T>, D>,
    same: impl Fn(T, T) -> bool,
    show: impl Fn(T) -> String,
    compared: impl Fn(usize, usize) -> bool,
) -> Option<Difference> {
    let wrong_shape = shapes(tensor, expected.shape(), got.shape());
    if wrong_shape.is_some() {
        return wrong_shape;
    }
    let columns = expected.shape().get(1).copied();
    let coordinates = |at: usize| match columns {
        Some(columns) => vec![at / columns, at % columns],
        None => vec![at],
    };
    let mut tally = Tally::new(tensor);
    for (at, (&e, &g)) in expected.iter().zip(got).enumerate() {
        if same(e, g) {
            continue;
        }
        let place = coordinates(at);
        if compared(place[0], place.get(1).copied().unwrap_or(0)) {
            tally.add(|| (place, show(e), show(g)));
        }
    }
    tally.first
}

/// Keeps the first difference and counts the others.
struct Tally {
    tensor: &'static str,
    first: Option<Difference>,
}

impl Tally {
    fn new(tensor: &'static str) -> Self {
        let first = None;
        Self { tensor, first }
    }

    fn add(&mut self, describe: impl FnOnce() -> (Vec<usize>, String, String)) {
        if let Some(first) = &mut self.first {
            first.more += 1;
            return;
        }
        let (at, expected, got) = describe();
        self.first = Some(Difference {
            tensor: self.tensor,
            at,
            expected,
            got,
            more: 0,
        });
    }
}

/// Row by row, the ids within the block window as a multiset.
fn block_ids(input: &InputDump, expected: &OutputDump, got: &OutputDump) -> Option<Difference> {
    let (e, g) = both(&expected.block_ids, &got.block_ids)?;
    let wrong_shape = shapes("block_ids", e.shape(), g.shape());
    if wrong_shape.is_some() {
        return wrong_shape;
    }
    let b = input.params().hisa.block_size();
    let mut tally = Tally::new("block_ids");
    for (row, window) in input.windows().rows().iter().enumerate() {
        let blocks = window.blocks(b);
        let chosen = |ids: ArrayView2<'_, i32>| {
            let row = ids.index_axis_move(Axis(0), row);
            let inside = |&id: &i32| usize::try_from(id).is_ok_and(|id| blocks.contains(&id));
            let mut ids: Vec<i32> = row.iter().copied().filter(inside).collect();
            ids.sort_unstable();
            ids
        };
        let blocks_in_all = block_count(input.k().nrows(), b);
        let no_block =
            |id: &&i32| **id != -1 && !usize::try_from(**id).is_ok_and(|id| id < blocks_in_all);
        let ids = g.index_axis(Axis(0), row);
        if let Some(id) = ids.iter().find(no_block) {
            tally.add(|| {
                let expected = format!("-1 or ids below {blocks_in_all}");
                (vec![row], expected, id.to_string())
            });
            continue;
        }
        let (e, g) = (chosen(e.view()), chosen(g.view()));
        if e != g {
            let only = |of: &[i32], other: &[i32]| {
                let absent = of.iter().filter(|id| other.binary_search(id).is_err());
                absent.take(8).copied().collect::<Vec<i32>>()
            };
            let (missing, extra) = (only(&e, &g), only(&g, &e));
            let found = format!("{} blocks without {missing:?}, with {extra:?}", g.len());
            tally.add(|| (vec![row], format!("{} blocks", e.len()), found));
        }
    }
    tally.first
}

/// The block ids each side's slots refer to; `None` where they do not fit the rows.
fn ids_of_both<'a>(
    expected: &'a OutputDump,
    got: &'a OutputDump,
) -> Option<(ArrayView2<'a, i32>, ArrayView2<'a, i32>)> {
    let e = expected.block_ids.as_ref()?;
    let g = got.block_ids.as_ref().unwrap_or(e);
    (e.shape() == g.shape()).then(|| (e.view(), g.view()))
}

/// The key a slot stands for; `None` for -1 and slots of no block.
fn key_of(ids: ArrayView2<'_, i32>, row: usize, slot: i32, b: usize) -> Option<i64> {
    let slot = usize::try_from(slot).ok()?;
    let id = *ids.get([row, slot / b])?;
    (id >= 0).then(|| i64::from(id) * b as i64 + (slot % b) as i64)
}

fn slots(input: &InputDump, expected: &OutputDump, got: &OutputDump) -> Option<Difference> {
    let (e, g) = both(&expected.slots, &got.slots)?;
    if input.params().indexer == Indexer::Dsa {
        return by_place("slots", e, g, same_id, show_id, |_, _| true);
    }
    let wrong_shape = shapes("slots", e.shape(), g.shape());
    if wrong_shape.is_some() {
        return wrong_shape;
    }
    let (e_ids, g_ids) = ids_of_both(expected, got)?;
    let b = input.params().hisa.block_size();
    let mut tally = Tally::new("slots");
    for (((row, column), &e), &g) in e.indexed_iter().zip(g) {
        let (e_key, g_key) = (key_of(e_ids, row, e, b), key_of(g_ids, row, g, b));
        // A slot of no block has no key, but only -1 says so on purpose.
        if e_key != g_key || (g_key.is_none() && g != -1) {
            let show = |slot, key| match key {
                Some(key) => format!("{slot} (key {key})"),
                None => format!("{slot} (no key)"),
            };
            tally.add(|| (vec![row, column], show(e, e_key), show(g, g_key)));
        }
    }
    tally.first
}

fn token_scores(input: &InputDump, expected: &OutputDump, got: &OutputDump) -> Option<Difference> {
    let (e, g) = both(&expected.token_scores, &got.token_scores)?;
    let wrong_shape = shapes("token_scores", e.shape(), g.shape());
    if wrong_shape.is_some() {
        return wrong_shape;
    }
    let (e_ids, g_ids) = ids_of_both(expected, got)?;
    let b = input.params().hisa.block_size();
    let mut tally = Tally::new("token_scores");
    for (row, window) in input.windows().rows().iter().enumerate() {
        let keys = window.keys();
        let mut columns: Vec<(i32, usize)> = e_ids
            .row(row)
            .iter()
            .copied()
            .enumerate()
            .map(|(t, id)| (id, t))
            .collect();
        columns.sort_unstable();
        for (column, &score) in g.row(row).iter().enumerate() {
            let id = g_ids[[row, column / b]];
            let visible = key_of(g_ids, row, i32::try_from(column).unwrap_or(-1), b)
                .and_then(|key| usize::try_from(key).ok())
                .is_some_and(|key| keys.contains(&key));
            let wanted = if visible {
                // A block the reference did not choose is a finding of block_ids, not of this.
                let Ok(found) = columns.binary_search_by_key(&id, |&(id, _)| id) else {
                    continue;
                };
                e[[row, columns[found].1 * b + column % b]]
            } else {
                f32::NEG_INFINITY
            };
            if !same_value(wanted, score) {
                tally.add(|| (vec![row, column], show_f32(wanted), show_f32(score)));
            }
        }
    }
    tally.first
}
