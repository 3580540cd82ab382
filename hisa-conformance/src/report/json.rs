//! The whole report as JSON, for programs.

use super::{Report, ReportError, SCHEMA, sink};
use std::path::Path;

/// The JSON text, indented, ending in a line break.
///
/// # Errors
/// [`ReportError::Json`], which no report is known to cause.
pub fn to_string(report: &Report) -> Result<String, ReportError> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}

/// Writes the JSON to `path`, complete or not at all; `-` is standard output.
///
/// # Errors
/// [`ReportError`] where it cannot be written.
pub fn write(report: &Report, path: &Path) -> Result<(), ReportError> {
    sink::write(path, &to_string(report)?)
}

/// Reads a report back, bit for bit.
///
/// # Errors
/// [`ReportError`] where the text is no report, is of a later schema, or contradicts itself.
pub fn read(text: &str) -> Result<Report, ReportError> {
    #[derive(serde::Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Head = serde_json::from_str(text)?;
    if head.schema > SCHEMA {
        return Err(ReportError::Schema { found: head.schema });
    }
    let report: Report = serde_json::from_str(text)?;
    let (checks, tallies) = (report.checks.len(), report.summary.tallies.len());
    if checks != tallies {
        return Err(ReportError::Checks { checks, tallies });
    }
    Ok(report)
}
