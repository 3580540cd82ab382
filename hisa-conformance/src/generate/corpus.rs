//! The regression corpus: shrunk cases that once caught a fault.
//!
//! `fixtures/regressions/addresses.txt` holds one case a line: the address, a tab or two spaces,
//! and after `# ` what it once caught. Lines are only ever added: an address stands for ever.

use super::{Generated, Generator};
use crate::case::Case;
use crate::dump::DumpError;
use crate::dump::write::replace;
use crate::flags::declared;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The corpus as it was when this program was built.
pub const ADDRESSES: &str = include_str!("../../../fixtures/regressions/addresses.txt");

/// The generator `corpus`.
#[derive(Debug)]
pub struct Corpus {
    cases: Vec<Generated>,
}

impl Corpus {
    /// Every line of [`ADDRESSES`]. A line that does not parse would be left out; a test sees to
    /// it that none is.
    #[must_use]
    pub fn new() -> Self {
        let cases = entries(ADDRESSES).filter_map(|(address, comment)| {
            let case: Case = address.parse().ok()?;
            Some(Generated {
                flags: declared(&case),
                comment: Cow::Borrowed(comment),
                ..Generated::from(case)
            })
        });
        Self {
            cases: cases.collect(),
        }
    }
}

impl Default for Corpus {
    fn default() -> Self {
        Self::new()
    }
}

impl Generator for Corpus {
    fn name(&self) -> &'static str {
        "corpus"
    }

    fn about(&self) -> &'static str {
        "Shrunk cases that once caught a fault."
    }

    fn len(&self) -> u64 {
        self.cases.len() as u64
    }

    fn case(&self, index: u64) -> Option<Generated> {
        self.cases.get(usize::try_from(index).ok()?).cloned()
    }
}

/// Address and comment of every line that holds one.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (address, comment) = line.split_once('#').unwrap_or((line, ""));
        let address = address.trim();
        (!address.is_empty()).then_some((address, comment.trim()))
    })
}

/// Why a regression was not added.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The list cannot be read.
    #[error("{}: cannot read: {source}", file.display())]
    Read {
        /// The list.
        file: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The list cannot be written.
    #[error(transparent)]
    Write(#[from] DumpError),
    /// The case is in the list.
    #[error("{}, line {line}: the case is there already", file.display())]
    Duplicate {
        /// The list.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
    /// The comment is empty or more than one line.
    #[error("a regression needs one line that says what it caught, got {comment:?}")]
    Comment {
        /// What was given.
        comment: String,
    },
}

/// Adds a case at the end of a list of addresses, or leaves the list as it was. Two calls at the
/// same time are the caller's to prevent.
///
/// # Errors
/// [`CorpusError`].
pub fn add_regression(list: &Path, case: &Case, comment: &str) -> Result<(), CorpusError> {
    let comment = comment.trim();
    if comment.is_empty() || comment.contains(char::is_control) {
        let comment = comment.to_owned();
        return Err(CorpusError::Comment { comment });
    }
    let text = std::fs::read_to_string(list).map_err(|source| CorpusError::Read {
        file: list.to_owned(),
        source,
    })?;
    let same = |line: &str| {
        let mut found = entries(line);
        found.any(|(address, _)| address.parse().as_ref() == Ok(case))
    };
    if let Some(line) = text.lines().position(same) {
        return Err(CorpusError::Duplicate {
            file: list.to_owned(),
            line: line + 1,
        });
    }
    replace(list, |out| {
        out.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        writeln!(out, "{case}  # {comment}")
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_case_with_a_comment_and_says_so_once() {
        let corpus = Corpus::new();
        assert_eq!(corpus.len() as usize, entries(ADDRESSES).count());
        for (at, (address, comment)) in (0..).zip(entries(ADDRESSES)) {
            let generated = corpus.case(at).unwrap();
            assert_eq!(generated.case.to_string(), address, "not canonical");
            assert_eq!(generated.comment, comment);
            assert!(!comment.is_empty(), "{address}");
        }
    }

    #[test]
    fn a_case_is_added_once() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("addresses.txt");
        std::fs::write(&list, "# Head.\n").unwrap();
        let case: Case = "hisa:M=1,N=2,H=1,D=8,B=2,m=1,K=1/win=0:2/v=ties"
            .parse()
            .unwrap();
        add_regression(&list, &case, "a tie").unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        assert_eq!(text, format!("# Head.\n{case}  # a tie\n"));
        let again = add_regression(&list, &case, "the same").unwrap_err();
        assert!(matches!(again, CorpusError::Duplicate { line: 2, .. }));
        for comment in ["", "  ", "two\nlines"] {
            let refused = add_regression(&list, &case, comment);
            assert!(matches!(refused, Err(CorpusError::Comment { .. })));
        }
        assert_eq!(std::fs::read_to_string(&list).unwrap(), text);
    }
}
