//! `hisa replay`: one case, by its address, through every check.

use super::engine::TrialArgs;
use super::{CliError, Outcome, print};
use crate::case::Case;
use crate::effort::FINDINGS_MAX;
use crate::report::text;
use crate::runner::{Judge, Launcher, RunError, Subject};
use crate::worker::Config;
use clap::Args;

/// Arguments of `hisa replay`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReplayArgs {
    /// Address of the case, as a finding prints it.
    #[arg(value_name = "ADDRESS")]
    pub case: Case,
    /// What to judge, and by which jobs.
    #[command(flatten)]
    pub trial: TrialArgs,
}

/// Runs the case in a worker process, prints its findings and the verdict of every check.
///
/// # Errors
/// [`CliError::Run`] where the case cannot be run, [`CliError::Stdout`] where nothing can be
/// printed.
pub fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let trial = &args.trial;
    let ops = trial.mode.ops(&trial.stage);
    if ops.is_empty() {
        return Err(RunError::NoOps.into());
    }
    let config = Config::new(&trial.backend, &ops, FINDINGS_MAX);
    let mut judge = Judge::new(Launcher::new(None, trial.time_limit)?, &config);
    let summary = judge.summary(&Subject::Address(args.case.to_string()))?;
    for finding in &summary.findings {
        print(&text::finding(finding))?;
    }
    print(text::verdicts(&summary, &ops).trim_end())?;
    Ok(if summary.findings_total == 0 {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}
