//! Stage 6, `token_scores`: each query row against every key of its kept blocks (SPEC 6, S).

use crate::error::{Result, SelectionError};
use crate::input::{Keys, Queries, check_dims_match, check_windows, standard};
use crate::params::{block_count, check_size, filled, slots_per_row};
use crate::ragged::{Window, Windows};
use crate::rows::for_each_row;
use crate::scoring::{PackedKeys, PackedRow, scalar, score_keys};
use crate::stages::{check_rows, matrix};
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

/// Scores `queries` against the keys of `block_ids` `[M,m]`.
///
/// Returns `token_scores` `[M,S]`: slot `t*B + i` is key `block_ids[t]*B + i`; `-inf` where the id
/// is -1 or the key lies outside the row's window.
///
/// # Errors
/// Shapes that disagree; B or m of 0; a block id that is neither -1 nor a block; a repeated id.
pub fn run(
    queries: &Queries<'_>,
    keys: &Keys<'_>,
    windows: &Windows,
    block_ids: ArrayView2<'_, i32>,
    block_size: usize,
) -> Result<Array2<f32>> {
    let packed = PackedKeys::new(keys);
    let init = PackedRow::default;
    rows(
        queries,
        keys,
        windows,
        block_ids,
        block_size,
        init,
        |q, row, ids, out| {
            q.pack_unchecked(queries, row);
            for (&id, slots) in ids.iter().zip(out.chunks_exact_mut(block_size)) {
                let visible = visible_keys(id, block_size, windows.rows()[row]);
                if let Some((visible, first)) = visible {
                    let len = visible.len();
                    score_keys(q, &packed, visible, &mut slots[first..first + len]);
                }
            }
        },
    )
}

/// [`run`] as SPEC 6 and S word it.
///
/// # Errors
/// As [`run`].
pub fn scalar(
    queries: &Queries<'_>,
    keys: &Keys<'_>,
    windows: &Windows,
    block_ids: ArrayView2<'_, i32>,
    block_size: usize,
) -> Result<Array2<f32>> {
    rows(
        queries,
        keys,
        windows,
        block_ids,
        block_size,
        || (),
        |(), row, ids, out| {
            for (slot, score) in out.iter_mut().enumerate() {
                let (id, offset) = (ids[slot / block_size], slot % block_size);
                if id < 0 {
                    continue;
                }
                let key = id as usize * block_size + offset;
                if windows.rows()[row].contains(key) {
                    let (q, weights) = (queries.row(row), queries.row_weights(row));
                    *score = scalar::score(q, weights, keys.key(key), keys.scales()[key]);
                }
            }
        },
    )
}

/// The keys of a block that the row sees, and the offset of the first within the block.
pub(crate) fn visible_keys(
    id: i32,
    block_size: usize,
    window: Window,
) -> Option<(Range<usize>, usize)> {
    let block = usize::try_from(id).ok()?;
    let (first, keys) = (block * block_size, window.keys());
    let visible = first.max(keys.start)..(first + block_size).min(keys.end);
    (!visible.is_empty()).then(|| (visible.clone(), visible.start - first))
}

/// Every id is -1 or one of `blocks` blocks, and none but -1 occurs twice in a row (SPEC 6.3).
///
/// # Errors
/// [`SelectionError::BlockId`] or [`SelectionError::DuplicateBlock`] for the first that is not.
pub fn check_block_ids(block_ids: ArrayView2<'_, i32>, blocks: usize) -> Result<()> {
    let mut seen: Vec<(i32, usize)> = Vec::with_capacity(block_ids.ncols());
    for (row, ids) in block_ids.rows().into_iter().enumerate() {
        seen.clear();
        for (column, &id) in ids.iter().enumerate() {
            if id < -1 || id >= 0 && id as usize >= blocks {
                return Err(SelectionError::BlockId {
                    row,
                    column,
                    id,
                    blocks,
                }
                .into());
            }
            if id >= 0 {
                seen.push((id, column));
            }
        }
        seen.sort_unstable();
        let repeat = seen.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        if let Some(pair) = repeat.min_by_key(|pair| pair[1].1) {
            let (first, column, id) = (pair[0].1, pair[1].1, pair[0].0);
            return Err(SelectionError::DuplicateBlock {
                row,
                column,
                first,
                id,
            }
            .into());
        }
    }
    Ok(())
}

fn rows<S>(
    queries: &Queries<'_>,
    keys: &Keys<'_>,
    windows: &Windows,
    block_ids: ArrayView2<'_, i32>,
    block_size: usize,
    init: impl Fn() -> S + Sync + Send,
    row_rule: impl Fn(&mut S, usize, &[i32], &mut [f32]) + Sync + Send,
) -> Result<Array2<f32>> {
    check_size("block_size", block_size)?;
    check_dims_match(queries, keys, "k")?;
    check_windows(queries, keys.len(), windows)?;
    let m = block_ids.ncols();
    check_size("block_topk", m)?;
    let slots = slots_per_row(block_size, m)?;
    check_rows("block_ids", block_ids.dim(), windows, m, "m", block_size)?;
    check_block_ids(block_ids, block_count(keys.len(), block_size))?;
    let ids = standard("block_ids", block_ids)?;
    let ids = ids
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    let mut scores = filled("token_scores", queries.len(), slots, f32::NEG_INFINITY)?;
    let steps = queries.scoring_steps(slots);
    for_each_row(&mut scores, slots, steps, init, |state, row, out| {
        row_rule(state, row, &ids[row * m..(row + 1) * m], out);
    });
    Ok(matrix(queries.len(), slots, scores))
}
