//! Related problems whose answers follow from each other, whatever the arithmetic.

use super::plain::{misshapen, place, some};
use super::slots::ids_of;
use super::{Detail, Verdict};
use crate::backend::buffer::show_f32;
use crate::backend::{Buffers, Failure, Fill, Guarded};
use crate::measure::same_value;
use crate::numerics::Quotients;
use crate::op::Op;
use crate::problem::Problem;
use crate::trial::Trial;
use hisa_ref::bound::Range;
use hisa_ref::bound::pool::Block;
use hisa_ref::stages::block_pool::SCALE_MIN;
use hisa_ref::{E4M3, Stage, Strictness};
use ndarray::Axis;

/// One row that sees a key, another one in every problem.
fn some_row(problem: &Problem) -> Option<usize> {
    let windows = problem.inputs.windows.rows();
    let seeing: Vec<usize> = (0..windows.len())
        .filter(|&row| !windows[row].is_empty())
        .collect();
    let sizes = [problem.n(), problem.d(), problem.b(), seeing.len()];
    let turn = sizes
        .into_iter()
        .fold(0usize, |sum, size| sum.wrapping_mul(31).wrapping_add(size));
    seeing.get(turn % seeing.len().max(1)).copied()
}

/// Runs `op` on a problem whose rows are `rows` of the first one, and compares ids.
fn rows_agree(
    trial: &mut Trial<'_>,
    op: Op,
    related: &Problem,
    rows: &[usize],
    how: &str,
) -> Option<Verdict> {
    if let Err(verdict) = ids(trial, op) {
        return Some(verdict);
    }
    let got = match run(trial, op, related) {
        Ok(buffers) => buffers,
        Err(verdict) => return Some(verdict),
    };
    let got = got.i32(ids_of(op))?;
    let first = match ids(trial, op) {
        Ok(first) => first,
        Err(verdict) => return Some(verdict),
    };
    for (at, &row) in rows.iter().enumerate() {
        let (e, g) = (first.row(row), got.row(at));
        let Some(column) = e.iter().zip(g).position(|(e, g)| e != g) else {
            continue;
        };
        return Some(failed(Detail {
            at: place(ids_of(op), first.shape(), row * first.columns() + column),
            expected: format!("{} (the first run)", e[column]),
            got: format!("{} ({how})", g[column]),
            ..Detail::default()
        }));
    }
    None
}

fn failed(detail: Detail) -> Verdict {
    Verdict::Fail(Box::new(detail))
}

/// The ids of the first run.
fn ids<'a>(trial: &'a mut Trial<'_>, op: Op) -> Result<&'a Guarded<i32>, Verdict> {
    let ids = trial.outputs(op)?.i32(ids_of(op));
    ids.ok_or(Verdict::NotApplicable("the tensor is not written"))
}

/// The outputs of `op` on a related problem.
fn run(trial: &mut Trial<'_>, op: Op, related: &Problem) -> Result<Buffers, Verdict> {
    if let Some(why) = trial.capabilities().refuses(op, related) {
        return Err(Verdict::Skip(why));
    }
    let outputs = match trial.on(op, related, Fill::Zeros) {
        Ok(outputs) => outputs,
        Err(Failure::Unsupported(why)) => return Err(Verdict::Skip(why)),
        Err(failure) => {
            return Err(failed(Detail {
                at: "the call".to_owned(),
                expected: "a result for the related problem too".to_owned(),
                got: failure.to_string(),
                ..Detail::default()
            }));
        }
    };
    match misshapen(op, related, &outputs) {
        Some(detail) => Err(failed(detail)),
        None => Ok(outputs),
    }
}

/// Every key and scale outside a row's window becomes NaN; the row must not notice.
pub(super) fn window(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    let row = some_row(problem);
    if let Some(row) = row {
        let mut poisoned = problem.with_rows(&[row]);
        poisoned.inputs.strictness = Strictness::Permissive;
        let window = problem.inputs.windows.rows()[row];
        let tensors = &mut poisoned.inputs.tensors;
        for key in (0..problem.n()).filter(|&key| !window.contains(key)) {
            tensors.k.row_mut(key).fill(E4M3::NAN);
            tensors.k_scale[key] = f32::NAN;
        }
        let how = "the row alone, with NaN everywhere outside its window";
        if let Some(verdict) = rows_agree(trial, op, &poisoned, &[row], how) {
            return verdict;
        }
    }
    applied(row.is_some())
}

/// The first and the second half of the rows by themselves.
pub(super) fn split(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let (problem, m) = (trial.problem, trial.problem.m());
    for half in [(0..m / 2), (m / 2..m)] {
        let rows: Vec<usize> = half.collect();
        let part = problem.with_rows(&rows);
        if let Some(verdict) = rows_agree(trial, op, &part, &rows, "half of the rows alone") {
            return verdict;
        }
    }
    applied(m > 1)
}

