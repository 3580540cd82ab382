//! What a run came to: counts, findings and skips, in a form that merges and travels.

use crate::check::{CHECKS, Detail};
use crate::effort::FINDINGS_PER_CHECK;
use crate::measure::Measures;
use crate::op::Op;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often a check passed, failed and said nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Cases on which it passed.
    pub passed: u64,
    /// Cases on which it failed.
    pub failed: u64,
    /// Cases that say nothing about it.
    pub not_applicable: u64,
    /// Cases the backend does not take.
    pub skipped: u64,
    /// Failures, counted above, that are known ones.
    #[serde(default)]
    pub expected: u64,
}

/// Where a case came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Generator, `file` or `replay`.
    pub generator: String,
    /// Number of the case in it.
    pub index: u64,
}

/// One failed check on one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Index into [`CHECKS`].
    pub check: usize,
    /// Where the case came from.
    pub source: Source,
    /// Address of the case, or path of the file.
    pub case: String,
    /// Names of the case's flags: why it is interesting.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Place, numbers and cause.
    pub detail: Detail,
    /// The smallest case found that fails the same check.
    pub shrunk: Option<Shrunk>,
    /// Where the input of the smallest case is saved by value.
    pub saved: Option<String>,
    /// Why the finding is a known one; such a finding does not make a run unclean.
    pub expected: Option<String>,
}

/// A shrunk case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shrunk {
    /// Its address; for a file, the path of a smaller file.
    pub case: String,
    /// M, N, H, D.
    pub sizes: [usize; 4],
    /// What the check says about it.
    pub detail: Detail,
    /// Runs it took.
    pub runs: u64,
}

/// Counts, findings and skips of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Cases run, by generator.
    pub cases: BTreeMap<String, u64>,
    /// One entry per entry of [`CHECKS`].
    pub tallies: Vec<Tally>,
    /// Jobs the backend did not take, by job and reason.
    pub skips: BTreeMap<String, u64>,
    /// How far scores were off.
    pub measures: Measures,
    /// The first findings, in the order of the cases.
    pub findings: Vec<Finding>,
    /// All findings.
    pub findings_total: u64,
    /// Of these, known ones.
    pub expected_total: u64,
    /// How often each expectation was met, by [`crate::expect::Expectation::key`].
    pub expected: BTreeMap<String, u64>,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            cases: BTreeMap::new(),
            tallies: vec![Tally::default(); CHECKS.len()],
            skips: BTreeMap::new(),
            measures: Measures::default(),
            findings: Vec::new(),
            findings_total: 0,
            expected_total: 0,
            expected: BTreeMap::new(),
        }
    }
}

impl Summary {
    /// Cases in all.
    #[must_use]
    pub fn total_cases(&self) -> u64 {
        self.cases.values().sum()
    }

    /// Indices of the checks of `ops` that no case exercised, although the backend takes their
    /// job. A run that has any proves less than it says.
    #[must_use]
    pub fn unexercised(&self, ops: &[Op]) -> Vec<usize> {
        let idle = |tally: &Tally| tally.passed + tally.failed + tally.skipped == 0;
        let judged = (0..CHECKS.len()).filter(|&check| ops.contains(&CHECKS[check].op));
        judged.filter(|&check| idle(&self.tallies[check])).collect()
    }

    /// What keeps a run of these jobs from being clean, a phrase each: findings that are not known
    /// ones, and checks without a case.
    #[must_use]
    pub fn complaints(&self, ops: &[Op]) -> Vec<String> {
        let mut said = Vec::new();
        match self.findings_total.saturating_sub(self.expected_total) {
            0 => {}
            1 => said.push("1 finding".to_owned()),
            many => said.push(format!("{many} findings")),
        }
        if self.total_cases() == 0 {
            said.push("no case was run".to_owned());
            return said;
        }
        let idle = self.unexercised(ops);
        if !idle.is_empty() {
            let ids: Vec<String> = idle.iter().map(|&check| CHECKS[check].id()).collect();
            let checks = if ids.len() == 1 { "check" } else { "checks" };
            said.push(format!(
                "{} {checks} never exercised: {}",
                ids.len(),
                ids.join(", ")
            ));
        }
        said
    }

    /// Drops findings that say what others say: of each check the first [`FINDINGS_PER_CHECK`] are
    /// kept, of its known ones the first, and no more than `findings_max` in all.
    pub fn keep(&mut self, findings_max: usize) {
        let mut seen = BTreeMap::new();
        self.findings.retain(|finding| {
            let known = finding.expected.is_some();
            let kept: &mut usize = seen.entry((finding.check, known)).or_default();
            *kept += 1;
            *kept <= if known { 1 } else { FINDINGS_PER_CHECK }
        });
        self.findings.truncate(findings_max);
    }

    /// Adds the part of a run that comes after this one; keeps at most `findings_max` findings.
    pub fn merge(&mut self, later: Self, findings_max: usize) {
        for (tally, later) in self.tallies.iter_mut().zip(&later.tallies) {
            tally.passed += later.passed;
            tally.failed += later.failed;
            tally.not_applicable += later.not_applicable;
            tally.skipped += later.skipped;
            tally.expected += later.expected;
        }
        for (counts, later) in [
            (&mut self.cases, later.cases),
            (&mut self.skips, later.skips),
            (&mut self.expected, later.expected),
        ] {
            for (name, count) in later {
                *counts.entry(name).or_default() += count;
            }
        }
        self.measures.merge(&later.measures);
        self.findings.extend(later.findings);
        self.keep(findings_max);
        self.findings_total += later.findings_total;
        self.expected_total += later.expected_total;
    }
}
