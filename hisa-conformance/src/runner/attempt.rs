//! One request to one worker: its answer, or where it was when it was lost.

use super::RunError;
use super::child::{Child, Loss, START_LIMIT};
use crate::check::{CHECKS, Detail, Group};
use crate::op::Op;
use crate::summary::{Source, Summary, Tally};
use crate::worker::judge::finding;
use crate::worker::protocol::{Reply, Request};
use std::time::{Duration, Instant};

/// A worker that was lost on the way, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    /// How.
    pub loss: Loss,
    /// The case in flight, as a position in the request.
    pub at: Option<u64>,
    /// The job in flight, where jobs are announced.
    pub op: Option<Op>,
}

/// Has `child` judge what `request` names; every case has `limit`.
pub(super) fn attempt(
    child: &mut Child,
    request: &Request,
    limit: Duration,
) -> Result<Result<Summary, RunError>, Lost> {
    Ok(match answer(child, request, limit)? {
        Ok(Reply::Done(summary)) => Ok(*summary),
        Ok(_) => Err(RunError::Refused {
            why: "the worker answered another question".to_owned(),
        }),
        Err(error) => Err(error),
    })
}

/// Has `child` answer `request`; every case has `limit`. Where the child says when jobs begin and
/// end, every job has it instead, and what the engine itself does has [`START_LIMIT`].
pub(super) fn answer(
    child: &mut Child,
    request: &Request,
    limit: Duration,
) -> Result<Result<Reply, RunError>, Lost> {
    child.ask(request);
    let limit = child.allowed(limit);
    let (mut at, mut op) = (None, None);
    let own = if child.announces { START_LIMIT } else { limit };
    let (mut begun, mut allowed) = (Instant::now(), own);
    loop {
        let left = allowed.saturating_sub(begun.elapsed());
        match child.next(left) {
            Ok(Reply::Start(position)) => {
                (at, op) = (Some(position), None);
                (begun, allowed) = (Instant::now(), own);
            }
            Ok(Reply::Op(name)) => {
                op = Op::from_name(&name);
                (begun, allowed) = (Instant::now(), limit);
            }
            Ok(Reply::Idle) => {
                op = None;
                (begun, allowed) = (Instant::now(), own);
            }
            Ok(Reply::Ending(ending)) => child.ending = Some(ending),
            Ok(Reply::Refused(why)) => return Ok(Err(RunError::Refused { why })),
            Ok(Reply::Ready(_)) => {}
            Ok(last) => return Ok(Ok(last)),
            Err(Loss::Hung(_)) => {
                let loss = Loss::Hung(allowed);
                return Err(Lost { loss, at, op });
            }
            Err(loss) => {
                let why = child.ending.take().map(|ending| Loss::Broke(ending.why));
                let loss = why.unwrap_or(loss);
                return Err(Lost { loss, at, op });
            }
        }
    }
}

/// The check that a crash in `op` fails: `OP.runs`.
#[must_use]
pub fn runs_check(op: Op) -> usize {
    let of_op = |check: &crate::check::Check| check.op == op && check.group == Group::Runs;
    let found = CHECKS.iter().position(of_op);
    found.unwrap_or_else(|| unreachable!("{op} has the checks of every job"))
}

/// What a lost worker says about the job it ran.
pub(super) fn charge(loss: &Loss, cause: Option<&str>) -> Detail {
    Detail {
        at: "the call".to_owned(),
        expected: "a result".to_owned(),
        got: loss.to_string(),
        cause: cause.map(str::to_owned),
        ..Detail::default()
    }
}

/// The summary of a case that no worker survives.
pub(super) fn charged(op: Op, source: Source, case: String, detail: Detail) -> Summary {
    let mut summary = Summary::default();
    summary.cases.insert(source.generator.clone(), 1);
    add_charge(&mut summary, op, source, case, detail);
    summary
}

/// Adds the finding that `op` does not run.
pub(super) fn add_charge(
    summary: &mut Summary,
    op: Op,
    source: Source,
    case: String,
    detail: Detail,
) {
    let check = runs_check(op);
    let failed_already = summary.tallies[check].failed > 0;
    summary.tallies[check] = Tally {
        failed: 1,
        expected: summary.tallies[check].expected,
        ..Tally::default()
    };
    if !failed_already {
        summary.findings_total += 1;
        summary.findings.push(finding(check, source, case, detail));
    }
}
