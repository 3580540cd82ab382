//! The `block_sparse` baseline: whole blocks, no token selection (SPEC 9.3).

use crate::error::Result;
use crate::input::IndexerInput;
use crate::params::{HisaParams, block_count, filled, slots_per_row};
use crate::rows::for_each_row;
use crate::stages::token_scores::visible_keys;
use crate::stages::{block_mask, block_pool, block_scores, block_topk, matrix};
use crate::trace::BlockSparseTrace;
use ndarray::Array2;

/// Every intermediate of the run. Of `params` it uses B, K and the rank; the number of blocks is
/// m = ceil(K/B), not `block_topk`.
///
/// # Errors
/// `m*B` past int32; [`crate::error::ParamError::Allocation`] where a tensor does not fit.
pub fn trace(input: &IndexerInput<'_>, params: &HisaParams) -> Result<BlockSparseTrace> {
    let (queries, windows, b) = (input.queries(), input.windows(), params.block_size());
    let m = block_count(params.topk_tokens(), b);
    let columns = slots_per_row(b, m)?;
    let pooled = block_pool::run(input.keys(), b)?;
    let block_scores = block_scores::run(queries, &pooled.as_keys()?, windows, b)?;
    let mut block_mask = block_scores.clone();
    block_mask::run(&mut block_mask, windows, b)?;
    let block_ids = block_topk::run(block_mask.view(), windows, b, m, params.rank())?;
    let mut indices = filled("indices", queries.len(), columns, -1i32)?;
    for_each_row(
        &mut indices,
        columns,
        columns,
        || (),
        |(), row, out| {
            let window = windows.rows()[row];
            // Ascending ids, so the keys come out ascending too.
            let visible = block_ids
                .row(row)
                .into_iter()
                .filter_map(|&id| visible_keys(id, b, window));
            for (index, key) in out.iter_mut().zip(visible.flat_map(|(keys, _)| keys)) {
                *index = (key as i64 - i64::from(window.ks)) as i32;
            }
        },
    );
    Ok(BlockSparseTrace {
        pooled_k: pooled.codes,
        pooled_scale: pooled.scales,
        block_scores,
        block_mask,
        block_ids,
        indices: matrix(queries.len(), columns, indices),
    })
}

/// `indices` `[M,m*B]`: every visible key of the chosen blocks minus ks, ascending, then -1; never
/// cut to K.
///
/// # Errors
/// As [`trace`].
pub fn run(input: &IndexerInput<'_>, params: &HisaParams) -> Result<Array2<i32>> {
    Ok(trace(input, params)?.indices)
}
