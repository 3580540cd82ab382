//! What `hisa` and `block_sparse` begin with: stages 2 to 5, from keys to the blocks of each row.

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::shape::{Blocks, Sizes};
use crate::slice::DeviceSliceMut;
use crate::stages::{Input, KeySlices, Scoring, block_mask, block_pool, block_scores, block_topk};
use crate::workspace::{Parts, bytes_of};
use cudarc::driver::CudaStream;
use hisa_ref::Rank;

/// The kernels of these stages.
pub(crate) const UNITS: [Unit; 4] = [
    Unit::BlockPool,
    Unit::BlockScores,
    Unit::BlockMask,
    Unit::BlockTopk,
];

/// Sizes that were checked, and how blocks are ranked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChooseBlocks {
    pub(crate) sizes: Sizes,
    pub(crate) blocks: Blocks,
    pub(crate) rank: Rank,
    pub(crate) scoring: Scoring,
}

impl ChooseBlocks {
    /// Nb.
    pub(crate) const fn all(&self) -> usize {
        self.sizes.blocks(self.blocks.size())
    }

    /// Bytes of workspace that [`Self::pool`] takes.
    pub(crate) const fn pooled_bytes(&self) -> usize {
        bytes_of::<u8>(self.all() * self.sizes.head_dim) + bytes_of::<f32>(self.all())
    }

    /// Bytes of workspace for the scores of `rows` rows.
    pub(crate) const fn score_bytes(&self, rows: usize) -> usize {
        bytes_of::<f32>(rows * self.all())
    }

    /// Pools all keys into the next parts of the workspace.
    pub(crate) fn pool<'a>(
        &self,
        device: &Device,
        stream: &CudaStream,
        keys: KeySlices<'_>,
        parts: &mut Parts<'a>,
    ) -> Result<Pooled<'a>> {
        let mut pooled = Pooled {
            codes: parts.take(self.all() * self.sizes.head_dim)?,
            scales: parts.take(self.all())?,
        };
        let args = block_pool::Args {
            keys,
            len: self.sizes.keys,
            head_dim: self.sizes.head_dim,
            block_size: self.blocks.size(),
            first_block: 0,
            pooled_k: pooled.codes.reborrow(),
            pooled_scale: pooled.scales.reborrow(),
        };
        block_pool::launch(device, stream, &args)?;
        Ok(pooled)
    }

    /// The blocks of the first `rows` rows of `input`, scored in `scores`.
    pub(crate) fn choose(
        &self,
        device: &Device,
        stream: &CudaStream,
        (input, pooled): (&Input<'_>, KeySlices<'_>),
        (rows, scores): (usize, &mut DeviceSliceMut<'_, f32>),
        block_ids: DeviceSliceMut<'_, i32>,
    ) -> Result<()> {
        let (windows, keys) = (input.windows, self.sizes.keys);
        let block_size = self.blocks.size();
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

/// Pooled keys in a workspace.
#[derive(Debug)]
pub(crate) struct Pooled<'a> {
    codes: DeviceSliceMut<'a, u8>,
    scales: DeviceSliceMut<'a, f32>,
}

impl Pooled<'_> {
    /// To be read by what follows on the stream.
    pub(crate) const fn read(&self) -> KeySlices<'_> {
        KeySlices {
            codes: self.codes.read(),
            scales: self.scales.read(),
        }
    }
}
