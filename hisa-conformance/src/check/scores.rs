//! Values against the truth, element by element.

use super::bounded::{self, Scored};
use super::plain::{place, some};
use super::{Detail, Verdict};
use crate::backend::buffer::{show_code, show_f32};
use crate::backend::{Buffer, Guarded};
use crate::measure::{Histogram, same_code, same_value};
use crate::op::Op;
use crate::trial::Trial;

/// Every output of the job, every element.
pub(super) fn values(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let bounded = bounded::quotients(trial, op);
    bounded.unwrap_or_else(|| every(trial, op, |_, _| true))
}

/// Scores inside the block window; the others are unspecified (SPEC 3).
pub(super) fn block_scores(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    let (windows, b) = (problem.inputs.windows.rows(), problem.b());
    let at = |row: usize, block: usize| {
        let blocks = windows[row].blocks(b);
        blocks.contains(&block).then(|| block - blocks.start)
    };
    scored(trial, op, "block_scores", &Scored::Blocks, &at)
}

/// Scores of slots with a visible key; the others are the mask's.
pub(super) fn token_scores(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let (truth, problem) = (trial.truth, trial.problem);
    let Some(ids) = truth.chain().i32("block_ids") else {
        return Verdict::NotApplicable("no block ids");
    };
    let at = |row: usize, slot: usize| {
        let key = problem.visible_key(ids, row, slot as i32)?;
        Some(key - problem.inputs.windows.rows()[row].keys().start)
    };
    scored(trial, op, "token_scores", &Scored::Tokens, &at)
}

/// Scores of keys inside the window; the others are the mask's.
pub(super) fn flat_scores(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let windows = trial.problem.inputs.windows.rows();
    let at = |row: usize, key: usize| {
        let window = windows[row];
        window.contains(key).then(|| key - window.keys().start)
    };
    scored(trial, op, "flat_scores", &Scored::Tokens, &at)
}

/// Scores by equality, or by what the backend declares. `at` gives the position of an element
/// among those of its row's window; none where it is not compared.
fn scored(
    trial: &mut Trial<'_>,
    op: Op,
    name: &'static str,
    scored: &Scored,
    at: &dyn Fn(usize, usize) -> Option<usize>,
) -> Verdict {
    if trial.capabilities().exact_scores() {
        every_of(trial, op, &[name], |row, column| at(row, column).is_some())
    } else {
        bounded::scores(trial, op, name, scored, at)
    }
}

fn every(trial: &mut Trial<'_>, op: Op, compared: impl Fn(usize, usize) -> bool) -> Verdict {
    every_of(trial, op, op.outputs(), compared)
}

fn every_of(
    trial: &mut Trial<'_>,
    op: Op,
    names: &[&'static str],
    compared: impl Fn(usize, usize) -> bool,
) -> Verdict {
    let truth = trial.truth;
    let Ok(expected) = truth.of(op) else {
        return Verdict::NotApplicable("the parameters do not allow it");
    };
    let mut applies = false;
    for &name in names {
        let got = some!(trial.outputs(op)).get(name);
        let (Some(expected), Some(got)) = (expected.get(name), got) else {
            continue;
        };
        let mut histogram = None;
        let (judged, detail) = match (expected, got) {
            (Buffer::Codes(e), Buffer::Codes(g)) => {
                differences(name, (e, g), &compared, same_code, show_code)
            }
            (Buffer::I32(e), Buffer::I32(g)) => {
                differences(name, (e, g), &compared, |e, g| e == g, |id| id.to_string())
            }
            (Buffer::F32(e), Buffer::F32(g)) => {
                let histogram = histogram.insert(Histogram::default());
                floats(histogram, name, (e, g), &compared)
            }
            _ => continue,
        };
        if let Some(histogram) = histogram {
            trial.measures.of(op, name).merge(&histogram);
        }
        applies |= judged;
        if let Some(detail) = detail {
            return Verdict::Fail(Box::new(detail));
        }
    }
    if applies {
        Verdict::Pass
    } else {
        Verdict::NotApplicable("no element to compare")
    }
}

fn floats(
    histogram: &mut Histogram,
    name: &str,
    (expected, got): (&Guarded<f32>, &Guarded<f32>),
    compared: &impl Fn(usize, usize) -> bool,
) -> (bool, Option<Detail>) {
    let columns = expected.columns().max(1);
    let pairs = expected.body().iter().zip(got.body()).enumerate();
    for (at, (&expected, &got)) in pairs {
        if compared(at / columns, at % columns) {
            histogram.add(expected, got, None);
        }
    }
    differences(name, (expected, got), compared, same_value, show_f32)
}

/// Whether any element was compared, and the first that differs.
fn differences<T: crate::backend::Element>(
    name: &str,
    (expected, got): (&Guarded<T>, &Guarded<T>),
    compared: &impl Fn(usize, usize) -> bool,
    same: impl Fn(T, T) -> bool,
    show: impl Fn(T) -> String,
) -> (bool, Option<Detail>) {
    let (mut judged, mut detail) = (false, None::<Detail>);
    let columns = expected.columns().max(1);
    for (at, (&e, &g)) in expected.body().iter().zip(got.body()).enumerate() {
        if !compared(at / columns, at % columns) {
            continue;
        }
        judged = true;
        if same(e, g) {
            continue;
        }
        match &mut detail {
            Some(detail) => detail.more += 1,
            None => {
                detail = Some(Detail {
                    at: place(name, expected.shape(), at),
                    expected: show(e),
                    got: show(g),
                    ..Detail::default()
                });
            }
        }
    }
    (judged, detail)
}
