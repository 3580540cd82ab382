//! The worker: cases on a backend, one after the other, in a process that may die of it.
//!
//! [`serve`] is the `hisa worker` process. [`Worker`] does the same work in the caller's process,
//! for tests and for callers whose backend they trust.

mod announce;
pub mod judge;
pub mod protocol;
mod serve;

pub use protocol::{Batch, Config, Reply, Request};
pub use serve::{serve, serve_process};

use crate::backend::{self, Backend};
use crate::case::{AddressError, Case, CaseError};
use crate::dump::{DumpError, InputDump, Options};
use crate::generate::{Generator, by_name};
use crate::op::Op;
use crate::problem::Problem;
use crate::summary::{Source, Summary};
use std::path::Path;
use thiserror::Error;

/// Why a worker cannot do what it is asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no such backend.
    #[error("there is no backend {name:?}; `hisa list backends` names them")]
    Backend {
        /// The name asked for.
        name: String,
    },
    /// There is no such job.
    #[error("there is no stage or indexer {name:?}; `hisa list stages` names them")]
    Op {
        /// The name asked for.
        name: String,
    },
    /// There is no such generator.
    #[error("there is no generator {name:?}; `hisa list generators` names them")]
    Generator {
        /// The name asked for.
        name: String,
    },
    /// The address is not one.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The case is none that can run.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The file is not one.
    #[error(transparent)]
    File(#[from] DumpError),
}

/// The generator of the last batch: making one may take longer than a batch.
#[derive(Debug, Default)]
pub(crate) struct Generators(Option<(GeneratorKey, Box<dyn Generator>)>);

/// Name, seed and count: what makes a generator.
type GeneratorKey = (String, u64, u64);

impl Generators {
    /// The generator of a batch.
    pub(crate) fn of(&mut self, batch: &Batch) -> Result<&dyn Generator, WorkerError> {
        let key = (batch.generator.clone(), batch.seed, batch.count);
        let made = match self.0.take().filter(|(known, _)| *known == key) {
            Some(made) => made,
            None => {
                let made = by_name(&key.0, key.1, key.2).ok_or_else(|| WorkerError::Generator {
                    name: key.0.clone(),
                })?;
                (key, made)
            }
        };
        Ok(self.0.insert(made).1.as_ref())
    }
}

/// A backend, the basis that judges it, and what is kept between requests.
pub struct Worker {
    backend: Box<dyn Backend>,
    basis: Box<dyn Backend>,
    ops: Vec<Op>,
    findings_max: usize,
    generators: Generators,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("backend", &self.backend.name())
            .field("ops", &self.ops)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker for this configuration.
    ///
    /// # Errors
    /// [`WorkerError::Backend`] and [`WorkerError::Op`].
    pub fn new(config: &Config) -> Result<Self, WorkerError> {
        Self::with(config, |backend| backend)
    }

    /// The same, with something put around the backend.
    fn with(
        config: &Config,
        wrap: impl FnOnce(Box<dyn Backend>) -> Box<dyn Backend>,
    ) -> Result<Self, WorkerError> {
        let name = &config.backend;
        let backend =
            backend::by_name(name).ok_or_else(|| WorkerError::Backend { name: name.clone() })?;
        let op = |name: &String| {
            Op::from_name(name).ok_or_else(|| WorkerError::Op { name: name.clone() })
        };
        Ok(Self {
            basis: backend::basis_of(backend.name()),
            backend: wrap(backend),
            ops: config.ops.iter().map(op).collect::<Result<_, _>>()?,
            findings_max: config.findings_max,
            generators: Generators::default(),
        })
    }

    /// Judges the cases of a batch; `start` is called with the position of each before it runs.
    /// A case that cannot be built is not counted among those that ran.
    ///
    /// # Errors
    /// [`WorkerError::Generator`].
    pub fn batch(
        &mut self,
        batch: &Batch,
        start: &mut dyn FnMut(u64),
    ) -> Result<Summary, WorkerError> {
        let generator = self.generators.of(batch)?;
        let mut summary = Summary::default();
        for (at, index) in (0..).zip(batch.indices()) {
            start(at);
            let Some(generated) = generator.case(index) else {
                continue;
            };
            let Ok(problem) = Problem::new(&generated.case) else {
                continue;
            };
            let source = Source {
                generator: batch.generator.clone(),
                index,
            };
            let address = generated.case.to_string();
            let (backend, basis) = (self.backend.as_mut(), self.basis.as_mut());
            judge::judge(
                &problem,
                (&source, &address),
                backend,
                basis,
                &self.ops,
                &mut summary,
            );
            summary.findings.truncate(self.findings_max);
        }
        Ok(summary)
    }

    /// Judges the case with this address.
    ///
    /// # Errors
    /// [`WorkerError::Address`] and [`WorkerError::Case`].
    pub fn address(&mut self, address: &str) -> Result<Summary, WorkerError> {
        let problem = Problem::new(&address.parse::<Case>()?)?;
        Ok(self.problem(&problem, "replay", address))
    }

    /// Judges the input in a file.
    ///
    /// # Errors
    /// [`WorkerError::File`].
    pub fn file(&mut self, path: &Path) -> Result<Summary, WorkerError> {
        let problem = Problem::from_dump(&InputDump::read(path, &Options::default())?);
        Ok(self.problem(&problem, "file", &path.display().to_string()))
    }

    fn problem(&mut self, problem: &Problem, generator: &str, case: &str) -> Summary {
        let source = Source {
            generator: generator.to_owned(),
            index: 0,
        };
        let mut summary = Summary::default();
        let (backend, basis) = (self.backend.as_mut(), self.basis.as_mut());
        judge::judge(
            problem,
            (&source, case),
            backend,
            basis,
            &self.ops,
            &mut summary,
        );
        summary.findings.truncate(self.findings_max);
        summary
    }

    /// Does what a request asks.
    ///
    /// # Errors
    /// As [`Self::batch`], [`Self::address`] and [`Self::file`].
    pub fn answer(
        &mut self,
        request: &Request,
        start: &mut dyn FnMut(u64),
    ) -> Result<Summary, WorkerError> {
        match request {
            Request::Batch(batch) => self.batch(batch, start),
            Request::Address(address) => {
                start(0);
                self.address(address)
            }
            Request::File(path) => {
                start(0);
                self.file(path)
            }
        }
    }
}
