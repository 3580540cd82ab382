//! `block_mask`: infinities outside and at the ends of block windows (SPEC 4).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size};
use crate::shape::{check_rows_and_keys, elements};
use crate::slice::DeviceSliceMut;
use crate::stages::WindowSlices;
use cudarc::driver::CudaStream;
use hisa_ref::params::{block_count, check_size};

const THREADS: u32 = 256;
/// Columns of a block of threads.
const CHUNK: usize = 2048;

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// In and out: `[M, Nb]`.
    pub scores: DeviceSliceMut<'a, f32>,
    /// Windows.
    pub windows: WindowSlices<'a>,
    /// M.
    pub rows: usize,
    /// N.
    pub keys: usize,
    /// B.
    pub block_size: usize,
}

/// Masks block scores in place.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let blocks = block_count(args.keys, args.block_size);
    let grid = Grid::rows(args.rows, THREADS).every(blocks, CHUNK);
    let kernel = (Unit::BlockMask, "block_mask");
    put(device, stream, kernel, grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 6]> {
    check_rows_and_keys(args.rows, args.keys)?;
    check_size("block_size", args.block_size)?;
    let blocks = block_count(args.keys, args.block_size);
    let (ks, ke) = args.windows.holding(args.rows)?;
    let len = elements("block_scores", args.rows, blocks)?;
    Ok([
        Arg::Pointer(args.scores.holding("block_scores", len)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        size(args.keys),
        size(blocks),
        size(args.block_size),
    ])
}
