//! `hisa check`: somebody else's outputs for a dump, against the reference.

use super::eval::{outputs, read};
use super::{CliError, Outcome, ParamArgs, finding, note};
use crate::dump::OutputDump;
use crate::dump::compare::compare;
use crate::dump::size::{OUTPUT_BYTES_MAX, check_output_bytes};
use clap::Args;
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
    let got = OutputDump::read(&args.got)?;
    let found = got.names();
    let indexer = input.params().indexer;
    let nothing = |names: &[&str]| CliError::NothingToJudge {
        file: args.got.clone(),
        indexer,
        names: names.join(", "),
    };
    if found.is_empty() {
        return Err(nothing(&OutputDump::NAMES));
    }
    let all = found.iter().any(|&name| name != "indices");
    check_output_bytes(&input, all, OUTPUT_BYTES_MAX)?;
    let expected = outputs(&input, all)?;
    let known = expected.names();
    let (judged, unjudged): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|name| known.contains(name));
    if judged.is_empty() {
        return Err(nothing(&known));
    }
    if !unjudged.is_empty() {
        let names = unjudged.join(", ");
        note(&format!(
            "not compared, no output of {indexer} for this input: {names}"
        ));
    }
    if !got.wide_ids.is_empty() {
        let names = got.wide_ids.join(", ");
        note(&format!(
            "converted from int64, every id fits int32: {names}"
        ));
    }
    let differences = compare(&input, &expected, &got);
    for difference in &differences {
        finding(&difference.to_string())?;
    }
    let (of, wrong) = (judged.len(), differences.len());
    let names = judged.join(", ");
    note(&format!(
        "compared value by value: {names}; {wrong} of {of} differ"
    ));
    Ok(if differences.is_empty() {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}
