//! `hisa eval`: the reference on a dump.

use super::{CliError, Outcome, ParamArgs};
use crate::dump::size::{OUTPUT_BYTES_MAX, check_output_bytes};
use crate::dump::{Indexer, InputDump, OutputDump};
use clap::Args;
use hisa_ref::Overflow;
use hisa_ref::stages::quantize::{self, QuantizeOptions, ScaleFormat};
use std::path::{Path, PathBuf};

/// Arguments of `hisa eval`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct EvalArgs {
    /// A safetensors file with the input.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// The safetensors file to write; replaced as a whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Parameters of the run.
    #[command(flatten)]
    pub params: ParamArgs,
    /// Write every intermediate tensor as well, not only `indices`.
    #[arg(long)]
    pub all: bool,
}

/// Reads, computes, writes.
///
/// # Errors
/// [`CliError`] for damaged or refused input, outputs beyond [`OUTPUT_BYTES_MAX`], and an output
/// that cannot be written or would replace the input. Nothing is written then.
pub fn run(args: &EvalArgs) -> Result<Outcome, CliError> {
    if same_file(&args.input, &args.out) {
        return Err(CliError::SameFile {
            file: args.out.clone(),
        });
    }
    let input = read(&args.input, args.params)?;
    check_output_bytes(&input, args.all, OUTPUT_BYTES_MAX)?;
    let outputs = outputs(&input, args.all)?;
    outputs.to_file(&args.out, &input.params().metadata())?;
    Ok(Outcome::Clean)
}

/// The input of `eval` and `check`, with errors that name the file.
pub(crate) fn read(path: &Path, params: ParamArgs) -> Result<InputDump, CliError> {
    InputDump::read(path, &params.into()).map_err(CliError::reading(path))
}

/// What the reference computes: `indices`, and with `all` every intermediate.
///
/// With `all`, an `x` in the dump is quantised with plain f32 scales and saturating codes.
///
/// # Errors
/// [`CliError::Refused`] where `x` holds what strict mode refuses, or memory runs out.
pub fn outputs(input: &InputDump, all: bool) -> Result<OutputDump, CliError> {
    let computed = if all {
        traced(input)
    } else {
        indices_only(input)
    };
    computed.map_err(|source| CliError::Refused {
        file: input.path().to_owned(),
        source,
    })
}

fn indices_only(dump: &InputDump) -> hisa_ref::Result<OutputDump> {
    let (input, run) = (dump.as_input()?, dump.params());
    let indices = match run.indexer {
        Indexer::Hisa => hisa_ref::hisa::run(&input, &run.hisa)?,
        Indexer::Dsa => hisa_ref::dsa::run(&input, run.hisa.topk_tokens())?,
        Indexer::BlockSparse => hisa_ref::block_sparse::run(&input, &run.hisa)?,
    };
    Ok(OutputDump {
        indices: Some(indices),
        ..OutputDump::default()
    })
}

fn traced(dump: &InputDump) -> hisa_ref::Result<OutputDump> {
    let (input, run) = (dump.as_input()?, dump.params());
    let mut outputs = match run.indexer {
        Indexer::Hisa => hisa_ref::hisa::trace(&input, &run.hisa)?.into(),
        Indexer::Dsa => hisa_ref::dsa::trace(&input, run.hisa.topk_tokens())?.into(),
        Indexer::BlockSparse => hisa_ref::block_sparse::trace(&input, &run.hisa)?.into(),
    };
    if let Some(x) = dump.x() {
        let options = QuantizeOptions {
            format: ScaleFormat::F32,
            overflow: Overflow::Saturating,
            strictness: run.strictness,
        };
        let quantized = quantize::run(x, options)?;
        let OutputDump { codes, scale, .. } = &mut outputs;
        (*codes, *scale) = (Some(quantized.codes), Some(quantized.scale));
    }
    Ok(outputs)
}

/// True where both paths lead to one existing file.
fn same_file(left: &Path, right: &Path) -> bool {
    match (std::fs::canonicalize(left), std::fs::canonicalize(right)) {
        (Ok(left), Ok(right)) => left == right,
        _ => false,
    }
}
