//! One problem through the checks.

use crate::backend::Backend;
use crate::cause::cause;
use crate::check::{CHECKS, Detail, Verdict};
use crate::expect::Expectation;
use crate::flags::Flags;
use crate::op::Op;
use crate::problem::Problem;
use crate::report::Portrait;
use crate::report::portrait::portrait;
use crate::summary::{Finding, Source, Summary};
use crate::trial::Trial;
use crate::truth::Truth;
use serde::{Deserialize, Serialize};

/// What is judged, and what it is called.
pub struct Exhibit<'a> {
    /// The arrays.
    pub problem: &'a Problem,
    /// Where they came from.
    pub source: &'a Source,
    /// Address or path.
    pub case: &'a str,
    /// Why the case is interesting; asked for only when a check fails.
    pub flags: &'a dyn Fn() -> Flags,
}

/// By what it is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The jobs whose checks count.
    pub ops: Vec<Op>,
    /// Known deviations.
    pub expectations: Vec<Expectation>,
    /// Whether a backend that gathers may run the jobs of a case together.
    pub together: bool,
}

impl Terms {
    /// The checks of these jobs, with nothing expected to fail.
    #[must_use]
    pub fn of(ops: &[Op]) -> Self {
        Self {
            ops: ops.to_vec(),
            expectations: Vec::new(),
            together: false,
        }
    }
}

impl std::fmt::Debug for Exhibit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exhibit")
            .field("case", &self.case)
            .finish_non_exhaustive()
    }
}

/// Judges one problem; adds counts and findings to `summary`.
pub fn judge(
    exhibit: &Exhibit<'_>,
    backend: &mut dyn Backend,
    basis: &mut dyn Backend,
    terms: &Terms,
    summary: &mut Summary,
) {
    let truth = Truth::of_ops(exhibit.problem, basis, &terms.ops);
    judge_by(exhibit, &truth, backend, terms, summary);
}

/// Judges one problem by every check, with nothing expected to fail.
pub fn judge_all(
    problem: &Problem,
    (source, case): (&Source, &str),
    backend: &mut dyn Backend,
    basis: &mut dyn Backend,
    summary: &mut Summary,
) {
    let exhibit = Exhibit {
        problem,
        source,
        case,
        flags: &|| Flags::NONE,
    };
    judge(&exhibit, backend, basis, &Terms::of(&Op::ALL), summary);
}

/// As [`judge`], by results known already: many backends can share them.
pub fn judge_by(
    exhibit: &Exhibit<'_>,
    truth: &Truth,
    backend: &mut dyn Backend,
    terms: &Terms,
    summary: &mut Summary,
) {
    let mut trial = Trial::new(exhibit.problem, truth, backend);
    if terms.together {
        trial.plan(&terms.ops);
    }
    let checks = CHECKS.iter().enumerate();
    for (index, check) in checks.filter(|(_, check)| terms.ops.contains(&check.op)) {
        match (check.judge)(&mut trial, check.op) {
            Verdict::Pass => summary.tallies[index].passed += 1,
            Verdict::NotApplicable(_) => summary.tallies[index].not_applicable += 1,
            Verdict::Skip(why) => {
                summary.tallies[index].skipped += 1;
                let skips = summary.skips.entry(format!("{}: {why}", check.op));
                *skips.or_default() += 1;
            }
            Verdict::Fail(detail) => {
                let name = trial.backend_name().to_owned();
                fail(index, exhibit, *detail, (&name, terms), summary);
            }
        }
    }
    summary.measures.merge(&trial.measures);
    *summary
        .cases
        .entry(exhibit.source.generator.clone())
        .or_default() += 1;
}

fn fail(
    check: usize,
    exhibit: &Exhibit<'_>,
    detail: Detail,
    (backend, terms): (&str, &Terms),
    summary: &mut Summary,
) {
    let flags = (exhibit.flags)();
    let mut found = finding(
        check,
        exhibit.source.clone(),
        exhibit.case.to_owned(),
        detail,
    );
    summary.tallies[check].failed += 1;
    summary.findings_total += 1;
    recognise(&mut found, flags, (backend, &terms.expectations), summary);
    summary.findings.push(found);
}

/// Tells whether a finding is a known one, and counts it for every expectation that it meets.
pub(crate) fn recognise(
    found: &mut Finding,
    flags: Flags,
    (backend, expectations): (&str, &[Expectation]),
    summary: &mut Summary,
) {
    let check = found.check;
    found.flags = flags.iter().map(|flag| flag.name().to_owned()).collect();
    let met = expectations
        .iter()
        .filter(|row| row.covers(backend, check, flags));
    for row in met {
        if found.expected.is_none() {
            found.expected = Some(format!("{} ({})", row.reason, row.link));
            summary.tallies[check].expected += 1;
            summary.expected_total += 1;
        }
        *summary.expected.entry(row.key()).or_default() += 1;
    }
}

/// A finding as a check makes it, before anything is known but the check's words.
#[must_use]
pub fn finding(check: usize, source: Source, case: String, detail: Detail) -> Finding {
    Finding {
        check,
        source,
        case,
        flags: Vec::new(),
        detail,
        shrunk: None,
        saved: None,
        expected: None,
    }
}

/// What can be said about a failure beyond the numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Explained {
    /// Its cause, in a sentence.
    pub cause: Option<String>,
    /// Pictures of it.
    pub portrait: Option<Portrait>,
}

/// Scalar products that looking for a cause may take; each of a dozen rules takes them all.
const CAUSE_WORK_MAX: usize = 1 << 24;

/// Looks for the cause of a failure of check number `check`, and draws it.
#[must_use]
pub fn explain(
    problem: &Problem,
    backend: &mut dyn Backend,
    basis: &mut dyn Backend,
    check: usize,
) -> Explained {
    let Some(failed) = CHECKS.get(check) else {
        return Explained::default();
    };
    let truth = Truth::of_ops(problem, basis, &[failed.op]);
    let mut trial = Trial::new(problem, &truth, backend);
    let columns = problem.inputs.params.slots().max(problem.blocks());
    let factors = [problem.m(), columns, problem.h(), problem.d()];
    let work = factors.into_iter().fold(1, usize::saturating_mul);
    let outputs = trial
        .outputs(failed.op)
        .ok()
        .filter(|_| work <= CAUSE_WORK_MAX);
    let cause = outputs.and_then(|outputs| cause(failed.op, problem, &truth, outputs));
    let portrait = portrait(&mut trial, check);
    Explained { cause, portrait }
}
