//! `hisa run`: generated cases through every check.

use super::engine::{EngineArgs, carry_out};
use super::{CliError, Outcome};
use crate::effort::Effort;
use crate::runner::{ENDLESS, Plan};
use clap::Args;

/// Arguments of `hisa run`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// How many random cases to run, beside the fixed ones [default: as many as the effort holds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=ENDLESS))]
    pub cases: Option<u64>,
    /// How much work to do.
    #[arg(long, value_enum, default_value_t)]
    pub effort: Effort,
    /// Options of the run engine.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Runs the cases and prints findings, the table and the verdict.
///
/// # Errors
/// [`CliError::Run`] where the run cannot be carried out, [`CliError::Stdout`] where nothing can
/// be printed.
pub fn run(args: &RunArgs) -> Result<Outcome, CliError> {
    let plan = Plan {
        cases: args.cases,
        ..Plan::new(&args.engine.trial.backend, args.effort)
    };
    let plan = args.engine.apply(plan);
    carry_out(&plan, Some(plan.promised()))
}
