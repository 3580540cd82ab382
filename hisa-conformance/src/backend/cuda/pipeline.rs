//! The indexers, and pooling of keys that arrive in pieces.

use super::gpu::Gpu;
use super::stage::sizes;
use super::staged::Staged;
use crate::backend::{Failure, Job};
use crate::op::Op;
use hisa_cuda::incremental::PooledCache;
use hisa_cuda::stages::{Input, KeySlices, QuerySlices, WindowSlices};
use hisa_cuda::{block_sparse, dsa, hisa};
use std::sync::Arc;

/// Puts an indexer on the stream; its workspace holds `fill` before.
pub(super) fn launch(
    gpu: &mut Gpu,
    staged: &Staged,
    job: &Job<'_>,
    fill: u32,
) -> Result<(), Failure> {
    let Gpu {
        device,
        arena,
        scratch,
        scoring,
        ..
    } = gpu;
    let stream = Arc::clone(arena.stream());
    let (device, arena, scoring) = (&*device, &*arena, *scoring);
    let input = Input {
        queries: QuerySlices {
            q: staged.codes(arena, "q")?,
            weights: staged.f32(arena, "weights")?,
        },
        keys: KeySlices {
            codes: staged.codes(arena, "k")?,
            scales: staged.f32(arena, "k_scale")?,
        },
        windows: WindowSlices {
            ks: staged.i32(arena, "ks")?,
            ke: staged.i32(arena, "ke")?,
        },
    };
    let (sizes, topk) = (sizes(job), job.params.topk_tokens());
    let mut indices = staged.i32_out(arena, "indices")?;
    match job.op {
        Op::Dsa => {
            let mut scores = staged.f32_out(arena, "flat_scores")?;
            dsa::flat_scores(device, &stream, &input, &sizes, scoring, &mut scores)?;
            let counts = (job.m, job.n, topk);
            let (scores, windows) = (scores.read(), input.windows);
            dsa::flat_topk(device, &stream, scores, windows, counts, &mut indices)?;
        }
        Op::BlockSparse => {
            let plan = block_sparse::Plan::new(device, sizes, &job.params, scoring)?;
            let mut space = scratch.filled(plan.workspace_bytes(), fill)?;
            let mut ids = staged.i32_out(arena, "block_ids")?;
            let out = (&mut ids, &mut indices);
            plan.run(device, &stream, &input, &mut space, out)?;
        }
        _ => {
            let plan = hisa::Plan::new(device, sizes, &job.params, scoring)?;
            let mut space = scratch.filled(plan.workspace_bytes(), fill)?;
            plan.run(device, &stream, &input, &mut space, &mut indices)?;
        }
    }
    Ok(())
}

/// Pools the pieces as they come, roll-backs included, and puts what the cache then holds into the
/// outputs.
pub(super) fn append(gpu: &mut Gpu, staged: &Staged, job: &Job<'_>) -> Result<(), Failure> {
    let Gpu {
        device,
        arena,
        cache,
        ..
    } = gpu;
    let (device, arena) = (&*device, &*arena);
    let stream = Arc::clone(arena.stream());
    let sizes = (job.params.block_size(), job.d);
    if !cache.renew(sizes, job.n)? {
        *cache = PooledCache::new(device, &stream, sizes, job.n)?;
    }
    for piece in &staged.pieces {
        cache.truncate(device, piece.from)?;
        cache.append(device, piece.keys(arena)?, piece.count)?;
    }
    let pooled = cache.pooled();
    let mut codes = staged.codes_out(arena, "pooled_k")?;
    codes.copy_from(&stream, pooled.codes)?;
    let mut scales = staged.f32_out(arena, "pooled_scale")?;
    Ok(scales.copy_from(&stream, pooled.scales)?)
}
