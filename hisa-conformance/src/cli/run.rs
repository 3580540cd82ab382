//! `hisa run`: generated cases through every check.

use super::engine::{EngineArgs, Title};
use super::ports::carry_out_all;
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
    /// Show what became of every planted fault, not only of those that went wrong.
    #[arg(long)]
    pub self_test: bool,
    /// Do not put the checks on trial.
    #[arg(long, conflicts_with = "self_test")]
    pub no_self_test: bool,
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
        ..Plan::new(&args.engine.trial.backend_name(), args.effort)
    };
    let plan = args.engine.apply(plan)?;
    let title = Title {
        effort: args.effort.word().to_owned(),
        extent: Some(plan.promised()),
        self_test: !args.no_self_test,
        all_faults: args.self_test,
    };
    carry_out_all(&plan, &title, &args.engine)
}
