//! What a run looks like to people and to programs.
//!
//! ```text
//! Summary -> Report -> text (terminal), json, junit, html
//! ```
//!
//! A [`Report`] holds all that the four writers show, and names its own checks, so that one made
//! by another version still reads right.

pub mod compare;
pub mod float;
pub mod html;
pub mod json;
pub mod junit;
pub mod matrix;
pub mod portrait;
mod self_test;
mod sink;
pub mod text;
pub mod words;

#[cfg(test)]
mod tests;

pub use portrait::Portrait;
pub use self_test::{SelfTest, SelfTestRow};
pub use sink::ReportError;

use crate::check::{CHECKS, Group};
use crate::op::Op;
use crate::summary::{Finding, Summary};
use serde::{Deserialize, Serialize};

/// Version of the JSON form. A reader of version n reads nothing above n.
pub const SCHEMA: u32 = 1;

/// What was run, how and when.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of the backend on trial.
    pub backend: String,
    /// Arguments that name the backend on a command line; `--backend NAME` where empty.
    pub backend_args: Vec<String>,
    /// What the backend is called where there is little room.
    #[serde(default)]
    pub label: String,
    /// Name of the backend it is judged by.
    pub basis: String,
    /// The arithmetic the backend declares, in words.
    pub arithmetic: String,
    /// Seed of the random cases, in hex after `0x`.
    pub seed: String,
    /// How much was done.
    pub effort: String,
    /// The part of the cases that was run, such as `2/8`.
    pub shard: Option<String>,
    /// Seconds of wall time.
    #[serde(with = "float")]
    pub elapsed: f64,
    /// Cases run at the same time.
    pub jobs: usize,
    /// When it ended, UTC, such as `2026-01-31 17:05:00`.
    pub date: String,
    /// Why it ended before its time.
    pub stopped: Option<String>,
}

/// A check, as reports name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckInfo {
    /// The id, such as `token_topk.selection`.
    pub id: String,
    /// The job, the part of the id before the dot.
    pub job: String,
    /// Its kind.
    pub group: Group,
    /// The clause of SPEC.
    pub clause: String,
}

/// A run, ready to be shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of this program.
    pub version: String,
    /// Whether [`Self::reasons`] is empty.
    pub clean: bool,
    /// What keeps the run from being clean, a phrase each.
    pub reasons: Vec<String>,
    /// What was run.
    pub run: RunInfo,
    /// The jobs that were judged.
    pub ops: Vec<String>,
    /// The checks that the tallies and findings of [`Self::summary`] count by position.
    pub checks: Vec<CheckInfo>,
    /// Counts, findings and skips.
    pub summary: Summary,
    /// Whether the checks catch faults that were made on purpose.
    pub self_test: Option<SelfTest>,
    /// Pictures of the first finding.
    pub portrait: Option<Portrait>,
}

impl Report {
    /// A report of this program's checks on the jobs `ops`. It is clean unless the summary, the
    /// self-test or the caller have something against it; the caller says so in `complaints`.
    #[must_use]
    pub fn new(
        run: RunInfo,
        ops: &[Op],
        summary: Summary,
        complaints: Vec<String>,
        self_test: Option<SelfTest>,
    ) -> Self {
        let checks = CHECKS.iter().map(|check| CheckInfo {
            id: check.id(),
            job: check.op.to_string(),
            group: check.group,
            clause: check.clause.to_owned(),
        });
        let mut reasons = Vec::new();
        if self_test.is_none() || summary.total_cases() > 0 {
            reasons = summary.complaints(ops);
        }
        if let Some(why) = &run.stopped {
            reasons.push(format!("stopped early: {why}"));
        }
        reasons.extend(complaints);
        reasons.extend(self_test.iter().flat_map(SelfTest::why_unclean));
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clean: reasons.is_empty(),
            reasons,
            run,
            ops: ops.iter().map(Op::to_string).collect(),
            checks: checks.collect(),
            summary,
            self_test,
            portrait: None,
        }
    }

    /// Whether the checks of this job were judged.
    #[must_use]
    pub fn judged(&self, job: &str) -> bool {
        self.ops.iter().any(|judged| judged == job)
    }

    /// Findings that are not known ones.
    #[must_use]
    pub const fn new_findings(&self) -> u64 {
        let summary = &self.summary;
        summary
            .findings_total
            .saturating_sub(summary.expected_total)
    }

    /// The id of a check by its position.
    #[must_use]
    pub fn id(&self, check: usize) -> &str {
        self.checks
            .get(check)
            .map_or("unknown check", |info| &info.id)
    }

    /// The clause of a check by its position.
    #[must_use]
    pub fn clause(&self, check: usize) -> &str {
        self.checks.get(check).map_or("?", |info| &info.clause)
    }

    /// The command line that runs the case of a finding again, quoted for a shell.
    #[must_use]
    pub fn replay(&self, finding: &Finding) -> String {
        let mut command = vec!["hisa".to_owned(), "replay".to_owned()];
        if self.run.backend_args.is_empty() {
            command.push("--backend".to_owned());
            command.push(words::shell(&self.run.backend));
        } else {
            command.extend(self.run.backend_args.iter().map(|arg| words::shell(arg)));
        }
        let case = finding.shrunk.as_ref().map(|shrunk| &shrunk.case);
        command.push(words::shell(case.unwrap_or(&finding.case)));
        command.join(" ")
    }
}
