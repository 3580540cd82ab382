//! `hisa fixtures`: golden data for other implementations.

use super::{CliError, Outcome, finding, note, print};
use crate::dump::write::replace;
use crate::fixture::MANIFEST;
use crate::fixture::build::build;
use crate::fixture::catalogue::{self, Entry, Expect};
use crate::fixture::check::{CheckError, check};
use crate::fixture::manifest::{Case, Manifest, SPEC};
use crate::fixture::write::{WriteError, write};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Arguments of `hisa fixtures`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FixturesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: FixturesCommand,
}

/// What can be done with fixtures.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum FixturesCommand {
    /// Compute every fixture and put them in the place of those that are there.
    Write(Folder),
    /// Check form, digests and every expected value.
    Check(CheckArgs),
    /// Print a table of the fixtures.
    List(Folder),
    /// Write one fixture into a file, with the tensors that the folder holds only digests of.
    Export(ExportArgs),
}

/// The folder.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Folder {
    /// The folder of the manifest.
    #[arg(long, value_name = "DIR", default_value = "fixtures")]
    pub dir: PathBuf,
}

/// Arguments of `hisa fixtures check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// The folder.
    #[command(flatten)]
    pub folder: Folder,
    /// Compute every value by the oracle as well.
    #[arg(long)]
    pub oracle: bool,
}

/// Arguments of `hisa fixtures export`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ExportArgs {
    /// The id.
    pub id: String,
    /// The safetensors file to write; replaced as a whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Why fixtures could not be written, checked or listed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FixturesError {
    /// Nothing was written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Nothing was checked.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The manifest cannot be read.
    #[error("{}: {problem}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no fixture of that id.
    #[error("there is no fixture {id:?}; `hisa fixtures list` names them")]
    Unknown {
        /// The id.
        id: String,
    },
    /// A fixture cannot be built.
    #[error("{id}: {problem}")]
    Build {
        /// The id.
        id: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Writes, checks, lists or exports.
///
/// # Errors
/// [`CliError::Fixtures`] where nothing could be done.
pub fn run(args: &FixturesArgs) -> Result<Outcome, CliError> {
    match &args.command {
        FixturesCommand::Write(folder) => write_all(&folder.dir),
        FixturesCommand::Check(args) => check_all(args),
        FixturesCommand::List(folder) => list(&folder.dir),
        FixturesCommand::Export(args) => export(args),
    }
}

fn write_all(dir: &Path) -> Result<Outcome, CliError> {
    let written = write(dir, &catalogue::all(), SPEC).map_err(FixturesError::from)?;
    let (cases, bytes) = (written.cases, written.bytes);
    note(&format!("{cases} fixtures written, {bytes} bytes in all"));
    Ok(Outcome::Clean)
}

fn check_all(args: &CheckArgs) -> Result<Outcome, CliError> {
    let checked = check(&args.folder.dir, &catalogue::all(), args.oracle);
    let checked = checked.map_err(FixturesError::from)?;
    for found in &checked.findings {
        finding(&found.to_string())?;
    }
    let (cases, bytes, found) = (checked.cases, checked.bytes, checked.findings.len());
    note(&format!(
        "{cases} fixtures checked, {bytes} bytes in all, {found} findings"
    ));
    Ok(if found == 0 {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}

fn list(dir: &Path) -> Result<Outcome, CliError> {
    let path = dir.join(MANIFEST);
    let wrong = |problem: String| FixturesError::Manifest {
        path: path.clone(),
        problem,
    };
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let heading = ["id", "op", "result", "bytes", "reports", "flags"].map(str::to_owned);
    let rows: Vec<[String; 6]> = manifest.cases.iter().map(row).collect();
    let all = || std::iter::once(&heading).chain(&rows);
    let width = |column: usize| all().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    for row in all() {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = format!("{}  {}", cells.collect::<Vec<_>>().join("  "), row[5]);
        print(line.trim_end())?;
    }
    Ok(Outcome::Clean)
}

fn row(case: &Case) -> [String; 6] {
    let size = case
        .bytes
        .map_or_else(|| "digests".to_owned(), |bytes| bytes.to_string());
    [
        case.id.clone(),
        case.op.clone(),
        case.result.name().to_owned(),
        size,
        case.reports.join(" "),
        case.flags.join(" "),
    ]
}

fn export(args: &ExportArgs) -> Result<Outcome, CliError> {
    let id = &args.id;
    let entry = catalogue::all().into_iter().find(|entry| entry.id == *id);
    let Some(entry) = entry else {
        return Err(FixturesError::Unknown { id: id.clone() }.into());
    };
    let held = |expect: Expect| {
        if expect.is_digests() {
            Expect::Exact
        } else {
            expect
        }
    };
    let entry = Entry {
        expect: held(entry.expect),
        ..entry
    };
    let wrong = |problem: String| FixturesError::Build {
        id: id.clone(),
        problem,
    };
    let built = build(&entry).map_err(|error| wrong(error.to_string()))?;
    let bytes = built.file.unwrap_or_default();
    replace(&args.out, |out| out.write_all(&bytes))?;
    Ok(Outcome::Clean)
}
