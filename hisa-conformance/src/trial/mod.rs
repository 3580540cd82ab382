//! One problem on one backend: runs, kept for all checks that look at them.

mod together;

use crate::backend::{Backend, Buffers, Capabilities, Failure, Fill, Job, Outputs};
use crate::check::Verdict;
use crate::check::plain::{Change, change, misshapen};
use crate::check::related::Variant;
use crate::check::relations::answer;
use crate::measure::Measures;
use crate::numerics::Bounds;
use crate::op::Op;
use crate::problem::Problem;
use crate::truth::Truth;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use together::Gathered;

/// What the first call of a job left behind.
#[derive(Debug)]
pub struct Run {
    /// What it wrote.
    pub outputs: Result<Buffers, Failure>,
    /// The input it changed, guards included, and the first place.
    pub changed_input: Option<(&'static str, isize)>,
}

/// A problem, the truth about it, and a backend on trial.
pub struct Trial<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// Its true results.
    pub truth: &'a Truth,
    /// How far scores were off.
    pub measures: Measures,
    backend: &'a mut dyn Backend,
    planned: Vec<Op>,
    base: [Option<Run>; Op::ALL.len()],
    filled: [Option<Result<Buffers, Failure>>; Op::ALL.len()],
    twice: [Option<Twice>; Op::ALL.len()],
    gathered: Vec<Gathered>,
    bounds: OnceCell<Arc<Bounds<'a>>>,
}

/// What further runs of the same job changed.
#[derive(Debug)]
pub struct Twice {
    /// A run with the same contents of outputs and workspace.
    pub repeat: Option<Change>,
    /// A run with other contents.
    pub stale: Option<Change>,
}

impl<'a> Trial<'a> {
    /// Nothing runs before a check asks for it.
    pub fn new(problem: &'a Problem, truth: &'a Truth, backend: &'a mut dyn Backend) -> Self {
        Self {
            problem,
            truth,
            measures: Measures::default(),
            backend,
            planned: Vec::new(),
            base: Op::ALL.map(|_| None),
            filled: Op::ALL.map(|_| None),
            twice: Op::ALL.map(|_| None),
            gathered: Vec::new(),
            bounds: OnceCell::new(),
        }
    }

    /// Says which jobs will be asked for: a backend that gathers runs their first two runs and
    /// those on related problems together when the first of them is.
    pub fn plan(&mut self, ops: &[Op]) {
        if self.backend.gathers() {
            self.planned = ops.to_vec();
        }
    }

    /// The backend's name.
    #[must_use]
    pub fn backend_name(&self) -> &str {
        self.backend.name()
    }

