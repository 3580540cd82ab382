//! `hisa run`: generated cases through every check.

use super::{CliError, Outcome};
use clap::Args;

/// Arguments of `hisa run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// Seed of the generated cases; the same seed gives the same cases [default: a fixed one].
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// How many cases to run [default: as many as the quick effort holds].
    #[arg(long, value_name = "N")]
    pub cases: Option<u64>,
}

/// Runs the cases.
///
/// # Errors
/// [`CliError::NotAvailable`].
pub fn run(_args: &RunArgs) -> Result<Outcome, CliError> {
    Err(CliError::NotAvailable { command: "run" })
}
