//! What a run came to: counts, findings and skips, in a form that merges and travels.

use crate::check::{CHECKS, Detail};
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
    /// The first findings of every check, in the order of the cases.
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
        if self
            .tallies
            .iter()
            .all(|tally| tally.passed + tally.failed == 0)
            && self.tallies.iter().any(|tally| tally.skipped > 0)
        {
            said.push("every check was skipped".to_owned());
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

    /// Keeps the first `findings_max` findings of every check, known ones counted apart, so that
    /// neither a check that fails everywhere nor a known failure hides another one.
    pub fn keep(&mut self, findings_max: usize) {
        let mut ranks = BTreeMap::<(usize, bool), usize>::new();
        self.findings.retain(|finding| {
            let class = (finding.check, finding.expected.is_some());
            let rank = ranks.entry(class).or_default();
            *rank += 1;
            *rank <= findings_max
        });
    }

    /// Chooses the findings that a person sees, at most `findings_max`: the first of every check
    /// before the second of any, then the first known one of every check.
    pub fn choose(&mut self, findings_max: usize) {
        let mut ranks = BTreeMap::<(usize, bool), usize>::new();
        let rank = |finding: Finding| {
            let known = finding.expected.is_some();
            let rank = ranks.entry((finding.check, known)).or_default();
            *rank += 1;
            (known, *rank, finding)
        };
        let mut ranked: Vec<_> = self.findings.drain(..).map(rank).enumerate().collect();
        ranked.retain(|&(_, (known, rank, _))| !known || rank == 1);
        ranked.sort_by_key(|&(_, (known, rank, _))| (known, rank));
        ranked.truncate(findings_max);
        ranked.sort_by_key(|&(at, (known, ..))| (known, at));
        let chosen = ranked.into_iter().map(|(_, (_, _, finding))| finding);
        self.findings = chosen.collect();
    }

    /// Adds the part of a run that comes after this one; keeps findings as [`Self::keep`] does.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(found: &[(usize, bool)]) -> Summary {
        let finding = |(index, &(check, known)): (usize, &(usize, bool))| Finding {
            check,
            source: Source {
                generator: "ragged".into(),
                index: index as u64,
            },
            case: String::new(),
            flags: Vec::new(),
            detail: Detail::default(),
            shrunk: None,
            saved: None,
            expected: known.then(String::new),
        };
        Summary {
            findings: found.iter().enumerate().map(finding).collect(),
            ..Summary::default()
        }
    }

    fn indices(summary: &Summary) -> Vec<u64> {
        let findings = summary.findings.iter();
        findings.map(|finding| finding.source.index).collect()
    }

    #[test]
    fn neither_a_noisy_check_nor_a_known_failure_hides_another_one() {
        let all = [
            (7, true),
            (7, true),
            (7, true),
            (3, false),
            (3, false),
            (3, false),
            (5, false),
        ];
        let mut whole = of(&all);
        whole.keep(2);
        assert_eq!(indices(&whole), [0, 1, 3, 4, 6]);
        for cut in 0..all.len() {
            let mut parts = of(&all[..cut]);
            let mut later = of(&all);
            later.findings.drain(..cut);
            later.keep(2);
            parts.keep(2);
            parts.merge(later, 2);
            assert_eq!(parts.findings, whole.findings, "cut at {cut}");
        }
        for (most, expected) in [(2, &[3, 6][..]), (3, &[3, 4, 6]), (4, &[3, 4, 6, 0])] {
            let mut chosen = whole.clone();
            chosen.choose(most);
            assert_eq!(indices(&chosen), expected);
        }
    }

    #[test]
    fn a_backend_that_takes_nothing_is_not_clean() {
        let mut summary = Summary::default();
        summary.cases.insert("ragged".into(), 1);
        summary
            .tallies
            .iter_mut()
            .for_each(|tally| tally.skipped = 1);
        assert_eq!(summary.complaints(&Op::ALL), ["every check was skipped"]);
        summary.tallies[0].passed = 1;
        assert!(summary.complaints(&Op::ALL).is_empty());
    }
}
