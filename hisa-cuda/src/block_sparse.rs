//! `block_sparse`: the baseline that keeps whole blocks (SPEC 9.3).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch, size};
use crate::shape::Blocks;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::WindowSlices;
use cudarc::driver::CudaStream;

const THREADS: u32 = 256;

/// `key - ks` `[M, m*B]` of every in-window key of the chosen blocks, ascending, then -1.
///
/// # Errors
/// [`crate::Error::Length`]; those of compiling and launching.
pub fn indices(
    device: &Device,
    stream: &CudaStream,
    block_ids: DeviceSlice<'_, i32>,
    windows: WindowSlices<'_>,
    (rows, keys, blocks): (usize, usize, Blocks),
    indices: &DeviceSliceMut<'_, i32>,
) -> Result<()> {
    let (ks, ke) = windows.holding(rows)?;
    let arguments = [
        Arg::Pointer(block_ids.holding("block_ids", rows * blocks.kept)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(indices.holding("indices", rows * blocks.slots())?),
        size(keys),
        size(blocks.size),
        size(blocks.kept),
    ];
    let kernel = (Unit::BlockSparse, "block_sparse_indices");
    launch(
        device,
        stream,
        kernel,
        Grid::rows(rows, THREADS),
        &arguments,
    )
}
