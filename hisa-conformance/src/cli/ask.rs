//! A port on a user's input: each stage on the reference's results of those before it, then the
//! whole indexer.

use super::CliError;
use crate::backend::port::{Port, Setup};
use crate::backend::reference::Reference;
use crate::backend::{Backend, Buffer, Failure, Fill, Job, Outputs};
use crate::case::{Inputs, Tensors};
use crate::check::plain::misshapen;
use crate::dump::{Data, DumpError, Indexer, InputDump, Tensor, to_bytes};
use crate::op::Op;
use crate::problem::Problem;
use crate::truth::Truth;
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::{Overflow, Stage};
use std::collections::BTreeMap;
use std::path::Path;

/// What a port made of an input.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// A safetensors file of its outputs; empty where there are none.
    pub(super) bytes: Vec<u8>,
    /// Jobs that were not run, and why.
    pub(super) skipped: Vec<String>,
    /// Jobs that gave no result, or one of another shape, each in a line.
    pub(super) failures: Vec<String>,
}

/// Runs the jobs of the input's indexer that the port offers.
pub(super) fn port(input: &InputDump, command: &str, setup: &Setup) -> Result<Answer, CliError> {
    let mut port = Port::start(command, setup)?;
    let problem = problem(input);
    let ops = jobs(input);
    let truth = Truth::of_ops(&problem, &mut Reference::new(), &ops);
    let (mut answer, mut tensors) = (Answer::default(), BTreeMap::new());
    for op in ops {
        if let Some(why) = port.capabilities().refuses(op, &problem) {
            answer.skipped.push(format!("{op} ({why})"));
            continue;
        }
        let mut out = Outputs::new(op, &problem, Fill::Zeros);
        let job = Job::new(op, &problem, truth.chain());
        let run = match job {
            Ok(mut job) => port.run(&mut job, &mut out),
            Err(name) => Err(Failure::Unsupported(format!("there is no {name}"))),
        };
        match run.map(|()| misshapen(op, &problem, &out.tensors)) {
            Ok(None) => {
                for (name, buffer) in out.tensors.iter() {
                    tensors.insert(name.to_owned(), tensor(name, buffer, command)?);
                }
            }
            Ok(Some(wrong)) => {
                let (at, got, want) = (wrong.at, wrong.got, wrong.expected);
                answer
                    .failures
                    .push(format!("FAIL {op}: {at} is {got}, expected {want}"));
            }
            Err(Failure::Unsupported(why)) => answer.skipped.push(format!("{op} ({why})")),
            Err(failure) => {
                let mut line = format!("FAIL {op}: {failure}");
                for said in failure.stderr() {
                    line.push_str(" | ");
                    line.push_str(said);
                }
                answer.failures.push(line);
            }
        }
    }
    if !tensors.is_empty() {
        let metadata = input.params().metadata();
        let bytes = to_bytes(&tensors, &metadata);
        answer.bytes = bytes.map_err(|problem| DumpError::Header {
            file: Path::new(command).to_owned(),
            problem,
        })?;
    }
    Ok(answer)
}

/// The jobs whose outputs `hisa eval --all` writes.
fn jobs(input: &InputDump) -> Vec<Op> {
    let quantize = input.x().map(|_| Op::Stage(Stage::Quantize));
    let rest: Vec<Op> = match input.params().indexer {
        Indexer::Hisa => {
            let stages = Stage::ALL
                .into_iter()
                .filter(|stage| *stage != Stage::Quantize);
            stages.map(Op::Stage).chain([Op::Hisa]).collect()
        }
        Indexer::Dsa => vec![Op::Dsa],
        Indexer::BlockSparse => vec![Op::BlockSparse],
    };
    quantize.into_iter().chain(rest).collect()
}

fn problem(input: &InputDump) -> Problem {
    let params = input.params();
    Problem {
        inputs: Inputs {
            params: params.hisa,
            windows: input.windows().clone(),
            tensors: Tensors {
                q: input.q().to_owned(),
                k: input.k().to_owned(),
                k_scale: input.k_scale().to_owned(),
                weights: input.weights().to_owned(),
            },
            strictness: params.strictness,
        },
        x: input.x().map(|x| x.to_owned()),
        spec: None,
        quantize: QuantizeOptions {
            format: ScaleFormat::F32,
            overflow: Overflow::Saturating,
            strictness: params.strictness,
        },
        pieces: Vec::new(),
    }
}

fn tensor(name: &str, buffer: &Buffer, command: &str) -> Result<Tensor<'static>, DumpError> {
    let data = match buffer {
        Buffer::Codes(codes) => Data::U8(codes.body().iter().map(|code| code.to_bits()).collect()),
        Buffer::F32(values) => Data::F32(values.body().to_vec().into()),
        Buffer::I32(values) => Data::I32(values.body().to_vec().into()),
    };
    let wrong = |problem| DumpError::tensor(Path::new(command), name, problem);
    Tensor::new(buffer.shape(), data).map_err(wrong)
}
