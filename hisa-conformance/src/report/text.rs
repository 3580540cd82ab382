//! The table of a run, and its findings, as plain text.

use crate::check::CHECKS;
use crate::op::Op;
use crate::summary::{Finding, Summary};
use std::fmt::Write;

/// The table: one line per check of `ops`, then the totals.
#[must_use]
pub fn table(summary: &Summary, ops: &[Op]) -> String {
    let mut out = String::from("stage         check       SPEC    passed    n/a  failed\n");
    let lines = CHECKS.iter().zip(&summary.tallies);
    for (check, tally) in lines.filter(|(check, _)| ops.contains(&check.op)) {
        let verdict = match (tally.failed, tally.passed, tally.skipped) {
            (0, 0, 0) => "  NEVER EXERCISED",
            (0, 0, _) => "  skipped",
            (0, ..) => "",
            _ => "  FAIL",
        };
        let (subject, name, clause) = (check.op.name(), check.name, check.clause);
        let (passed, skipped, failed) = (
            tally.passed,
            tally.not_applicable + tally.skipped,
            tally.failed,
        );
        let line = format!(
            "{subject:<13} {name:<11} {clause:<5} {passed:>8} {skipped:>6} {failed:>7}{verdict}"
        );
        out.push_str(&line);
        out.push('\n');
    }
    let parts: Vec<String> = summary
        .cases
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let _ = writeln!(
        out,
        "{} cases ({}), {} findings",
        summary.total_cases(),
        parts.join(", "),
        summary.findings_total
    );
    out
}

/// One finding, in four lines; the last one is the command that shows it again.
#[must_use]
pub fn finding(finding: &Finding) -> String {
    let check = &CHECKS[finding.check];
    let (at, expected, got) = (
        &finding.detail.at,
        &finding.detail.expected,
        &finding.detail.got,
    );
    let case = &finding.case;
    format!(
        "FAIL {}  SPEC {}\n  at {at}: expected {expected}, got {got}\n  replay hisa replay {case}",
        check.id(),
        check.clause
    )
}

/// One line per check of `ops` on a single case: what it came to.
#[must_use]
pub fn verdicts(summary: &Summary, ops: &[Op]) -> String {
    let mut out = String::new();
    let lines = CHECKS.iter().zip(&summary.tallies);
    for (check, tally) in lines.filter(|(check, _)| ops.contains(&check.op)) {
        let word = match (tally.failed, tally.passed) {
            (0, 0) => "does not apply",
            (0, _) => "pass",
            _ => "FAIL",
        };
        let _ = writeln!(
            out,
            "{:<13} {:<11} {:<5} {word}",
            check.op.name(),
            check.name,
            check.clause
        );
    }
    out
}
