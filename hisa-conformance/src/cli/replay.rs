//! `hisa replay`: one case or saved input through every check.

use super::engine::{ReportArgs, TrialArgs, info_of};
use super::{CliError, Outcome, note, print};
use crate::effort::FINDINGS_MAX;
use crate::report::text::{self, TextOptions};
use crate::report::{Report, RunInfo};
use crate::runner::{Judge, Launcher, RunError, exchange_folder};
use crate::subject::Subject;
use crate::worker::{About, Config};
use clap::Args;
use std::time::Instant;

/// Arguments of `hisa replay`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReplayArgs {
    /// Address of a case, as a finding prints it, or a safetensors file with an input.
    #[arg(value_name = "ADDRESS|FILE")]
    pub case: String,
    /// Make the findings as small as they get, and save their inputs.
    #[arg(long)]
    pub shrink: bool,
    /// What to judge, and by which jobs.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// What becomes of findings, and of the report.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Runs the case in a worker process, prints its findings and the verdict of every check.
///
/// # Errors
/// [`CliError::Subject`] and [`CliError::Run`] where the case cannot be run, [`CliError::Report`]
/// and [`CliError::Stdout`] where nothing can be written.
pub fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let (begun, trial) = (Instant::now(), &args.trial);
    let subject: Subject = args.case.parse()?;
    let ops = trial.mode.ops(&trial.stage);
    if ops.is_empty() {
        return Err(RunError::NoOps.into());
    }
    if trial.port.len() > 1 {
        let why = "replay takes one --port".to_owned();
        return Err(CliError::Usage(why));
    }
    let backend = trial.backend_name();
    let mut config = Config::new(&backend, &ops, FINDINGS_MAX);
    (config.port.time_limit, config.port.start_limit) = (trial.time_limit, trial.start_limit);
    let _exchange = exchange_folder(&mut config)?;
    let mut judge = Judge::new(Launcher::new(None, trial.time_limit)?, &config);
    let mut summary = judge.summary(&subject)?;
    let mut finisher = args.report.finisher();
    if !args.shrink {
        (finisher.folder, finisher.budget) = (None, None);
    }
    for finding in &mut summary.findings {
        if let Some(trouble) = finisher.finish(finding, &mut judge)? {
            note(&format!("an input could not be saved: {trouble}"));
        }
    }
    let failed = summary.findings_total > 0;
    let run = RunInfo {
        effort: "replay".to_owned(),
        seed: "in the address".to_owned(),
        elapsed: begun.elapsed().as_secs_f64(),
        jobs: 1,
        ..info_of(&backend, judge.about().unwrap_or(&About::default()))
    };
    let mut report = Report::new(run, &ops, summary, Vec::new(), None);
    // One case need not exercise every check.
    report.clean = !failed;
    report.reasons.retain(|_| failed);
    report.portrait = finisher.portrait;
    let options = TextOptions::for_stdout(FINDINGS_MAX);
    let outputs = [&args.report.json, &args.report.junit, &args.report.html];
    if outputs.iter().any(|path| path.is_some()) {
        args.report.write(&report, &options)?;
    } else {
        for finding in &report.summary.findings {
            print(&text::finding(&report, finding, &options))?;
        }
        print(text::verdicts(&report, &options).trim_end())?;
    }
    Ok(if failed {
        Outcome::Findings
    } else {
        Outcome::Clean
    })
}
