//! `block_sparse`: the baseline that keeps whole blocks (SPEC 9.3).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch, size};
use crate::shape::{Blocks, Sizes, check_rows_and_keys, elements};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::{
    Input, KeySlices, Scoring, WindowSlices, block_mask, block_pool, block_scores, block_topk,
};
use crate::workspace::{Parts, bytes_of, rows_of_a_tile, total};
use cudarc::driver::CudaStream;
use hisa_ref::params::block_count;
use hisa_ref::{HisaParams, Rank};

const THREADS: u32 = 256;

/// `key - ks` `[M, m*B]` of every in-window key of the chosen blocks, ascending, then -1.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn indices(
    device: &Device,
    stream: &CudaStream,
    block_ids: DeviceSlice<'_, i32>,
    windows: WindowSlices<'_>,
    (rows, keys, blocks): (usize, usize, Blocks),
    indices: &mut DeviceSliceMut<'_, i32>,
) -> Result<()> {
    let arguments = arguments(block_ids, windows, (rows, keys, blocks), indices)?;
    let grid = Grid::rows(rows, THREADS);
    let kernel = (Unit::BlockSparse, "block_sparse_indices");
    launch(device, stream, kernel, grid, &arguments)
}

/// What the kernel is given, checked.
fn arguments(
    block_ids: DeviceSlice<'_, i32>,
    windows: WindowSlices<'_>,
    (rows, keys, blocks): (usize, usize, Blocks),
    indices: &DeviceSliceMut<'_, i32>,
) -> Result<[Arg; 7]> {
    check_rows_and_keys(rows, keys)?;
    let (ks, ke) = windows.holding(rows)?;
    let ids = elements("block_ids", rows, blocks.kept())?;
    let len = elements("indices", rows, blocks.slots())?;
    Ok([
        Arg::Pointer(block_ids.holding("block_ids", ids)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(indices.holding("indices", len)?),
        size(keys),
        size(blocks.size()),
        size(blocks.kept()),
    ])
}

/// A run of `block_sparse` with sizes that are known: what it needs and how it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    sizes: Sizes,
    blocks: Blocks,
    rank: Rank,
    scoring: Scoring,
    tile: usize,
}

/// The kernels of a run.
const UNITS: [Unit; 5] = [
    Unit::BlockPool,
    Unit::BlockScores,
    Unit::BlockMask,
    Unit::BlockTopk,
    Unit::BlockSparse,
];

impl Plan {
    /// A plan; its kernels are compiled and loaded. Of `params` it uses B, K and the rank: it
    /// keeps ceil(K/B) blocks.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`], [`crate::Error::Input`]; those of compiling.
    pub fn new(
        device: &Device,
        sizes: Sizes,
        params: &HisaParams,
        scoring: Scoring,
    ) -> Result<Self> {
        let plan = Self::of(sizes, params, scoring)?;
        device.load(&UNITS)?;
        Ok(plan)
    }

    /// The arithmetic of a plan, which needs no device.
    fn of(sizes: Sizes, params: &HisaParams, scoring: Scoring) -> Result<Self> {
        sizes.check()?;
        let b = params.block_size();
        let blocks = Blocks::new(b, block_count(params.topk_tokens(), b))?;
        Ok(Self {
            sizes,
            blocks,
            rank: params.rank(),
            scoring,
            tile: rows_of_a_tile(sizes.rows, sizes.blocks(b) * size_of::<f32>()),
        })
    }

    /// Blocks kept, ceil(K/B).
    #[must_use]
    pub const fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// Bytes of workspace [`Self::run`] takes.
    #[must_use]
    pub const fn workspace_bytes(&self) -> usize {
        let all = self.sizes.blocks(self.blocks.size());
        let pooled = bytes_of::<u8>(all * self.sizes.head_dim) + bytes_of::<f32>(all);
        total(pooled + bytes_of::<f32>(self.tile * all))
    }

