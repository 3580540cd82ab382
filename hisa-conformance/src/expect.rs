//! Known deviations of named backends: each with a reason and a link, each asserted to be real.
//!
//! ```toml
//! [[expect]]
//! backend = "port:my-kernel"        # the backend's name
//! check = "block_topk.selection"    # what fails
//! flag = "Bf16Ties"                 # optional: only on cases with this flag
//! reason = "ties go to the higher block"
//! link = "https://example.org/issues/17"
//! ```
//!
//! A finding meets every row that covers it. A finding that is expected is counted and shown, and
//! does not make a run unclean. An expectation whose check was judged and never failed as it says
//! does: the row can go.

use crate::check::{self, CHECKS};
use crate::flags::{Flag, Flags};
use crate::summary::Summary;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// One known deviation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Name of the backend.
    pub backend: String,
    /// Id of the check that fails.
    pub check: String,
    /// Name of a flag the failing cases have; any case where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// Why it fails.
    pub reason: String,
    /// Where that is discussed.
    pub link: String,
}

/// Why a file of expectations is refused.
#[derive(Debug, Error)]
pub enum ExpectError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is not what the module describes.
    #[error("{}: {text}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column and complaint, in one line.
        text: String,
    },
    /// A row names something there is not, or says nothing.
    #[error("{}: expectation {row}: {what}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Number of the row, from 1.
        row: usize,
        /// What is wrong with it.
        what: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    expect: Vec<Expectation>,
}

/// Reads a file of expectations.
///
/// # Errors
/// [`ExpectError`] with the row for an unknown check or flag, an empty reason, or a link that is
/// no web address.
pub fn read(path: &Path) -> Result<Vec<Expectation>, ExpectError> {
    let text = std::fs::read_to_string(path).map_err(|source| ExpectError::Io {
        path: path.to_owned(),
        source,
    })?;
    let file: File = toml::from_str(&text).map_err(|error| ExpectError::Syntax {
        path: path.to_owned(),
        text: error
            .to_string()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    })?;
    for (index, row) in file.expect.iter().enumerate() {
        row.validate().map_err(|what| ExpectError::Row {
            path: path.to_owned(),
            row: index + 1,
            what,
        })?;
    }
    Ok(file.expect)
}

impl Expectation {
    fn validate(&self) -> Result<(), String> {
        if check::position(&self.check).is_none() {
            return Err(format!("there is no check {:?}", self.check));
        }
        if let Some(flag) = self
            .flag
            .as_deref()
            .filter(|flag| Flag::from_name(flag).is_none())
        {
            return Err(format!("there is no flag {flag:?}"));
        }
        if self.reason.trim().is_empty() {
            return Err("the reason is empty".to_owned());
        }
        if !self.link.starts_with("https://") && !self.link.starts_with("http://") {
            return Err(format!("{:?} is no web address", self.link));
        }
        Ok(())
    }

    /// Whether a failure of check number `check` on a case with these flags is this one.
    #[must_use]
    pub fn covers(&self, backend: &str, check: usize, flags: Flags) -> bool {
        let flag = self.flag.as_deref().map(Flag::from_name);
        self.backend == backend
            && CHECKS[check].id() == self.check
            && flag.is_none_or(|flag| flag.is_some_and(|flag| flags.contains(flag)))
    }

    /// How summaries count it.
    #[must_use]
    pub fn key(&self) -> String {
        match &self.flag {
            Some(flag) => format!("{} on {flag}: {} ({})", self.check, self.reason, self.link),
            None => format!("{}: {} ({})", self.check, self.reason, self.link),
        }
    }
}

/// Expectations about `backend` whose check was judged and that no finding met.
#[must_use]
pub fn unmet<'a>(
    expectations: &'a [Expectation],
    backend: &str,
    summary: &Summary,
) -> Vec<&'a Expectation> {
    let judged = |expectation: &&Expectation| {
        let tally = check::position(&expectation.check).map(|check| summary.tallies[check]);
        expectation.backend == backend && tally.is_some_and(|tally| tally.passed + tally.failed > 0)
    };
    let met = |expectation: &Expectation| summary.expected.contains_key(&expectation.key());
    expectations
        .iter()
        .filter(judged)
        .filter(|expectation| !met(expectation))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [[expect]]
        backend = "port:x"
        check = "block_topk.selection"
        flag = "score-tie"
        reason = "ties go to the higher block"
        link = "https://example.org/17"
    "#;

    fn parsed(text: &str) -> Result<Vec<Expectation>, ExpectError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("expect.toml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_row_covers_its_backend_check_and_flag_alone() {
        let flag = Flag::ALL[0];
        let text = GOOD.replace("score-tie", flag.name());
        let row = &parsed(&text).unwrap()[0];
        let check = check::position("block_topk.selection").unwrap();
        assert!(row.covers("port:x", check, Flags::of(&[flag])));
        assert!(!row.covers("port:y", check, Flags::of(&[flag])));
        assert!(!row.covers("port:x", check + 1, Flags::of(&[flag])));
        assert!(!row.covers("port:x", check, Flags::NONE));
    }

    #[test]
    fn bad_rows_are_refused_by_number_and_name() {
        let good = GOOD.replace("score-tie", Flag::ALL[0].name());
        for (from, to, says) in [
            (
                "block_topk.selection",
                "block_topk.magic",
                "1: there is no check",
            ),
            (Flag::ALL[0].name(), "no-such-flag", "1: there is no flag"),
            ("ties go to the higher block", " ", "1: the reason is empty"),
            ("https:", "ftp:", "is no web address"),
            ("reason", "raeson", "unknown field `raeson`"),
        ] {
            let error = parsed(&good.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(parsed("").unwrap().is_empty());
    }

    #[test]
    fn an_expectation_that_never_failed_is_reported_once_its_check_was_judged() {
        let rows = parsed(&GOOD.replace("score-tie", Flag::ALL[0].name())).unwrap();
        let mut summary = Summary::default();
        assert!(unmet(&rows, "port:x", &summary).is_empty(), "not judged");
        summary.tallies[check::position(&rows[0].check).unwrap()].passed = 3;
        assert_eq!(unmet(&rows, "port:x", &summary).len(), 1);
        assert!(unmet(&rows, "port:y", &summary).is_empty());
        summary.expected.insert(rows[0].key(), 2);
        assert!(unmet(&rows, "port:x", &summary).is_empty());
    }
}