/// All rows in reverse order.
pub(super) fn rows(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let (problem, m) = (trial.problem, trial.problem.m());
    let rows: Vec<usize> = (0..m).rev().collect();
    let reversed = problem.with_rows(&rows);
    let verdict = rows_agree(
        trial,
        op,
        &reversed,
        &rows,
        "with the rows in reverse order",
    );
    verdict.unwrap_or_else(|| applied(m > 1))
}

/// The queries and weights of all other rows become NaN, or large where NaN is not taken.
pub(super) fn neighbours(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let (problem, m) = (trial.problem, trial.problem.m());
    let chosen = some_row(problem).filter(|_| m > 1);
    let permissive = trial.capabilities().permissive;
    if let Some(row) = chosen {
        let mut changed = problem.related();
        let (code, weight) = if permissive {
            changed.inputs.strictness = Strictness::Permissive;
            (E4M3::NAN, f32::NAN)
        } else {
            (E4M3::from_bits(0x7E), 1e30)
        };
        for other in (0..m).filter(|&other| other != row) {
            changed
                .inputs
                .tensors
                .q
                .index_axis_mut(Axis(0), other)
                .fill(code);
            changed.inputs.tensors.weights.row_mut(other).fill(weight);
        }
        some!(ids(trial, op));
        let got = some!(run(trial, op, &changed));
        let first = some!(ids(trial, op));
        let Some(got) = got.i32(ids_of(op)) else {
            return Verdict::NotApplicable("the tensor is not written");
        };
        let (e, g) = (first.row(row), got.row(row));
        if let Some(column) = e.iter().zip(g).position(|(e, g)| e != g) {
            return failed(Detail {
                at: place(ids_of(op), first.shape(), row * first.columns() + column),
                expected: format!("{} (the first run)", e[column]),
                got: format!("{} (with other queries in the other rows)", g[column]),
                ..Detail::default()
            });
        }
    }
    applied(chosen.is_some())
}

/// The row for K is the row for K + 1 without its last column.
pub(super) fn nest(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    let params = problem.inputs.params;
    let (b, m, k) = (
        params.block_size(),
        params.block_topk(),
        params.topk_tokens(),
    );
    let Ok(wider) = hisa_ref::HisaParams::new(b, m, k + 1) else {
        return Verdict::NotApplicable("K is the largest there is");
    };
    if !trial.capabilities().ordered {
        return Verdict::Skip("no order is promised".to_owned());
    }
    let mut related = problem.related();
    related.inputs.params = wider.with_rank(params.rank());
    let rows: Vec<usize> = (0..problem.m()).collect();
    let verdict = rows_agree(trial, op, &related, &rows, "in a row one id longer");
    verdict.unwrap_or_else(|| applied(problem.m() > 0))
}

/// Heads in reverse order change nothing where sums are exact.
pub(super) fn permute(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    if problem.h() < 2 {
        return Verdict::NotApplicable("one head");
    }
    if !trial.capabilities().exact_scores() {
        return Verdict::Skip("the sum over heads is not exact".to_owned());
    }
    let mut permuted = problem.related();
    permuted.inputs.tensors.q.invert_axis(Axis(1));
    permuted.inputs.tensors.weights.invert_axis(Axis(1));
    let how = "with the heads in reverse order";
    match op {
        Op::Stage(_) => some!(scores_agree(trial, op, &permuted, 1.0, how)),
        _ => {
            let rows: Vec<usize> = (0..problem.m()).collect();
            if let Some(verdict) = rows_agree(trial, op, &permuted, &rows, how) {
                return verdict;
            }
        }
    }
    applied(problem.m() > 0)
}

/// All scales times 8, where nothing comes near the ends of the range or the floor.
pub(super) fn scale(trial: &mut Trial<'_>, op: Op) -> Verdict {
    const FACTOR: f32 = 8.0;
    let problem = trial.problem;
    if !scales_freely(trial) || !pools_above_the_floor(trial) {
        return Verdict::NotApplicable("scores come near the ends of the f32 range");
    }
    let mut scaled = problem.related();
    scaled.inputs.tensors.k_scale *= FACTOR;
    let how = "with all scales times 8";
    match op {
        Op::Stage(_) => some!(scores_agree(trial, op, &scaled, FACTOR, how)),
        _ => {
            let rows: Vec<usize> = (0..problem.m()).collect();
            if let Some(verdict) = rows_agree(trial, op, &scaled, &rows, how) {
                return verdict;
            }
        }
    }
    applied(problem.m() > 0)
}

/// Every code of q and k changes its sign. All scores stay, and what a port has kept of the keys
/// of the first run, as pooled blocks, is wrong.
pub(super) fn negate(trial: &mut Trial<'_>, op: Op) -> Verdict {
    const SIGN: u8 = 0x80;
    let problem = trial.problem;
    if !trial.capabilities().exact_scores() {
        return Verdict::Skip("the order of sums may depend on their terms".to_owned());
    }
    let mut negated = problem.related();
    let tensors = &mut negated.inputs.tensors;
    for code in tensors.q.iter_mut().chain(tensors.k.iter_mut()) {
        *code = E4M3::from_bits(code.to_bits() ^ SIGN);
    }
    let rows: Vec<usize> = (0..problem.m()).collect();
    let how = "with the sign of every code of q and k changed";
    let verdict = rows_agree(trial, op, &negated, &rows, how);
    verdict.unwrap_or_else(|| applied(some_row(problem).is_some()))
}

