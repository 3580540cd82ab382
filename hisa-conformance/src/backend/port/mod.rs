//! A program in any language as a backend: the port protocol, version 1 (`docs/PROTOCOL.md`).
//!
//! ```text
//! Job -> exchange (a file) -> protocol (a line) -> process -> the port
//! Outputs <- exchange (a file) <- protocol (a line) <- process <-'
//! ```
//!
//! A port is started once and kept. When it hangs, ends or says something else than what it was
//! asked, it is killed with all that it started, and is of no more use: see
//! [`Backend::broken`].

mod exchange;
pub mod folder;
mod hello;
mod pipes;
mod process;
mod protocol;
pub(crate) mod tree;

pub use folder::{ExchangeFolder, FOLDER_VARIABLE};
pub use hello::{BATCH_MAX, NAME_MAX};
pub use pipes::LINE_MAX;
pub use process::END_LIMIT;
pub(crate) use process::end_all;
pub use protocol::VERSION;

use super::{Backend, BackendError, Call, Capabilities, Failure, Job, Outputs};
use crate::op::Op;
use folder::Place;
use hello::Hello;
use process::{Break, Process};
use protocol::{Case, HELLO, Params, Status, fill_word, request};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What names of ports begin with; the command follows.
pub const PREFIX: &str = "port:";

/// Seconds a port may take to say hello where nothing else is said: libraries for GPUs are slow.
pub const START_LIMIT: Duration = Duration::from_secs(120);

/// The command of a backend that is a port.
#[must_use]
pub fn command(backend: &str) -> Option<&str> {
    backend.strip_prefix(PREFIX)
}

/// Ends every port and worker of this process and removes their files. For the handler of a
/// signal that is about to end it.
pub(crate) fn interrupt() {
    let has_runs = folder::any();
    end_all();
    if has_runs {
        tree::end_descendants();
        folder::remove_all();
    }
}

/// How ports are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// How long a case may take.
    pub time_limit: Duration,
    /// How long a port may take to say hello.
    pub start_limit: Duration,
    /// The folder of the run for exchange files; each port makes its own where absent.
    pub folder: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            time_limit: Duration::from_secs(60),
            start_limit: START_LIMIT,
            folder: None,
        }
    }
}

/// A port on trial.
#[derive(Debug)]
pub struct Port {
    /// [`PREFIX`] and the command.
    name: String,
    hello: Hello,
    time_limit: Duration,
    process: Process,
    /// How much longer this side waits for words on standard error that come after their reply.
    patience: Duration,
    /// The number of the last request.
    last: u64,
    lost: Option<Lost>,
}

/// Why there will be no further answer, and in which job that came about, where it is known.
#[derive(Debug)]
struct Lost {
    op: Option<Op>,
    failure: Failure,
}

impl Port {
    /// Starts a port and waits for its hello.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] where it does not start, says nothing, or something else.
    pub fn start(command: &str, setup: &Setup) -> Result<Self, BackendError> {
        let name = format!("{PREFIX}{command}");
        let unavailable = |reason: String| BackendError::Unavailable {
            name: name.clone(),
            reason,
        };
        let place = Place::new(setup.folder.as_deref());
        let place = place.map_err(|(path, error)| {
            unavailable(format!(
                "no folder for exchange files: {}: {error}",
                path.display()
            ))
        })?;
        if place.path().to_str().is_none() {
            let path = place.path().display().to_string();
            return Err(unavailable(format!("{path}: JSON cannot name this folder")));
        }
        let started = Process::start(command, place);
        let mut process = started.map_err(|error| unavailable(format!("sh: {error}")))?;
        let said = process.ask(HELLO.to_vec(), setup.start_limit);
        let hello = said.and_then(|line| Hello::read(&line).map_err(|what| process.broke(what)));
        match hello {
            Ok(hello) => Ok(Self {
                name,
                hello,
                time_limit: setup.time_limit,
                process,
                patience: Duration::from_secs(2),
                last: 0,
                lost: None,
            }),
            Err(why) => {
                let words = process.said().tail(0);
                let words = words.last().map(|line| format!("; it last said {line:?}"));
                let words = words.unwrap_or_default();
                Err(unavailable(match why {
                    Break::Hung(limit) => format!("no hello within {limit:?}{words}"),
                    Break::Gone(how) => format!("it ended before its hello: {how}{words}"),
                    Break::Said(what) => format!("{what}{words}"),
                }))
            }
        }
    }

    /// The name it gave itself.
    #[must_use]
    pub fn own_name(&self) -> &str {
        &self.hello.name
    }

