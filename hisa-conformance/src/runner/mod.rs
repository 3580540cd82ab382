//! A run: a plan's cases through worker processes to one outcome.
//!
//! ```text
//! Plan -> batches -> Supervisor (one per worker) -> pieces -> merged in order -> RunOutcome
//!                      |- journal                               |- finish_findings
//!                      `- Child: `hisa worker`
//! ```
//!
//! The same seed gives the same [`Summary`], whatever the number of workers, the size of batches
//! and the order in which they end: what is merged is merged in the order of the cases.

mod attempt;
mod child;
mod error;
mod finish;
pub mod journal;
mod judge;
mod merge;
mod plan;
mod supervisor;

pub use attempt::runs_check;
pub use child::{Child, Launcher, Loss, START_LIMIT};
pub use error::RunError;
pub use finish::{BUDGET, Finisher};
pub use judge::Judge;
pub use plan::{ENDLESS, JOBS_MAX, Mode, Plan, SHARDS_MAX, Shard, Suite, TIME_LIMIT};
pub use supervisor::CRASHES_MAX;

use crate::backend::port::{self, ExchangeFolder};
use crate::op::Op;
use crate::report::SelfTestRow;
use crate::summary::{Finding, Summary};
use crate::worker::{About, Batch, Config, Reply, Request, Worker};
use journal::RunFolder;
use merge::Merger;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;
use supervisor::{Answer, Supervisor};

/// Who watches a run. Everything is called on the thread that called [`run`], in the order of
/// the cases.
pub trait Observer {
    /// So many cases more are done.
    fn progress(&mut self, cases: u64) {
        let _ = cases;
    }

    /// Something a person should know and no finding says.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// A finding, as soon as all cases before its own are done. A run that is interrupted comes
    /// no further.
    fn on_arrival(&mut self, finding: &mut Finding) {
        let _ = finding;
    }

    /// A finding, before anybody sees it. This is where its input is saved and shrunk, and where
    /// it is recognised as a known one.
    ///
    /// # Errors
    /// [`RunError`], which ends the run.
    fn on_finding(&mut self, finding: &mut Finding, judge: &mut Judge) -> Result<(), RunError> {
        let _ = (finding, judge);
        Ok(())
    }
}

/// An observer that looks away.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Observer for Nobody {}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// Counts and findings.
    pub summary: Summary,
    /// The jobs that were judged.
    pub ops: Vec<Op>,
    /// Cases the plan promised; of a run that ends by the clock, those that were begun.
    pub promised: u64,
    /// Why the run ended before its time.
    pub stopped: Option<String>,
    /// Workers that were lost.
    pub deaths: u64,
    /// What the backend says of itself.
    pub about: About,
}

impl RunOutcome {
    /// Why the run is not clean, in sentences; empty where it is.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut said = self.summary.complaints(&self.ops);
        if let Some(why) = &self.stopped {
            said.push(format!("stopped early: {why}"));
        }
        said.extend(self.shortfall());
        said
    }

    /// How many of the promised cases were run, where it was not all of them.
    #[must_use]
    pub fn shortfall(&self) -> Option<String> {
        let ran = self.summary.total_cases();
        (ran != self.promised).then(|| format!("{ran} of {} cases were run", self.promised))
    }

    /// No finding that is not a known one, no check without a case, nothing left out.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.complaints().is_empty()
    }
}

/// Runs the plan in worker processes.
///
/// # Errors
/// [`RunError`]. A backend that panics, dies or hangs is charged with the case.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<RunOutcome, RunError> {
    if plan.ops.is_empty() {
        return Err(RunError::NoOps);
    }
    let launcher = Launcher::new(plan.program.as_deref(), plan.time_limit)?;
    let mut config = plan.config();
    let _exchange = exchange_folder(&mut config)?;
    let about = OnceLock::new();
    let folder = RunFolder::new(plan.state.as_deref())?;
    let queue = Queue::new(plan);
    let (sender, answers) = channel();
    let mut merger = Merger::new(plan);
    std::thread::scope(|scope| {
        for index in 0..plan.workers() {
            let supervisor = Supervisor::new(&launcher, &config, folder.journal(index), &about);
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || work(supervisor, queue, &sender));
        }
        drop(sender);
        for (number, cases, answer) in answers {
            observer.progress(cases);
            if merger.take(number, answer, observer) {
                queue.stop();
            }
        }
    });
    let mut outcome = merger.finish(queue.promised(plan))?;
    outcome.about = about.into_inner().unwrap_or_default();
    if outcome.deaths > 0 {
        let path = folder.keep();
        observer.note(&format!(
            "workers were lost; what they last ran is in {}",
            path.display()
        ));
    }
    finish_findings(&mut outcome, &mut Judge::new(launcher, &config), observer)?;
    Ok(outcome)
}

