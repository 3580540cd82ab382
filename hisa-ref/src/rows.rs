//! Work split over query rows. No value ever depends on the split: a row is one unit of work.

use rayon::prelude::*;

/// Below this many elementary steps in total, threads cost more than they bring.
const PARALLEL_STEPS_MIN: usize = 1 << 18;

/// Calls `work(state, row, out_row)` for every row of `out`, which is row-major with `columns`
/// columns. `steps_per_row` estimates the work of one row; `init` makes the reusable state of one
/// worker.
pub(crate) fn for_each_row<T: Send, S>(
    out: &mut [T],
    columns: usize,
    steps_per_row: usize,
    init: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut S, usize, &mut [T]) + Sync + Send,
) {
    if columns == 0 || out.is_empty() {
        return;
    }
    let rows = out.len() / columns;
    if rows < 2 || rows.saturating_mul(steps_per_row) < PARALLEL_STEPS_MIN {
        let mut state = init();
        for (row, out_row) in out.chunks_exact_mut(columns).enumerate() {
            work(&mut state, row, out_row);
        }
        return;
    }
    out.par_chunks_exact_mut(columns)
        .enumerate()
        .for_each_init(init, |state, (row, out_row)| work(state, row, out_row));
}
