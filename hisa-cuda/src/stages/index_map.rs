//! `index_map`: slots to ids relative to the row's window (SPEC 8).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size};
use crate::shape::Blocks;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::WindowSlices;
use cudarc::driver::CudaStream;

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
/// [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let (b, kept) = (args.blocks.size(), args.blocks.kept());
    let ids = args.rows * args.topk;
    let (ks, ke) = args.windows.holding(args.rows)?;
    let arguments = [
        Arg::Pointer(args.slots.holding("slots", ids)?),
        Arg::Pointer(args.block_ids.holding("block_ids", args.rows * kept)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.indices.holding("indices", ids)?),
        size(args.keys),
        size(b),
        size(kept),
        size(args.topk),
    ];
    let grid = Grid::rows(args.rows, THREADS).every(args.topk, CHUNK);
    let kernel = (Unit::IndexMap, "index_map");
    put(device, stream, kernel, grid, &arguments)
}
