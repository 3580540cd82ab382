//! What the three scorers have in common: how a row of scores is cut, and its shared memory.
//!
//! | kernel | block scores | token scores | flat scores |
//! |---|---|---|---|
//! | column | pooled block | slot | key |

use crate::device::Limits;
use crate::error::Result;
use crate::launch::Grid;
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
        Scoring::TensorCores => tensor_cores(h, d, limits.shared_bytes),
        Scoring::Exact => exact(h, d),
    };
    at_most("bytes of shared memory", shared, limits.shared_bytes)?;
    let grid = Grid::rows(sizes.rows, 32 * warps as u32).shared(shared);
    Ok(grid.chunked(columns, CHUNK, limits))
}

/// Warps, and the shared memory that `common/score_exact.cuh` lays out: the query, decoded by half.
const fn exact(h: usize, d: usize) -> (usize, usize) {
    let heads = h.next_multiple_of(32);
    (8, 2 * heads * d.next_multiple_of(16) + 8 * heads)
}

/// Warps, and the shared memory that `common/score_mma.cuh` lays out for them: weights, the query
/// as f16 fragments, two buffers of keys for each warp. Eight warps where twice their memory stays
/// within `limit`, what one block may have, so that two such blocks fit a multiprocessor, which has
/// at least as much; else four.
fn tensor_cores(h: usize, d: usize, limit: usize) -> (usize, usize) {
    let tiles = h.div_ceil(8);
    let steps = d.div_ceil(16).next_power_of_two().max(2);
    let fragments = if steps <= 8 { 2 } else { 1 };
    let bytes = |warps| {
        let keys = warps * 2 * 16 * fragments * (16 * steps + 16);
        32 * tiles + 256 * tiles * steps + keys
    };
    let warps = if 2 * bytes(8) <= limit { 8 } else { 4 };
    (warps, bytes(warps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::Arch;

    const SCORINGS: [Scoring; 2] = [Scoring::Exact, Scoring::TensorCores];

    fn limits(shared_bytes: usize) -> Limits {
        Limits {
            name: "test".to_owned(),
            arch: Arch::CI[0],
            multiprocessors: 100,
            shared_bytes,
            memory: 1 << 35,
        }
    }

    fn sizes(heads: usize, head_dim: usize) -> Sizes {
        Sizes {
            rows: 1000,
            keys: 1000,
            heads,
            head_dim,
        }
    }

    #[test]
    fn every_row_fits_the_smallest_multiprocessor() {
        // 99 KiB: what a block may have on sm_86, sm_89 and sm_120.
        let limits = limits(99 << 10);
        for scoring in SCORINGS {
            for h in 1..=crate::shape::HEADS_MAX {
                for d in 1..=crate::shape::HEAD_DIM_MAX {
                    let grid = grid(scoring, &sizes(h, d), 8192, &limits);
                    assert!(grid.is_ok(), "{scoring:?} {h} {d}: {grid:?}");
                }
            }
        }
    }

    #[test]
    fn large_multiprocessors_get_more_warps() {
        let of = |bytes| {
            let limits = limits(bytes);
            grid(Scoring::TensorCores, &sizes(64, 128), 8192, &limits).unwrap()
        };
        assert_eq!((of(227 << 10).threads, of(99 << 10).threads), (256, 128));
        assert_eq!(of(227 << 10).shared, 256 + 16_384 + 73_728);
    }
}
