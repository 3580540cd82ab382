//! What a worker and its parent say to each other: one JSON value a line.
//!
//! The parent sends a [`Config`], then one [`Request`] at a time; the worker answers with
//! [`Reply`]s. A backend may print to the worker's standard output, so a reply begins with the
//! record separator of RFC 7464 and whatever stands before it in its line is not a reply.

use super::judge::Explained;
use crate::backend::limits::Limits;
use crate::backend::port::Setup;
use crate::backend::{Backend, basis_of};
use crate::expect::Expectation;
use crate::op::Op;
use crate::report::SelfTestRow;
use crate::summary::Summary;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::PathBuf;

/// Begins every reply.
pub const MARK: char = '\u{1e}';

/// What a worker is told once, before anything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the backend on trial.
    pub backend: String,
    /// Names of the jobs to judge, a subset of [`Op::ALL`].
    pub ops: Vec<String>,
    /// Known deviations.
    #[serde(default)]
    pub expectations: Vec<Expectation>,
    /// Most findings kept of a check in a request; all are counted.
    pub findings_max: usize,
    /// Whether the worker says which job it is about to run.
    pub announce: bool,
    /// How a port is run; of no meaning to other backends.
    #[serde(default)]
    pub port: Setup,
}

impl Config {
    /// A configuration that judges `ops`.
    #[must_use]
    pub fn new(backend: &str, ops: &[Op], findings_max: usize) -> Self {
        Self {
            backend: backend.to_owned(),
            ops: ops.iter().map(|op| op.name().to_owned()).collect(),
            expectations: Vec::new(),
            findings_max,
            announce: false,
            port: Setup::default(),
        }
    }

    /// The same, with every job announced before it runs.
    #[must_use]
    pub fn announcing(&self) -> Self {
        Self {
            announce: true,
            ..self.clone()
        }
    }
}

/// Some cases of a generator: `first`, `first + stride`, and so on, `len` of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Name of the generator.
    pub generator: String,
    /// Seed of its random cases.
    pub seed: u64,
    /// How many cases the generator is asked to have.
    pub count: u64,
    /// Index of the first case.
    pub first: u64,
    /// From one index to the next.
    pub stride: u64,
    /// Cases.
    pub len: u64,
}

impl Batch {
    /// Indices of the cases in their generator.
    pub fn indices(&self) -> impl Iterator<Item = u64> + Clone + use<> {
        let (first, stride) = (self.first, self.stride);
        (0..self.len).map(move |at| first + at * stride)
    }

    /// `len` of these cases, from the one at position `from` on.
    #[must_use]
    pub fn part(&self, from: u64, len: u64) -> Self {
        Self {
            first: self.first + from * self.stride,
            len,
            ..self.clone()
        }
    }
}

/// What a worker is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// To judge these cases.
    Batch(Batch),
    /// To judge the case with this address.
    Address(String),
    /// To judge the input in this file.
    File(PathBuf),
    /// To explain why the case or file fails the check at this position of the table.
    Explain(Box<Self>, usize),
    /// To hunt the faults of these names.
    Hunt(Vec<String>),
    /// To judge a backend that has no fault.
    Control(String),
}

/// Why a worker ends after an answer, and how far the answer reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    /// Cases of the batch that the answer covers, the one in which the backend broke included.
    pub done: u64,
    /// What happened to the backend.
    pub why: String,
}

/// What there is to know of a backend once it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// What it is called where there is little room.
    pub label: String,
    /// Name of the backend it is judged by.
    pub basis: String,
    /// Names of the jobs it takes.
    pub ops: Vec<String>,
    /// The arithmetic it declares, in words.
    pub arithmetic: String,
    /// What generated cases are made to fit.
    pub limits: Limits,
}

impl About {
    /// What a backend says.
    #[must_use]
    pub fn of(backend: &dyn Backend) -> Self {
        let capabilities = backend.capabilities();
        Self {
            label: backend.label().to_owned(),
            basis: basis_of(backend.name()).name().to_owned(),
            ops: capabilities
                .ops
                .iter()
                .map(|op| op.name().to_owned())
                .collect(),
            arithmetic: capabilities.arithmetic(),
            limits: match capabilities.fits {
                true => capabilities.limits.clone(),
                false => Limits::default(),
            },
        }
    }
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The configuration is understood, and the backend ready.
    Ready(Box<About>),
    /// The case at this position of the request is about to run.
    Start(u64),
    /// The backend is about to run this job.
    Op(String),
    /// The job has come to an end, and the rest is the engine's own work.
    Idle,
    /// The worker ends after its next answer.
    Ending(Ending),
    /// The request is answered.
    Done(Box<Summary>),
    /// What there is to say about a failure.
    Explained(Box<Explained>),
    /// What became of the faults.
    Hunted(Vec<SelfTestRow>),
    /// Whether the backend without a fault passed.
    Controlled(bool),
    /// The configuration or the request cannot be carried out, and why.
    Refused(String),
}

/// Writes a message and hands it on at once.
///
/// # Errors
/// As the writer.
pub fn send(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Writes a reply behind its mark.
///
/// # Errors
/// As the writer.
pub fn reply(out: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let mut line = vec![MARK as u8];
    serde_json::to_writer(&mut line, reply)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// The reply in a line; `None` where it holds none.
#[must_use]
pub fn reply_in(line: &[u8]) -> Option<Reply> {
    let at = line.iter().rposition(|&byte| byte == MARK as u8)?;
    serde_json::from_slice(&line[at + 1..]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_survive_what_a_backend_prints() {
        let mut line = b"loading kernel... ".to_vec();
        reply(&mut line, &Reply::Start(7)).unwrap();
        assert_eq!(reply_in(&line), Some(Reply::Start(7)));
        assert_eq!(reply_in(b"{\"start\":7}\n"), None);
        assert_eq!(reply_in(b"\x1e{\"start\":\n"), None);
    }

    #[test]
    fn parts_of_a_batch_are_its_cases() {
        let batch = Batch {
            generator: "ragged".into(),
            seed: 1,
            count: 100,
            first: 2,
            stride: 7,
            len: 5,
        };
        let all: Vec<u64> = batch.indices().collect();
        assert_eq!(all, [2, 9, 16, 23, 30]);
        let parts = [batch.part(0, 2), batch.part(2, 1), batch.part(3, 2)];
        let joined: Vec<u64> = parts.iter().flat_map(Batch::indices).collect();
        assert_eq!(joined, all);
    }
}
