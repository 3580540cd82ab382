//! `index_map`: slots to ids relative to the row's window (SPEC 8).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size};
use crate::shape::{Blocks, at_most, check_rows_and_keys, elements};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::WindowSlices;
use cudarc::driver::CudaStream;
use hisa_ref::params::INDEX_MAX;

const THREADS: u32 = 256;
/// Columns of a block of threads.
const CHUNK: usize = 2048;

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// `[M, K]`.
    pub slots: DeviceSlice<'a, i32>,
    /// `[M, m]`.
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
    pub indices: DeviceSliceMut<'a, i32>,
}

/// Maps slots to `key - ks`. A slot that stands for no key of the window becomes -1.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let grid = Grid::rows(args.rows, THREADS).every(args.topk, CHUNK);
    let kernel = (Unit::IndexMap, "index_map");
    put(device, stream, kernel, grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 9]> {
    check_rows_and_keys(args.rows, args.keys)?;
    at_most("topk_tokens", args.topk, INDEX_MAX)?;
    let (b, kept) = (args.blocks.size(), args.blocks.kept());
    let ids = elements("block_ids", args.rows, kept)?;
    let slots = elements("slots", args.rows, args.topk)?;
    let (ks, ke) = args.windows.holding(args.rows)?;
    Ok([
        Arg::Pointer(args.slots.holding("slots", slots)?),
        Arg::Pointer(args.block_ids.holding("block_ids", ids)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.indices.holding("indices", slots)?),
        size(args.keys),
        size(b),
        size(kept),
        size(args.topk),
    ])
}
