//! Batches through worker processes that may die: what a batch comes to, whoever survives it.

use super::RunError;
use super::attempt::{Lost, add_charge, attempt, charge, charged};
use super::child::{Child, Launcher, Loss};
use super::journal::Journal;
use crate::backend::limits::Limits;
use crate::flags::Flags;
use crate::generate::fit::fitted;
use crate::op::Op;
use crate::problem::Problem;
use crate::summary::{Source, Summary};
use crate::worker::protocol::{About, Batch, Config, Ending, Request};
use crate::worker::{Generators, WorkerError, flags_of, judge};
use std::sync::OnceLock;

/// Charged cases after which a run stops: a backend that dies everywhere proves nothing more.
pub const CRASHES_MAX: u64 = 20;
/// How often a worker may be lost with no case in flight before the run gives up.
const IDLE_LOSSES_MAX: u32 = 3;

/// Cases in a row of a batch that were answered together.
#[derive(Debug)]
pub(super) struct Piece {
    pub summary: Summary,
    /// Whether its last case cost a worker.
    pub charged: bool,
}

/// What a batch came to.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// In the order of the cases.
    pub pieces: Vec<Piece>,
    /// What a person should know about lost workers.
    pub notes: Vec<String>,
    /// Workers lost.
    pub deaths: u64,
}

/// A part of a batch that is still to do.
enum Work {
    Cases(Batch),
    /// One case on which a worker was lost.
    Suspect(Batch, Loss),
}

/// An answer, and why its worker has ended, where it has: then the answer may cover only the first
/// cases that were asked for.
type Done = (Summary, Option<Ending>);

