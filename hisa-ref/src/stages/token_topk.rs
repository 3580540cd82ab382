//! Stage 7, `token_topk`: the tokens to keep, as slots (SPEC 7).
//!
//! Position decides validity, score decides order: every slot whose key lies in the window is
//! eligible, also with a score of `-inf` or NaN. Order: value descending, NaN last, ties by lower
//! absolute key.

use crate::error::Result;
use crate::input::standard;
use crate::order::{compare_scores, rank_key};
use crate::params::{block_count, check_size, filled, slots_per_row};
use crate::ragged::{Window, Windows};
use crate::rows::for_each_row;
use crate::stages::token_scores::{check_block_ids, visible_keys};
use crate::stages::{check_rows, matrix};
use ndarray::{Array2, ArrayView2};

/// Chooses `topk_tokens` slots per row from `token_scores` `[M,S]` of the blocks `block_ids`
/// `[M,m]`.
///
/// Returns `slots` `[M,K]`: the first `min(K, eligible)` slots of the order, then -1.
///
/// # Errors
/// Shapes that disagree; B, m or K of 0; block ids as in `token_scores`.
pub fn run(
    token_scores: ArrayView2<'_, f32>,
    block_ids: ArrayView2<'_, i32>,
    windows: &Windows,
    block_size: usize,
    topk_tokens: usize,
) -> Result<Array2<i32>> {
    rows(
        token_scores,
        block_ids,
        windows,
        block_size,
        topk_tokens,
        |scratch, row| {
            scratch.collect(row);
            best(&mut scratch.keys, row.chosen.len());
            for (slot, &key) in row.chosen.iter_mut().zip(&scratch.keys) {
                *slot = scratch.slots[!(key as u32) as usize];
            }
        },
    )
}

/// [`run`] as SPEC 7 words it.
///
/// # Errors
/// As [`run`].
pub fn scalar(
    token_scores: ArrayView2<'_, f32>,
    block_ids: ArrayView2<'_, i32>,
    windows: &Windows,
    block_size: usize,
    topk_tokens: usize,
) -> Result<Array2<i32>> {
    rows(
        token_scores,
        block_ids,
        windows,
        block_size,
        topk_tokens,
        |_, row| {
            let key_of = |slot: usize| {
                let id = row.ids[slot / row.block_size];
                (id >= 0).then(|| id as usize * row.block_size + slot % row.block_size)
            };
            let mut eligible: Vec<(usize, usize)> = (0..row.scores.len())
                .filter_map(|slot| key_of(slot).map(|key| (slot, key)))
                .filter(|&(_, key)| row.window.contains(key))
                .collect();
            eligible.sort_by(|&(a, key_a), &(b, key_b)| {
                compare_scores(row.scores[a], row.scores[b]).then(key_a.cmp(&key_b))
            });
            for (chosen, (slot, _)) in row.chosen.iter_mut().zip(eligible) {
                *chosen = slot as i32;
            }
        },
    )
}

/// What one row is chosen from, and where the choice goes.
struct Row<'a> {
    scores: &'a [f32],
    ids: &'a [i32],
    window: Window,
    block_size: usize,
    chosen: &'a mut [i32],
}

/// Reusable buffers of one worker.
#[derive(Default)]
struct Scratch {
    /// Block columns in ascending id.
    columns: Vec<usize>,
    /// Eligible slots in ascending key.
    slots: Vec<i32>,
    /// Sort keys of the eligible slots.
    keys: Vec<u64>,
}

impl Scratch {
    /// Eligible slots in ascending key, each with a sort key whose low half is its position's
    /// complement: equal scores then fall back on the lower key.
    fn collect(&mut self, row: &Row<'_>) {
        self.columns.clear();
        self.columns
            .extend((0..row.ids.len()).filter(|&column| row.ids[column] >= 0));
        self.columns.sort_unstable_by_key(|&column| row.ids[column]);
        self.slots.clear();
        self.keys.clear();
        for &column in &self.columns {
            let visible = visible_keys(row.ids[column], row.block_size, row.window);
            let Some((keys, first)) = visible else {
                continue;
            };
            let start = column * row.block_size + first;
            for slot in start..start + keys.len() {
                self.keys.push(sort_key(row.scores[slot], self.slots.len()));
                self.slots.push(slot as i32);
            }
        }
    }
}

/// Rank key above, complement of the position below: descending order is the spec's order.
pub(crate) fn sort_key(score: f32, position: usize) -> u64 {
    (u64::from(rank_key(score)) << 32) + u64::from(!(position as u32))
}

/// Keeps the `keep` largest keys, in descending order. Keys are distinct.
pub(crate) fn best(keys: &mut Vec<u64>, keep: usize) {
    if keep < keys.len() {
        keys.select_nth_unstable_by(keep, |a, b| b.cmp(a));
        keys.truncate(keep);
    }
    keys.sort_unstable_by(|a, b| b.cmp(a));
}

fn rows(
    token_scores: ArrayView2<'_, f32>,
    block_ids: ArrayView2<'_, i32>,
    windows: &Windows,
    block_size: usize,
    topk_tokens: usize,
    row_rule: impl Fn(&mut Scratch, &mut Row<'_>) + Sync + Send,
) -> Result<Array2<i32>> {
    check_size("block_size", block_size)?;
    check_size("topk_tokens", topk_tokens)?;
    let m = block_ids.ncols();
    check_size("block_topk", m)?;
    let columns = slots_per_row(block_size, m)?;
    check_rows(
        "token_scores",
        token_scores.dim(),
        windows,
        columns,
        "S",
        block_size,
    )?;
    check_rows("block_ids", block_ids.dim(), windows, m, "m", block_size)?;
    check_block_ids(block_ids, block_count(windows.n(), block_size))?;
    let (scores, ids) = (
        standard("token_scores", token_scores)?,
        standard("block_ids", block_ids)?,
    );
    let scores = scores
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    let ids = ids
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    let mut slots = filled("slots", windows.len(), topk_tokens, -1i32)?;
    for_each_row(
        &mut slots,
        topk_tokens,
        columns,
        Scratch::default,
        |scratch, row, chosen| {
            let mut row = Row {
                scores: &scores[row * columns..(row + 1) * columns],
                ids: &ids[row * m..(row + 1) * m],
                window: windows.rows()[row],
                block_size,
                chosen,
            };
            row_rule(scratch, &mut row);
        },
    );
    Ok(matrix(windows.len(), topk_tokens, slots))
}
