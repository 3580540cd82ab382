//! What is replayed: a case by its address, or a problem by value from a file.

use crate::case::address::SCHEME;
use crate::case::{AddressError, Case, CaseError};
use crate::dump::DumpError;
use crate::problem::Problem;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// An address or a file, told apart by `hisa:` at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A case by its address.
    Case(Box<Case>),
    /// A safetensors file.
    File(PathBuf),
}

/// Why there is nothing to replay.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// It starts like an address and is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// It is no address, and no file has that name.
    #[error("{text}: no such file, and an address starts with \"hisa:\"")]
    Absent {
        /// What was given.
        text: String,
    },
    /// The case cannot be built.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] DumpError),
}

impl Subject {
    /// The arrays.
    ///
    /// # Errors
    /// As [`Problem::new`] and [`Problem::read`].
    pub fn problem(&self) -> Result<Problem, SubjectError> {
        Ok(match self {
            Self::Case(case) => Problem::new(case)?,
            Self::File(path) => Problem::read(path)?,
        })
    }
}

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        if text.starts_with(SCHEME) {
            return Ok(Self::Case(Box::new(text.parse()?)));
        }
        let path = PathBuf::from(text);
        if path.exists() {
            return Ok(Self::File(path));
        }
        let text = text.to_owned();
        Err(SubjectError::Absent { text })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Case(case) => case.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_files_are_told_apart() {
        let address = "hisa:M=1,N=2,H=1,D=8,B=2,m=1,K=1,rank=bf16/win=0:2/v=ties/seed=0x0";
        let subject: Subject = address.parse().unwrap();
        assert!(matches!(subject, Subject::Case(_)));
        assert_eq!(subject.to_string(), address);
        assert_eq!(subject.problem().unwrap().n(), 2);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        std::fs::write(&path, b"?").unwrap();
        let text = path.to_str().unwrap();
        let subject: Subject = text.parse().unwrap();
        assert_eq!(subject, Subject::File(path.clone()));
        assert_eq!(subject.to_string(), text);
        assert!(matches!(subject.problem(), Err(SubjectError::File(_))));
    }

    #[test]
    fn anything_else_is_refused_with_its_text() {
        let refused = "hisa:M=1".parse::<Subject>();
        assert!(matches!(refused, Err(SubjectError::Address(_))));
        let refused = "none.safetensors".parse::<Subject>().unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("none.safetensors: no such file")
        );
    }
}