/// What the truth says of pooled scales holds for a backend that pools in f32 only where its whole
/// range is above the floor.
fn pools_above_the_floor(trial: &mut Trial<'_>) -> bool {
    if trial.capabilities().numerics.block_pool == Quotients::Exact {
        return true;
    }
    let bounds = trial.bounds();
    let above = |block: &Block| matches!(block.scale, Range::Between(low, _) if low > SCALE_MIN);
    bounds.pooled().iter().all(above)
}

/// With such weights and scales every term is a multiple of 2^-124: a score of zero is a true
/// zero and no underflow, which would not scale.
fn scales_freely(trial: &Trial<'_>) -> bool {
    let within = |value: f32, low: f32| value == 0.0 || (low..1.0 / low).contains(&value.abs());
    let score = |value: &f32| *value == f32::NEG_INFINITY || within(*value, 1e-30);
    let inputs = &trial.problem.inputs;
    let truth = trial.truth;
    let floats = |stage: Stage, name: &str| {
        let made = truth.of(Op::Stage(stage)).ok();
        made.and_then(|made| made.f32(name))
            .map_or(&[][..], Guarded::body)
    };
    inputs.strictness == Strictness::Strict
        && trial.problem.n() > 0
        && inputs
            .tensors
            .k_scale
            .iter()
            .all(|&scale| within(scale, 1e-12))
        && inputs
            .tensors
            .weights
            .iter()
            .all(|&weight| within(weight, 1e-6))
        && floats(Stage::BlockPool, "pooled_scale")
            .iter()
            .all(|&scale| scale > SCALE_MIN && scale < 1e30)
        && floats(Stage::TokenScores, "token_scores")
            .iter()
            .chain(floats(Stage::BlockScores, "block_scores"))
            .all(score)
}

/// The scores of a related problem are those of the first run times `factor`.
fn scores_agree(
    trial: &mut Trial<'_>,
    op: Op,
    related: &Problem,
    factor: f32,
    how: &str,
) -> Result<(), Verdict> {
    let name = op.outputs()[0];
    let got = run(trial, op, related)?;
    let problem = trial.problem;
    let first = trial.outputs(op)?;
    let (Some(first), Some(got)) = (first.f32(name), got.f32(name)) else {
        return Err(Verdict::NotApplicable("the tensor is not written"));
    };
    let (windows, b, columns) = (problem.inputs.windows.rows(), problem.b(), first.columns());
    let compared = |at: usize| {
        let (row, column) = (at / columns.max(1), at % columns.max(1));
        op != Op::Stage(Stage::BlockScores) || windows[row].blocks(b).contains(&column)
    };
    let pairs = first.body().iter().zip(got.body()).enumerate();
    for (at, (&e, &g)) in pairs {
        let e = e * factor;
        if compared(at) && !same_value(e, g) {
            return Err(failed(Detail {
                at: place(name, first.shape(), at),
                expected: format!("{} (from the first run)", show_f32(e)),
                got: format!("{} ({how})", show_f32(g)),
                ..Detail::default()
            }));
        }
    }
    Ok(())
}

/// Where a window touches at most m blocks, `hisa` and `dsa` of one backend agree.
pub(super) fn equal_flat(trial: &mut Trial<'_>, op: Op) -> Verdict {
    if !trial.capabilities().exact_scores() {
        return Verdict::Skip("two kernels may round scores differently".to_owned());
    }
    let problem = trial.problem;
    let (windows, b) = (problem.inputs.windows.rows(), problem.b());
    let m = problem.inputs.params.block_topk();
    let flat = some!(ids(trial, op)).clone();
    let hierarchical = some!(ids(trial, Op::Hisa));
    let covered = |row: &usize| windows[*row].blocks(b).len() <= m;
    let covered: Vec<usize> = (0..windows.len()).filter(covered).collect();
    for &row in &covered {
        let (e, g) = (hierarchical.row(row), flat.row(row));
        if let Some(column) = e.iter().zip(g).position(|(e, g)| e != g) {
            return failed(Detail {
                at: place(ids_of(op), flat.shape(), row * g.len() + column),
                expected: format!("{} (hisa)", e[column]),
                got: format!("{} (dsa)", g[column]),
                ..Detail::default()
            });
        }
    }
    applied(covered.iter().any(|&row| !windows[row].is_empty()))
}

fn applied(applies: bool) -> Verdict {
    if applies {
        Verdict::Pass
    } else {
        Verdict::NotApplicable("too few rows that see a key")
    }
}
