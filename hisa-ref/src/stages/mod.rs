//! The eight stages, in order. Each file holds the inputs and outputs of one stage, `scalar`, the
//! definition that reads like its SPEC section, and `run`, the fast path with the same bits.

pub mod quantize;

pub mod block_pool;

pub mod block_scores;

pub mod block_mask;

pub mod block_topk;

pub mod token_scores;

pub mod token_topk;

pub mod index_map;

use crate::error::{Result, ShapeError, WindowError};
use crate::params::check_size;
use crate::ragged::Windows;
use ndarray::{Array2, ShapeBuilder};

/// A row-major matrix from a vector of exactly its size.
pub(crate) fn matrix<T>(rows: usize, columns: usize, values: Vec<T>) -> Array2<T> {
    Array2::from_shape_vec((rows, columns).into_shape_with_order(), values)
        .unwrap_or_else(|_| unreachable!("the vector was made with rows * columns elements"))
}

/// `argument` has one row per window and `columns` columns, which errors call `letters`; B is
/// usable.
///
/// # Errors
/// A B outside V.9, [`WindowError::RowCounts`], [`ShapeError`].
pub fn check_rows(
    argument: &'static str,
    shape: (usize, usize),
    windows: &Windows,
    columns: usize,
    letters: &str,
    block_size: usize,
) -> Result<()> {
    check_size("block_size", block_size)?;
    if shape.0 != windows.len() {
        let rows = windows.len();
        return Err(WindowError::RowCounts {
            ks: rows,
            ke: rows,
            m: shape.0,
        }
        .into());
    }
    if shape.1 != columns {
        let expected = format!("[M,{letters}] = [{}, {columns}]", windows.len());
        return Err(ShapeError::new(argument, &[shape.0, shape.1], expected).into());
    }
    Ok(())
}
