//! Answers to one report, in the order of the cases.

use super::supervisor::{Answer, CRASHES_MAX, Piece};
use super::{Observer, Plan, RunError, RunOutcome};
use crate::summary::Summary;
use crate::worker::About;
use std::collections::BTreeMap;

/// Puts answers in order.
pub(super) struct Merger<'a> {
    plan: &'a Plan,
    summary: Summary,
    /// Answers that came before their turn.
    early: BTreeMap<u64, Vec<Piece>>,
    next: u64,
    charged: u64,
    deaths: u64,
    stopped: Option<String>,
    failed: Option<RunError>,
}

impl<'a> Merger<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            summary: Summary::default(),
            early: BTreeMap::new(),
            next: 0,
            charged: 0,
            deaths: 0,
            stopped: None,
            failed: None,
        }
    }

    /// Takes the answer to batch `number`; true where no more batches are wanted.
    pub(super) fn take(
        &mut self,
        number: u64,
        answer: Result<Answer, RunError>,
        observer: &mut dyn Observer,
    ) -> bool {
        match answer {
            Ok(answer) => {
                answer.notes.iter().for_each(|text| observer.note(text));
                self.deaths += answer.deaths;
                self.early.insert(number, answer.pieces);
            }
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
        while let Some(pieces) = self.early.remove(&self.next) {
            self.next += 1;
            for piece in pieces {
                self.merge(piece, observer);
            }
        }
        self.stopped.is_some() || self.failed.is_some()
    }

    fn merge(&mut self, piece: Piece, observer: &mut dyn Observer) {
        if self.stopped.is_some() {
            return;
        }
        self.charged += u64::from(piece.charged);
        let known = self.summary.findings.len();
        self.summary.merge(piece.summary, self.plan.findings_max);
        let arrived = &mut self.summary.findings[known..];
        arrived
            .iter_mut()
            .for_each(|finding| observer.on_arrival(finding));
        if self.charged >= CRASHES_MAX {
            let why = format!("{CRASHES_MAX} cases crashed or hung");
            self.stopped = Some(why);
        }
    }

    pub(super) fn finish(mut self, promised: u64) -> Result<RunOutcome, RunError> {
        self.summary.choose(self.plan.findings_max);
        // What was judged before an error is worth a report.
        let judged = self.summary.total_cases() > 0;
        match self.failed {
            Some(error) if !judged => Err(error),
            failed => Ok(RunOutcome {
                summary: self.summary,
                ops: self.plan.ops.clone(),
                promised,
                stopped: failed.map(|error| error.to_string()).or(self.stopped),
                deaths: self.deaths,
                about: About::default(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Detail;
    use crate::effort::Effort;
    use crate::op::Op;
    use crate::runner::Nobody;
    use crate::runner::attempt::charged;
    use crate::summary::Source;

    /// A batch of one case, which is charged.
    fn answer(index: u64) -> Result<Answer, RunError> {
        let source = Source {
            generator: "ragged".into(),
            index,
        };
        let piece = Piece {
            summary: charged(Op::Dsa, source, String::new(), Detail::default()),
            charged: true,
        };
        Ok(Answer {
            pieces: vec![piece],
            ..Answer::default()
        })
    }

    fn merged(order: impl Iterator<Item = u64>, findings_max: usize) -> RunOutcome {
        let plan = Plan {
            findings_max,
            ..Plan::new("reference", Effort::Quick)
        };
        let mut merger = Merger::new(&plan);
        for number in order {
            merger.take(number, answer(number), &mut Nobody);
        }
        merger.finish(3).unwrap()
    }

    #[test]
    fn answers_are_merged_in_the_order_of_the_cases() {
        let expected = merged(0..3, 2);
        let found = |report: &RunOutcome| -> Vec<u64> {
            let findings = report.summary.findings.iter();
            findings.map(|finding| finding.source.index).collect()
        };
        assert_eq!(found(&expected), [0, 1]);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(merged(order.into_iter(), 2), expected, "{order:?}");
        }
        assert_eq!(
            (expected.summary.total_cases(), expected.stopped),
            (3, None)
        );
    }

    #[test]
    fn a_run_stops_with_the_case_that_is_one_crash_too_many() {
        let report = merged((0..2 * CRASHES_MAX).rev(), 2);
        assert!(report.stopped.is_some());
        assert_eq!(report.summary.total_cases(), CRASHES_MAX);
        assert_eq!(report.summary.findings[0].source.index, 0);
    }
}
