//! What `run` and `fuzz` share: options of the run engine, the progress bar, the verdict.

use super::{CliError, note, print};
use crate::backend::port;
use crate::check::CHECKS;
use crate::effort::{DEFAULT_SEED, FINDINGS_MAX};
use crate::expect;
use crate::op::Op;
use crate::report::text::{self, TextOptions};
use crate::report::{self, RunInfo};
use crate::runner::{
    self, Finisher, JOBS_MAX, Judge, Launcher, Mode, Observer, Plan, RunError, RunOutcome, Shard,
};
use crate::selftest;
use crate::summary::Finding;
use crate::worker::About;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

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
    /// Worker processes [default: one per core, at most 4 on a GPU].
    #[arg(long, value_name = "J", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Keep a record of the cases in flight in this folder instead of a temporary one.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Known deviations of the backend, as docs/CONFORMANCE.md describes.
    #[arg(long, value_name = "FILE")]
    pub expect: Option<PathBuf>,
    /// What becomes of findings, and of the report.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Where findings and reports go.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReportArgs {
    /// Save the inputs of findings in this folder, which is made when there is one.
    #[arg(long, value_name = "DIR", default_value = "hisa-findings")]
    pub save: PathBuf,
    /// Save no inputs.
    #[arg(long, conflicts_with = "save")]
    pub no_save: bool,
    /// Leave findings as large as they are.
    #[arg(long)]
    pub no_shrink: bool,
    /// Write the report as JSON; `-` is standard output, and then the text is left out.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report as JUnit XML; `-` as above.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the report as one HTML page; `-` as above.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Backend, jobs and time limits.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TrialArgs {
    /// Backend on trial.
    #[arg(long, default_value = "reference", conflicts_with = "port")]
    pub backend: String,
    /// Command of a port on trial, a program that speaks docs/PROTOCOL.md; `run` and `fuzz` take
    /// several and compare them.
    #[arg(long, value_name = "COMMAND")]
    pub port: Vec<String>,
    /// Seconds a port may take to start.
    #[arg(long, value_name = "T", value_parser = seconds, default_value = "120")]
    pub start_limit: Duration,
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

/// A number of seconds, from a millisecond to a year.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = 365.0 * 86_400.0;
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| (0.001..=YEAR).contains(number));
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| format!("a number from 0.001 to {YEAR}"))
}

impl TrialArgs {
    /// Name of the backend; of the first port where there are several.
    #[must_use]
    pub fn backend_name(&self) -> String {
        match self.port.first() {
            Some(command) => format!("{}{command}", port::PREFIX),
            None => self.backend.clone(),
        }
    }
}

impl ReportArgs {
    /// What finishes findings.
    #[must_use]
    pub fn finisher(&self) -> Finisher {
        let mut finisher = Finisher::new((!self.no_save).then(|| self.save.clone()));
        if self.no_shrink {
            finisher.budget = None;
        }
        finisher
    }

    /// Writes the report in every form asked for, and prints it as text. A form that cannot be
    /// written keeps no other from being written.
    ///
    /// # Errors
    /// The first [`CliError::Report`], and [`CliError::Stdout`].
    pub fn write(&self, report: &report::Report, options: &TextOptions) -> Result<(), CliError> {
        type Writer = fn(&report::Report, &Path) -> Result<(), report::ReportError>;
        let forms: [(&Option<PathBuf>, Writer); 3] = [
            (&self.json, report::json::write),
            (&self.junit, report::junit::write),
            (&self.html, report::html::write),
        ];
        let (mut silent, mut written) = (false, Ok(()));
        for (path, write) in forms {
            if let Some(path) = path {
                silent |= path.as_os_str() == "-";
                written = written.and(write(report, path).map_err(CliError::from));
            }
        }
        if !silent {
            print(text::render(report, options).trim_end())?;
        }
        written
    }
}

impl EngineArgs {
    /// Puts the options into a plan.
    ///
    /// # Errors
    /// [`CliError::Expect`].
    pub fn apply(&self, plan: Plan) -> Result<Plan, CliError> {
        let expectations = self.expect.as_deref().map(expect::read).transpose()?;
        Ok(Plan {
            expectations: expectations.unwrap_or_default(),
            seed: self.seed.unwrap_or(DEFAULT_SEED),
            ops: self.trial.mode.ops(&self.trial.stage),
            shard: self.shard.unwrap_or(Shard::WHOLE),
            jobs: self.jobs,
            time_limit: self.trial.time_limit,
            start_limit: self.trial.start_limit,
            state: self.state.clone(),
            ..plan
        })
    }
}

/// Progress and notes on stderr; findings are finished as they come.
struct Screen {
    bar: ProgressBar,
    finisher: Finisher,
    /// Checks with a finding that was saved on its arrival.
    saved: BTreeSet<usize>,
}

impl Observer for Screen {
    fn progress(&mut self, cases: u64) {
        self.bar.inc(cases);
    }