    /// Puts the run on the stream: `block_ids` `[M, m]` and `ids` `[M, m*B]`.
    ///
    /// # Errors
    /// [`crate::Error::Length`]; those of launching.
    pub fn run(
        &self,
        device: &Device,
        stream: &CudaStream,
        input: &Input<'_>,
        workspace: &mut DeviceSliceMut<'_, u8>,
        (block_ids, ids): (&mut DeviceSliceMut<'_, i32>, &mut DeviceSliceMut<'_, i32>),
    ) -> Result<()> {
        let Sizes { rows, keys, .. } = self.sizes;
        let (b, kept) = (self.blocks.size(), self.blocks.kept());
        block_ids.holding("block_ids", rows * kept)?;
        ids.holding("indices", rows * self.blocks.slots())?;
        let all = self.sizes.blocks(b);
        let mut parts = Parts::of(workspace, self.workspace_bytes())?;
        let args = block_pool::Args {
            keys: input.keys,
            len: keys,
            head_dim: self.sizes.head_dim,
            block_size: b,
            first_block: 0,
            pooled_k: parts.take::<u8>(all * self.sizes.head_dim)?,
            pooled_scale: parts.take::<f32>(all)?,
        };
        block_pool::launch(device, stream, &args)?;
        let pooled = KeySlices {
            codes: args.pooled_k.read(),
            scales: args.pooled_scale.read(),
        };
        let mut scores = parts.take::<f32>(self.tile * all)?;
        for start in (0..rows).step_by(self.tile) {
            let part = self.tile.min(rows - start);
            let input = input.from_row(start, &self.sizes);
            let scores = (part, &mut scores);
            let chosen = block_ids.from(start * kept);
            self.choose(device, stream, (&input, pooled), scores, chosen)?;
            let chosen = block_ids.read().from(start * kept);
            let sizes = (part, keys, self.blocks);
            let mut to = ids.from(start * self.blocks.slots());
            indices(device, stream, chosen, input.windows, sizes, &mut to)?;
        }
        Ok(())
    }

    /// The blocks of `rows` rows, scored in `scores`.
    fn choose(
        &self,
        device: &Device,
        stream: &CudaStream,
        (input, pooled): (&Input<'_>, KeySlices<'_>),
        (rows, scores): (usize, &mut DeviceSliceMut<'_, f32>),
        block_ids: DeviceSliceMut<'_, i32>,
    ) -> Result<()> {
        let (windows, keys, block_size) = (input.windows, self.sizes.keys, self.blocks.size());
        let scored = block_scores::Args {
            queries: input.queries,
            pooled,
            windows,
            sizes: Sizes { rows, ..self.sizes },
            block_size,
            scoring: self.scoring,
            scores: scores.reborrow(),
        };
        block_scores::launch(device, stream, &scored)?;
        let masked = block_mask::Args {
            scores: scores.reborrow(),
            windows,
            rows,
            keys,
            block_size,
        };
        block_mask::launch(device, stream, &masked)?;
        let chosen = block_topk::Args {
            masked: scores.read(),
            windows,
            rows,
            keys,
            blocks: self.blocks,
            rank: self.rank,
            block_ids,
        };
        block_topk::launch(device, stream, &chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn sizes_past_their_limits_are_refused_by_name() {
        // SAFETY: no address is ever followed.
        let (read, write) = unsafe {
            (
                DeviceSlice::<i32>::from_raw(256, 64),
                DeviceSliceMut::from_raw(256, 64),
            )
        };
        let windows = WindowSlices { ks: read, ke: read };
        let blocks = Blocks::new(2, 2).unwrap();
        let check = |rows, keys| arguments(read, windows, (rows, keys, blocks), &write);
        assert!(check(4, 4).is_ok());
        for value in [1 << 31, (1 << 32) + 1, usize::MAX] {
            for (expected, refused) in [("M", check(value, 4)), ("N", check(4, value))] {
                let named = matches!(&refused, Err(Error::Unsupported { name, .. })
                    if *name == expected);
                assert!(named, "{value}: {refused:?}");
            }
        }
        assert!(matches!(check(17, 4), Err(Error::Length { .. })));
    }

    #[test]
    fn blocks_are_counted_by_tokens_and_rows_cut_into_tiles() {
        let sizes = Sizes {
            rows: 1 << 20,
            keys: 1_000_000,
            heads: 64,
            head_dim: 128,
        };
        let params = HisaParams::new(128, 3, 2049).unwrap();
        let plan = Plan::of(sizes, &params, Scoring::Exact).unwrap();
        assert_eq!(plan.blocks().kept(), 17);
        assert_eq!(plan.tile, (256 << 20) / (7813 * 4));
        assert!(plan.workspace_bytes() < 258 << 20);
    }
}
