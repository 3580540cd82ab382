//! Runs of related problems, compared with the first run.

use super::plain::{misshapen, place, some};
use super::related::{Compared, Relate, Related, Relation, TOO_FEW_ROWS};
use super::slots::ids_of;
use super::{Detail, Verdict};
use crate::backend::buffer::show_f32;
use crate::backend::{Buffers, Failure, Guarded};
use crate::measure::same_value;
use crate::op::Op;
use crate::problem::Problem;
use crate::trial::Trial;
use hisa_ref::Stage;

/// All related problems of a relation agree with the first run.
pub(super) fn agree(trial: &mut Trial<'_>, op: Op, relate: Relate) -> Verdict {
    let Relation { related, applies } = some!(relate(trial, op));
    for related in &related {
        some!(match &related.compared {
            Compared::Ids(rows) => ids_agree(trial, op, related, rows),
            Compared::Scores(factor) => scores_agree(trial, op, related, *factor),
        });
    }
    applied(applies)
}

fn applied(applies: bool) -> Verdict {
    if applies { Verdict::Pass } else { TOO_FEW_ROWS }
}

fn failed(detail: Detail) -> Verdict {
    Verdict::Fail(Box::new(detail))
}

/// What a related run says, before it is compared.
///
/// # Errors
/// [`Verdict::Skip`] where the backend does not take the job, [`Verdict::Fail`] where it gives
/// nothing or something of another shape.
pub(crate) fn answer(
    op: Op,
    related: &Problem,
    outputs: Result<Buffers, Failure>,
) -> Result<Buffers, Verdict> {
    let outputs = match outputs {
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

/// The ids of the first run.
fn ids<'a>(trial: &'a mut Trial<'_>, op: Op) -> Result<&'a Guarded<i32>, Verdict> {
    trial.outputs(op)?.i32(ids_of(op)).ok_or(NOT_WRITTEN)
}

const NOT_WRITTEN: Verdict = Verdict::NotApplicable("the tensor is not written");

/// The pairs of `rows` hold the same ids, as far as the shorter one goes.
fn ids_agree(
    trial: &mut Trial<'_>,
    op: Op,
    related: &Related,
    rows: &[[usize; 2]],
) -> Result<(), Verdict> {
    // Without ids of a first run no related one is asked for.
    ids(trial, op)?;
    let got = trial.on(op, &related.variant)?;
    let got = got.i32(ids_of(op)).ok_or(NOT_WRITTEN)?;
    let first = ids(trial, op)?;
    for &[row, at] in rows {
        let (e, g) = (first.row(row), got.row(at));
        let Some(column) = e.iter().zip(g).position(|(e, g)| e != g) else {
            continue;
        };
        return Err(failed(Detail {
            at: place(ids_of(op), first.shape(), row * first.columns() + column),
            expected: format!("{} (the first run)", e[column]),
            got: format!("{} ({})", g[column], related.how),
            ..Detail::default()
        }));
    }
    Ok(())
}

/// The scores of a related problem are those of the first run times `factor`.
fn scores_agree(
    trial: &mut Trial<'_>,
    op: Op,
    related: &Related,
    factor: f32,
) -> Result<(), Verdict> {
    let (name, how) = (op.outputs()[0], related.how);
    let got = trial.on(op, &related.variant)?;
    let problem = trial.problem;
    let first = trial.outputs(op)?;
    let (Some(first), Some(got)) = (first.f32(name), got.f32(name)) else {
        return Err(NOT_WRITTEN);
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