/// The folder for exchange files of a run on a port, and its path in the configuration.
///
/// # Errors
/// [`RunError::State`] where it cannot be made.
pub fn exchange_folder(config: &mut Config) -> Result<Option<ExchangeFolder>, RunError> {
    if port::command(&config.backend).is_none() {
        return Ok(None);
    }
    let made = ExchangeFolder::new();
    let folder = made.map_err(|(path, source)| RunError::State { path, source })?;
    config.port.folder = Some(folder.path().to_owned());
    Ok(Some(folder))
}

/// What happens to every finding that is kept, in the order of the cases, before it is reported.
fn finish_findings(
    outcome: &mut RunOutcome,
    judge: &mut Judge,
    observer: &mut dyn Observer,
) -> Result<(), RunError> {
    let findings = &mut outcome.summary.findings;
    for finding in findings.iter_mut() {
        observer.on_finding(finding, judge)?;
    }
    // What shrinks to one case is one finding; all are counted in the tallies.
    let mut seen = BTreeSet::new();
    findings.retain(|finding| {
        let shrunk = finding.shrunk.as_ref();
        shrunk.is_none_or(|shrunk| seen.insert((finding.check, shrunk.case.clone())))
    });
    Ok(())
}

/// Runs the plan in this process and thread. A backend that dies or hangs takes the caller with
/// it, and nothing is written to disk.
///
/// # Errors
/// [`RunError::Refused`] for names that mean nothing, [`RunError::NoOps`].
pub fn run_here(plan: &Plan) -> Result<RunOutcome, RunError> {
    if plan.ops.is_empty() {
        return Err(RunError::NoOps);
    }
    let refused = |error: crate::worker::WorkerError| RunError::Refused {
        why: error.to_string(),
    };
    let mut worker = Worker::new(&plan.config()).map_err(refused)?;
    let queue = Queue::new(plan);
    let mut summary = Summary::default();
    while let Some((_, batch)) = queue.next() {
        let part = worker.batch(&batch, &mut |_| {}).map_err(refused)?;
        summary.merge(part, plan.findings_max);
        if worker.ending().is_some() {
            break;
        }
    }
    summary.choose(plan.findings_max);
    Ok(RunOutcome {
        summary,
        ops: plan.ops.clone(),
        promised: queue.promised(plan),
        stopped: None,
        deaths: 0,
        about: worker.about().clone(),
    })
}

/// Has a worker hunt the faults of these names; every case has the launcher's limit.
///
/// # Errors
/// [`RunError`]; [`RunError::Start`] where the worker is lost on the way.
pub fn hunt(launcher: &Launcher, names: Vec<String>) -> Result<Vec<SelfTestRow>, RunError> {
    match ask(launcher, &Request::Hunt(names))? {
        Reply::Hunted(rows) => Ok(rows),
        _ => Ok(Vec::new()),
    }
}

/// Has a worker judge a backend that has no fault, within the launcher's limit.
///
/// # Errors
/// As [`hunt`].
pub fn passes(launcher: &Launcher, backend: &str) -> Result<bool, RunError> {
    Ok(matches!(
        ask(launcher, &Request::Control(backend.to_owned()))?,
        Reply::Controlled(true)
    ))
}

fn ask(launcher: &Launcher, request: &Request) -> Result<Reply, RunError> {
    let mut child = launcher.start(&Config::new("reference", &[Op::Windows], 1))?;
    match attempt::answer(&mut child, request, launcher.time_limit) {
        Ok(answer) => answer,
        Err(lost) => Err(RunError::Start {
            how: lost.loss.to_string(),
        }),
    }
}

/// Batches that are still to be handed out.
struct Queue {
    rest: Mutex<(u64, u64, Box<dyn Iterator<Item = Batch> + Send>)>,
    deadline: Option<Instant>,
    stopped: AtomicBool,
}

impl Queue {
    fn new(plan: &Plan) -> Self {
        Self {
            rest: Mutex::new((0, 0, Box::new(plan.batches()))),
            deadline: plan.duration.map(|duration| Instant::now() + duration),
            stopped: AtomicBool::new(false),
        }
    }

    /// The next batch and its number.
    fn next(&self) -> Option<(u64, Batch)> {
        let late = self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        if late || self.is_stopped() {
            return None;
        }
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = rest.2.next()?;
        let number = rest.0;
        rest.0 += 1;
        rest.1 += batch.len;
        Some((number, batch))
    }

    /// Hands out nothing more.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn promised(&self, plan: &Plan) -> u64 {
        match self.deadline {
            Some(_) => self.rest.lock().unwrap_or_else(PoisonError::into_inner).1,
            None => plan.promised(),
        }
    }
}

type Numbered = (u64, u64, Result<Answer, RunError>);

/// One worker after another through the queue.
fn work(mut supervisor: Supervisor<'_>, queue: &Queue, answers: &Sender<Numbered>) {
    while let Some((number, batch)) = queue.next() {
        let cases = batch.len;
        let answer = supervisor.batch(batch, &|| queue.is_stopped());
        let failed = answer.is_err();
        if answers.send((number, cases, answer)).is_err() || failed {
            return;
        }
    }
}
