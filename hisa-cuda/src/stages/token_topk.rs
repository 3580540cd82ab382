//! `token_topk`: the slots to keep (SPEC 7).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size, small};
use crate::shape::{Blocks, TOPK_TOKENS_MAX, at_most};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::WindowSlices;
use cudarc::driver::CudaStream;
use hisa_ref::params::check_size;

const THREADS: u32 = 256;

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
    check_size("topk_tokens", args.topk)?;
    at_most("topk_tokens", args.topk, TOPK_TOKENS_MAX)?;
    let (blocks, rows) = (args.blocks, args.rows);
    let capacity = winners(args.topk, blocks.slots());
    let (ks, ke) = args.windows.holding(rows)?;
    let scores = args
        .token_scores
        .holding("token_scores", rows * blocks.slots())?;
    let arguments = [
        Arg::Pointer(scores),
        Arg::Pointer(args.block_ids.holding("block_ids", rows * blocks.kept)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.slots.holding("slots", rows * args.topk)?),
        size(args.keys),
        size(blocks.size),
        size(blocks.kept),
        size(args.topk),
        small(capacity),
    ];
    let grid = Grid::rows(rows, THREADS).shared(shared_bytes(capacity));
    let kernel = (Unit::TokenTopk, "token_topk");
    put(device, stream, kernel, grid, &arguments)
}

/// Places for the winners of a row, a power of two as the sort wants it.
#[must_use]
pub(crate) fn winners(topk: usize, candidates: usize) -> usize {
    topk.min(candidates).max(1).next_power_of_two()
}

/// A 64-bit key for each place.
#[must_use]
pub(crate) const fn shared_bytes(capacity: usize) -> usize {
    8 * capacity
}
