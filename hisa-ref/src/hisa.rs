//! The `hisa` indexer: all stages in order (SPEC 9.1).
//!
//! [`trace`] runs the stages one by one and keeps everything. [`run`] carries each query row
//! through all of them at once, so that no tensor of M*S scores exists; the indices are the same.

use crate::error::Result;
use crate::exact::NAN;
use crate::input::{IndexerInput, Queries};
use crate::params::{HisaParams, filled};
use crate::ragged::Window;
use crate::rows::for_each_row;
use crate::scoring::{PackedKeys, PackedRow, score_keys};
use crate::stages::token_scores::visible_keys;
use crate::stages::token_topk::{best, sort_key};
use crate::stages::{
    block_mask, block_pool, block_scores, block_topk, index_map, matrix, token_scores, token_topk,
};
use crate::trace::Trace;
use ndarray::Array2;

/// Every intermediate of the run.
///
/// # Errors
/// [`crate::error::ParamError::Allocation`] where a tensor does not fit.
pub fn trace(input: &IndexerInput<'_>, params: &HisaParams) -> Result<Trace> {
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    let (b, m, k) = (
        params.block_size(),
        params.block_topk(),
        params.topk_tokens(),
    );
    let pooled = block_pool::run(keys, b)?;
    let block_scores = block_scores::run(queries, &pooled.as_keys()?, windows, b)?;
    let mut block_mask = block_scores.clone();
    block_mask::run(&mut block_mask, windows, b)?;
    let block_ids = block_topk::run(block_mask.view(), windows, b, m, params.rank())?;
    let token_scores = token_scores::run(queries, keys, windows, block_ids.view(), b)?;
    let slots = token_topk::run(token_scores.view(), block_ids.view(), windows, b, k)?;
    let indices = index_map::run(slots.view(), block_ids.view(), windows, b)?;
    Ok(Trace {
        pooled_k: pooled.codes,
        pooled_scale: pooled.scales,
        block_scores,
        block_mask,
        block_ids,
        token_scores,
        slots,
        indices,
    })
}

/// `indices` `[M,K]`: for each query row the positions of its K best keys within its window, best
/// first, then -1.
///
/// # Errors
/// [`crate::error::ParamError::Allocation`] where the result does not fit.
pub fn run(input: &IndexerInput<'_>, params: &HisaParams) -> Result<Array2<i32>> {
    let (queries, windows) = (input.queries(), input.windows());
    let pooled = block_pool::run(input.keys(), params.block_size())?;
    let pooled_keys = pooled.as_keys()?;
    let packed = Packed {
        blocks: PackedKeys::new(&pooled_keys),
        tokens: PackedKeys::new(input.keys()),
    };
    let k = params.topk_tokens();
    let mut indices = filled("indices", queries.len(), k, -1i32)?;
    let visible_max = windows
        .rows()
        .iter()
        .map(|window| window.len())
        .max()
        .unwrap_or(0);
    let steps = queries.scoring_steps(visible_max.min(params.slots()));
    for_each_row(
        &mut indices,
        k,
        steps + k,
        Worker::default,
        |worker, row, out| {
            worker.row(queries, row, &packed, windows.rows()[row], params, out);
        },
    );
    Ok(matrix(queries.len(), k, indices))
}

/// Keys of both scoring stages, repacked once for all rows.
struct Packed<'k> {
    blocks: PackedKeys<'k>,
    tokens: PackedKeys<'k>,
}

/// Reusable buffers of one worker.
#[derive(Default)]
struct Worker<'q> {
    q: PackedRow<'q>,
    scores: Vec<f32>,
    sort_keys: Vec<u64>,
    ids: Vec<i32>,
    /// Window positions of the candidates, ascending.
    positions: Vec<i32>,
}

impl<'q> Worker<'q> {
    fn row(
        &mut self,
        queries: &'q Queries<'_>,
        row: usize,
        packed: &Packed<'_>,
        window: Window,
        params: &HisaParams,
        out: &mut [i32],
    ) {
        if window.is_empty() {
            return;
        }
        self.q.pack_unchecked(queries, row);
        self.choose_blocks(&packed.blocks, window, params);
        self.positions.clear();
        self.scores.clear();
        for &id in &self.ids {
            let Some((keys, _)) = visible_keys(id, params.block_size(), window) else {
                continue;
            };
            let first = self.scores.len();
            self.scores.resize(first + keys.len(), NAN);
            self.positions.extend(
                keys.clone()
                    .map(|key| (key as i64 - i64::from(window.ks)) as i32),
            );
            let scores = &mut self.scores[first..];
            score_keys(&self.q, &packed.tokens, keys, scores);
        }
        self.sort_keys.clear();
        let keys = self
            .scores
            .iter()
            .enumerate()
            .map(|(at, &score)| sort_key(score, at));
        self.sort_keys.extend(keys);
        best(&mut self.sort_keys, out.len());
        for (index, &key) in out.iter_mut().zip(&self.sort_keys) {
            *index = self.positions[!(key as u32) as usize];
        }
    }

    /// Leaves the chosen blocks in `self.ids`, ascending.
    fn choose_blocks(&mut self, pooled: &PackedKeys<'_>, window: Window, params: &HisaParams) {
        let blocks = window.blocks(params.block_size());
        let keep = blocks.len().min(params.block_topk());
        self.scores.clear();
        self.scores.resize(blocks.len(), NAN);
        // Where all blocks are kept, or none beside the forced two, no score is looked at.
        if keep > 2 && keep < blocks.len() {
            score_keys(&self.q, pooled, blocks.clone(), &mut self.scores);
        }
        self.ids.clear();
        self.ids.resize(keep, -1);
        let score = |block: usize| self.scores[block - blocks.start];
        block_topk::choose(
            &mut self.sort_keys,
            score,
            blocks.clone(),
            params.rank(),
            &mut self.ids,
        );
    }
}
