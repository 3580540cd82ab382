//! One stage on tensors that lie on the device.

use super::gpu::Gpu;
use super::staged::Staged;
use crate::backend::{Failure, Job};
use hisa_cuda::stages::quantize::RowSlice;
use hisa_cuda::stages::{
    KeySlices, QuerySlices, WindowSlices, block_mask, block_pool, block_scores, block_topk,
    index_map, quantize, token_scores, token_topk,
};
use hisa_cuda::{Blocks, Sizes};
use hisa_ref::Stage;

/// Puts the kernel of `stage` on the stream.
pub(super) fn launch(
    gpu: &Gpu,
    staged: &Staged,
    stage: Stage,
    job: &Job<'_>,
) -> Result<(), Failure> {
    let on = On { gpu, staged, job };
    match stage {
        Stage::Quantize => on.quantize(),
        Stage::BlockPool => on.block_pool(),
        Stage::BlockScores => on.block_scores(),
        Stage::BlockMask => on.block_mask(),
        Stage::BlockTopk => on.block_topk(),
        Stage::TokenScores => on.token_scores(),
        Stage::TokenTopk => on.token_topk(),
        Stage::IndexMap => on.index_map(),
    }
}

/// What every launch needs.
struct On<'a> {
    gpu: &'a Gpu,
    staged: &'a Staged,
    job: &'a Job<'a>,
}

/// M, N, H, D of a job.
pub(super) const fn sizes(job: &Job<'_>) -> Sizes {
    Sizes {
        rows: job.m,
        keys: job.n,
        heads: job.h,
        head_dim: job.d,
    }
}

impl On<'_> {
    fn windows(&self) -> Result<WindowSlices<'_>, Failure> {
        Ok(WindowSlices {
            ks: self.staged.i32(&self.gpu.arena, "ks")?,
            ke: self.staged.i32(&self.gpu.arena, "ke")?,
        })
    }

    fn queries(&self) -> Result<QuerySlices<'_>, Failure> {
        Ok(QuerySlices {
            q: self.staged.codes(&self.gpu.arena, "q")?,
            weights: self.staged.f32(&self.gpu.arena, "weights")?,
        })
    }

    fn keys(&self, codes: &str, scales: &str) -> Result<KeySlices<'_>, Failure> {
        Ok(KeySlices {
            codes: self.staged.codes(&self.gpu.arena, codes)?,
            scales: self.staged.f32(&self.gpu.arena, scales)?,
        })
    }

    /// B, and the columns of the block ids that are written or read.
    fn blocks(&self, kept: usize) -> Result<Blocks, Failure> {
        Ok(Blocks::new(self.job.params.block_size(), kept)?)
    }

    fn quantize(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let x = self.job.f32("x")?;
        let args = quantize::Args {
            x: RowSlice::F32(self.staged.f32(arena, "x")?),
            rows: x.rows(),
            head_dim: x.columns(),
            format: self.job.quantize.format,
            overflow: self.job.quantize.overflow,
            codes: self.staged.codes_out(arena, "codes")?,
            scale: self.staged.f32_out(arena, "scale")?,
        };
        Ok(quantize::launch(device, arena.stream(), &args)?)
    }

    fn block_pool(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let args = block_pool::Args {
            keys: self.keys("k", "k_scale")?,
            len: self.job.n,
            head_dim: self.job.d,
            block_size: self.job.params.block_size(),
            first_block: 0,
            pooled_k: self.staged.codes_out(arena, "pooled_k")?,
            pooled_scale: self.staged.f32_out(arena, "pooled_scale")?,
        };
        Ok(block_pool::launch(device, arena.stream(), &args)?)
    }

    fn block_scores(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let args = block_scores::Args {
            queries: self.queries()?,
            pooled: self.keys("pooled_k", "pooled_scale")?,
            windows: self.windows()?,
            sizes: sizes(self.job),
            block_size: self.job.params.block_size(),
            scoring: self.gpu.scoring,
            scores: self.staged.f32_out(arena, "block_scores")?,
        };
        Ok(block_scores::launch(device, arena.stream(), &args)?)
    }

    fn block_mask(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let args = block_mask::Args {
            scores: self.staged.f32_out(arena, "block_mask")?,
            windows: self.windows()?,
            rows: self.job.m,
            keys: self.job.n,
            block_size: self.job.params.block_size(),
        };
        Ok(block_mask::launch(device, arena.stream(), &args)?)
    }

    fn block_topk(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let args = block_topk::Args {
            masked: self.staged.f32(arena, "block_mask")?,
            windows: self.windows()?,
            rows: self.job.m,
            keys: self.job.n,
            blocks: self.blocks(self.job.params.block_topk())?,
            rank: self.job.params.rank(),
            block_ids: self.staged.i32_out(arena, "block_ids")?,
        };
        Ok(block_topk::launch(device, arena.stream(), &args)?)
    }

    fn token_scores(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let args = token_scores::Args {
            queries: self.queries()?,
            keys: self.keys("k", "k_scale")?,
            block_ids: self.staged.i32(arena, "block_ids")?,
            windows: self.windows()?,
            sizes: sizes(self.job),
            blocks: self.blocks(self.job.i32("block_ids")?.columns())?,
            scoring: self.gpu.scoring,
            scores: self.staged.f32_out(arena, "token_scores")?,
        };
        Ok(token_scores::launch(device, arena.stream(), &args)?)
    }

    fn token_topk(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let args = token_topk::Args {
            token_scores: self.staged.f32(arena, "token_scores")?,
            block_ids: self.staged.i32(arena, "block_ids")?,
            windows: self.windows()?,
            rows: self.job.m,
            keys: self.job.n,
            blocks: self.blocks(self.job.i32("block_ids")?.columns())?,
            topk: self.job.params.topk_tokens(),
            slots: self.staged.i32_out(arena, "slots")?,
        };
        Ok(token_topk::launch(device, arena.stream(), &args)?)
    }

    fn index_map(&self) -> Result<(), Failure> {
        let Gpu { device, arena, .. } = self.gpu;
        let args = index_map::Args {
            slots: self.staged.i32(arena, "slots")?,
            block_ids: self.staged.i32(arena, "block_ids")?,
            windows: self.windows()?,
            rows: self.job.m,
            keys: self.job.n,
            blocks: self.blocks(self.job.i32("block_ids")?.columns())?,
            topk: self.job.i32("slots")?.columns(),
            indices: self.staged.i32_out(arena, "indices")?,
        };
        Ok(index_map::launch(device, arena.stream(), &args)?)
    }
}
