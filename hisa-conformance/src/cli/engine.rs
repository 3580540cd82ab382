//! What `run` and `fuzz` share: options of the run engine, the progress bar, the verdict.

use super::{CliError, Outcome, note, print};
use crate::effort::DEFAULT_SEED;
use crate::op::Op;
use crate::report::text;
use crate::runner::{self, JOBS_MAX, Mode, Observer, Plan, Report, Shard};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::time::Duration;

/// Options of every command that runs generated cases.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct EngineArgs {
    /// Seed of the generated cases; the same seed gives the same cases [default: a fixed one].
    #[arg(long, value_name = "S", value_parser = seed)]
    pub seed: Option<u64>,
    /// What to judge, and by which jobs.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Do part I of N, from 0; parts can run on different machines.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Worker processes [default: one per core].
    #[arg(long, value_name = "J", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Keep a record of the cases in flight in this folder instead of a temporary one.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// Backend, jobs and time limit.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TrialArgs {
    /// Backend on trial.
    #[arg(long, default_value = "reference")]
    pub backend: String,
    /// Judge only this stage or indexer; may be given several times.
    #[arg(long, value_name = "OP", value_parser = op)]
    pub stage: Vec<Op>,
    /// Judge stages on true inputs, indexers end to end, or both.
    #[arg(long, value_enum, default_value_t)]
    pub mode: Mode,
    /// Seconds a case may take before its worker is killed.
    #[arg(long, value_name = "T", value_parser = seconds, default_value = "60")]
    pub time_limit: Duration,
}

/// A seed in decimal, or in hex after `0x`.
fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a seed is a whole number below 2^64, in decimal or in hex after 0x".into())
}

fn op(name: &str) -> Result<Op, String> {
    let known = || Op::ALL.map(Op::name).join(", ");
    Op::from_name(name).ok_or_else(|| format!("known are {}", known()))
}

fn jobs(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|jobs| (1..=JOBS_MAX).contains(jobs));
    number.ok_or_else(|| format!("a whole number from 1 to {JOBS_MAX}"))
}

/// A positive number of seconds, up to a year.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = 365.0 * 86_400.0;
    let number = text.parse().ok();
    let number = number.filter(|&number: &f64| number > 0.0 && number <= YEAR);
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| "a number above 0".to_owned())
}

impl EngineArgs {
    /// Puts the options into a plan.
    #[must_use]
    pub fn apply(&self, plan: Plan) -> Plan {
        Plan {
            seed: self.seed.unwrap_or(DEFAULT_SEED),
            ops: self.trial.mode.ops(&self.trial.stage),
            shard: self.shard.unwrap_or(Shard::WHOLE),
            jobs: self.jobs,
            time_limit: self.trial.time_limit,
            state: self.state.clone(),
            ..plan
        }
    }
}

/// Progress and notes on stderr.
struct Screen {
    bar: ProgressBar,
}

impl Observer for Screen {
    fn progress(&mut self, cases: u64) {
        self.bar.inc(cases);
    }

    fn note(&mut self, text: &str) {
        self.bar.suspend(|| note(text));
    }
}

/// Runs the plan, prints findings, table and verdict. `extent` is how many cases the bar counts
/// to, where that is known.
///
/// # Errors
/// [`CliError::Run`] and [`CliError::Stdout`].
pub(super) fn carry_out(plan: &Plan, extent: Option<u64>) -> Result<Outcome, CliError> {
    let (bar, template) = match extent {
        Some(cases) => {
            let bar = ProgressBar::new(cases); // hidden where stderr is no terminal
            (bar, "{bar:40} {pos}/{len} cases, {per_sec}, {eta} left")
        }
        None => {
            let template = "{spinner} {pos} cases, {per_sec}, {elapsed}";
            (ProgressBar::new_spinner(), template)
        }
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
    let mut screen = Screen { bar };
    let report = runner::run(plan, &mut screen);
    screen.bar.finish_and_clear();
    conclude(plan, &report?)
}

fn conclude(plan: &Plan, report: &Report) -> Result<Outcome, CliError> {
    for finding in &report.summary.findings {
        print(&text::finding(finding))?;
    }
    let Shard { index, of } = plan.shard;
    let shard = match of {
        1 => String::new(),
        _ => format!(", shard {index}/{of}"),
    };
    print(&format!(
        "{} against {}, seed {:#x}{shard}",
        plan.backend,
        crate::backend::basis_of(&plan.backend).name(),
        plan.seed
    ))?;
    print(text::table(&report.summary, &report.ops).trim_end())?;
    let complaints = report.complaints();
    if complaints.is_empty() {
        print("clean")?;
        return Ok(Outcome::Clean);
    }
    print(&format!("not clean: {}", complaints.join("; ")))?;
    Ok(Outcome::Findings)
}
