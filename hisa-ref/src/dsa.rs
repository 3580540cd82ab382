//! The flat `dsa` indexer: every key of the window is scored (SPEC 9.2).

use crate::error::Result;
use crate::exact::NAN;
use crate::input::IndexerInput;
use crate::params::{check_size, filled};
use crate::rows::for_each_row;
use crate::scoring::{PackedKeys, PackedRow, score_keys};
use crate::stages::matrix;
use crate::stages::token_topk::{best, sort_key};
use crate::trace::DsaTrace;
use ndarray::Array2;

/// Scores, slots and indices of the run.
///
/// # Errors
/// K = 0; [`crate::error::ParamError::Allocation`] where a tensor does not fit.
pub fn trace(input: &IndexerInput<'_>, topk_tokens: usize) -> Result<DsaTrace> {
    check_size("topk_tokens", topk_tokens)?;
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    let packed = PackedKeys::new(keys);
    let n = keys.len();
    let mut flat_scores = filled("flat_scores", queries.len(), n, f32::NEG_INFINITY)?;
    let steps = queries.scoring_steps(n);
    for_each_row(
        &mut flat_scores,
        n,
        steps,
        PackedRow::default,
        |q, row, out| {
            let visible = windows.rows()[row].keys();
            q.pack_unchecked(queries, row);
            score_keys(q, &packed, visible.clone(), &mut out[visible]);
        },
    );
    let mut slots = filled("slots", queries.len(), topk_tokens, -1i32)?;
    for_each_row(
        &mut slots,
        topk_tokens,
        n,
        Vec::new,
        |sort_keys, row, out| {
            let scores = &flat_scores[row * n..(row + 1) * n][windows.rows()[row].keys()];
            choose(sort_keys, scores, out);
        },
    );
    let slots = matrix(queries.len(), topk_tokens, slots);
    Ok(DsaTrace {
        flat_scores: matrix(queries.len(), n, flat_scores),
        indices: slots.clone(),
        slots,
    })
}

/// `indices` `[M,K]`: for each query row the positions of its K best keys within its window, best
/// first, then -1.
///
/// # Errors
/// K = 0; [`crate::error::ParamError::Allocation`] where the result does not fit.
pub fn run(input: &IndexerInput<'_>, topk_tokens: usize) -> Result<Array2<i32>> {
    check_size("topk_tokens", topk_tokens)?;
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    let packed = PackedKeys::new(keys);
    let mut indices = filled("indices", queries.len(), topk_tokens, -1i32)?;
    let steps = queries.scoring_steps(keys.len()) + topk_tokens;
    for_each_row(
        &mut indices,
        topk_tokens,
        steps,
        Worker::default,
        |worker, row, out| {
            let visible = windows.rows()[row].keys();
            worker.scores.clear();
            worker.scores.resize(visible.len(), NAN);
            worker.q.pack_unchecked(queries, row);
            score_keys(&worker.q, &packed, visible, &mut worker.scores);
            choose(&mut worker.sort_keys, &worker.scores, out);
        },
    );
    Ok(matrix(queries.len(), topk_tokens, indices))
}

/// Reusable buffers of one worker.
#[derive(Default)]
struct Worker<'q> {
    q: PackedRow<'q>,
    scores: Vec<f32>,
    sort_keys: Vec<u64>,
}

/// Writes the positions of the best scores; `out` holds -1 before.
fn choose(sort_keys: &mut Vec<u64>, scores: &[f32], out: &mut [i32]) {
    sort_keys.clear();
    sort_keys.extend(
        scores
            .iter()
            .enumerate()
            .map(|(at, &score)| sort_key(score, at)),
    );
    best(sort_keys, out.len());
    for (index, &key) in out.iter_mut().zip(sort_keys.iter()) {
        *index = !(key as u32) as i32;
    }
}
