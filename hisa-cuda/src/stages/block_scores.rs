//! `block_scores`: every pooled block of a row's block window (SPEC 3).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, launch as put, size, small};
use crate::scorer;
use crate::shape::{Sizes, elements};
use crate::slice::DeviceSliceMut;
use crate::stages::{KeySlices, QuerySlices, Scoring, WindowSlices};
use cudarc::driver::CudaStream;
use hisa_ref::params::check_size;

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// Codes and weights of the rows.
    pub queries: QuerySlices<'a>,
    /// `[Nb, D]` pooled keys.
    pub pooled: KeySlices<'a>,
    /// Windows.
    pub windows: WindowSlices<'a>,
    /// M, N, H, D.
    pub sizes: Sizes,
    /// B.
    pub block_size: usize,
    /// How.
    pub scoring: Scoring,
    /// Out: `[M, Nb]`; `-inf` outside the block window.
    pub scores: DeviceSliceMut<'a, f32>,
}

/// Scores pooled blocks.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let blocks = args.sizes.blocks(args.block_size);
    let grid = scorer::grid(args.scoring, &args.sizes, blocks, device.limits())?;
    let entry = match args.scoring {
        Scoring::Exact => "block_scores_exact",
        Scoring::TensorCores => "block_scores_mma",
    };
    put(device, stream, (Unit::BlockScores, entry), grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 12]> {
    let sizes = args.sizes;
    sizes.check()?;
    check_size("block_size", args.block_size)?;
    let blocks = sizes.blocks(args.block_size);
    let (ks, ke) = args.windows.holding(sizes.rows)?;
    let (q, weights) = args.queries.holding(&sizes)?;
    let (pooled_k, pooled_scale) =
        args.pooled
            .holding(("pooled_k", "pooled_scale"), blocks, sizes.head_dim)?;
    let len = elements("block_scores", sizes.rows, blocks)?;
    Ok([
        Arg::Pointer(q),
        Arg::Pointer(weights),
        Arg::Pointer(pooled_k),
        Arg::Pointer(pooled_scale),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.scores.holding("block_scores", len)?),
        size(sizes.keys),
        size(blocks),
        small(sizes.heads),
        small(sizes.head_dim),
        size(args.block_size),
    ])
}
