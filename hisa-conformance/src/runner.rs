//! Cases on a backend, one after the other, to one summary.

use crate::backend::{Backend, basis_of, by_name as by_backend_name};
use crate::check::{CHECKS, Detail, Verdict};
use crate::effort::{Effort, FINDINGS_MAX};
use crate::generate::{Generator, by_name};
use crate::problem::Problem;
use crate::summary::{Finding, Source, Summary};
use crate::trial::Trial;
use crate::truth::Truth;
use rayon::prelude::*;

/// Judges one problem by all checks; adds counts and findings to `summary`.
pub fn judge(
    problem: &Problem,
    (source, case): (&Source, &str),
    backend: &mut dyn Backend,
    basis: &mut dyn Backend,
    summary: &mut Summary,
) {
    let truth = Truth::new(problem, basis);
    judge_by((problem, &truth), (source, case), backend, summary);
}

/// As [`judge`], by results known already: many backends can share them.
pub fn judge_by(
    (problem, truth): (&Problem, &Truth),
    (source, case): (&Source, &str),
    backend: &mut dyn Backend,
    summary: &mut Summary,
) {
    let mut trial = Trial::new(problem, truth, backend);
    for (index, check) in CHECKS.iter().enumerate() {
        let tally = &mut summary.tallies[index];
        match (check.judge)(&mut trial, check.op) {
            Verdict::Pass => tally.passed += 1,
            Verdict::NotApplicable(_) => tally.not_applicable += 1,
            Verdict::Skip(why) => {
                tally.skipped += 1;
                *summary
                    .skips
                    .entry(format!("{}: {why}", check.op))
                    .or_default() += 1;
            }
            Verdict::Fail(detail) => {
                tally.failed += 1;
                summary.findings_total += 1;
                summary.findings.push(finding(index, source, case, *detail));
            }
        }
    }
    summary.measures.merge(&trial.measures);
    *summary.cases.entry(source.generator.clone()).or_default() += 1;
}

fn finding(check: usize, source: &Source, case: &str, detail: Detail) -> Finding {
    Finding {
        check,
        source: source.clone(),
        case: case.to_owned(),
        detail,
        shrunk: None,
        saved: None,
        expected: None,
    }
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the backend.
    pub backend: String,
    /// Seed of the random generators.
    pub seed: u64,
    /// Random cases; the effort's number where absent.
    pub cases: Option<u64>,
    /// How much of everything else.
    pub effort: Effort,
}

/// The generators of a plan, each with the stride at which its cases are taken.
#[must_use]
pub fn generators(plan: &Plan) -> Vec<(Box<dyn Generator>, u64)> {
    let random = plan.cases.unwrap_or(plan.effort.ragged_cases());
    let parts = [
        ("edge", 1, 0),
        ("exhaustive", plan.effort.exhaustive_stride(), 0),
        ("ragged", 1, random),
        ("deepseek", 1, plan.effort.deepseek_cases()),
    ];
    let made = parts
        .into_iter()
        .filter_map(|(name, stride, count)| Some((by_name(name, plan.seed, count)?, stride)));
    made.collect()
}

/// Cases a plan will run.
#[must_use]
pub fn promised(plan: &Plan) -> u64 {
    let generators = generators(plan);
    generators
        .iter()
        .map(|(generator, stride)| generator.len().div_ceil(*stride))
        .sum()
}

/// Runs the plan in this process; `progress` is called after every case, from any thread.
///
/// # Panics
/// Never; a backend that does is charged with the case.
pub fn run(plan: &Plan, progress: impl Fn() + Sync) -> Summary {
    let mut summary = Summary::default();
    for (generator, stride) in generators(plan) {
        let (name, count) = (generator.name(), generator.len().div_ceil(stride));
        let part = (0..count)
            .into_par_iter()
            .fold(Summary::default, |mut part, index| {
                let Some(mut backend) = by_backend_name(&plan.backend) else {
                    return part;
                };
                let mut basis = basis(backend.as_ref());
                if let Some(generated) = generator.case(index * stride) {
                    let source = Source {
                        generator: name.to_owned(),
                        index: index * stride,
                    };
                    if let Ok(problem) = Problem::new(&generated.case) {
                        let address = generated.case.to_string();
                        let case = (&source, address.as_str());
                        judge(&problem, case, backend.as_mut(), basis.as_mut(), &mut part);
                    }
                    part.findings.truncate(FINDINGS_MAX);
                }
                progress();
                part
            })
            // rayon joins neighbouring parts in order, so the first findings stay the first.
            .reduce(Summary::default, |mut sum, part| {
                sum.merge(part, FINDINGS_MAX);
                sum
            });
        summary.merge(part, FINDINGS_MAX);
    }
    summary
}

/// The basis a backend is judged by.
#[must_use]
pub fn basis(backend: &dyn Backend) -> Box<dyn Backend> {
    basis_of(backend.name())
}
