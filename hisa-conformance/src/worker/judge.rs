//! One problem through the checks.

use crate::backend::Backend;
use crate::check::{CHECKS, Detail, Verdict};
use crate::op::Op;
use crate::problem::Problem;
use crate::summary::{Finding, Source, Summary};
use crate::trial::Trial;
use crate::truth::Truth;

/// Judges one problem by the checks of `ops`; adds counts and findings to `summary`.
pub fn judge(
    problem: &Problem,
    (source, case): (&Source, &str),
    backend: &mut dyn Backend,
    basis: &mut dyn Backend,
    ops: &[Op],
    summary: &mut Summary,
) {
    let truth = Truth::new(problem, basis);
    judge_by((problem, &truth), (source, case), backend, ops, summary);
}

/// As [`judge`], by results known already: many backends can share them.
pub fn judge_by(
    (problem, truth): (&Problem, &Truth),
    (source, case): (&Source, &str),
    backend: &mut dyn Backend,
    ops: &[Op],
    summary: &mut Summary,
) {
    let mut trial = Trial::new(problem, truth, backend);
    let checks = CHECKS.iter().enumerate();
    for (index, check) in checks.filter(|(_, check)| ops.contains(&check.op)) {
        let tally = &mut summary.tallies[index];
        match (check.judge)(&mut trial, check.op) {
            Verdict::Pass => tally.passed += 1,
            Verdict::NotApplicable(_) => tally.not_applicable += 1,
            Verdict::Skip(why) => {
                tally.skipped += 1;
                let skips = summary.skips.entry(format!("{}: {why}", check.op));
                *skips.or_default() += 1;
            }
            Verdict::Fail(detail) => {
                tally.failed += 1;
                summary.findings_total += 1;
                let found = finding(index, source.clone(), case.to_owned(), *detail);
                summary.findings.push(found);
            }
        }
    }
    summary.measures.merge(&trial.measures);
    *summary.cases.entry(source.generator.clone()).or_default() += 1;
}

/// A finding as a check makes it, before anything is known but the check's words.
#[must_use]
pub fn finding(check: usize, source: Source, case: String, detail: Detail) -> Finding {
    Finding {
        check,
        source,
        case,
        detail,
        shrunk: None,
        saved: None,
        expected: None,
    }
}
