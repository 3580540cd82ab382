//! The flat indexer: every key of the window is scored.

use super::fault::Fault;
use super::launch::{Launch, Rows, load, span, store, wrapped};
use super::scoring::{Site, score};
use super::select::best;
use crate::backend::{Failure, Guarded, Job, Outputs};

pub(super) fn run(launch: &Launch, job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let rows = Rows::of(job)?;
    let mut flat = out.f32("flat_scores")?.clone();
    for row in 0..launch.m {
        scores(launch, job, (row, &rows), &mut flat)?;
        let window = rows.row(row);
        let base = (row * launch.n) as isize;
        let visible = if window.is_empty() {
            0..0
        } else {
            window.ks..window.ke
        };
        let candidates: Vec<(f32, u32)> = visible
            .map(|key| (load(&flat, base + key as isize), (key - window.ks) as u32))
            .collect();
        let origin = if launch.is(Fault::DsaAbsolute) {
            window.ks
        } else {
            0
        };
        let chosen = best(launch, &candidates, launch.k, &mut out.workspace);
        let indices = out.i32("indices")?;
        for column in 0..launch.k {
            let id = chosen.get(column).map_or(-1, |&id| id + origin);
            store(indices, (row * launch.k + column) as isize, id as i32);
        }
    }
    *out.f32("flat_scores")? = flat;
    Ok(())
}

/// The scores of one row.
fn scores(
    launch: &Launch,
    job: &Job<'_>,
    (row, rows): (usize, &Rows),
    flat: &mut Guarded<f32>,
) -> Result<(), Failure> {
    let (h, d, n) = (launch.h, launch.d, launch.n);
    let (codes, scales) = (job.codes("k")?, job.f32("k_scale")?);
    let q = span(job.codes("q")?, (row * h * d) as isize, h * d);
    let weights = span(job.f32("weights")?, (row * h) as isize, h);
    let window = rows.row(row);
    if launch.is(Fault::DsaStaleRow) && window.is_empty() {
        return Ok(());
    }
    let base = wrapped(row * n, launch.is(Fault::DsaU16Row));
    for key in 0..n {
        let at = key as i64;
        let visible = match launch.fault {
            Fault::DsaInclusive => !window.is_empty() && window.ks <= at && at <= window.ke,
            Fault::DsaFromZero => (at as usize) < window.len(),
            _ => window.contains(at),
        };
        let value = if visible {
            let code = span(codes, (key * d) as isize, d);
            let scale = load(scales, key as isize);
            score(launch, Site::Flat, (q, weights), code, scale)
        } else {
            f32::NEG_INFINITY
        };
        store(flat, base + key as isize, value);
    }
    Ok(())
}
