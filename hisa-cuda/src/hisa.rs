//! `hisa`, the whole indexer: stages 2 to 8, one kernel each (SPEC 9.1).
//!
//! ```text
//! block_pool -> block_scores -> block_mask -> block_topk
//!            -> token_scores -> token_topk -> index_map
//! ```
//!
//! Pooling is done once for all rows; the stages after it run tile of rows by tile of rows, so
//! that the workspace does not grow with M. Rows do not influence each other (SPEC 10.9), so the
//! tile changes no bit.

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::shape::{Blocks, Sizes, check_topk};
use crate::slice::DeviceSliceMut;
use crate::stages::{
    Input, KeySlices, Scoring, block_mask, block_pool, block_scores, block_topk, index_map,
    token_scores, token_topk,
};
use crate::workspace::{Parts, bytes_of, rows_of_a_tile, total};
use cudarc::driver::CudaStream;
use hisa_ref::{HisaParams, Rank};

/// A run of `hisa` with sizes that are known: what it needs and how it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    sizes: Sizes,
    blocks: Blocks,
    topk: usize,
    rank: Rank,
    scoring: Scoring,
    tile: usize,
}

/// The kernels of a run.
const UNITS: [Unit; 7] = [
    Unit::BlockPool,
    Unit::BlockScores,
    Unit::BlockMask,
    Unit::BlockTopk,
    Unit::TokenScores,
    Unit::TokenTopk,
    Unit::IndexMap,
];

impl Plan {
    /// A plan; its kernels are compiled and loaded.
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
        check_topk(params.topk_tokens())?;
        let all = sizes.blocks(params.block_size());
        // Columns beyond the blocks there are would hold -1 in every row.
        let kept = params.block_topk().min(all).max(1);
        let blocks = Blocks::new(params.block_size(), kept)?;
        let row = all + kept + blocks.slots() + params.topk_tokens();
        Ok(Self {
            sizes,
            blocks,
            topk: params.topk_tokens(),
            rank: params.rank(),
            scoring,
            tile: rows_of_a_tile(sizes.rows, row * size_of::<f32>()),
        })
    }

    /// Bytes of workspace [`Self::run`] takes.
    #[must_use]
    pub const fn workspace_bytes(&self) -> usize {
        let all = self.sizes.blocks(self.blocks.size());
        let pooled = bytes_of::<u8>(all * self.sizes.head_dim) + bytes_of::<f32>(all);
        total(pooled + self.tile_bytes())
    }

    /// Bytes of workspace [`Self::run_pooled`] takes.
    #[must_use]
    pub const fn pooled_workspace_bytes(&self) -> usize {
        total(self.tile_bytes())
    }

    const fn tile_bytes(&self) -> usize {
        let all = self.sizes.blocks(self.blocks.size());
        bytes_of::<f32>(self.tile * all)
            + bytes_of::<i32>(self.tile * self.blocks.kept())
            + bytes_of::<f32>(self.tile * self.blocks.slots())
            + bytes_of::<i32>(self.tile * self.topk)
    }

    /// Puts the run on the stream: `indices` `[M, K]`.
    ///
    /// # Errors
    /// [`crate::Error::Length`]; those of launching.
    pub fn run(
        &self,
        device: &Device,
        stream: &CudaStream,
        input: &Input<'_>,
        workspace: &mut DeviceSliceMut<'_, u8>,
        indices: &mut DeviceSliceMut<'_, i32>,
    ) -> Result<()> {
        let all = self.sizes.blocks(self.blocks.size());
        let mut parts = Parts::of(workspace, self.workspace_bytes())?;
        let pooled_k = parts.take::<u8>(all * self.sizes.head_dim)?;
        let pooled_scale = parts.take::<f32>(all)?;
        let args = block_pool::Args {
            keys: input.keys,
            len: self.sizes.keys,
            head_dim: self.sizes.head_dim,
            block_size: self.blocks.size(),
            first_block: 0,
            pooled_k,
            pooled_scale,
        };
        block_pool::launch(device, stream, &args)?;
        let pooled = KeySlices {
            codes: args.pooled_k.read(),
            scales: args.pooled_scale.read(),
        };
        self.tiles(device, stream, (input, pooled), parts, indices)
    }

    /// The same on keys that were pooled before: `pooled` holds Nb blocks.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_pooled(
        &self,
        device: &Device,
        stream: &CudaStream,
        (input, pooled): (&Input<'_>, KeySlices<'_>),
        workspace: &mut DeviceSliceMut<'_, u8>,
        indices: &mut DeviceSliceMut<'_, i32>,
    ) -> Result<()> {
        let parts = Parts::of(workspace, self.pooled_workspace_bytes())?;
        self.tiles(device, stream, (input, pooled), parts, indices)
    }

    fn tiles(
        &self,
        device: &Device,
        stream: &CudaStream,
        (input, pooled): (&Input<'_>, KeySlices<'_>),
        mut parts: Parts<'_>,
        indices: &mut DeviceSliceMut<'_, i32>,
    ) -> Result<()> {
        let rows = self.sizes.rows;
        indices.holding("indices", rows * self.topk)?;
        let all = self.sizes.blocks(self.blocks.size());
        let mut tile = Tile {
            block_scores: parts.take(self.tile * all)?,
            block_ids: parts.take(self.tile * self.blocks.kept())?,
            token_scores: parts.take(self.tile * self.blocks.slots())?,
            slots: parts.take(self.tile * self.topk)?,
        };
        for start in (0..rows).step_by(self.tile) {
            let count = self.tile.min(rows - start);
            let input = input.from_row(start, &self.sizes);
            self.choose_blocks(device, stream, (&input, pooled), count, &mut tile)?;
            let indices = indices.from(start * self.topk);
            self.choose_tokens(device, stream, &input, count, &mut tile, indices)?;
        }
        Ok(())
    }

    fn choose_blocks(
        &self,
        device: &Device,
        stream: &CudaStream,
        (input, pooled): (&Input<'_>, KeySlices<'_>),
        rows: usize,
        tile: &mut Tile<'_>,
    ) -> Result<()> {
        let (windows, keys) = (input.windows, self.sizes.keys);
        let scored = block_scores::Args {
            queries: input.queries,
            pooled,
            windows,
            sizes: Sizes { rows, ..self.sizes },
            block_size: self.blocks.size(),
            scoring: self.scoring,
            scores: tile.block_scores.reborrow(),
        };
        block_scores::launch(device, stream, &scored)?;
        let masked = block_mask::Args {
            scores: tile.block_scores.reborrow(),
            windows,
            rows,
            keys,
            block_size: self.blocks.size(),
        };
        block_mask::launch(device, stream, &masked)?;
        let chosen = block_topk::Args {
            masked: tile.block_scores.read(),
            windows,
            rows,
            keys,
            blocks: self.blocks,
            rank: self.rank,
            block_ids: tile.block_ids.reborrow(),
        };
        block_topk::launch(device, stream, &chosen)
    }

    fn choose_tokens(
        &self,
        device: &Device,
        stream: &CudaStream,
        input: &Input<'_>,
        rows: usize,
        tile: &mut Tile<'_>,
        indices: DeviceSliceMut<'_, i32>,
    ) -> Result<()> {
        let (windows, keys, blocks) = (input.windows, self.sizes.keys, self.blocks);
        let scored = token_scores::Args {
            queries: input.queries,
            keys: input.keys,
            block_ids: tile.block_ids.read(),
            windows,
            sizes: Sizes { rows, ..self.sizes },
            blocks,
            scoring: self.scoring,
            scores: tile.token_scores.reborrow(),
        };
        token_scores::launch(device, stream, &scored)?;
        let chosen = token_topk::Args {
            token_scores: tile.token_scores.read(),
            block_ids: tile.block_ids.read(),
            windows,
            rows,
            keys,
            blocks,
            topk: self.topk,
            slots: tile.slots.reborrow(),
        };
        token_topk::launch(device, stream, &chosen)?;
        let mapped = index_map::Args {
            slots: tile.slots.read(),
            block_ids: tile.block_ids.read(),
            windows,
            rows,
            keys,
            blocks,
            topk: self.topk,
            indices,
        };
        index_map::launch(device, stream, &mapped)
    }
}

