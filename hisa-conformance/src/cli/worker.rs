//! `hisa worker`: the process in which a backend runs. Other commands start it.

use super::{CliError, Outcome};
use crate::worker::serve_process;

/// Serves standard input and output until they close.
///
/// # Errors
/// [`CliError::Stdout`] where nobody listens any more.
pub fn run() -> Result<Outcome, CliError> {
    serve_process().map_err(CliError::Stdout)?;
    Ok(Outcome::Clean)
}
