//! Stage 4, `block_mask`: `-inf` outside the block window, `+inf` at its first and last block
//! (SPEC 4). In place, and idempotent.

use crate::error::Result;
use crate::params::block_count;
use crate::ragged::{Window, Windows};
use crate::rows::for_each_row;
use crate::stages::check_rows;
use ndarray::Array2;

/// Masks `scores` `[M,Nb]`; entries inside the window that are not at its ends keep every bit.
///
/// # Errors
/// A shape that is not `[M,Nb]`, B = 0.
pub fn run(scores: &mut Array2<f32>, windows: &Windows, block_size: usize) -> Result<()> {
    rows(scores, windows, block_size, mask_row)
}

/// [`run`] as SPEC 4 words it.
///
/// # Errors
/// As [`run`].
pub fn scalar(scores: &mut Array2<f32>, windows: &Windows, block_size: usize) -> Result<()> {
    rows(scores, windows, block_size, |scores, window, block_size| {
        let blocks = window.blocks(block_size);
        for (block, score) in scores.iter_mut().enumerate() {
            if !blocks.contains(&block) {
                *score = f32::NEG_INFINITY;
            } else if block == blocks.start || block == blocks.end - 1 {
                *score = f32::INFINITY;
            }
        }
    })
}

fn rows(
    scores: &mut Array2<f32>,
    windows: &Windows,
    block_size: usize,
    row_rule: fn(&mut [f32], Window, usize),
) -> Result<()> {
    let columns = if block_size == 0 {
        0
    } else {
        block_count(windows.n(), block_size)
    };
    check_rows(
        "block_scores",
        scores.dim(),
        windows,
        columns,
        "Nb",
        block_size,
    )?;
    if !scores.is_standard_layout() {
        *scores = scores.as_standard_layout().into_owned();
    }
    let values = scores
        .as_slice_mut()
        .unwrap_or_else(|| unreachable!("standard layout"));
    for_each_row(
        values,
        columns,
        columns,
        || (),
        |(), row, out| {
            row_rule(out, windows.rows()[row], block_size);
        },
    );
    Ok(())
}

fn mask_row(scores: &mut [f32], window: Window, block_size: usize) {
    let blocks = window.blocks(block_size);
    scores[..blocks.start].fill(f32::NEG_INFINITY);
    scores[blocks.end..].fill(f32::NEG_INFINITY);
    if !blocks.is_empty() {
        scores[blocks.start] = f32::INFINITY;
        scores[blocks.end - 1] = f32::INFINITY;
    }
}
