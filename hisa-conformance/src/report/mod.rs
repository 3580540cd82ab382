//! What a run looks like to people and to programs.
//!
//! ```text
//! Summary -> Report -> text (terminal), json, junit, html
//! ```
//!
//! A [`Report`] holds all that the four writers show, and names its own checks, so that one made
//! by another version still reads right.

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
    /// A report of this program's checks; says whether it is clean, and if not, why.
    #[must_use]
    pub fn new(run: RunInfo, summary: Summary, self_test: Option<SelfTest>) -> Self {
        let checks = CHECKS.iter().map(|check| CheckInfo {
            id: check.id(),
            job: check.op.to_string(),
            group: check.group,
            clause: check.clause.to_owned(),
        });
        let mut report = Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clean: false,
            reasons: Vec::new(),
            run,
            checks: checks.collect(),
            summary,
            self_test,
            portrait: None,
        };
        report.reasons = report.why_unclean();
        report.clean = report.reasons.is_empty();
        report
    }

    fn why_unclean(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let new = self.new_findings();
        if new > 0 {
            reasons.push(words::count(new, "finding"));
        }
        if self.summary.total_cases() > 0 {
            let never = self.summary.unexercised();
            if !never.is_empty() {
                let ids: Vec<&str> = never.iter().map(|&check| self.id(check)).collect();
                let checks = words::count(ids.len() as u64, "check");
                reasons.push(format!("{checks} never exercised: {}", ids.join(", ")));
            }
        } else if self.self_test.is_none() {
            reasons.push("no case was run".to_owned());
        }
        if let Some(why) = &self.run.stopped {
            reasons.push(format!("stopped early: {why}"));
        }
        if let Some(self_test) = &self.self_test {
            reasons.extend(self_test.why_unclean());
        }
        reasons
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

    /// Of the failures of a check, how many are known ones, as far as the findings kept tell.
    #[must_use]
    pub fn known_failures(&self, check: usize) -> u64 {
        let failed = self.summary.tallies.get(check).map_or(0, |t| t.failed);
        if self.new_findings() == 0 {
            return failed;
        }
        let known = |finding: &&Finding| finding.check == check && finding.expected.is_some();
        let kept = self.summary.findings.iter().filter(known).count() as u64;
        kept.min(failed)
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
