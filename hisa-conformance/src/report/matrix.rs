//! Jobs by kinds of checks: a run at a glance.

use super::Report;
use crate::check::Group;
use crate::op::Op;

/// What the checks of one kind came to on one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The job has no such check.
    None,
    /// All pass.
    Ok,
    /// Those that ran pass; the backend takes no case of some others.
    Partly,
    /// All failures are known ones; how many.
    Known(u64),
    /// The backend takes no case.
    Skip,
    /// A check that no case exercised.
    Never,
    /// Failures that are not known, over all checks of the kind.
    Fail(u64),
}

impl State {
    /// `ok`, `FAIL 12`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::None => "-".to_owned(),
            Self::Ok => "ok".to_owned(),
            Self::Partly => "ok*".to_owned(),
            Self::Known(failures) => format!("known {failures}"),
            Self::Skip => "skip".to_owned(),
            Self::Never => "never".to_owned(),
            Self::Fail(failures) => format!("FAIL {failures}"),
        }
    }

    /// The text without a number.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Ok => "ok",
            Self::Partly => "ok*",
            Self::Known(_) => "known",
            Self::Skip => "skip",
            Self::Never => "never",
            Self::Fail(_) => "FAIL",
        }
    }

    /// What the word says, in a sentence.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::None => "the job has no such check, or was not judged",
            Self::Ok => "every check passed wherever it applied",
            Self::Partly => "passed; another check of the kind was skipped on every case",
            Self::Known(_) => "failures that are known and listed with a reason",
            Self::Skip => "the backend does not take the job, or promises nothing here",
            Self::Never => "no case exercised a check, so nothing is shown",
            Self::Fail(_) => "failures, as a number of cases summed over the checks",
        }
    }
}

/// One row per job, in the order of [`Op::ALL`]; one cell per entry of [`Group::ALL`].
#[must_use]
pub fn matrix(report: &Report) -> Vec<(&'static str, [State; Group::ALL.len()])> {
    let row = |op: Op| (op.name(), Group::ALL.map(|group| cell(report, op, group)));
    Op::ALL.into_iter().map(row).collect()
}

/// One row per job, in the order of [`Op::ALL`]: what all kinds of checks together came to. A kind
/// that is skipped altogether says nothing beside one that is not.
#[must_use]
pub fn overall(report: &Report) -> Vec<(&'static str, State)> {
    let rows = matrix(report).into_iter();
    rows.map(|(name, states)| {
        let judged = states.into_iter().filter(|state| *state != State::Skip);
        let judged = judged.reduce(join).filter(|state| *state != State::None);
        let skipped = states.contains(&State::Skip).then_some(State::Skip);
        (name, judged.or(skipped).unwrap_or(State::None))
    })
    .collect()
}

fn cell(report: &Report, op: Op, group: Group) -> State {
    let of_cell = |(check, info): (usize, &super::CheckInfo)| {
        (info.job == op.name() && info.group == group).then(|| state(report, check))
    };
    let states = report.checks.iter().enumerate().filter_map(of_cell);
    states.reduce(join).unwrap_or(State::None)
}

/// What one check came to.
#[must_use]
pub fn state(report: &Report, check: usize) -> State {
    let info = report.checks.get(check);
    if !info.is_some_and(|info| report.judged(&info.job)) {
        return State::None;
    }
    let Some(tally) = report.summary.tallies.get(check) else {
        return State::Never;
    };
    let known = tally.expected.min(tally.failed);
    match (tally.failed - known, known) {
        (1.., _) => State::Fail(tally.failed - known),
        (0, 1..) => State::Known(known),
        (0, 0) if tally.passed > 0 => State::Ok,
        (0, 0) if tally.skipped > 0 => State::Skip,
        (0, 0) => State::Never,
    }
}

/// The worse of two, with failures added.
fn join(a: State, b: State) -> State {
    use State::{Fail, Known, Never, Ok, Partly, Skip};
    match (a, b) {
        (Fail(a), Fail(b)) => Fail(a + b),
        (Fail(a), _) | (_, Fail(a)) => Fail(a),
        (Never, _) | (_, Never) => Never,
        (Known(a), Known(b)) => Known(a + b),
        (Known(a), _) | (_, Known(a)) => Known(a),
        (Partly, _) | (_, Partly) | (Ok, Skip) | (Skip, Ok) => Partly,
        (State::None, other) | (other, State::None) => other,
        (Ok, Ok) => Ok,
        (Skip, Skip) => Skip,
    }
}
