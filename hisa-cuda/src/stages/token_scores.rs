//! `token_scores`: every key of a row's kept blocks (SPEC 6).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, launch as put, size, small};
use crate::scorer;
use crate::shape::{Blocks, Sizes, elements};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::{KeySlices, QuerySlices, Scoring, WindowSlices};
use cudarc::driver::CudaStream;

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// Codes and weights of the rows.
    pub queries: QuerySlices<'a>,
    /// `[N, D]` keys.
    pub keys: KeySlices<'a>,
    /// `[M, m]`, in any order; an id outside `[0, Nb)` is none.
    pub block_ids: DeviceSlice<'a, i32>,
    /// Windows.
    pub windows: WindowSlices<'a>,
    /// M, N, H, D.
    pub sizes: Sizes,
    /// B and m.
    pub blocks: Blocks,
    /// How.
    pub scoring: Scoring,
    /// Out: `[M, S]`; `-inf` where a slot is no key of the window.
    pub scores: DeviceSliceMut<'a, f32>,
}

/// Scores the keys of kept blocks.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let columns = args.blocks.slots();
    let grid = scorer::grid(args.scoring, &args.sizes, columns, device.limits())?;
    let entry = match args.scoring {
        Scoring::Exact => "token_scores_exact",
        Scoring::TensorCores => "token_scores_mma",
    };
    put(device, stream, (Unit::TokenScores, entry), grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 13]> {
    let (sizes, blocks) = (args.sizes, args.blocks);
    sizes.check()?;
    let (ks, ke) = args.windows.holding(sizes.rows)?;
    let (q, weights) = args.queries.holding(&sizes)?;
    let names = ("k", "k_scale");
    let (k, k_scale) = args.keys.holding(names, sizes.keys, sizes.head_dim)?;
    let ids = elements("block_ids", sizes.rows, blocks.kept())?;
    let scores = elements("token_scores", sizes.rows, blocks.slots())?;
    Ok([
        Arg::Pointer(q),
        Arg::Pointer(weights),
        Arg::Pointer(k),
        Arg::Pointer(k_scale),
        Arg::Pointer(args.block_ids.holding("block_ids", ids)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(args.scores.holding("token_scores", scores)?),
        size(sizes.keys),
        small(sizes.heads),
        small(sizes.head_dim),
        size(blocks.size()),
        size(blocks.kept()),
    ])
}