    /// Runs up to as many jobs as the port takes in a request.
    fn exchange(&mut self, calls: &mut [(&Job<'_>, &mut Outputs)]) -> Vec<Result<(), Failure>> {
        let refused = |lost: &Lost, op| Err(lost.refuse(op));
        if let Some(lost) = &self.lost {
            return calls.iter().map(|(job, _)| refused(lost, job.op)).collect();
        }
        self.last += 1;
        let since = self.process.said().total();
        let cases = match self.write(calls) {
            Ok(cases) => cases,
            // Nothing was asked: the disk is full, or the like.
            Err(why) => {
                return calls
                    .iter()
                    .map(|_| Err(Failure::Error(why.clone())))
                    .collect();
            }
        };
        let statuses = self.ask(&cases);
        let results = match statuses {
            Ok(statuses) => {
                let each = statuses.into_iter().zip(&cases).zip(calls);
                each.map(|((status, case), (job, out))| {
                    self.result(status, Path::new(&case.output), job.op, out, since)
                })
                .collect()
            }
            Err(why) => {
                let failure = Failure::Port {
                    what: why.to_string(),
                    stderr: self.process.said().tail(since),
                };
                let op = match &*calls {
                    [(job, _)] => Some(job.op),
                    _ => None,
                };
                let failed = calls.iter().map(|_| Err(failure.clone())).collect();
                self.lost = Some(Lost { op, failure });
                failed
            }
        };
        for case in &cases {
            let _ = std::fs::remove_file(&case.input);
            let _ = std::fs::remove_file(&case.output);
        }
        results
    }

    /// Writes the input files of a request.
    fn write(&self, calls: &[(&Job<'_>, &mut Outputs)]) -> Result<Vec<Case>, String> {
        let each = calls.iter().enumerate().map(|(at, (job, out))| {
            let path = |word: &str| {
                let name = format!("{word}-{}-{at}.safetensors", self.last);
                self.process.with_folder(|folder| folder.join(name))
            };
            let gone = || "the folder for exchange files is gone".to_owned();
            let (input, output) = path("in").zip(path("out")).ok_or_else(gone)?;
            let params = Params::of(job);
            exchange::write(job, &params, &input).map_err(|error| error.to_string())?;
            Ok(Case {
                stage: job.op.name(),
                params,
                input: input.display().to_string(),
                output: output.display().to_string(),
                fill: fill_word(out.fill),
            })
        });
        each.collect()
    }

    fn ask(&mut self, cases: &[Case]) -> Result<Vec<Status>, Break> {
        let line = request(self.last, cases).map_err(|error| Break::Said(error.to_string()))?;
        let count = u32::try_from(cases.len()).unwrap_or(u32::MAX);
        let line = self
            .process
            .ask(line, self.time_limit.saturating_mul(count))?;
        let statuses = protocol::reply(&line, self.last, cases.len());
        statuses.map_err(|what| self.process.broke(what))
    }

    /// What a status means, and the outputs where there are any.
    fn result(
        &mut self,
        status: Status,
        path: &Path,
        op: Op,
        out: &mut Outputs,
        since: u64,
    ) -> Result<(), Failure> {
        let mut failed = |what: String| {
            // Its words are in another pipe than its answer.
            let begun = Instant::now();
            let limit = self.patience.min(Duration::from_millis(50));
            self.process.said().wait_more(since, limit);
            self.patience = self.patience.saturating_sub(begun.elapsed());
            let stderr = self.process.said().tail(since);
            Failure::Port { what, stderr }
        };
        match status {
            Status::Ok => {
                exchange::read(op, path, out).map_err(|what| failed(format!("error: {what}")))
            }
            Status::Unsupported(why) => Err(Failure::Unsupported(why)),
            Status::Refused(why) => Err(failed(format!("refused: {why}"))),
            Status::Error(why) => Err(failed(format!("error: {why}"))),
        }
    }
}

impl Backend for Port {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &str {
        self.own_name()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.hello.capabilities
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        self.exchange(&mut [(&*job, out)]).remove(0)
    }

    fn gathers(&self) -> bool {
        self.hello.batch > 1
    }

    fn run_all(&mut self, calls: &mut [Call<'_>]) -> Vec<Result<(), Failure>> {
        let batch = self.hello.batch;
        let mut results = Vec::with_capacity(calls.len());
        for part in calls.chunks_mut(batch) {
            let mut part: Vec<_> = part
                .iter_mut()
                .map(|call| (&call.job, &mut call.out))
                .collect();
            results.extend(self.exchange(&mut part));
        }
        results
    }

    fn broken(&self) -> Option<String> {
        let Lost { op, failure } = self.lost.as_ref()?;
        let place = op.map(|op| format!(" in {op}")).unwrap_or_default();
        let last = failure.stderr().last();
        let last = last
            .map(|line| format!("; it last said {line:?}"))
            .unwrap_or_default();
        Some(format!("port {}{place}: {failure}{last}", self.own_name()))
    }
}

impl Lost {
    /// The job that broke the port fails again; others are not to blame.
    fn refuse(&self, op: Op) -> Failure {
        match self.op {
            Some(lost) if lost != op => {
                Failure::Unsupported(format!("not run after {lost} broke the port"))
            }
            _ => self.failure.clone(),
        }
    }
}
