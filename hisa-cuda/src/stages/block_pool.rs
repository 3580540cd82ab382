//! `block_pool`: one mean key per block (SPEC 2).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size, small};
use crate::shape::{HEAD_DIM_MAX, at_most, elements};
use crate::slice::DeviceSliceMut;
use crate::stages::KeySlices;
use cudarc::driver::CudaStream;
use hisa_ref::params::{INDEX_MAX, block_count, check_size};

const THREADS: u32 = 256;

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// All `[N, D]` keys.
    pub keys: KeySlices<'a>,
    /// N.
    pub len: usize,
    /// D.
    pub head_dim: usize,
    /// B.
    pub block_size: usize,
    /// The first block to be pooled; those before it stay as they are.
    pub first_block: usize,
    /// Out: `[Nb, D]`.
    pub pooled_k: DeviceSliceMut<'a, u8>,
    /// Out: `[Nb]`.
    pub pooled_scale: DeviceSliceMut<'a, f32>,
}

/// Pools the blocks from `first_block` on.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let blocks = block_count(args.len, args.block_size);
    let grid = Grid::rows(blocks.saturating_sub(args.first_block), THREADS);
    let kernel = (Unit::BlockPool, "block_pool");
    put(device, stream, kernel, grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 8]> {
    let (n, d, b) = (args.len, args.head_dim, args.block_size);
    check_size("block_size", b)?;
    at_most("D", d, HEAD_DIM_MAX)?;
    check_size("D", d)?;
    at_most("N", n, INDEX_MAX)?;
    let blocks = block_count(n, b);
    let len = elements("pooled_k", blocks, d)?;
    Ok([
        Arg::Pointer(args.keys.codes.holding("k", elements("k", n, d)?)?),
        Arg::Pointer(args.keys.scales.holding("k_scale", n)?),
        Arg::Pointer(args.pooled_k.holding("pooled_k", len)?),
        Arg::Pointer(args.pooled_scale.holding("pooled_scale", blocks)?),
        size(n),
        small(d),
        size(b),
        size(args.first_block.min(blocks)),
    ])
}
