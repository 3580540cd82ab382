//! The `hisa` indexer: the stages in order, each into memory of its own.

use super::fault::Fault;
use super::launch::{Launch, Rows, sequence_starts};
use super::{
    block_mask, block_pool, block_scores, block_topk, index_map, token_scores, token_topk,
};
use crate::backend::{Failure, Guarded, Job, Outputs};
use hisa_ref::E4M3;

/// What a faulty port keeps from one call to the next.
#[derive(Debug, Default)]
pub(super) struct Kept {
    windows: Vec<Rows>,
    blocks: Vec<Guarded<i32>>,
    pooled: Vec<(usize, Pooled)>,
}

/// Pooled keys, codes and scales.
type Pooled = (Guarded<E4M3>, Guarded<f32>);

/// What memory holds before a kernel writes it.
const UNSET: f32 = f32::from_bits(0x7FFF_FFFF);

pub(super) fn run(
    launch: &Launch,
    kept: &mut Kept,
    job: &Job<'_>,
    out: &mut Outputs,
) -> Result<(), Failure> {
    let rows = windows(launch, kept, Rows::of(job)?);
    let queries = (job.codes("q")?, job.f32("weights")?);
    let keys = (job.codes("k")?, job.f32("k_scale")?);
    let (pooled_k, pooled_scale) = pooled(launch, kept, pool(launch, job)?);
    let chosen = blocks(
        launch,
        queries,
        (&pooled_k, &pooled_scale),
        &rows,
        launch.kept,
    );
    let ids = remembered(launch, kept, chosen);
    let width = [launch.m, ids.columns() * launch.b];
    let mut scores = Guarded::filled(&width, UNSET);
    let token_keys = match launch.fault {
        Fault::HisaPooledScales => (keys.0, &pooled_scale),
        _ => keys,
    };
    if launch.is(Fault::HisaLocalRow) {
        let (q, weights) = (batched(queries.0, launch.m), batched(queries.1, launch.m));
        token_scores::run(launch, (&q, &weights), token_keys, &ids, &rows, &mut scores);
    } else {
        token_scores::run(launch, queries, token_keys, &ids, &rows, &mut scores);
    }
    let mut slots = Guarded::filled(&[launch.m, launch.k], i32::MAX);
    token_topk::run(launch, &scores, &ids, &rows, &mut slots, &mut out.workspace);
    let mapped_by = if launch.is(Fault::HisaNeighbourBlocks) {
        row_before(&ids)
    } else {
        ids
    };
    let indices = out.i32("indices")?;
    index_map::run(launch, &slots, &mapped_by, &rows, indices);
    finish(launch, &rows, indices);
    Ok(())
}

/// Stage 2.
pub(super) fn pool(launch: &Launch, job: &Job<'_>) -> Result<Pooled, Failure> {
    let keys = (job.codes("k")?, job.f32("k_scale")?);
    let mut codes = Guarded::filled(&[launch.blocks, launch.d], E4M3::NAN);
    let unset = if launch.is(Fault::PoolAccumulates) {
        0.0
    } else {
        UNSET
    };
    let mut scales = Guarded::filled(&[launch.blocks], unset);
    let starts = sequence_starts(job);
    block_pool::run(launch, keys, &starts, (&mut codes, &mut scales));
    Ok((codes, scales))
}

/// Stages 3 to 5, keeping `kept` blocks.
pub(super) fn blocks(
    launch: &Launch,
    queries: block_scores::Pair<'_>,
    pooled: block_scores::Pair<'_>,
    rows: &Rows,
    kept: usize,
) -> Guarded<i32> {
    let shape = [launch.m, launch.blocks];
    let unset = if launch.is(Fault::BlocksAccumulates) {
        0.0
    } else {
        UNSET
    };
    let mut scores = Guarded::filled(&shape, unset);
    block_scores::run(launch, queries, pooled, rows, &mut scores);
    let mut masked = Guarded::filled(&shape, UNSET);
    block_mask::run(launch, &scores, rows, &mut masked);
    let mut ids = Guarded::filled(&[launch.m, kept], -1);
    block_topk::run(launch, &masked, rows, kept, &mut ids);
    ids
}

fn pooled(launch: &Launch, kept: &mut Kept, made: Pooled) -> Pooled {
    if !launch.is(Fault::HisaPoolCache) {
        return made;
    }
    let same = |(n, of): &&(usize, Pooled)| *n == launch.n && of.0.shape() == made.0.shape();
    if let Some((_, known)) = kept.pooled.iter().find(same) {
        return known.clone();
    }
    kept.pooled.push((launch.n, made.clone()));
    made
}

fn windows(launch: &Launch, kept: &mut Kept, rows: Rows) -> Rows {
    match launch.fault {
        Fault::HisaWindowCache => {
            let known = kept
                .windows
                .iter()
                .find(|known| known.ks.len() == rows.ks.len());
            if let Some(known) = known {
                return known.clone();
            }
            kept.windows.push(rows.clone());
            rows
        }
        Fault::HisaRowZeroWindow if launch.m > 0 => Rows {
            ks: vec![rows.ks[0]; launch.m],
            ke: vec![rows.ke[0]; launch.m],
        },
        _ => rows,
    }
}

fn remembered(launch: &Launch, kept: &mut Kept, ids: Guarded<i32>) -> Guarded<i32> {
    if !launch.is(Fault::HisaBlockCache) {
        return ids;
    }
    let known = kept
        .blocks
        .iter()
        .find(|known| known.shape() == ids.shape());
    if let Some(known) = known {
        return known.clone();
    }
    kept.blocks.push(ids.clone());
    ids
}

/// Rows as a kernel sees them that numbers rows within batches of two.
fn batched<T: crate::backend::Element>(tensor: &Guarded<T>, m: usize) -> Guarded<T> {
    let rows = (0..m).flat_map(|row| tensor.row(row % 2));
    Guarded::of(tensor.shape(), rows)
}

/// Every row the ids of the row before it.
fn row_before(ids: &Guarded<i32>) -> Guarded<i32> {
    let rows = (0..ids.rows()).flat_map(|row| ids.row(row.saturating_sub(1)));
    Guarded::of(ids.shape(), rows)
}

/// Faults behind the last stage.
fn finish(launch: &Launch, rows: &Rows, indices: &mut Guarded<i32>) {
    let k = indices.columns();
    for row in 0..launch.m {
        let (window, start) = (rows.row(row), row * k);
        let (first, last) = launch.block_window(window);
        let body = &mut indices.body_mut()[start..start + k];
        let valid = body.iter().filter(|&&id| id >= 0).count();
        if launch.is(Fault::HisaUnsorted) {
            body[..valid].sort_unstable();
        }
        if launch.is(Fault::HisaShortcut) && last - first <= launch.kept {
            for (id, place) in (0..window.len() as i32).zip(body) {
                *place = id;
            }
        }
    }
}
