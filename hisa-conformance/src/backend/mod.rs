//! Backends: whatever computes stages and indexers, behind one trait.
//!
//! The engine prepares inputs and outputs between guard bands, a backend runs one [`Job`] and
//! fills the outputs, the checks look at what it wrote and at what it should have left alone. A
//! backend says what it can do in its [`Capabilities`]; what it cannot is a skip with a reason,
//! and reports count skips.

pub mod buffer;
mod capabilities;
mod job;
pub mod mutant;
pub mod oracle;
pub mod reference;
pub mod saboteur;
pub mod simulated;

pub use buffer::{Buffer, Buffers, Element, Guarded, Kind, MARGIN};
pub use capabilities::Capabilities;
pub use job::{Fill, Job, Outputs};
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

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// Runs one job. `out` holds the job's outputs in their shapes, with contents that mean
    /// nothing; every element has to be written, and nothing else.
    ///
    /// # Errors
    /// [`Failure`], in which case the outputs are not looked at.
    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure>;
}

/// The backends that are always there, and what they are.
pub const NAMES: [(&str, &str); 2] = [
    ("reference", "The crate hisa-ref, by its fast paths."),
    (
        "oracle",
        "Big integers, one thread; shares no code with the reference.",
    ),
];

/// The backend of that name: one of [`NAMES`], or `mutant:` and a name of [`mutant::MUTANTS`].
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Backend>> {
    match name {
        "reference" => Some(Box::new(reference::Reference::new())),
        "oracle" => Some(Box::new(oracle::Oracle::new())),
        _ => match name.split_once(':')? {
            ("mutant", fault) => mutant::by_name(fault),
            ("simulated", class) => Some(Box::new(simulated::Simulated::new(class)?)),
            ("saboteur", fault) => Some(Box::new(saboteur::Saboteur::by_name(fault)?)),
            _ => None,
        },
    }
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

/// The error of a backend that is asked for a job it has not listed.
#[must_use]
pub fn not_offered(op: Op) -> Failure {
    Failure::Unsupported(format!("{op} is not offered"))
}
