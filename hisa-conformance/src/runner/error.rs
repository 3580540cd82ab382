//! Why a run could not be carried out.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a run could not be carried out. A backend that dies is no reason: that is a finding.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The program whose workers are to be run cannot be started.
    #[error("{} worker: {source}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A worker does not get ready.
    #[error("a worker does not start: {how}")]
    Start {
        /// What it does instead.
        how: String,
    },
    /// A worker cannot do what it is asked: unknown names, a case that is none.
    #[error("{why}")]
    Refused {
        /// Its words.
        why: String,
    },
    /// The folder for the cases in flight cannot be used.
    #[error("{}: {source}", path.display())]
    State {
        /// The folder or file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// No job is left by the mode and the names of jobs.
    #[error("no stage or indexer is left to judge; --mode excludes all that --stage names")]
    NoOps,
}
