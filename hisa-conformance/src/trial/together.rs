//! The runs of a case that go to a backend together, where it gathers.

use super::{Run, Trial, changed};
use crate::backend::{Buffers, Call, Capabilities, Failure, Fill, Job, Outputs};
use crate::check::related::Variant;
use crate::check::relations::answer;
use crate::check::{CHECKS, Verdict};
use crate::op::Op;
use crate::problem::Problem;
use crate::truth::Truth;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Most bytes that the tensors of all related jobs of a case may take, guards included: all of
/// them exist at once, here and in the memory of the device, beside the first two runs of every
/// job. What is saved is a round trip each, which matters only where a job takes no longer. Of the
/// 12086 cases of a quick run below DeepSeek's sizes all but nine are smaller.
pub(super) const RELATED_BYTES_MAX: usize = 4 << 20;

/// What a job says on a related problem, until a check takes it.
#[derive(Debug)]
pub(super) struct Gathered {
    op: Op,
    variant: Variant,
    answer: Result<Buffers, Verdict>,
}

/// Which run of its job a call is.
enum Which<'a> {
    /// On the problem of the trial.
    Same(Fill),
    /// On a related one.
    On(&'a Variant, &'a Problem),
}

impl Trial<'_> {
    /// The answer of `op` on a related problem, where it ran with others.
    pub(super) fn take_gathered(
        &mut self,
        op: Op,
        variant: &Variant,
    ) -> Option<Result<Buffers, Verdict>> {
        let asked = |one: &Gathered| one.op == op && one.variant == *variant;
        let at = self.gathered.iter().position(asked)?;
        Some(self.gathered.remove(at).answer)
    }

    /// The runs of [`Self::first`], the first of [`Self::twice`] and those of [`Self::on`] of all
    /// planned jobs.
    pub(super) fn run_planned(&mut self) {
        let mut ops = std::mem::take(&mut self.planned);
        let takes = |op: &Op| {
            let refused = self.backend.capabilities().refuses(*op, self.problem);
            refused.is_none() && self.truth.of(*op).is_ok()
        };
        ops.retain(takes);
        if ops.is_empty() {
            return;
        }
        let related = self.related(&ops);
        let problems = built(&related, self.problem);
        let backend = &mut *self.backend;
        let mut calls = first_two(self.problem, self.truth, &ops);
        calls.extend(on_related(
            self.truth,
            backend.capabilities(),
            &related,
            &problems,
        ));
        let (runs, mut calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let results = catch_unwind(AssertUnwindSafe(|| backend.run_all(&mut calls)));
        // After a panic each job runs alone, to see which of them it was.
        let results = results.unwrap_or_default();
        for ((which, call), result) in runs.into_iter().zip(calls).zip(results) {
            self.keep(which, call, result);
        }
    }

    /// The related problems that the checks of `ops` ask for, in their order; none where all of
    /// them together are too large.
    fn related(&self, ops: &[Op]) -> Vec<(Op, Variant)> {
        let (mut all, mut bytes) = (Vec::new(), 0usize);
        for check in CHECKS.iter().filter(|check| ops.contains(&check.op)) {
            let op = check.op;
            let relation = check.relate.and_then(|relate| relate(self, op).ok());
            let Some(relation) = relation else { continue };
            let each = relation.related.len().saturating_mul(self.bytes(op));
            bytes = bytes.saturating_add(each);
            if bytes > RELATED_BYTES_MAX {
                return Vec::new();
            }
            let related = relation.related.into_iter();
            all.extend(related.map(|related| (op, related.variant)));
        }
        all
    }

    /// Bytes of the tensors of `op` on the problem of the trial. A related one has no more, but
    /// for one column in a row one id longer.
    fn bytes(&self, op: Op) -> usize {
        let (inputs, made) = (self.truth.inputs(), self.truth.chain());
        let read = op.inputs().iter();
        let read = read.filter_map(|&name| inputs.get(name).or_else(|| made.get(name)));
        let written = self.truth.of(op).ok().into_iter();
        let written = written.flat_map(|made| made.iter().map(|(_, buffer)| buffer));
        read.chain(written).map(|buffer| buffer.bytes()).sum()
    }

    fn keep(&mut self, which: Which<'_>, call: Call<'_>, result: Result<(), Failure>) {
        let Call { job, out } = call;
        let outputs = result.map(|()| out.tensors);
        match which {
            Which::Same(Fill::Zeros) => {
                let before = [self.truth.inputs(), self.truth.chain()];
                let changed_input = changed(job.op, &job.tensors, before);
                self.base[job.op.index()] = Some(Run {
                    outputs,
                    changed_input,
                });
            }
            Which::Same(Fill::Ones) => self.filled[job.op.index()] = Some(outputs),
            Which::On(variant, problem) => self.gathered.push(Gathered {
                op: job.op,
                variant: variant.clone(),
                answer: answer(job.op, problem, outputs),
            }),
        }
    }
}

/// Every related problem once, although several jobs may run on it.
fn built<'b>(related: &'b [(Op, Variant)], problem: &Problem) -> Vec<(&'b Variant, Problem)> {
    let mut built: Vec<(&Variant, Problem)> = Vec::new();
    for (_, variant) in related {
        if !built.iter().any(|(known, _)| *known == variant) {
            built.push((variant, variant.of(problem)));
        }
    }
    built
}

/// The first two runs of every job.
fn first_two<'b>(problem: &'b Problem, truth: &Truth, ops: &[Op]) -> Vec<(Which<'b>, Call<'b>)> {
    let call = |op: Op, fill: Fill| {
        let job = Job::copied(op, problem, truth.inputs(), truth.chain()).ok()?;
        let out = Outputs::new(op, problem, fill);
        Some((Which::Same(fill), Call { job, out }))
    };
    let fills = [Fill::Zeros, Fill::Ones].into_iter();
    let each = fills.flat_map(|fill| ops.iter().map(move |&op| (op, fill)));
    each.filter_map(|(op, fill)| call(op, fill)).collect()
}

/// The runs on related problems, except those whose check will say that they are refused.
fn on_related<'b>(
    truth: &Truth,
    capabilities: &Capabilities,
    related: &[(Op, Variant)],
    problems: &'b [(&'b Variant, Problem)],
) -> Vec<(Which<'b>, Call<'b>)> {
    let call = |(op, variant): &(Op, Variant)| {
        let known = problems.iter().find(|(known, _)| *known == variant);
        let (variant, problem) = known?;
        if capabilities.refuses(*op, problem).is_some() {
            return None;
        }
        let job = Job::new(*op, problem, truth.chain()).ok()?;
        let out = Outputs::new(*op, problem, Fill::Zeros);
        Some((Which::On(variant, problem), Call { job, out }))
    };
    related.iter().filter_map(call).collect()
}