    fn note(&mut self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    fn on_arrival(&mut self, finding: &mut Finding) {
        let is_first = finding.expected.is_none() && self.saved.insert(finding.check);
        if is_first && let Err(trouble) = self.finisher.arrive(finding) {
            self.note(&format!("an input could not be saved: {trouble}"));
        }
    }

    fn on_finding(&mut self, finding: &mut Finding, judge: &mut Judge) -> Result<(), RunError> {
        self.bar
            .set_message(format!("shrinking {}", CHECKS[finding.check].id()));
        if let Some(trouble) = self.finisher.finish(finding, judge)? {
            self.note(&format!("an input could not be saved: {trouble}"));
        }
        Ok(())
    }
}

/// How long a worker of the self-test may be silent: all mutants that one case catches are shrunk
/// before the next case begins.
pub(super) const SELF_TEST_LIMIT: Duration = Duration::from_secs(600);

/// What a run is called in its report.
#[derive(Debug, Clone)]
pub(super) struct Title {
    /// How much was done.
    pub(super) effort: String,
    /// How many cases the progress bar counts to, where that is known.
    pub(super) extent: Option<u64>,
    /// Whether the checks are put on trial too.
    pub(super) self_test: bool,
    /// Whether every fault of the self-test is shown.
    pub(super) all_faults: bool,
}

/// Runs the plan, prints findings, table and verdict.
///
/// # Errors
/// [`CliError::Run`], [`CliError::Report`] and [`CliError::Stdout`].
pub(super) fn carry_out(
    plan: &Plan,
    title: &Title,
    args: &ReportArgs,
) -> Result<report::Report, CliError> {
    let begun = Instant::now();
    let mut screen = Screen {
        bar: bar(title.extent),
        finisher: args.finisher(),
        saved: BTreeSet::new(),
    };
    let outcome = runner::run(plan, &mut screen)?;
    screen.bar.finish_and_clear();
    // The time limit is the backend's; here the faults are, and a shrink is part of a case.
    let launcher = Launcher::new(plan.program.as_deref(), SELF_TEST_LIMIT)?;
    let self_test = title
        .self_test
        .then(|| selftest::run(&launcher, plan.workers()));
    // What the run found is reported even where the checks cannot be put on trial.
    let (self_test, trouble) = match self_test.transpose() {
        Ok(self_test) => (self_test, None),
        Err(error) => (
            None,
            Some(format!("the self-test did not come to an end: {error}")),
        ),
    };
    let run = RunInfo {
        elapsed: begun.elapsed().as_secs_f64(),
        ..info(plan, title, &outcome)
    };
    let mut complaints = complaints(plan, &outcome);
    complaints.extend(trouble);
    let mut report = report::Report::new(run, &plan.ops, outcome.summary, complaints, self_test);
    report.portrait = screen.finisher.portrait;
    let mut options = TextOptions::for_stdout(FINDINGS_MAX);
    options.all_faults = title.all_faults;
    args.write(&report, &options)?;
    Ok(report)
}

fn bar(extent: Option<u64>) -> ProgressBar {
    let (bar, template) = match extent {
        Some(cases) => {
            let bar = ProgressBar::new(cases); // hidden where stderr is no terminal
            (
                bar,
                "{bar:40} {pos}/{len} cases, {per_sec}, {eta} left {msg}",
            )
        }
        None => {
            let template = "{spinner} {pos} cases, {per_sec}, {elapsed} {msg}";
            (ProgressBar::new_spinner(), template)
        }
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
    bar
}

/// What the summary does not say against the run.
fn complaints(plan: &Plan, outcome: &RunOutcome) -> Vec<String> {
    let mut said = Vec::from_iter(outcome.shortfall());
    for row in expect::unmet(&plan.expectations, &plan.backend, &outcome.summary) {
        said.push(format!("expected to fail, and does not: {}", row.key()));
    }
    said
}

fn info(plan: &Plan, title: &Title, outcome: &RunOutcome) -> RunInfo {
    let Shard { index, of } = plan.shard;
    RunInfo {
        seed: format!("{:#x}", plan.seed),
        effort: title.effort.clone(),
        shard: (of > 1).then(|| format!("{index}/{of}")),
        jobs: plan.workers(),
        stopped: outcome.stopped.clone(),
        ..info_of(&plan.backend, &outcome.about)
    }
}

/// What a report says of a backend on trial now.
pub(super) fn info_of(backend: &str, about: &About) -> RunInfo {
    let port = port::command(backend).map(|command| vec!["--port".to_owned(), command.to_owned()]);
    RunInfo {
        backend: backend.to_owned(),
        backend_args: port.unwrap_or_default(),
        label: about.label.clone(),
        basis: about.basis.clone(),
        arithmetic: about.arithmetic.clone(),
        date: now(),
        ..RunInfo::default()
    }
}

/// The time, UTC: `2026-01-31 17:05:00`.
fn now() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.trim_end_matches('Z').replace('T', " ")
}
