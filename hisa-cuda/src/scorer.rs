//! What the three scorers have in common: how a row of scores is cut, and its shared memory.
//!
//! | kernel | block scores | token scores | flat scores |
//! |---|---|---|---|
//! | column | pooled block | slot | key |

use crate::error::Result;
use crate::launch::Grid;
use crate::device::Limits;
use crate::shape::{Sizes, at_most};
use crate::stages::Scoring;

/// Columns that make a block of threads worth its start.
const CHUNK: usize = 256;

/// The launch of a scorer whose rows have `columns` columns.
///
/// # Errors
/// [`crate::Error::Unsupported`] where a row's queries do not fit the shared memory.
pub(crate) fn grid(
    scoring: Scoring,
    sizes: &Sizes,
    columns: usize,
    limits: &Limits,
) -> Result<Grid> {
    let (h, d) = (sizes.heads, sizes.head_dim);
    let (warps, shared) = match scoring {
        Scoring::TensorCores => tensor_cores(h, d),
        Scoring::Exact => exact(h, d),
    };
    at_most("bytes of shared memory", shared, limits.shared_bytes)?;
    let grid = Grid::rows(sizes.rows, 32 * warps as u32).shared(shared);
    Ok(grid.chunked(columns, CHUNK, limits))
}
