//! `hisa bench`: speed, as ratios within one run.

use super::{CliError, Outcome};
use clap::{Args, Subcommand};

/// Arguments of `hisa bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub target: Target,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Target {
    /// The reference on this machine's processor.
    Cpu,
}

/// Measures.
///
/// # Errors
/// [`CliError::NotAvailable`].
pub fn run(args: &BenchArgs) -> Result<Outcome, CliError> {
    match args.target {
        Target::Cpu => Err(CliError::NotAvailable {
            command: "bench cpu",
        }),
    }
}
