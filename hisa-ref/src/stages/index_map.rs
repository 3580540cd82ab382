//! Stage 8, `index_map`: slots to positions within the row's window (SPEC 8).

use crate::error::{Result, SelectionError};
use crate::input::standard;
use crate::params::{block_count, check_size, filled, slots_per_row};
use crate::ragged::{Window, Windows};
use crate::rows::for_each_row;
use crate::stages::token_scores::check_block_ids;
use crate::stages::{check_rows, matrix};
use ndarray::{Array2, ArrayView2};

/// Maps `slots` `[M,K]` of the blocks `block_ids` `[M,m]` to `indices` `[M,K]`: `key - ks`, and -1
/// where the slot is -1.
///
/// # Errors
/// Shapes that disagree; B, m or K of 0 or past int32; block ids as in `token_scores`; a slot
/// outside `[-1, S)`, in a block column of -1, or outside the row's window.
pub fn run(
    slots: ArrayView2<'_, i32>,
    block_ids: ArrayView2<'_, i32>,
    windows: &Windows,
    block_size: usize,
) -> Result<Array2<i32>> {
    let (m, k) = (block_ids.ncols(), slots.ncols());
    check_slots(slots, block_ids, windows, block_size)?;
    let slots = standard("slots", slots)?;
    let slots = slots
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    let ids = standard("block_ids", block_ids)?;
    let ids = ids
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    let mut indices = filled("indices", windows.len(), k, -1i32)?;
    for_each_row(
        &mut indices,
        k,
        k,
        || (),
        |(), row, out| {
            let (ids, window) = (&ids[row * m..(row + 1) * m], windows.rows()[row]);
            for (index, &slot) in out.iter_mut().zip(&slots[row * k..(row + 1) * k]) {
                if slot >= 0 {
                    *index = (key_of(slot, ids, block_size) - i64::from(window.ks)) as i32;
                }
            }
        },
    );
    Ok(matrix(windows.len(), k, indices))
}

/// That every slot is -1 or stands for a key of its row's window (SPEC 8.3): what [`run`] looks at
/// before it maps anything.
///
/// # Errors
/// As [`run`].
pub fn check_slots(
    slots: ArrayView2<'_, i32>,
    block_ids: ArrayView2<'_, i32>,
    windows: &Windows,
    block_size: usize,
) -> Result<()> {
    let count = check(slots, block_ids, windows, block_size)?;
    let ids = standard("block_ids", block_ids)?;
    for (row, (slots, ids)) in slots.rows().into_iter().zip(ids.rows()).enumerate() {
        let ids = ids
            .to_slice()
            .unwrap_or_else(|| unreachable!("standard layout"));
        for (column, &slot) in slots.iter().enumerate() {
            check_slot(slot, ids, windows.rows()[row], block_size)
                .map_err(|refusal| refusal.at(row, column, slot, count))?;
        }
    }
    Ok(())
}

/// [`run`] as SPEC 8 words it, element by element.
///
/// # Errors
/// As [`run`].
pub fn scalar(
    slots: ArrayView2<'_, i32>,
    block_ids: ArrayView2<'_, i32>,
    windows: &Windows,
    block_size: usize,
) -> Result<Array2<i32>> {
    let count = check(slots, block_ids, windows, block_size)?;
    let mut indices = Array2::from_elem(slots.dim(), -1);
    for ((row, column), &slot) in slots.indexed_iter() {
        let (ids, window) = (block_ids.row(row).to_vec(), windows.rows()[row]);
        check_slot(slot, &ids, window, block_size)
            .map_err(|refusal| refusal.at(row, column, slot, count))?;
        if slot != -1 {
            let key = key_of(slot, &ids, block_size);
            indices[(row, column)] = (key - i64::from(window.ks)) as i32;
        }
    }
    Ok(indices)
}

/// Shapes, parameters and block ids; returns S.
fn check(
    slots: ArrayView2<'_, i32>,
    block_ids: ArrayView2<'_, i32>,
    windows: &Windows,
    block_size: usize,
) -> Result<usize> {
    check_size("block_size", block_size)?;
    check_size("block_topk", block_ids.ncols())?;
    check_size("topk_tokens", slots.ncols())?;
    let count = slots_per_row(block_size, block_ids.ncols())?;
    check_rows(
        "slots",
        slots.dim(),
        windows,
        slots.ncols(),
        "K",
        block_size,
    )?;
    check_rows(
        "block_ids",
        block_ids.dim(),
        windows,
        block_ids.ncols(),
        "m",
        block_size,
    )?;
    check_block_ids(block_ids, block_count(windows.n(), block_size))?;
    Ok(count)
}

fn key_of(slot: i32, ids: &[i32], block_size: usize) -> i64 {
    let (column, offset) = (slot as usize / block_size, slot as usize % block_size);
    i64::from(ids[column]) * block_size as i64 + offset as i64
}

/// Why a slot is refused.
enum Refusal {
    Range,
    NoBlock(usize),
    Window(i64, Window),
}

impl Refusal {
    fn at(self, row: usize, column: usize, slot: i32, slots: usize) -> SelectionError {
        match self {
            Self::Range => SelectionError::Slot {
                row,
                column,
                slot,
                slots,
            },
            Self::NoBlock(block) => SelectionError::SlotInNoBlock {
                row,
                column,
                slot,
                block,
            },
            Self::Window(key, window) => {
                let (ks, ke) = (i64::from(window.ks), i64::from(window.ke));
                SelectionError::SlotOutsideWindow {
                    row,
                    column,
                    slot,
                    key,
                    ks,
                    ke,
                }
            }
        }
    }
}

fn check_slot(
    slot: i32,
    ids: &[i32],
    window: Window,
    block_size: usize,
) -> std::result::Result<(), Refusal> {
    if slot == -1 {
        return Ok(());
    }
    if slot < 0 || slot as usize / block_size >= ids.len() {
        return Err(Refusal::Range);
    }
    let column = slot as usize / block_size;
    if ids[column] < 0 {
        return Err(Refusal::NoBlock(column));
    }
    let key = key_of(slot, ids, block_size);
    if !window.contains(key as usize) {
        return Err(Refusal::Window(key, window));
    }
    Ok(())
}
