//! Where reports go: a file that is complete or untouched, or standard output.

use crate::dump::DumpError;
use std::io::Write;
use std::path::Path;
use thiserror::Error;

/// Why a report could not be written or read. The message is one sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] DumpError),
    /// Standard output is gone.
    #[error("cannot write to standard output: {0}")]
    Stdout(std::io::Error),
    /// The report does not become, or is not, the JSON of a report.
    #[error("not the JSON of a report: {0}")]
    Json(#[from] serde_json::Error),
    /// The report is of a later version.
    #[error(
        "the report has schema {found}; this program reads up to {}",
        super::SCHEMA
    )]
    Schema {
        /// What it says.
        found: u32,
    },
    /// The report contradicts itself.
    #[error("the report names {checks} checks but counts {tallies}")]
    Checks {
        /// Entries of `checks`.
        checks: usize,
        /// Entries of `summary.tallies`.
        tallies: usize,
    },
    /// The report does not become XML.
    #[error("cannot write JUnit XML: {0}")]
    Junit(#[from] quick_junit::SerializeError),
}

/// Writes `text` to `path`, atomically; `-` is standard output.
pub(super) fn write(path: &Path, text: &str) -> Result<(), ReportError> {
    if path == Path::new("-") {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        return written.map_err(ReportError::Stdout);
    }
    crate::dump::write::replace(path, |out| out.write_all(text.as_bytes()))?;
    Ok(())
}
