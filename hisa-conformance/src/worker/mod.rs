//! The worker: cases on a backend, one after the other, in a process that may die of it.
//!
//! [`serve`] is the `hisa worker` process. [`Worker`] does the same work in the caller's process,
//! for tests and for callers whose backend they trust.

mod announce;
pub mod judge;
pub mod protocol;
mod serve;

pub use protocol::{About, Batch, Config, Ending, Reply, Request};
pub use serve::{serve, serve_process};

use crate::backend::{self, Backend, BackendError};
use crate::case::{AddressError, Case, CaseError};
use crate::dump::DumpError;
use crate::flags::{self, Flags};
use crate::generate::fit::fitted;
use crate::generate::{Generator, by_name};
use crate::op::Op;
use crate::problem::Problem;
use crate::selftest;
use crate::summary::{Source, Summary};
use judge::{Exhibit, Terms};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

/// Why a worker cannot do what it is asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no such backend, or it cannot run here.
    #[error(transparent)]
    Backend(#[from] BackendError),
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
    /// A check or the basis panicked: a fault of this program, not of the backend.
    #[error("{case}: the engine itself failed: {text}")]
    Engine {
        /// The case.
        case: String,
        /// What the panic said.
        text: String,
    },
    /// The request is about many cases where one is wanted.
    #[error("one case or file is wanted")]
    NoSubject,
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
    about: About,
    terms: Terms,
    findings_max: usize,
    generators: Generators,
    /// Cases of the last batch that were gone through.
    done: u64,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("backend", &self.backend.name())
            .field("ops", &self.terms.ops)
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
        let backend = backend::open(&config.backend, &config.port)?;
        let op = |name: &String| {
            Op::from_name(name).ok_or_else(|| WorkerError::Op { name: name.clone() })
        };
        Ok(Self {
            basis: backend::basis_of(backend.name()),
            about: About::of(backend.as_ref()),
            backend: wrap(backend),
            terms: Terms {
                ops: config.ops.iter().map(op).collect::<Result<_, _>>()?,
                expectations: config.expectations.clone(),
                together: !config.announce,
            },
            findings_max: config.findings_max,
            generators: Generators::default(),
            done: 0,
        })
    }

    /// What there is to know of the backend.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// Why the worker can do nothing more, and how far the last batch came; `None` as long as its
    /// backend works.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        let (why, done) = (self.backend.broken()?, self.done);
        Some(Ending { done, why })
    }

    /// Whether it is not known which job broke the backend, because they ran together.
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        self.terms.together && self.backend.gathers() && self.backend.broken().is_some()
    }

    /// Judges the cases of a batch; `start` is called with the position of each before it runs.
    /// A case that cannot be built is not counted among those that ran, and none runs after one
    /// that broke the backend.
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
            self.done = at + 1;
            let Some(generated) = fitted(generator, index, &self.about.limits) else {
                continue;
            };
            let Ok(problem) = Problem::new(&generated.case) else {
                continue;
            };
            let source = Source {
                generator: batch.generator.clone(),
                index,
            };
            let case = &generated.case;
            let exhibit = Exhibit {
                problem: &problem,
                source: &source,
                case: &case.to_string(),
                flags: &|| flags_of(case, &problem).union(generated.flags),
            };
            let (backend, basis) = (self.backend.as_mut(), self.basis.as_mut());
            guarded(&exhibit, backend, basis, &self.terms, &mut summary)?;
            summary.keep(self.findings_max);
            if self.backend.broken().is_some() {
                break;
            }
        }
        Ok(summary)
    }

    /// Judges one case or file.
    ///
    /// # Errors
    /// [`WorkerError::Address`], [`WorkerError::Case`] and [`WorkerError::File`].
    pub fn subject(&mut self, request: &Request) -> Result<Summary, WorkerError> {
        let (case, problem) = subject(request)?;
        let (generator, name) = match request {
            Request::File(path) => ("file", path.display().to_string()),
            _ => (
                "replay",
                case.as_ref().map(Case::to_string).unwrap_or_default(),
            ),
        };
        let source = Source {
            generator: generator.to_owned(),
            index: 0,
        };
        let exhibit = Exhibit {
            problem: &problem,
            source: &source,
            case: &name,
            flags: &|| {
                case.as_ref()
                    .map_or(Flags::NONE, |case| flags_of(case, &problem))
            },
        };
        let mut summary = Summary::default();
        let (backend, basis) = (self.backend.as_mut(), self.basis.as_mut());
        guarded(&exhibit, backend, basis, &self.terms, &mut summary)?;
        summary.keep(self.findings_max);
        Ok(summary)
    }

    /// Does what a request asks; `start` is called with the position of each case before it runs.
    ///
    /// # Errors
    /// As [`Self::batch`] and [`Self::subject`]; [`WorkerError::Backend`] for a fault there is
    /// not, and for one in a kernel where there is no GPU.
    pub fn answer(
        &mut self,
        request: &Request,
        start: &mut dyn FnMut(u64),
    ) -> Result<Reply, WorkerError> {
        match request {
            Request::Batch(batch) => Ok(Reply::Done(Box::new(self.batch(batch, start)?))),
            Request::Address(_) | Request::File(_) => {
                start(0);
                Ok(Reply::Done(Box::new(self.subject(request)?)))
            }
            Request::Explain(of, check) => {
                start(0);
                let (_, problem) = subject(of)?;
                let (backend, basis) = (self.backend.as_mut(), self.basis.as_mut());
                let explained = judge::explain(&problem, backend, basis, *check);
                Ok(Reply::Explained(Box::new(explained)))
            }
            Request::Hunt(names) => Ok(Reply::Hunted(selftest::rows(names, start)?)),
            Request::Control(name) => {
                start(0);
                Ok(Reply::Controlled(selftest::passes(name)?))
            }
        }
    }
}

/// Judges; a panic outside the backend is an error of this program and says so.
fn guarded(
    exhibit: &Exhibit<'_>,
    backend: &mut dyn Backend,
    basis: &mut dyn Backend,
    terms: &Terms,
    summary: &mut Summary,
) -> Result<(), WorkerError> {
    let judged = AssertUnwindSafe(|| judge::judge(exhibit, backend, basis, terms, summary));
    catch_unwind(judged).map_err(|payload| WorkerError::Engine {
        case: exhibit.case.to_owned(),
        text: crate::trial::message(payload.as_ref()),
    })
}

/// The case, where it has an address, and its arrays.
fn subject(request: &Request) -> Result<(Option<Case>, Problem), WorkerError> {
    match request {
        Request::File(path) => Ok((None, Problem::read(path)?)),
        Request::Address(address) => {
            let case: Case = address.parse()?;
            let problem = Problem::new(&case)?;
            Ok((Some(case), problem))
        }
        Request::Explain(of, _) => subject(of),
        Request::Batch(_) | Request::Hunt(_) | Request::Control(_) => Err(WorkerError::NoSubject),
    }
}

/// Why a case is interesting, as far as its arrays tell.
pub(crate) fn flags_of(case: &Case, problem: &Problem) -> Flags {
    let of_x = problem.x.as_ref().map_or(Flags::NONE, flags::flags_of_x);
    flags::flags(case, &problem.inputs).union(of_x)
}
