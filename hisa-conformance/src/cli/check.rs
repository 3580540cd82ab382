//! `hisa check`: somebody else's outputs for a dump, against the reference.

use super::eval::{outputs, read};
use super::{CliError, Outcome, ParamArgs, finding, note};
use crate::dump::compare::compare;
use crate::dump::size::{OUTPUT_BYTES_MAX, check_output_bytes};
use crate::dump::{InputDump, OutputDump, TensorFile};
use clap::Args;
use std::fs::File;
use std::path::PathBuf;

/// Arguments of `hisa check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// A safetensors file with the input.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// A safetensors file with the outputs to judge, under the names `hisa eval --all` writes;
    /// any subset will do.
    #[arg(long, value_name = "FILE")]
    pub got: PathBuf,
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
    let mut file = TensorFile::open(&args.got)?;
    let got = OutputDump::from_file(&mut file)?;
    let found = got.names();
    let all = found.iter().any(|&name| name != "indices");
    check_output_bytes(&input, all, OUTPUT_BYTES_MAX)?;
    let expected = outputs(&input, all)?;
    let (known, indexer) = (expected.names(), input.params().indexer);
    let (judged, idle): (Vec<_>, Vec<_>) = found.into_iter().partition(|name| known.contains(name));
    if judged.is_empty() {
        return Err(CliError::NothingToJudge {
            file: args.got.clone(),
            indexer,
            names: OutputDump::NAMES.join(", "),
        });
    }
    note_about_file(&file, &input, &got);
    note_names(
        &format!("not compared, no output of {indexer} for this input"),
        &idle,
    );
    let differences = compare(&input, &expected, &got);
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
    Ok(if differences.is_empty() {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}

/// What a user may have overlooked about the file: names, parameters, wide ids.
fn note_about_file(file: &TensorFile<File>, input: &InputDump, got: &OutputDump) {
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
fn note_names(about: &str, names: &[&str]) {
    if !names.is_empty() {
        note(&format!("{about}: {}", names.join(", ")));
    }
}
