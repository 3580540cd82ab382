//! `hisa fuzz`: random cases, by number or by the clock.

use super::engine::{EngineArgs, Title, seconds};
use super::ports::carry_out_all;
use super::{CliError, Outcome};
use crate::effort::Effort;
use crate::runner::{ENDLESS, Plan, Suite};
use clap::Args;
use std::time::Duration;

/// Arguments of `hisa fuzz`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[group(id = "extent", required = true, multiple = false, args = ["cases", "minutes"])]
pub struct FuzzArgs {
    /// How many random cases to run.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=ENDLESS))]
    pub cases: Option<u64>,
    /// How long to begin new cases, in minutes; the first case is case 0 of the seed.
    #[arg(long, value_name = "T", value_parser = minutes)]
    pub minutes: Option<Duration>,
    /// Options of the run engine.
    #[command(flatten)]
    pub engine: EngineArgs,
}

fn minutes(text: &str) -> Result<Duration, String> {
    seconds(text).map(|duration| duration * 60)
}

/// Runs the cases and prints findings, the table and the verdict.
///
/// # Errors
/// As [`super::run::run`].
pub fn run(args: &FuzzArgs) -> Result<Outcome, CliError> {
    let plan = Plan {
        suite: Suite::Random,
        cases: Some(args.cases.unwrap_or(ENDLESS)),
        duration: args.minutes,
        ..Plan::new(&args.engine.trial.backend_name(), Effort::default())
    };
    let plan = args.engine.apply(plan)?;
    let effort = match args.minutes {
        Some(duration) => format!("fuzz, {} s", duration.as_secs()),
        None => "fuzz".to_owned(),
    };
    let title = Title {
        effort,
        extent: args.cases.map(|_| plan.promised()),
        self_test: false,
        all_faults: false,
    };
    carry_out_all(&plan, &title, &args.engine)
}
