//! The baseline that keeps whole blocks.

use super::fault::Fault;
use super::hisa::{blocks, pool};
use super::launch::{Launch, Rows};
use crate::backend::{Failure, Guarded, Job, Outputs};

pub(super) fn run(launch: &Launch, job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let (b, k) = (launch.b, launch.k);
    let kept = match launch.fault {
        Fault::SparseFloor => k / b,
        Fault::SparseBlockTopk => launch.kept,
        _ => k.div_ceil(b),
    };
    hisa_ref::params::slots_per_row(b, k.div_ceil(b))?;
    let rows = Rows::of(job)?;
    let queries = (job.codes("q")?, job.f32("weights")?);
    let (pooled_k, pooled_scale) = pool(launch, job)?;
    let chosen = blocks(launch, queries, (&pooled_k, &pooled_scale), &rows, kept);
    let columns = kept * b;
    let mut indices = Guarded::filled(&[launch.m, columns], -1);
    for row in 0..launch.m {
        let window = rows.row(row);
        let mut found = Vec::with_capacity(columns);
        for &block in chosen.row(row).iter().filter(|&&block| block >= 0) {
            let first = i64::from(block) * b as i64;
            for key in first..first + b as i64 {
                let visible = match launch.fault {
                    Fault::SparseWholeBlocks => key < launch.n as i64,
                    _ => window.contains(key),
                };
                if visible {
                    found.push((key - window.ks) as i32);
                } else if launch.is(Fault::SparseHoles) {
                    found.push(-1);
                }
            }
        }
        if launch.is(Fault::SparseCut) {
            found.truncate(k);
        }
        let place = &mut indices.body_mut()[row * columns..(row + 1) * columns];
        for (place, id) in place.iter_mut().zip(found) {
            *place = id;
        }
    }
    *out.i32("block_ids")? = chosen;
    *out.i32("indices")? = indices;
    Ok(())
}
