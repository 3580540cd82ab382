//! `token_topk`: the slots to keep (SPEC 7).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size, small};
use crate::shape::{Blocks, check_rows_and_keys, check_topk, elements};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::WindowSlices;
use cudarc::driver::CudaStream;

const THREADS: u32 = 512;
/// Most slots of a row whose ranks are kept in shared memory, and most winners beside them:
/// together they fit the multiprocessors of every architecture.
const CACHED_SLOTS_MAX: usize = 8192;
const CACHED_WINNERS_MAX: usize = 4096;

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// `[M, S]`.
    pub token_scores: DeviceSlice<'a, f32>,
    /// `[M, m]`; an id outside `[0, Nb)` is none.
    pub block_ids: DeviceSlice<'a, i32>,
    /// Windows.
    pub windows: WindowSlices<'a>,
    /// M.
    pub rows: usize,
    /// N.
    pub keys: usize,
    /// B and m.
    pub blocks: Blocks,
    /// K.
    pub topk: usize,
    /// Out: `[M, K]`.
    pub slots: DeviceSliceMut<'a, i32>,
}

/// Chooses the best slots of every row, best first, then -1.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let (capacity, cached) = places(args);
    let shared = shared_bytes(capacity) + cached_bytes(cached);
    let grid = Grid::rows(args.rows, THREADS).shared(shared);
    let kernel = (Unit::TokenTopk, "token_topk");
    put(device, stream, kernel, grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 11]> {
    check_rows_and_keys(args.rows, args.keys)?;
    check_topk(args.topk)?;
    let (blocks, rows) = (args.blocks, args.rows);
    let (capacity, cached) = places(args);
    let (ks, ke) = args.windows.holding(rows)?;
    let scores = elements("token_scores", rows, blocks.slots())?;
    let ids = elements("block_ids", rows, blocks.kept())?;
    let slots = elements("slots", rows, args.topk)?;
    Ok([
        Arg::Pointer(args.token_scores.holding("token_scores", scores)?),
        Arg::Pointer(args.block_ids.holding("block_ids", ids)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.slots.holding("slots", slots)?),
        size(args.keys),
        size(blocks.size()),
        size(blocks.kept()),
        size(args.topk),
        small(capacity),
        small(cached),
    ])
}

/// Places for winners, and slots whose ranks are kept beside them.
fn places(args: &Args<'_>) -> (usize, usize) {
    let slots = args.blocks.slots();
    let capacity = winners(args.topk, slots);
    (capacity, cached_slots(capacity, slots))
}

/// Places for the winners of a row, a power of two as the sort wants it.
#[must_use]
pub(crate) fn winners(topk: usize, candidates: usize) -> usize {
    topk.min(candidates).max(1).next_power_of_two()
}

/// Slots of a row whose ranks are kept in shared memory: all or none.
const fn cached_slots(capacity: usize, slots: usize) -> usize {
    if slots <= CACHED_SLOTS_MAX && capacity <= CACHED_WINNERS_MAX {
        slots
    } else {
        0
    }
}

/// A 32-bit rank for each slot.
const fn cached_bytes(cached: usize) -> usize {
    4 * cached
}

/// A 64-bit key for each place.
#[must_use]
pub(crate) const fn shared_bytes(capacity: usize) -> usize {
    8 * capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::TOPK_TOKENS_MAX;

    #[test]
    fn long_rows_and_many_winners_are_not_cached() {
        assert_eq!(cached_slots(2048, 8192), 8192);
        assert_eq!(cached_slots(2048, 8193), 0);
        assert_eq!(cached_slots(4096, 5000), 5000);
        assert_eq!(cached_slots(8192, 8192), 0);
    }

    #[test]
    fn shared_memory_fits_the_smallest_multiprocessor() {
        // sm_89 and sm_120 give a block 99 KiB; the counters and what else is static take 9.
        for topk in [1, 2048, 2049, 4096, 4097, TOPK_TOKENS_MAX] {
            for slots in [1, 4096, 8192, 8193, 1 << 20] {
                let capacity = winners(topk, slots);
                let cached = cached_bytes(cached_slots(capacity, slots));
                assert!(
                    shared_bytes(capacity) + cached <= 90 * 1024,
                    "{topk} {slots}"
                );
            }
        }
    }
}
