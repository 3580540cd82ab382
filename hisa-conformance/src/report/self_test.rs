//! Whether the checks catch faults that were made on purpose.

use super::{float, words};
use serde::{Deserialize, Serialize};

/// Results of backends that are broken on purpose.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SelfTest {
    /// One row per fault.
    pub rows: Vec<SelfTestRow>,
    /// Whether a backend that skips its work was noticed.
    pub canary_noticed: bool,
    /// Whether a faultless copy of the reference passed.
    pub copy_passed: bool,
    /// Seconds of wall time.
    #[serde(with = "float")]
    pub elapsed: f64,
}

/// One fault, and what became of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SelfTestRow {
    /// Its word.
    pub fault: String,
    /// Its kind: n of Kn.
    pub kind: u32,
    /// The fault in a phrase.
    pub about: String,
    /// Id of the check meant for it.
    pub meant: String,
    /// Id of the check that caught it; none where it passed unseen.
    pub caught_by: Option<String>,
    /// Cases it took.
    pub cases: u64,
    /// M, N, H, D of the smallest case found.
    pub shrunk_sizes: Option<[usize; 4]>,
    /// Address of that case.
    pub shrunk_case: Option<String>,
}

impl SelfTestRow {
    /// Whether the check meant for the fault caught it.
    #[must_use]
    pub fn as_meant(&self) -> bool {
        self.caught_by.as_ref() == Some(&self.meant)
    }
}

impl SelfTest {
    /// Faults no check caught.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let missed = |row: &&SelfTestRow| row.caught_by.is_none();
        self.rows.iter().filter(missed).count() as u64
    }

    /// Faults caught by another check than the one meant.
    #[must_use]
    pub fn astray(&self) -> u64 {
        let astray = |row: &&SelfTestRow| row.caught_by.is_some() && !row.as_meant();
        self.rows.iter().filter(astray).count() as u64
    }

    /// What keeps the self-test from being clean, a phrase each.
    #[must_use]
    pub fn why_unclean(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.rows.is_empty() {
            reasons.push("the self-test tried no fault".to_owned());
        }
        if self.missed() > 0 {
            let faults = words::count(self.missed(), "fault");
            reasons.push(format!("{faults} of the self-test not caught"));
        }
        if self.astray() > 0 {
            let faults = words::count(self.astray(), "fault");
            reasons.push(format!("{faults} of the self-test caught by another check"));
        }
        if !self.canary_noticed {
            reasons.push("a backend that skips its work was not noticed".to_owned());
        }
        if !self.copy_passed {
            reasons.push("a faultless copy of the reference did not pass".to_owned());
        }
        reasons
    }

    /// What became of the faults, in one line.
    #[must_use]
    pub fn totals(&self) -> String {
        format!(
            "{} faults, {} caught as meant, {} by another check, {} not caught",
            self.rows.len(),
            self.rows.iter().filter(|row| row.as_meant()).count(),
            self.astray(),
            self.missed(),
        )
    }

    /// What became of the backends that hold no single fault, and the time, in one line.
    #[must_use]
    pub fn controls(&self) -> String {
        let yes = |is: bool| if is { "yes" } else { "NO" };
        format!(
            "idle backend noticed: {}; faultless copy passed: {}; {} s",
            yes(self.canary_noticed),
            yes(self.copy_passed),
            words::seconds(self.elapsed),
        )
    }
}
