//! Names the cause of a finding: a well-known other rule that gives exactly what the backend gave.
//!
//! After a check of a stage has failed, each alternative rule of the stage is tried on the inputs
//! the backend had. Those whose outputs equal the backend's, element by element, may be the cause.
//! A sentence is therefore a fact about this case, and no more than a strong hint about the
//! backend.

mod pooling;
mod scores;
mod selection;

use crate::backend::{Buffer, Buffers, Job};
use crate::measure::{same_code, same_value};
use crate::op::Op;
use crate::problem::Problem;
use crate::truth::Truth;
use hisa_ref::Stage;

/// A rule other than the specification's.
pub(crate) struct Alternative {
    /// The stage it belongs to.
    pub(crate) stage: Stage,
    /// What a backend that follows it does, after "the outputs are those of a port that".
    pub(crate) does: &'static str,
    /// Its outputs; `None` where the rule does not apply.
    pub(crate) outputs: fn(&Job<'_>) -> Option<Buffers>,
}

fn alternatives() -> impl Iterator<Item = &'static Alternative> {
    selection::ALTERNATIVES
        .iter()
        .chain(pooling::ALTERNATIVES)
        .chain(scores::ALTERNATIVES)
}

/// The sentence for what `op` gave on `problem`; `None` where no known rule gives the same.
#[must_use]
pub fn cause(op: Op, problem: &Problem, truth: &Truth, got: &Buffers) -> Option<String> {
    let Op::Stage(stage) = op else { return None };
    if equal(stage, problem, truth.of(op).ok()?, got) {
        return None; // the failed check is about something else
    }
    let job = Job::new(op, problem, truth.chain()).ok()?;
    let of_stage = alternatives().filter(|alternative| alternative.stage == stage);
    let fitting = of_stage.filter(|alternative| {
        let outputs = (alternative.outputs)(&job);
        outputs.is_some_and(|outputs| equal(stage, problem, &outputs, got))
    });
    let rules: Vec<&str> = fitting.map(|alternative| alternative.does).collect();
    let rules = rules.join(", or of one that ");
    (!rules.is_empty()).then(|| format!("the outputs are those of a port that {rules}"))
}

/// Equal wherever the specification defines a value.
fn equal(stage: Stage, problem: &Problem, expected: &Buffers, got: &Buffers) -> bool {
    let (windows, b) = (problem.inputs.windows.rows(), problem.b());
    let counts = |at: usize, columns: usize| {
        let (row, column) = (at / columns.max(1), at % columns.max(1));
        stage != Stage::BlockScores || windows[row].blocks(b).contains(&column)
    };
    expected.iter().all(|(name, buffer)| {
        let Some(other) = got
            .get(name)
            .filter(|other| other.shape() == buffer.shape())
        else {
            return false;
        };
        match (buffer, other) {
            (Buffer::I32(a), Buffer::I32(b)) if stage == Stage::BlockTopk => {
                (0..a.rows()).all(|row| sorted(a.row(row)) == sorted(b.row(row)))
            }
            (Buffer::I32(a), Buffer::I32(b)) => a.body() == b.body(),
            (Buffer::Codes(a), Buffer::Codes(b)) => {
                let mut pairs = a.body().iter().zip(b.body());
                pairs.all(|(&a, &b)| same_code(a, b))
            }
            (Buffer::F32(a), Buffer::F32(b)) => {
                let mut pairs = a.body().iter().zip(b.body()).enumerate();
                pairs.all(|(at, (&e, &g))| !counts(at, a.columns()) || same_value(e, g))
            }
            _ => false,
        }
    })
}

fn sorted(ids: &[i32]) -> Vec<i32> {
    let mut ids: Vec<i32> = ids.iter().copied().filter(|&id| id >= 0).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests;
