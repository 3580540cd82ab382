//! `block_topk`: the blocks to keep (SPEC 5).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size};
use crate::shape::{Blocks, check_rows_and_keys, elements};
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
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let threads = if block_count(args.keys, args.blocks.size()) > LONG_ROW {
        LONG_ROW_THREADS
    } else {
        THREADS
    };
    let grid = Grid::rows(args.rows, threads);
    let kernel = (Unit::BlockTopk, "block_topk");
    put(device, stream, kernel, grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 9]> {
    check_rows_and_keys(args.rows, args.keys)?;
    let (b, kept) = (args.blocks.size(), args.blocks.kept());
    let blocks = block_count(args.keys, b);
    let (ks, ke) = args.windows.holding(args.rows)?;
    let masked = elements("block_mask", args.rows, blocks)?;
    let ids = elements("block_ids", args.rows, kept)?;
    Ok([
        Arg::Pointer(args.masked.holding("block_mask", masked)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.block_ids.holding("block_ids", ids)?),
        size(args.keys),
        size(blocks),
        size(b),
        size(kept),
        Arg::Small(i32::from(args.rank == Rank::Bf16)),
    ])
}