    /// What the declared numerics allow on this problem, shared by all checks.
    pub fn bounds(&self) -> Arc<Bounds<'a>> {
        let (problem, truth) = (self.problem, self.truth);
        let numerics = self.backend.capabilities().numerics;
        let bounds = self
            .bounds
            .get_or_init(|| Arc::new(Bounds::new(problem, truth, numerics)));
        Arc::clone(bounds)
    }

    /// What the backend says it can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        self.backend.capabilities()
    }

    /// The first run of `op`, into zeroed outputs: a stage on the true results of the stages
    /// before it, an indexer on the caller's tensors.
    ///
    /// # Errors
    /// [`Verdict::Skip`] where the backend does not take the job, [`Verdict::NotApplicable`]
    /// where the problem has no such job.
    pub fn first(&mut self, op: Op) -> Result<&Run, Verdict> {
        if let Some(why) = self.capabilities().refuses(op, self.problem) {
            return Err(Verdict::Skip(why));
        }
        if let Err(failure) = self.truth.of(op) {
            return Err(Verdict::NotApplicable(match failure {
                Failure::Refused(_) => "the parameters do not allow it",
                _ => "the case has no such inputs",
            }));
        }
        self.run_planned();
        if self.base[op.index()].is_none() {
            let (outputs, inputs) = self.same(op, Fill::Zeros);
            let changed_input = changed(op, &inputs, [self.truth.inputs(), self.truth.chain()]);
            self.base[op.index()] = Some(Run {
                outputs,
                changed_input,
            });
        }
        match &self.base[op.index()] {
            Some(Run {
                outputs: Err(Failure::Unsupported(why)),
                ..
            }) => Err(Verdict::Skip(why.clone())),
            Some(run) => Ok(run),
            None => unreachable!("it has just been run"),
        }
    }

    /// What [`Self::first`] wrote, of whatever shape.
    ///
    /// # Errors
    /// As [`Self::first`], and [`Verdict::NotApplicable`] where it gave nothing.
    pub fn written(&mut self, op: Op) -> Result<&Buffers, Verdict> {
        match &self.first(op)?.outputs {
            Ok(buffers) => Ok(buffers),
            Err(_) => Err(Verdict::NotApplicable("it did not run")),
        }
    }

    /// The outputs of [`Self::first`], in their types and shapes.
    ///
    /// # Errors
    /// As [`Self::written`], and [`Verdict::NotApplicable`] where a shape is wrong.
    pub fn outputs(&mut self, op: Op) -> Result<&Buffers, Verdict> {
        let problem = self.problem;
        let outputs = self.written(op)?;
        match misshapen(op, problem, outputs) {
            Some(_) => Err(Verdict::NotApplicable("a shape is wrong")),
            None => Ok(outputs),
        }
    }

    /// Runs the job again with other contents of outputs and workspace; where that changes
    /// something, once more with the same, to tell which of the two it was.
    pub fn twice(&mut self, op: Op) -> &Twice {
        if self.twice[op.index()].is_none() {
            let filled = self.against_first(op, Fill::Ones);
            let repeat = filled
                .as_ref()
                .and_then(|_| self.against_first(op, Fill::Zeros));
            let stale = if repeat.is_some() { None } else { filled };
            self.twice[op.index()] = Some(Twice { repeat, stale });
        }
        match &self.twice[op.index()] {
            Some(twice) => twice,
            None => unreachable!("it has just been run"),
        }
    }

    fn against_first(&mut self, op: Op, fill: Fill) -> Option<Change> {
        let known = match fill {
            Fill::Ones => self.filled[op.index()].take(),
            Fill::Zeros => None,
        };
        let later = known.unwrap_or_else(|| self.same(op, fill).0);
        let problem = self.problem;
        change(op, problem, self.outputs(op).ok()?, &later)
    }

    /// Runs `op` on the problem of the trial: its outputs, and what became of its inputs.
    fn same(&mut self, op: Op, fill: Fill) -> (Result<Buffers, Failure>, Buffers) {
        let (inputs, made) = (self.truth.inputs(), self.truth.chain());
        let job = Job::copied(op, self.problem, inputs, made);
        self.call(job, Outputs::new(op, self.problem, fill))
    }

    /// Runs `op` on a related problem, on the true results of the stages before it in this one;
    /// where that has run with others, its answer, once.
    ///
    /// # Errors
    /// [`Verdict::Skip`] where the backend does not take the job, or an input is missing;
    /// [`Verdict::Fail`] where it gives no result, or one of another shape.
    pub fn on(&mut self, op: Op, variant: &Variant) -> Result<Buffers, Verdict> {
        if let Some(answer) = self.take_gathered(op, variant) {
            return answer;
        }
        let related = variant.of(self.problem);
        if let Some(why) = self.capabilities().refuses(op, &related) {
            return Err(Verdict::Skip(why));
        }
        let job = Job::new(op, &related, self.truth.chain());
        let outputs = self.call(job, Outputs::new(op, &related, Fill::Zeros)).0;
        answer(op, &related, outputs)
    }

    fn call(
        &mut self,
        job: Result<Job<'_>, &'static str>,
        mut out: Outputs,
    ) -> (Result<Buffers, Failure>, Buffers) {
        let mut job = match job {
            Ok(job) => job,
            Err(name) => {
                let why = format!("there is no {name}");
                return (Err(Failure::Unsupported(why)), Buffers::default());
            }
        };
        let backend = &mut *self.backend;
        let run = catch_unwind(AssertUnwindSafe(|| backend.run(&mut job, &mut out)));
        let outputs = match run {
            Ok(Ok(())) => Ok(out.tensors),
            Ok(Err(failure)) => Err(failure),
            Err(payload) => Err(Failure::Panic(message(payload.as_ref()))),
        };
        (outputs, job.tensors)
    }
}

/// What a panic said.
pub(crate) fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned()));
    text.unwrap_or_else(|| "without a message".to_owned())
}

/// The first input of a job that is not what it was, and where.
fn changed(op: Op, after: &Buffers, before: [&Buffers; 2]) -> Option<(&'static str, isize)> {
    op.inputs().iter().find_map(|&name| {
        let old = before.iter().find_map(|buffers| buffers.get(name))?;
        let Some(new) = after.get(name) else {
            return Some((name, 0));
        };
        let element = old.first_changed(new, |_| true).map(|at| at as isize);
        Some((name, element.or_else(|| new.damaged_guard())?))
    })
}

impl std::fmt::Debug for Trial<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trial")
            .field("backend", &self.backend.name())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
