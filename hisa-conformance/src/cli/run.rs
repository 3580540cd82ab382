//! `hisa run`: generated cases through every check.

use super::{CliError, Outcome, print};
use crate::effort::{DEFAULT_SEED, Effort, FINDINGS_MAX};
use crate::report::text::{self, TextOptions};
use crate::report::{Report, RunInfo};
use crate::runner::{self, Plan};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

/// Most random cases of one run; years of work, and far from overflow.
const CASES_MAX: u64 = 1 << 40;

/// Arguments of `hisa run`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// Seed of the generated cases; the same seed gives the same cases [default: a fixed one].
    #[arg(long, value_name = "S", value_parser = seed)]
    pub seed: Option<u64>,
    /// How many random cases to run, beside the fixed ones [default: as many as the effort holds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=CASES_MAX))]
    pub cases: Option<u64>,
    /// Backend on trial.
    #[arg(long, default_value = "reference")]
    pub backend: String,
    /// How much work to do.
    #[arg(long, value_enum, default_value_t)]
    pub effort: Effort,
}

/// A seed in decimal, or in hex after `0x`.
fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a seed is a whole number below 2^64, in decimal or in hex after 0x".into())
}

/// Runs the cases and prints findings and the table.
///
/// # Errors
/// [`CliError::Stdout`] where nothing can be printed.
pub fn run(args: &RunArgs) -> Result<Outcome, CliError> {
    let plan = Plan {
        backend: args.backend.clone(),
        seed: args.seed.unwrap_or(DEFAULT_SEED),
        cases: args.cases,
        effort: args.effort,
    };
    let bar = ProgressBar::new(runner::promised(&plan)); // hidden where stderr is no terminal
    let template = "{bar:40} {pos}/{len} cases, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
    let summary = runner::run(&plan, || bar.inc(1));
    bar.finish_and_clear();
    let info = RunInfo {
        backend: plan.backend.clone(),
        basis: "oracle".to_owned(),
        arithmetic: "exact".to_owned(),
        seed: format!("{:#x}", plan.seed),
        effort: format!("{:?}", plan.effort).to_lowercase(),
        ..RunInfo::default()
    };
    let report = Report::new(info, summary, None);
    print(text::render(&report, &TextOptions::for_stdout(FINDINGS_MAX)).trim_end())?;
    let summary = report.summary;
    Ok(if summary.findings_total == 0 {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}
