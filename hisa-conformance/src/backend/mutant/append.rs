//! Pooling of keys that arrive in pieces.

use super::block_pool;
use super::fault::Fault;
use super::launch::{Launch, load, store};
use crate::backend::{Failure, Guarded, Job, Outputs};
use std::panic::resume_unwind;

pub(super) fn run(launch: &Launch, job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let (k, k_scale) = (job.codes("k")?, job.f32("k_scale")?);
    let mut codes = out.codes("pooled_k")?.clone();
    let mut scales = out.f32("pooled_scale")?.clone();
    let b = launch.b;
    let mut held = 0;
    for &end in job.pieces {
        let from = held.min(end);
        if launch.is(Fault::AppendEmptyPiece) && from == end {
            resume_unwind(Box::new("a piece holds no key"));
        }
        let cache_of = if launch.is(Fault::AppendLocalKeys) {
            &shifted(k_scale, from)
        } else {
            k_scale
        };
        let first = if launch.is(Fault::AppendTailKept) {
            from.div_ceil(b)
        } else {
            from / b
        };
        for block in first..end.div_ceil(b) {
            let (mut start, last) = (block * b, end.min((block + 1) * b));
            if launch.is(Fault::AppendPieceCount) && start < from && from < last {
                start = from;
            }
            let place = (&mut codes, &mut scales);
            block_pool::pool(launch, (k, cache_of), (block, start, last), place);
        }
        if launch.is(Fault::AppendNoRollBack) && from < held {
            // The keys of the next piece stand behind those that should be gone.
            let behind = launch.n.div_ceil(b) as isize;
            let first = load(&scales, (from / b) as isize);
            store(&mut scales, behind, first);
        }
        held = end;
    }
    *out.codes("pooled_k")? = codes;
    *out.f32("pooled_scale")? = scales;
    Ok(())
}

/// Scales of a piece, counted from its first key.
fn shifted(scales: &Guarded<f32>, from: usize) -> Guarded<f32> {
    let all = scales.body();
    let shifted = (0..all.len()).map(|at| &all[at.checked_sub(from).unwrap_or(at)]);
    Guarded::of(scales.shape(), shifted)
}
