//! Stage 5, `block_topk`: the blocks to keep (SPEC 5).
//!
//! Order: the last block of the window, then its first, then the rank key descending with NaN
//! after `-inf`, ties by lower id. The chosen blocks are written in ascending id.

use crate::bf16::round_to_bf16;
use crate::error::Result;
use crate::input::standard;
use crate::order::{compare_scores, rank_key};
use crate::params::{Rank, block_count, check_size, filled, slots_per_row};
use crate::ragged::Windows;
use crate::rows::for_each_row;
use crate::stages::{check_rows, matrix};
use ndarray::{Array2, ArrayView2};
use std::cmp::Ordering;
use std::ops::Range;

/// Chooses `block_topk` blocks per row from masked scores `[M,Nb]`.
///
/// Returns `block_ids` `[M,m]`: ascending ids, then -1. Forcing goes by position, not by looking
/// for `+inf`.
///
/// # Errors
/// A shape that is not `[M,Nb]`, B or m of 0, `m*B` past int32.
pub fn run(
    masked: ArrayView2<'_, f32>,
    windows: &Windows,
    block_size: usize,
    block_topk: usize,
    rank: Rank,
) -> Result<Array2<i32>> {
    rows(
        masked,
        windows,
        block_size,
        block_topk,
        |scratch, scores, blocks, chosen| {
            choose(scratch, |block| scores[block], blocks, rank, chosen);
        },
    )
}

/// [`run`] as SPEC 5 words it.
///
/// # Errors
/// As [`run`].
pub fn scalar(
    masked: ArrayView2<'_, f32>,
    windows: &Windows,
    block_size: usize,
    block_topk: usize,
    rank: Rank,
) -> Result<Array2<i32>> {
    rows(
        masked,
        windows,
        block_size,
        block_topk,
        |_, scores, blocks, chosen| {
            let last = blocks.end.wrapping_sub(1);
            let forced = |block: usize| block == last || block == blocks.start;
            let before = |&a: &usize, &b: &usize| {
                // `last` before `start`: where both are forced the higher id wins.
                match (forced(a), forced(b)) {
                    (true, true) => b.cmp(&a),
                    (true, false) => Ordering::Less,
                    (false, true) => Ordering::Greater,
                    (false, false) => {
                        compare_scores(rank_value(scores[a], rank), rank_value(scores[b], rank))
                            .then(a.cmp(&b))
                    }
                }
            };
            let mut order: Vec<usize> = blocks.clone().collect();
            order.sort_by(before);
            order.truncate(chosen.len());
            order.sort_unstable();
            for (slot, block) in chosen.iter_mut().zip(order) {
                *slot = block as i32;
            }
        },
    )
}

/// The rank key of a block score (SPEC 5.1).
#[must_use]
pub fn rank_value(score: f32, rank: Rank) -> f32 {
    match rank {
        Rank::Bf16 => round_to_bf16(score),
        Rank::F32 => score,
    }
}

fn rows(
    masked: ArrayView2<'_, f32>,
    windows: &Windows,
    block_size: usize,
    block_topk: usize,
    row_rule: impl Fn(&mut Vec<u64>, &[f32], Range<usize>, &mut [i32]) + Sync + Send,
) -> Result<Array2<i32>> {
    check_size("block_size", block_size)?;
    check_size("block_topk", block_topk)?;
    slots_per_row(block_size, block_topk)?;
    let columns = block_count(windows.n(), block_size);
    check_rows(
        "block_mask",
        masked.dim(),
        windows,
        columns,
        "Nb",
        block_size,
    )?;
    let masked = standard("block_mask", masked)?;
    let scores = masked
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    let mut ids = filled("block_ids", windows.len(), block_topk, -1i32)?;
    for_each_row(
        &mut ids,
        block_topk,
        columns,
        Vec::new,
        |scratch, row, chosen| {
            let blocks = windows.rows()[row].blocks(block_size);
            row_rule(
                scratch,
                &scores[row * columns..(row + 1) * columns],
                blocks,
                chosen,
            );
        },
    );
    Ok(matrix(windows.len(), block_topk, ids))
}

/// Writes the first `chosen.len()` blocks of the order in ascending id; `chosen` holds -1 before.
/// Returns how many there are.
///
/// One u64 a block carries the whole order: rank key above, complement of the id below; no key
/// occurs twice, so an unstable selection is determined.
pub(crate) fn choose(
    keys: &mut Vec<u64>,
    score: impl Fn(usize) -> f32,
    blocks: Range<usize>,
    rank: Rank,
    chosen: &mut [i32],
) -> usize {
    let keep = blocks.len().min(chosen.len());
    if keep == blocks.len() {
        for (slot, block) in chosen.iter_mut().zip(blocks) {
            *slot = block as i32;
        }
        return keep;
    }
    let last = blocks.end - 1;
    keys.clear();
    keys.extend(blocks.clone().map(|block| {
        // No score reaches the two keys above the rank of +inf.
        let high = if block == last {
            u32::MAX
        } else if block == blocks.start {
            u32::MAX - 1
        } else {
            rank_key(rank_value(score(block), rank))
        };
        (u64::from(high) << 32) + u64::from(!(block as u32))
    }));
    keys.select_nth_unstable_by(keep, |a, b| b.cmp(a));
    for (slot, &key) in chosen.iter_mut().zip(&keys[..keep]) {
        *slot = !(key as u32) as i32;
    }
    chosen[..keep].sort_unstable();
    keep
}
