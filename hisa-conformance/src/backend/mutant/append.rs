//! Pooling of keys that arrive in pieces.

use super::block_pool;
use super::fault::Fault;
use super::launch::Launch;
use crate::backend::{Failure, Guarded, Job, Outputs};
use crate::problem::{Step, steps};
use std::panic::resume_unwind;

pub(super) fn run(launch: &Launch, job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let (k, k_scale) = (job.codes("k")?, job.f32("k_scale")?);
    let mut codes = out.codes("pooled_k")?.clone();
    let mut scales = out.f32("pooled_scale")?.clone();
    // The cache: each place holds the key last appended there.
    let (mut cached, mut cached_scale) = (k.clone(), k_scale.clone());
    let (b, d) = (launch.b, launch.d);
    let mut most = 0;
    for Step { from, keys } in steps(job.pieces, launch.n) {
        let end = from + keys.len();
        if launch.is(Fault::AppendEmptyPiece) && keys.is_empty() {
            resume_unwind(Box::new("a piece holds no key"));
        }
        for (place, key) in (from..end).zip(keys) {
            if launch.is(Fault::AppendNoRollBack) && place < most {
                continue;
            }
            cached.body_mut()[place * d..(place + 1) * d].copy_from_slice(k.row(key));
            cached_scale.body_mut()[place] = k_scale.body()[key];
        }
        most = most.max(end);
        let scale_of = if launch.is(Fault::AppendLocalKeys) {
            &shifted(&cached_scale, from)
        } else {
            &cached_scale
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
            block_pool::pool(launch, (&cached, scale_of), (block, start, last), place);
        }
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