/// The intermediates of the rows in flight.
struct Tile<'a> {
    block_scores: DeviceSliceMut<'a, f32>,
    block_ids: DeviceSliceMut<'a, i32>,
    token_scores: DeviceSliceMut<'a, f32>,
    slots: DeviceSliceMut<'a, i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rows: usize, keys: usize) -> Plan {
        let sizes = Sizes {
            rows,
            keys,
            heads: 64,
            head_dim: 128,
        };
        Plan::of(sizes, &HisaParams::DEEPSEEK_V32, Scoring::Exact).unwrap()
    }

    #[test]
    fn workspaces_stay_bounded_while_rows_grow() {
        let small = plan(1024, 65_536);
        assert_eq!(small.tile, 1024);
        let large = plan(1 << 22, 65_536);
        assert!(large.workspace_bytes() < 300 << 20, "{large:?}");
        assert!(large.tile > 1024);
    }

    #[test]
    fn no_column_is_planned_for_blocks_that_do_not_exist() {
        assert_eq!(plan(1, 1000).blocks.kept(), 8);
        assert_eq!(plan(1, 0).blocks.kept(), 1);
        assert_eq!(plan(1, 1 << 20).blocks.kept(), 64);
    }

    #[test]
    fn pooled_keys_of_the_caller_need_less() {
        let plan = plan(1024, 65_536);
        let pooled = plan.workspace_bytes() - plan.pooled_workspace_bytes();
        assert_eq!(pooled, 512 * 128 + 512 * 4);
    }
}
