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

use crate::choose_blocks::{self, ChooseBlocks};
use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::shape::{Blocks, Sizes, check_topk, elements};
use crate::slice::DeviceSliceMut;
use crate::stages::{Input, KeySlices, Scoring, index_map, token_scores, token_topk};
use crate::workspace::{Parts, bytes_of, rows_of_a_tile, total};
use cudarc::driver::CudaStream;
use hisa_ref::HisaParams;

/// A run of `hisa` with sizes that are known: what it needs and how it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    choice: ChooseBlocks,
    topk: usize,
    tile: usize,
}

/// The kernels of a run after those of [`choose_blocks`].
const UNITS: [Unit; 3] = [Unit::TokenScores, Unit::TokenTopk, Unit::IndexMap];

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
        device.load(&choose_blocks::UNITS)?;
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
            choice: ChooseBlocks {
                sizes,
                blocks,
                rank: params.rank(),
                scoring,
            },
            topk: params.topk_tokens(),
            tile: rows_of_a_tile(sizes.rows, row * size_of::<f32>()),
        })
    }

    /// Bytes of workspace [`Self::run`] takes.
    #[must_use]
    pub const fn workspace_bytes(&self) -> usize {
        total(self.choice.pooled_bytes() + self.tile_bytes())
    }

    /// Bytes of workspace [`Self::run_pooled`] takes.
    #[must_use]
    pub const fn pooled_workspace_bytes(&self) -> usize {
        total(self.tile_bytes())
    }

    const fn tile_bytes(&self) -> usize {
        let blocks = self.choice.blocks;
        self.choice.score_bytes(self.tile)
            + bytes_of::<i32>(self.tile * blocks.kept())
            + bytes_of::<f32>(self.tile * blocks.slots())
            + bytes_of::<i32>(self.tile * self.topk)
    }

    /// Puts the run on the stream: `indices` `[M, K]`. The device is that of
    /// [`Self::new`]; another one compiles and loads its kernels first.
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
        let mut parts = Parts::of(workspace, self.workspace_bytes())?;
        let pooled = self.choice.pool(device, stream, input.keys, &mut parts)?;
        self.tiles(device, stream, (input, pooled.read()), parts, indices)
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
        let ChooseBlocks { sizes, blocks, .. } = self.choice;
        indices.holding("indices", elements("indices", sizes.rows, self.topk)?)?;
        let mut tile = Tile {
            block_scores: parts.take(self.tile * self.choice.all())?,
            block_ids: parts.take(self.tile * blocks.kept())?,
            token_scores: parts.take(self.tile * blocks.slots())?,
            slots: parts.take(self.tile * self.topk)?,
        };
        for start in (0..sizes.rows).step_by(self.tile) {
            let rows = self.tile.min(sizes.rows - start);
            let input = input.from_row(start, &sizes);
            let scores = (rows, &mut tile.block_scores);
            let block_ids = tile.block_ids.reborrow();
            let from = (&input, pooled);
            self.choice
                .choose(device, stream, from, scores, block_ids)?;
            let indices = indices.tail(start * self.topk);
            self.choose_tokens(device, stream, &input, rows, &mut tile, indices)?;
        }
        Ok(())
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
        let ChooseBlocks { sizes, blocks, .. } = self.choice;
        let (windows, keys) = (input.windows, sizes.keys);
        let scored = token_scores::Args {
            queries: input.queries,
            keys: input.keys,
            block_ids: tile.block_ids.read(),
            windows,
            sizes: Sizes { rows, ..sizes },
            blocks,
            scoring: self.choice.scoring,
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
        assert_eq!(plan(1, 1000).choice.blocks.kept(), 8);
        assert_eq!(plan(1, 0).choice.blocks.kept(), 1);
        assert_eq!(plan(1, 1 << 20).choice.blocks.kept(), 64);
    }

    #[test]
    fn pooled_keys_of_the_caller_need_less() {
        let plan = plan(1024, 65_536);
        let pooled = plan.workspace_bytes() - plan.pooled_workspace_bytes();
        assert_eq!(pooled, 512 * 128 + 512 * 4);
    }
}
