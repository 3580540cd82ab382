//! Backends: whatever computes stages and indexers, behind one trait.
//!
//! The engine prepares inputs and outputs between guard bands, a backend runs one [`Job`] and
//! fills the outputs, the checks look at what it wrote and at what it should have left alone. A
//! backend says what it can do in its [`Capabilities`]; what it cannot is a skip with a reason,
//! and reports count skips.

pub mod buffer;
mod capabilities;
#[cfg(feature = "cuda")]
pub mod cuda;
mod job;
pub mod limits;
pub mod mutant;
pub mod oracle;
pub mod port;
pub mod reference;
pub mod saboteur;
pub mod simulated;
mod tensor;

pub use buffer::{Buffer, Buffers, Element, Guarded, Kind, MARGIN};
pub use capabilities::Capabilities;
pub use job::{Call, Fill, Job, Outputs};
pub(crate) use job::{inputs, mix_zeros, unspecify};

use crate::op::Op;
use thiserror::Error;

/// Why a backend gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// It does not do this; a skip, not a finding.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// It refused the input as malformed.
    #[error("refused: {0}")]
    Refused(String),
    /// It reported an error.
    #[error("error: {0}")]
    Error(String),
    /// It panicked.
    #[error("panic: {0}")]
    Panic(String),
    /// A port failed.
    #[error("{what}")]
    Port {
        /// How.
        what: String,
        /// The last lines it wrote on standard error since it was asked.
        stderr: Vec<String>,
    },
}

impl Failure {
    /// What a port wrote on standard error; nothing where that is not known.
    #[must_use]
    pub fn stderr(&self) -> &[String] {
        match self {
            Self::Port { stderr, .. } => stderr,
            _ => &[],
        }
    }
}

impl From<hisa_ref::Error> for Failure {
    fn from(error: hisa_ref::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Something that computes stages and indexers.
pub trait Backend: Send {
    /// The word the command line and reports use.
    fn name(&self) -> &str;

    /// What it is called where there is little room.
    fn label(&self) -> &str {
        self.name()
    }

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// Runs one job. `out` holds the job's outputs in their shapes, with contents that mean
    /// nothing; every element has to be written, and nothing else.
    ///
    /// # Errors
    /// [`Failure`], in which case the outputs are not looked at.
    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure>;

    /// Whether jobs run together cost much less than one after another. A worker then gathers
    /// those of a case; when it is lost, the case runs again in another, job by job.
    fn gathers(&self) -> bool {
        false
    }

    /// Runs jobs that do not depend on one another: a result for each, in their order.
    fn run_all(&mut self, calls: &mut [Call<'_>]) -> Vec<Result<(), Failure>> {
        let one = |call: &mut Call<'_>| self.run(&mut call.job, &mut call.out);
        calls.iter_mut().map(one).collect()
    }

    /// Why no further job can run in this process; `None` as long as one can. The worker of a
    /// broken backend ends after the case, and another takes its place.
    fn broken(&self) -> Option<String> {
        None
    }
}

/// Why there is no backend of a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BackendError {
    /// Nothing has this name.
    #[error("there is no backend {name:?}; `hisa list backends` names them")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// It cannot run on this machine, or not as this program was built.
    #[error("backend {name}: {reason}")]
    Unavailable {
        /// The name asked for.
        name: String,
        /// Why.
        reason: String,
    },
}

/// The backends that are always there, and what they are.
pub const NAMES: [(&str, &str); 2] = [
    ("reference", "The crate hisa-ref, by its fast paths."),
    (
        "oracle",
        "Big integers, one thread; shares no code with the reference.",
    ),
];

/// The backends on a GPU, and what they are.
pub const GPU_NAMES: [(&str, &str); 2] = [
    (
        "cuda",
        "The crate hisa-cuda on a GPU, scores by tensor cores.",
    ),
    ("cuda:exact", "The same with exact scores."),
];

/// The backend of that name: one of [`NAMES`] or [`GPU_NAMES`], `mutant:` and a name of
/// [`mutant::MUTANTS`], `cuda-fault:` and the name of a fault planted in a kernel, or `port:` and
/// the command of a port, which is started.
///
/// # Errors
/// [`BackendError`].
pub fn by_name(name: &str) -> Result<Box<dyn Backend>, BackendError> {
    open(name, &port::Setup::default())
}

/// As [`by_name`]; a port is run as `setup` says.
///
/// # Errors
/// [`BackendError`].
pub fn open(name: &str, setup: &port::Setup) -> Result<Box<dyn Backend>, BackendError> {
    if let Some(command) = port::command(name) {
        return Ok(Box::new(port::Port::start(command, setup)?));
    }
    if name == "cuda" || name.starts_with("cuda:") || name.starts_with("cuda-fault:") {
        return on_gpu(name);
    }
    let known: Option<Box<dyn Backend>> = match name.split_once(':') {
        None if name == "reference" => Some(Box::new(reference::Reference::new())),
        None if name == "oracle" => Some(Box::new(oracle::Oracle::new())),
        Some(("mutant", fault)) => mutant::by_name(fault),
        Some(("simulated", class)) => simulated::Simulated::new(class).map(boxed),
        Some(("saboteur", fault)) => saboteur::Saboteur::by_name(fault).map(boxed),
        _ => None,
    };
    known.ok_or_else(|| unknown(name))
}

fn boxed(backend: impl Backend + 'static) -> Box<dyn Backend> {
    Box::new(backend)
}

fn unknown(name: &str) -> BackendError {
    BackendError::Unknown {
        name: name.to_owned(),
    }
}

#[cfg(feature = "cuda")]
fn on_gpu(name: &str) -> Result<Box<dyn Backend>, BackendError> {
    Ok(Box::new(cuda::Cuda::by_name(name)?))
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(name: &str) -> Result<Box<dyn Backend>, BackendError> {
    Err(BackendError::Unavailable {
        name: name.to_owned(),
        reason: "not built in; this hisa was built without its feature cuda".to_owned(),
    })
}

/// The backend whose results another one is judged by: the oracle judges the reference, and the
/// reference everything else.
#[must_use]
pub fn basis_of(name: &str) -> Box<dyn Backend> {
    if name == "reference" {
        Box::new(oracle::Oracle::new())
    } else {
        Box::new(reference::Reference::new())
    }
}

/// Most processes that are of use to a backend: those that share a GPU take turns on it.
#[must_use]
pub fn processes_max(name: &str) -> usize {
    match name.split(':').next() {
        Some("cuda" | "cuda-fault") => 4,
        _ => usize::MAX,
    }
}

/// The error of a backend that is asked for a job it has not listed.
#[must_use]
pub fn not_offered(op: Op) -> Failure {
    Failure::Unsupported(format!("{op} is not offered"))
}
