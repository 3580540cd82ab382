//! Generators through all checks, in parallel, to one summary that no thread count changes.

use crate::case::Case;
use crate::check::{CHECKS, Context, Verdict};
use crate::effort::{Effort, FINDINGS_MAX};
use crate::generate::{Generated, Generator, by_name};
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Seed of the random generators.
    pub seed: u64,
    /// Random cases; the effort's number where absent.
    pub cases: Option<u64>,
    /// How much of everything else.
    pub effort: Effort,
}

/// One failed check on one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Index into [`CHECKS`]; `None` where the case could not be run at all.
    pub check: Option<usize>,
    /// Generator and number of the case.
    pub source: (&'static str, u64),
    /// Address of the case.
    pub address: String,
    /// Place and numbers.
    pub text: String,
}

/// How often a check passed, failed and did not apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cases on which it passed.
    pub passed: u64,
    /// Cases on which it failed.
    pub failed: u64,
    /// Cases that say nothing about it.
    pub not_applicable: u64,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Cases run, by generator.
    pub cases: Vec<(&'static str, u64)>,
    /// One entry per entry of [`CHECKS`].
    pub tallies: Vec<Tally>,
    /// The first findings, in the order of the cases; no more than [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// All findings.
    pub findings_total: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Summary {
    fn empty() -> Self {
        Self {
            tallies: vec![Tally::default(); CHECKS.len()],
            ..Self::default()
        }
    }

    /// Cases in all.
    #[must_use]
    pub fn total_cases(&self) -> u64 {
        self.cases.iter().map(|&(_, count)| count).sum()
    }

    /// Indices of checks that no case exercised. A run that has any proves less than it says.
    #[must_use]
    pub fn unexercised(&self) -> Vec<usize> {
        let idle = |tally: &Tally| tally.passed + tally.failed == 0;
        (0..self.tallies.len())
            .filter(|&check| idle(&self.tallies[check]))
            .collect()
    }

    /// True where nothing failed and every check was exercised.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings_total == 0 && self.unexercised().is_empty()
    }

    fn judge(&mut self, source: (&'static str, u64), generated: Generated) {
        let address = generated.case.to_string();
        let context = match Context::new(generated.case) {
            Ok(context) => context,
            Err(error) => {
                return self.add(Finding {
                    check: None,
                    source,
                    address,
                    text: error.to_string(),
                });
            }
        };
        for (index, (check, tally)) in CHECKS.iter().zip(&mut self.tallies).enumerate() {
            let text = match (check.judge)(&context) {
                Ok(Verdict::Pass) => {
                    tally.passed += 1;
                    continue;
                }
                Ok(Verdict::NotApplicable) => {
                    tally.not_applicable += 1;
                    continue;
                }
                Ok(Verdict::Fail(text)) => text,
                Err(error) => error.to_string(),
            };
            tally.failed += 1;
            // Later stages inherit a fault; the first check to see it names it. All are counted.
            let address = address.clone();
            self.findings_total += 1;
            self.findings.push(Finding {
                check: Some(index),
                source,
                address,
                text,
            });
        }
    }

    fn add(&mut self, finding: Finding) {
        self.findings_total += 1;
        self.findings.push(finding);
    }

    /// Adds the part of a run that comes after this one.
    fn append(mut self, later: Self) -> Self {
        for (tally, later) in self.tallies.iter_mut().zip(&later.tallies) {
            tally.passed += later.passed;
            tally.failed += later.failed;
            tally.not_applicable += later.not_applicable;
        }
        self.findings.extend(later.findings);
        self.findings.truncate(FINDINGS_MAX);
        self.findings_total += later.findings_total;
        self.cases.extend(later.cases);
        self
    }
}

/// One case through all checks.
#[must_use]
pub fn replay(case: Case) -> Summary {
    let mut summary = Summary::empty();
    summary.judge(("replay", 0), case.into());
    summary.cases.push(("replay", 1));
    summary
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
    generators(plan)
        .iter()
        .map(|(generator, stride)| generator.len().div_ceil(*stride))
        .sum()
}

/// Runs the plan; `progress` is called after every case, from any thread.
pub fn run(plan: &Plan, progress: impl Fn() + Sync) -> Summary {
    let start = Instant::now();
    let mut summary = Summary::empty();
    for (generator, stride) in generators(plan) {
        let (name, count) = (generator.name(), generator.len().div_ceil(stride));
        let part = (0..count)
            .into_par_iter()
            .fold(Summary::empty, |mut part, index| {
                if let Some(case) = generator.case(index * stride) {
                    part.judge((name, index * stride), case);
                    part.findings.truncate(FINDINGS_MAX);
                }
                progress();
                part
            })
            // rayon joins neighbouring parts in order, so the first findings stay the first.
            .reduce(Summary::empty, Summary::append);
        summary = summary.append(part);
        summary.cases.push((name, count));
    }
    summary.elapsed = start.elapsed();
    summary
}
