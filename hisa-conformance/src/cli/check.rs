//! `hisa check`: somebody else's outputs for a dump, against the reference.

use super::ask;
use super::engine::seconds;
use super::eval::{outputs, read};
use super::{CliError, Outcome, ParamArgs, finding, note};
use crate::backend::port::Setup;
use crate::dump::compare::compare;
use crate::dump::size::{OUTPUT_BYTES_MAX, check_output_bytes};
use crate::dump::{InputDump, OutputDump, TensorFile};
use clap::Args;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `hisa check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// A safetensors file with the input.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// A safetensors file with the outputs to judge, under the names `hisa eval --all` writes;
    /// any subset will do.
    #[arg(long, value_name = "FILE", required_unless_present = "port")]
    pub got: Option<PathBuf>,
    /// Command of a port that computes the outputs to judge, in place of a file.
    #[arg(long, value_name = "COMMAND", conflicts_with = "got")]
    pub port: Option<String>,
    /// Seconds a port may take for a job.
    #[arg(long, value_name = "T", value_parser = seconds, default_value = "60")]
    pub time_limit: Duration,
    /// Seconds a port may take to start.
    #[arg(long, value_name = "T", value_parser = seconds, default_value = "120")]
    pub start_limit: Duration,
    /// Parameters of the run.
    #[command(flatten)]
    pub params: ParamArgs,
}

/// Reads both files, computes the reference's outputs and prints one line per tensor that
/// differs. A note on stderr says which tensors were compared, and which were not and why.
///
/// # Errors
/// [`CliError`] for damaged or refused files, outputs beyond [`OUTPUT_BYTES_MAX`], or nothing to
/// judge.
pub fn run(args: &CheckArgs) -> Result<Outcome, CliError> {
    let input = read(&args.input, args.params)?;
    let Some(path) = &args.got else {
        return of_port(&input, args);
    };
    Ok(outcome(judge(&input, &mut TensorFile::open(path)?)?))
}

const fn outcome(differences: usize) -> Outcome {
    match differences {
        0 => Outcome::Clean,
        _ => Outcome::Findings,
    }
}

/// Runs the port and judges what it wrote.
fn of_port(input: &InputDump, args: &CheckArgs) -> Result<Outcome, CliError> {
    let setup = Setup {
        time_limit: args.time_limit,
        start_limit: args.start_limit,
        folder: None,
    };
    let command = args.port.as_deref().unwrap_or_default();
    check_output_bytes(input, true, OUTPUT_BYTES_MAX)?;
    let answer = ask::port(input, command, &setup)?;
    note_names("not run", &answer.skipped);
    for failure in &answer.failures {
        finding(failure)?;
    }
    let failures = answer.failures.len();
    if answer.bytes.is_empty() {
        return match failures {
            0 => Err(CliError::NothingToJudge {
                file: PathBuf::from(command),
                indexer: input.params().indexer,
                names: OutputDump::NAMES.join(", "),
            }),
            _ => Ok(Outcome::Findings),
        };
    }
    let mut file = TensorFile::from_bytes(Path::new(command), &answer.bytes)?;
    Ok(outcome(failures + judge(input, &mut file)?))
}

/// Prints a line per tensor that differs; how many do.
fn judge<R: Read + Seek>(input: &InputDump, file: &mut TensorFile<R>) -> Result<usize, CliError> {
    let got = OutputDump::from_file(file)?;
    let found = got.names();
    let all = found.iter().any(|&name| name != "indices");
    check_output_bytes(input, all, OUTPUT_BYTES_MAX)?;
    let expected = outputs(input, all)?;
    let (known, indexer) = (expected.names(), input.params().indexer);
    let (judged, idle): (Vec<_>, Vec<_>) = found.into_iter().partition(|name| known.contains(name));
    if judged.is_empty() {
        return Err(CliError::NothingToJudge {
            file: file.path().to_owned(),
            indexer,
            names: OutputDump::NAMES.join(", "),
        });
    }
    note_about_file(file, input, &got);
    note_names(
        &format!("not compared, no output of {indexer} for this input"),
        &idle,
    );
    let differences = compare(input, &expected, &got);
    for difference in &differences {
        finding(&difference.to_string())?;
    }
    // Slots are named by block columns; without them nothing can be said about slots.
    let unreadable = differences
        .iter()
        .any(|d| d.tensor == "block_ids" && d.at.is_empty());
    let by_slot = |name: &&str| matches!(*name, "token_scores" | "slots");
    let (skipped, judged): (Vec<_>, Vec<_>) = judged
        .into_iter()
        .partition(|name| unreadable && by_slot(name));
    note_names("not compared, block_ids has the wrong shape", &skipped);
    let (names, of, wrong) = (judged.join(", "), judged.len(), differences.len());
    note(&format!(
        "compared value by value: {names}; {wrong} of {of} differ"
    ));
    Ok(wrong)
}

/// What a user may have overlooked about the file: names, parameters, wide ids.
fn note_about_file<R: Read + Seek>(file: &TensorFile<R>, input: &InputDump, got: &OutputDump) {
    let unknown: Vec<&str> = file
        .names()
        .filter(|name| !OutputDump::NAMES.contains(name))
        .collect();
    note_names("not compared, no such output", &unknown);
    for (key, used) in input.params().metadata() {
        if let Some(made) = file.metadata().get(&key).filter(|made| **made != used) {
            let name = file.path().display();
            note(&format!(
                "{name} was made with {key} {made}; it is judged with {used}"
            ));
        }
    }
    let wide: Vec<&str> = got.wide_ids.to_vec();
    note_names("converted from int64, every id fits int32", &wide);
}

/// `about: name, name`, where there is any name.
fn note_names(about: &str, names: &[impl AsRef<str>]) {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if !names.is_empty() {
        note(&format!("{about}: {}", names.join(", ")));
    }
}