/// One worker at a time, replaced when it is lost.
pub(super) struct Supervisor<'a> {
    launcher: &'a Launcher,
    config: &'a Config,
    journal: Journal,
    generators: Generators,
    child: Option<Child>,
    /// What the backend says of itself.
    about: &'a OnceLock<About>,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        launcher: &'a Launcher,
        config: &'a Config,
        journal: Journal,
        about: &'a OnceLock<About>,
    ) -> Self {
        Self {
            launcher,
            config,
            journal,
            generators: Generators::default(),
            child: None,
            about,
        }
    }

    /// Runs a batch to its end, or until `stop` says so or too many of its cases are charged.
    pub(super) fn batch(
        &mut self,
        batch: Batch,
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer, RunError> {
        let child = self.get_ready()?;
        self.child = Some(child);
        self.record(&batch)?;
        let mut answer = Answer::default();
        let mut idle = 0;
        // The next part to do is the last.
        let mut work = vec![Work::Cases(batch)];
        while let Some(part) = work.pop() {
            let charges = answer.pieces.iter().filter(|piece| piece.charged).count();
            if stop() || charges as u64 >= CRASHES_MAX {
                break;
            }
            match part {
                Work::Cases(cases) if cases.len == 0 => {}
                Work::Cases(cases) => match self.cases(&cases)? {
                    Ok((summary, ending)) => {
                        let charged = ending.is_some();
                        answer.pieces.push(Piece { summary, charged });
                        if let Some(Ending { done, why }) = ending {
                            answer.deaths += 1;
                            answer.notes.push(why);
                            let done = done.clamp(1, cases.len);
                            work.push(Work::Cases(cases.part(done, cases.len - done)));
                        }
                    }
                    Err(Lost { loss, at, .. }) => {
                        answer.deaths += 1;
                        let Some(at) = at.filter(|&at| at < cases.len) else {
                            idle += 1;
                            if idle > IDLE_LOSSES_MAX {
                                let how = loss.to_string();
                                return Err(RunError::Start { how });
                            }
                            work.push(Work::Cases(cases));
                            continue;
                        };
                        // The answers before the case were lost with the worker.
                        work.push(Work::Cases(cases.part(at + 1, cases.len - at - 1)));
                        work.push(Work::Suspect(cases.part(at, 1), loss));
                        work.push(Work::Cases(cases.part(0, at)));
                    }
                },
                Work::Suspect(case, loss) => self.suspect(&case, &loss, &mut answer)?,
            }
        }
        Ok(answer)
    }

    /// Has a worker ready, whose backend has said what it takes.
    fn get_ready(&mut self) -> Result<Child, RunError> {
        let child = match self.child.take() {
            Some(child) => child,
            None => self.launcher.start(self.config)?,
        };
        self.about.get_or_init(|| child.about.clone());
        Ok(child)
    }

    /// The limits of the backend, once a worker has been ready.
    fn limits(&self) -> Limits {
        self.about
            .get()
            .map(|about| about.limits.clone())
            .unwrap_or_default()
    }

    fn cases(&mut self, cases: &Batch) -> Result<Result<Done, Lost>, RunError> {
        let mut child = self.get_ready()?;
        let request = Request::Batch(cases.clone());
        match attempt(&mut child, &request, self.launcher.time_limit) {
            Ok(answer) => {
                let ending = child.ending.take();
                if ending.is_none() {
                    self.child = Some(child);
                }
                Ok(Ok((answer?, ending)))
            }
            Err(lost) => Ok(Err(lost)),
        }
    }

    /// Runs a case on which a worker was lost again, in a worker of its own that says which job
    /// is running.
    fn suspect(&mut self, case: &Batch, first: &Loss, answer: &mut Answer) -> Result<(), RunError> {
        let (source, address) = self.place(case)?;
        let mut child = self.launcher.start(&self.config.announcing())?;
        let request = Request::Batch(case.clone());
        let again = attempt(&mut child, &request, self.launcher.time_limit);
        let ending = child.ending.take();
        drop(child);
        let mut piece = match (again, ending) {
            (Ok(summary), Some(Ending { why, .. })) => {
                // Now that its jobs ran one by one, the backend has said which of them broke it.
                answer.deaths += 1;
                answer.notes.push(why);
                let (summary, charged) = (summary?, true);
                answer.pieces.push(Piece { summary, charged });
                return Ok(());
            }
            (Err(Lost { loss, op, .. }), _) => {
                answer.deaths += 1;
                let cause = op.is_none().then_some("no job of the backend was running");
                let op = op.unwrap_or(self.first_op());
                answer.notes.push(format!("{address} in {op}: {loss}"));
                Piece {
                    summary: charged(op, source, address, charge(&loss, cause)),
                    charged: true,
                }
            }
            (Ok(summary), None) => {
                let mut summary = summary?;
                let note = format!("{address}: {first}; run again, it came to an end");
                answer.notes.push(note);
                // A signal from outside and a machine that stood still say nothing about the
                // backend; any other end of its process does.
                let charged = matches!(first, Loss::Broke(_) | Loss::Died { killed: false, .. });
                if charged {
                    let cause = "it died once and not again; the job it ran is not known";
                    let detail = charge(first, Some(cause));
                    add_charge(&mut summary, self.first_op(), source, address, detail);
                }
                Piece { summary, charged }
            }
        };
        if piece.charged {
            self.recognise(case, &mut piece.summary)?;
        }
        answer.pieces.push(piece);
        Ok(())
    }

    /// Tells whether the charge, the last finding of the only case of a batch, is a known one.
    fn recognise(&mut self, case: &Batch, summary: &mut Summary) -> Result<(), RunError> {
        let limits = self.limits();
        let generator = self.generators.of(case).map_err(refused)?;
        let flags = fitted(generator, case.first, &limits).and_then(|generated| {
            let problem = Problem::new(&generated.case).ok()?;
            Some(flags_of(&generated.case, &problem).union(generated.flags))
        });
        if let Some(mut found) = summary.findings.pop_if(|found| found.expected.is_none()) {
            let config = self.config;
            let known = (config.backend.as_str(), config.expectations.as_slice());
            judge::recognise(&mut found, flags.unwrap_or(Flags::NONE), known, summary);
            summary.findings.push(found);
        }
        Ok(())
    }

    /// The first job on trial that the backend takes.
    fn first_op(&self) -> Op {
        let taken = self.about.get().map_or(&[][..], |about| &about.ops);
        let named = self.config.ops.iter();
        let first = named.clone().find(|name| taken.contains(name));
        let first = first.or(self.config.ops.first());
        first
            .and_then(|name| Op::from_name(name))
            .unwrap_or(Op::Windows)
    }

    /// Source and address of the only case of a batch.
    fn place(&mut self, case: &Batch) -> Result<(Source, String), RunError> {
        let source = Source {
            generator: case.generator.clone(),
            index: case.first,
        };
        let limits = self.limits();
        let generator = self.generators.of(case).map_err(refused)?;
        let generated = fitted(generator, case.first, &limits);
        let address = generated.map_or_else(String::new, |generated| generated.case.to_string());
        Ok((source, address))
    }

    /// Puts the batch on disk, so that a machine that dies of it tells what it ran.
    fn record(&mut self, batch: &Batch) -> Result<(), RunError> {
        let limits = self.limits();
        let generator = self.generators.of(batch).map_err(refused)?;
        let cases = batch.indices().filter_map(|index| {
            let generated = fitted(generator, index, &limits)?;
            Some((index, generated.case.to_string()))
        });
        self.journal.write(batch, cases)
    }
}

fn refused(error: WorkerError) -> RunError {
    RunError::Refused {
        why: error.to_string(),
    }
}
