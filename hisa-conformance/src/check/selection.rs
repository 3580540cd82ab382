//! The chosen sets, and their order.

use super::accepted;
use super::plain::{place, some};
use super::slots::ids_of;
use super::{Detail, Verdict};
use crate::op::Op;
use crate::trial::Trial;
use std::ops::Range;

/// In-window blocks as sets; padding may be any block outside the window (SPEC 5.5).
pub(super) fn blocks(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    let (windows, b) = (problem.inputs.windows.rows(), problem.b());
    sets(trial, op, |row| windows[row].blocks(b))
}

/// The slots of given scores: nothing is rounded, so the set is one.
pub(super) fn isolated(trial: &mut Trial<'_>, op: Op) -> Verdict {
    sets(trial, op, |_| 0..usize::MAX)
}

/// The indices of a whole indexer.
pub(super) fn chained(trial: &mut Trial<'_>, op: Op) -> Verdict {
    if !trial.capabilities().numerics.exact_selection() {
        return accepted::selection(trial, op);
    }
    sets(trial, op, |_| 0..usize::MAX)
}

/// Row by row, the ids within `counted` as sets.
fn sets(trial: &mut Trial<'_>, op: Op, counted: impl Fn(usize) -> Range<usize>) -> Verdict {
    let (truth, name) = (trial.truth, ids_of(op));
    let Ok(Some(expected)) = truth.of(op).map(|buffers| buffers.i32(name)) else {
        return Verdict::NotApplicable("there is no answer to compare with");
    };
    let Some(got) = some!(trial.outputs(op)).i32(name) else {
        return Verdict::NotApplicable("the tensor is not written");
    };
    let mut detail = None::<Detail>;
    for row in 0..expected.rows() {
        let range = counted(row);
        let (e, g) = (
            sorted(expected.row(row), &range),
            sorted(got.row(row), &range),
        );
        if e == g {
            continue;
        }
        match &mut detail {
            Some(detail) => detail.more += 1,
            None => {
                let (missing, extra) = (only(&e, &g), only(&g, &e));
                let first = extra.first().or(missing.first());
                let column = got
                    .row(row)
                    .iter()
                    .position(|id| Some(id) == first)
                    .unwrap_or(0);
                detail = Some(Detail {
                    at: place(name, got.shape(), row * got.columns() + column),
                    expected: among(&missing, e.len()),
                    got: among(&extra, g.len()),
                    ..Detail::default()
                });
            }
        }
    }
    detail.map_or(Verdict::Pass, |detail| Verdict::Fail(Box::new(detail)))
}

fn sorted(ids: &[i32], range: &Range<usize>) -> Vec<i32> {
    let inside = |&id: &i32| usize::try_from(id).is_ok_and(|id| range.contains(&id));
    let mut ids: Vec<i32> = ids.iter().copied().filter(inside).collect();
    ids.sort_unstable();
    ids
}

fn only(of: &[i32], other: &[i32]) -> Vec<i32> {
    of.iter()
        .filter(|id| other.binary_search(id).is_err())
        .copied()
        .collect()
}

/// Ids that one side alone has, and how many it has in all.
fn among(ids: &[i32], all: usize) -> String {
    let which = if ids.len() == 1 { "id" } else { "ids" };
    format!("{which} {} (of {all} in the row)", listed(ids))
}

/// The first few of some ids.
fn listed(ids: &[i32]) -> String {
    let shown: Vec<String> = ids.iter().take(6).map(i32::to_string).collect();
    match ids.len() {
        0 => "none".to_owned(),
        1..=6 => shown.join(", "),
        many => format!("{} and {} more", shown.join(", "), many - 6),
    }
}

/// Best first, ties by lower id, for a backend that promises an order; judged where the sets
/// agree.
pub(super) fn order(trial: &mut Trial<'_>, op: Op) -> Verdict {
    if !trial.capabilities().ordered {
        return Verdict::Skip("no order is promised".to_owned());
    }
    if op.is_indexer() && !trial.capabilities().numerics.exact_selection() {
        return accepted::order(trial, op);
    }
    let (truth, name) = (trial.truth, ids_of(op));
    let Ok(Some(expected)) = truth.of(op).map(|buffers| buffers.i32(name)) else {
        return Verdict::NotApplicable("there is no answer to compare with");
    };
    let Some(got) = some!(trial.outputs(op)).i32(name) else {
        return Verdict::NotApplicable("the tensor is not written");
    };
    let all = 0..usize::MAX;
    for row in 0..expected.rows() {
        let (e, g) = (expected.row(row), got.row(row));
        if e == g || sorted(e, &all) != sorted(g, &all) {
            continue;
        }
        let Some(column) = e.iter().zip(g).position(|(e, g)| e != g) else {
            continue;
        };
        return Verdict::Fail(Box::new(Detail {
            at: place(name, got.shape(), row * got.columns() + column),
            expected: e[column].to_string(),
            got: format!(
                "{}; the row holds the right ids in another order",
                g[column]
            ),
            ..Detail::default()
        }));
    }
    Verdict::Pass
}
