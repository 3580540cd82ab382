//! `block_topk`: the blocks to keep (SPEC 5).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size};
use crate::shape::Blocks;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::WindowSlices;
use cudarc::driver::CudaStream;
use hisa_ref::Rank;
use hisa_ref::params::block_count;

const THREADS: u32 = 128;
/// For rows longer than this there are [`LONG_ROW_THREADS`].
const LONG_ROW: usize = 2048;
const LONG_ROW_THREADS: u32 = 512;

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// `[M, Nb]` masked scores.
    pub masked: DeviceSlice<'a, f32>,
    /// Windows.
    pub windows: WindowSlices<'a>,
    /// M.
    pub rows: usize,
    /// N.
    pub keys: usize,
    /// B and m.
    pub blocks: Blocks,
    /// What scores are rounded to before they are compared.
    pub rank: Rank,
    /// Out: `[M, m]`.
    pub block_ids: DeviceSliceMut<'a, i32>,
}

/// Chooses the blocks of every row, in ascending order, then -1.
///
/// # Errors
/// [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let (b, kept) = (args.blocks.size(), args.blocks.kept());
    let blocks = block_count(args.keys, b);
    let (ks, ke) = args.windows.holding(args.rows)?;
    let arguments = [
        Arg::Pointer(args.masked.holding("block_mask", args.rows * blocks)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.block_ids.holding("block_ids", args.rows * kept)?),
        size(args.keys),
        size(blocks),
        size(b),
        size(kept),
        Arg::Small(i32::from(args.rank == Rank::Bf16)),
    ];
    let threads = if blocks > LONG_ROW {
        LONG_ROW_THREADS
    } else {
        THREADS
    };
    let grid = Grid::rows(args.rows, threads);
    let kernel = (Unit::BlockTopk, "block_topk");
    put(device, stream, kernel, grid, &arguments)
}
