//! The reference as a backend: each job by the fast path of `hisa-ref`.

use super::{Backend, Capabilities, Element, Failure, Guarded, Job, Outputs};
use crate::op::Op;
use crate::problem::{Step, steps};
use hisa_ref::incremental::PooledCache;
use hisa_ref::stages::block_pool::Pooled;
use hisa_ref::stages::{
    block_mask, block_pool, block_scores, block_topk, index_map, quantize, token_scores, token_topk,
};
use hisa_ref::{E4M3, IndexerInput, Keys, Queries, Stage, Strictness, block_sparse, dsa, hisa};
use ndarray::{Array, ArrayView1, ArrayView3, Axis, Dimension};

/// `hisa-ref`.
#[derive(Debug)]
pub struct Reference {
    capabilities: Capabilities,
}

impl Reference {
    /// The one there is.
    #[must_use]
    pub fn new() -> Self {
        Self {
            capabilities: Capabilities::all(),
        }
    }
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        match job.op {
            Op::Windows => windows(job, out),
            Op::Stage(stage) => run_stage(stage, job, out),
            Op::Append => append(job, out),
            Op::Hisa => copy(&hisa::run(&input(job)?, &job.params)?, out.i32("indices")?),
            Op::Dsa => {
                let (input, k) = (input(job)?, job.params.topk_tokens());
                copy(&dsa::run(&input, k)?, out.i32("indices")?)?;
                copy(&dsa::trace(&input, k)?.flat_scores, out.f32("flat_scores")?)
            }
            Op::BlockSparse => {
                let trace = block_sparse::trace(&input(job)?, &job.params)?;
                copy(&trace.block_ids, out.i32("block_ids")?)?;
                copy(&trace.indices, out.i32("indices")?)
            }
        }
    }
}

fn run_stage(stage: Stage, job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let (b, params, windows) = (job.params.block_size(), job.params, job.windows);
    match stage {
        Stage::Quantize => {
            let made = quantize::run(job.f32("x")?.view2(), job.quantize)?;
            copy(&made.codes, out.codes("codes")?)?;
            copy(&made.scale, out.f32("scale")?)
        }
        Stage::BlockPool => {
            let keys = keys(job, "k", "k_scale", job.strictness)?;
            pooled(&block_pool::run(&keys, b)?, out)
        }
        Stage::BlockScores => {
            let keys = keys(job, "pooled_k", "pooled_scale", Strictness::Permissive)?;
            let scores = block_scores::run(&queries(job)?, &keys, windows, b)?;
            copy(&scores, out.f32("block_scores")?)
        }
        Stage::BlockMask => {
            let mut scores = job.f32("block_scores")?.view2().to_owned();
            block_mask::run(&mut scores, windows, b)?;
            copy(&scores, out.f32("block_mask")?)
        }
        Stage::BlockTopk => {
            let masked = job.f32("block_mask")?.view2();
            let ids = block_topk::run(masked, windows, b, params.block_topk(), params.rank())?;
            copy(&ids, out.i32("block_ids")?)
        }
        Stage::TokenScores => {
            let (keys, ids) = (
                keys(job, "k", "k_scale", job.strictness)?,
                job.i32("block_ids")?,
            );
            let scores = token_scores::run(&queries(job)?, &keys, windows, ids.view2(), b)?;
            copy(&scores, out.f32("token_scores")?)
        }
        Stage::TokenTopk => {
            let (scores, ids) = (job.f32("token_scores")?.view2(), job.i32("block_ids")?);
            let slots = token_topk::run(scores, ids.view2(), windows, b, params.topk_tokens())?;
            copy(&slots, out.i32("slots")?)
        }
        Stage::IndexMap => {
            let (slots, ids) = (job.i32("slots")?.view2(), job.i32("block_ids")?.view2());
            let indices = index_map::run(slots, ids, windows, b)?;
            copy(&indices, out.i32("indices")?)
        }
    }
}

fn windows(job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let spec = job
        .spec
        .ok_or_else(|| Failure::Unsupported("no offsets".into()))?;
    let made = spec.resolve(job.m, job.n)?;
    let bounds = made.rows().iter();
    out.i32("ks")?.write(bounds.clone().map(|window| window.ks));
    out.i32("ke")?.write(bounds.map(|window| window.ke));
    Ok(())
}

fn append(job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let codes = job.codes("k")?.view2();
    let scales = ArrayView1::from(job.f32("k_scale")?.body());
    let mut cache = PooledCache::new(job.params.block_size(), job.d)?;
    for Step { from, keys } in steps(job.pieces, job.n) {
        cache.truncate(from)?;
        let codes = codes.select(Axis(0), &keys);
        let scales = scales.select(Axis(0), &keys);
        let permissive = Strictness::Permissive;
        cache.append(&Keys::new(codes.view(), scales.view(), permissive)?)?;
    }
    pooled(&cache.pooled(), out)
}

fn pooled(made: &Pooled, out: &mut Outputs) -> Result<(), Failure> {
    copy(&made.codes, out.codes("pooled_k")?)?;
    copy(&made.scales, out.f32("pooled_scale")?)
}

pub(super) fn keys<'a>(
    job: &'a Job<'_>,
    codes: &str,
    scales: &str,
    strictness: Strictness,
) -> Result<Keys<'a>, Failure> {
    let scales = ArrayView1::from(job.f32(scales)?.body());
    Ok(Keys::new(job.codes(codes)?.view2(), scales, strictness)?)
}

fn q<'a>(job: &'a Job<'_>) -> Result<ArrayView3<'a, E4M3>, Failure> {
    let shaped = ArrayView3::from_shape((job.m, job.h, job.d), job.codes("q")?.body());
    shaped.map_err(|error| Failure::Error(error.to_string()))
}

pub(super) fn queries<'a>(job: &'a Job<'_>) -> Result<Queries<'a>, Failure> {
    Ok(Queries::new(
        q(job)?,
        job.f32("weights")?.view2(),
        job.strictness,
    )?)
}

pub(super) fn input<'a>(job: &'a Job<'_>) -> Result<IndexerInput<'a>, Failure> {
    let scales = ArrayView1::from(job.f32("k_scale")?.body());
    Ok(IndexerInput::new(
        q(job)?,
        job.codes("k")?.view2(),
        scales,
        job.f32("weights")?.view2(),
        job.windows.clone(),
        job.strictness,
    )?)
}

/// Writes a result; another shape than was asked for replaces the buffer, for a check to see.
fn copy<T: Element, D: Dimension>(
    made: &Array<T, D>,
    place: &mut Guarded<T>,
) -> Result<(), Failure> {
    if made.shape() == place.shape() {
        place.write(made.iter().copied());
    } else {
        *place = Guarded::from_array(made);
    }
    Ok(())
}
