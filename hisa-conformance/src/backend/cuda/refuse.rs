//! What the reference refuses, refused before anything is launched: kernels take what they get.

use crate::backend::reference::{input, keys, queries};
use crate::backend::{Failure, Job};
use crate::op::Op;
use hisa_ref::params::{block_count, slots_per_row};
use hisa_ref::stages::check_rows;
use hisa_ref::stages::index_map::check_slots;
use hisa_ref::stages::quantize;
use hisa_ref::stages::token_scores::check_block_ids;
use hisa_ref::{Stage, Strictness};

/// That the reference takes the job.
///
/// # Errors
/// [`Failure::Refused`].
pub(super) fn check(job: &Job<'_>) -> Result<(), Failure> {
    match job.op {
        Op::Stage(stage) => check_stage(stage, job),
        Op::Hisa | Op::Dsa | Op::BlockSparse => input(job).map(drop),
        Op::Windows | Op::Append => Ok(()),
    }
}

fn check_stage(stage: Stage, job: &Job<'_>) -> Result<(), Failure> {
    let (b, windows) = (job.params.block_size(), job.windows);
    let blocks = block_count(job.n, b);
    match stage {
        Stage::Quantize => quantize::check(job.f32("x")?.view2(), job.quantize)?,
        Stage::BlockPool => drop(keys(job, "k", "k_scale", job.strictness)?),
        Stage::BlockScores => {
            queries(job)?;
            keys(job, "pooled_k", "pooled_scale", Strictness::Permissive)?;
        }
        Stage::BlockMask | Stage::BlockTopk => {
            let name = if stage == Stage::BlockMask {
                "block_scores"
            } else {
                "block_mask"
            };
            check_rows(name, job.f32(name)?.view2().dim(), windows, blocks, "Nb", b)?;
        }
        Stage::TokenScores => {
            queries(job)?;
            keys(job, "k", "k_scale", job.strictness)?;
            check_ids(job)?;
        }
        Stage::TokenTopk => {
            let dim = job.f32("token_scores")?.view2().dim();
            let columns = slots_per_row(b, job.i32("block_ids")?.columns())?;
            check_rows("token_scores", dim, windows, columns, "S", b)?;
            check_ids(job)?;
        }
        Stage::IndexMap => {
            let (slots, ids) = (job.i32("slots")?, job.i32("block_ids")?);
            check_slots(slots.view2(), ids.view2(), windows, b)?;
        }
    }
    Ok(())
}

fn check_ids(job: &Job<'_>) -> Result<(), Failure> {
    let (ids, b) = (job.i32("block_ids")?, job.params.block_size());
    let kept = ids.columns();
    check_rows("block_ids", ids.view2().dim(), job.windows, kept, "m", b)?;
    Ok(check_block_ids(ids.view2(), block_count(job.n, b))?)
}
