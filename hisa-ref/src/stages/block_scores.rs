//! Stage 3, `block_scores`: each query row against the pooled blocks of its window (SPEC 3, S).

use crate::error::{Result, ShapeError};
use crate::exact::NAN;
use crate::input::{Keys, Queries, check_dims_match};
use crate::params::{block_count, check_size, filled};
use crate::ragged::Windows;
use crate::rows::for_each_row;
use crate::scoring::{PackedKeys, PackedRow, scalar, score_keys};
use crate::stages::{check_rows, matrix};
use ndarray::Array2;
use std::ops::Range;

/// Scores `queries` against `pooled` `[Nb,D]`, taken permissively.
///
/// Returns `block_scores` `[M,Nb]`; entries outside a row's block window are `-inf`, which the spec
/// leaves open before `block_mask`.
///
/// # Errors
/// Shapes that disagree on D, M or Nb; B = 0.
pub fn run(
    queries: &Queries<'_>,
    pooled: &Keys<'_>,
    windows: &Windows,
    block_size: usize,
) -> Result<Array2<f32>> {
    let packed = PackedKeys::new(pooled);
    rows(
        queries,
        pooled,
        windows,
        block_size,
        PackedRow::default,
        |q, row, blocks, out| {
            q.pack_unchecked(queries, row);
            score_keys(q, &packed, blocks, out);
        },
    )
}

/// [`run`] as SPEC 3 and S word it.
///
/// # Errors
/// As [`run`].
pub fn scalar(
    queries: &Queries<'_>,
    pooled: &Keys<'_>,
    windows: &Windows,
    block_size: usize,
) -> Result<Array2<f32>> {
    rows(
        queries,
        pooled,
        windows,
        block_size,
        || (),
        |(), row, blocks, out| {
            for (block, score) in blocks.zip(out) {
                let (q, weights) = (queries.row(row), queries.row_weights(row));
                *score = scalar::score(q, weights, pooled.key(block), pooled.scales()[block]);
            }
        },
    )
}

fn rows<S>(
    queries: &Queries<'_>,
    pooled: &Keys<'_>,
    windows: &Windows,
    block_size: usize,
    init: impl Fn() -> S + Sync + Send,
    row_rule: impl Fn(&mut S, usize, Range<usize>, &mut [f32]) + Sync + Send,
) -> Result<Array2<f32>> {
    check_size("block_size", block_size)?;
    check_dims_match(queries, pooled, "pooled_k")?;
    let columns = block_count(windows.n(), block_size);
    check_rows(
        "q",
        (queries.len(), columns),
        windows,
        columns,
        "Nb",
        block_size,
    )?;
    if pooled.len() != columns {
        let expected = format!(
            "[Nb] = [{columns}], Nb = ceil({} / {block_size})",
            windows.n()
        );
        return Err(ShapeError::new("pooled_k", &[pooled.len()], expected).into());
    }
    let mut scores = filled("block_scores", queries.len(), columns, f32::NEG_INFINITY)?;
    let steps = queries.scoring_steps(columns);
    for_each_row(&mut scores, columns, steps, init, |state, row, out| {
        let blocks = windows.rows()[row].blocks(block_size);
        row_rule(state, row, blocks.clone(), &mut out[blocks]);
    });
    debug_assert!(
        scores
            .iter()
            .all(|s| !s.is_nan() || s.to_bits() == NAN.to_bits())
    );
    Ok(matrix(queries.len(), columns, scores))
}
