//! Judging by declared numerics: scores within bounds, codes and scales within ranges.

use super::plain::{place, some};
use super::{Detail, Verdict};
use crate::backend::Guarded;
use crate::backend::buffer::{show_code, show_f32};
use crate::numerics::{Quotients, Score, Scores};
use crate::op::Op;
use crate::trial::Trial;
use hisa_ref::bound::range::reach;
use hisa_ref::bound::{CodeRange, Range, quantize};
use hisa_ref::{E4M3, Stage};

/// The first complaint of a kind, and how many more there are.
#[derive(Default)]
pub(super) struct Complaints(Option<Detail>);

impl Complaints {
    pub(super) fn add(&mut self, detail: impl FnOnce() -> Detail) {
        match &mut self.0 {
            Some(first) => first.more += 1,
            None => self.0 = Some(detail()),
        }
    }

    /// A pass only where something was really judged.
    pub(super) fn verdict(self, judged: bool, why_not: &'static str) -> Verdict {
        match self.0 {
            Some(detail) => Verdict::Fail(Box::new(detail)),
            None if judged => Verdict::Pass,
            None => Verdict::NotApplicable(why_not),
        }
    }
}

/// Where the score of an element stands in the bounds of its row.
type Place<'a> = &'a dyn Fn(usize, usize) -> Option<usize>;

/// Which scores a check looks at.
pub(super) enum Scored {
    /// Pooled blocks, as the truth has them.
    Blocks,
    /// Keys.
    Tokens,
}

/// Scores of a backend that declares a bound or a model (SPEC 10.17). `at` gives the position of
/// an element among those of its row's window; none where it is not compared.
pub(super) fn scores(
    trial: &mut Trial<'_>,
    op: Op,
    name: &'static str,
    scored: &Scored,
    at: Place<'_>,
) -> Verdict {
    let Some(got) = some!(trial.outputs(op)).f32(name).cloned() else {
        return Verdict::NotApplicable("the tensor is not written");
    };
    let bounds = trial.bounds();
    let (problem, numerics) = (trial.problem, bounds.numerics());
    let (mut complaints, mut judged, mut compared) = (Complaints::default(), false, false);
    let histogram = trial.measures.of(op, name);
    for row in 0..got.rows() {
        let blocks = match scored {
            Scored::Tokens => Vec::new(),
            Scored::Blocks => {
                let window = problem.inputs.windows.rows()[row];
                bounds.blocks(row, window.blocks(problem.b()))
            }
        };
        let scores = match scored {
            Scored::Tokens => bounds.tokens(row),
            Scored::Blocks => &blocks,
        };
        for (column, &value) in got.row(row).iter().enumerate() {
            let Some(score) = at(row, column).and_then(|at| scores.get(at)) else {
                continue;
            };
            compared = true;
            judged |= score.range != Range::Anything;
            histogram.add_bounded(score.exact, value, score.error);
            if !allows(score, value, &numerics.scores) {
                let at = row * got.columns() + column;
                let place = place(name, got.shape(), at);
                complaints.add(|| score_detail(place, score, value, &numerics.scores));
            }
        }
    }
    let why = if compared {
        "no score has a finite bound"
    } else {
        "no element to compare"
    };
    complaints.verdict(judged, why)
}

fn allows(score: &Score, got: f32, scores: &Scores) -> bool {
    match (scores, score.range) {
        // The difference is rounded once, which never lifts it over a bound that is an f64.
        (Scores::Bounded(_), Range::Between(..)) => {
            (f64::from(got) - f64::from(score.exact)).abs() <= score.error
        }
        (_, range) => range.contains(got),
    }
}

fn score_detail(at: String, score: &Score, got: f32, scores: &Scores) -> Detail {
    let error = (f64::from(got) - f64::from(score.exact)).abs();
    let (expected, bound) = match (scores, score.range) {
        (_, Range::Nan) => ("NaN, as an input is".to_owned(), None),
        (Scores::Model(model), Range::Between(value, _)) => (
            format!("{} (exact: {})", show_f32(value), show_f32(score.exact)),
            Some(format!(
                "bit for bit the model {model}; error {error:.3e}, {:.2} times the bound {:.3e}",
                error / score.error,
                score.error
            )),
        ),
        _ => (
            show_f32(score.exact),
            Some(format!(
                "error {error:.3e}, {:.2} times the bound {:.3e} of {scores}",
                error / score.error,
                score.error
            )),
        ),
    };
    Detail {
        at,
        expected,
        got: show_f32(got),
        bound,
        ..Detail::default()
    }
}

/// Codes and scales of a stage that takes quotients in f32; none where the stage is exact.
pub(super) fn quotients(trial: &mut Trial<'_>, op: Op) -> Option<Verdict> {
    let numerics = trial.capabilities().numerics;
    match op {
        Op::Stage(Stage::Quantize) if numerics.quantize != Quotients::Exact => {
            Some(quantized(trial, op))
        }
        Op::Stage(Stage::BlockPool) | Op::Append if numerics.block_pool != Quotients::Exact => {
            Some(pooled(trial, op))
        }
        _ => None,
    }
}

/// Codes by the exact scale, which IEEE division gives too (SPEC 1.2).
fn quantized(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let (truth, problem) = (trial.truth, trial.problem);
    let (Ok(truth), Some(x)) = (truth.of(op), &problem.x) else {
        return Verdict::NotApplicable("there is no answer to compare with");
    };
    let Some(scales) = truth.f32("scale") else {
        return Verdict::NotApplicable("there is no answer to compare with");
    };
    let columns = x.ncols().max(1);
    let overflow = problem.quantize.overflow;
    let values: Vec<f32> = x.iter().copied().collect();
    let code_at = |at: usize| quantize::code(values[at], scales.body()[at / columns], overflow);
    let scale_at = |at: usize| Range::point(scales.body()[at]);
    ranges(trial, op, ("codes", &code_at), ("scale", &scale_at))
}

fn pooled(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let bounds = trial.bounds();
    let (blocks, d) = (bounds.pooled(), trial.problem.d());
    let code_at = |at: usize| blocks[at / d].codes[at % d];
    let scale_at = |at: usize| blocks[at].scale;
    ranges(
        trial,
        op,
        ("pooled_k", &code_at),
        ("pooled_scale", &scale_at),
    )
}

/// Every code and every scale within its range.
fn ranges(
    trial: &mut Trial<'_>,
    op: Op,
    (codes, code_at): (&str, &dyn Fn(usize) -> CodeRange),
    (scales, scale_at): (&str, &dyn Fn(usize) -> Range),
) -> Verdict {
    let truth = trial.truth;
    let outputs = some!(trial.outputs(op));
    let (Some(got_codes), Some(got_scales)) = (outputs.codes(codes), outputs.f32(scales)) else {
        return Verdict::NotApplicable("the tensor is not written");
    };
    let (got_codes, got_scales) = (got_codes.clone(), got_scales.clone());
    let Ok((Some(true_codes), Some(true_scales))) = truth
        .of(op)
        .map(|made| (made.codes(codes), made.f32(scales)))
    else {
        return Verdict::NotApplicable("there is no answer to compare with");
    };
    let (mut complaints, mut judged) = (Complaints::default(), false);
    let histogram = trial.measures.of(op, scales);
    for (at, (&exact, &got)) in true_scales.body().iter().zip(got_scales.body()).enumerate() {
        let range = scale_at(at);
        judged |= range != Range::Anything;
        histogram.add_bounded(exact, got, reach(range, exact));
        if !range.contains(got) {
            complaints.add(|| Detail {
                at: place(scales, got_scales.shape(), at),
                expected: show_f32(exact),
                got: show_f32(got),
                bound: Some(format!("{} in f32", show_range(range))),
                ..Detail::default()
            });
        }
    }
    judged |= codes_within((codes, true_codes, &got_codes), code_at, &mut complaints);
    complaints.verdict(judged, "no element with a range")
}

fn codes_within(
    (name, exact, got): (&str, &Guarded<E4M3>, &Guarded<E4M3>),
    range_at: &dyn Fn(usize) -> CodeRange,
    complaints: &mut Complaints,
) -> bool {
    let mut judged = false;
    for (at, (&exact, &code)) in exact.body().iter().zip(got.body()).enumerate() {
        let range = range_at(at);
        judged |= range != CodeRange::Anything;
        if !range.contains(code) {
            let bound = match range {
                CodeRange::Between(low, high) => {
                    Some(format!("{} to {} in f32", show_code(low), show_code(high)))
                }
                _ => None,
            };
            complaints.add(|| Detail {
                at: place(name, got.shape(), at),
                expected: show_code(exact),
                got: show_code(code),
                bound,
                ..Detail::default()
            });
        }
    }
    judged
}

pub(super) fn show_range(range: Range) -> String {
    match range {
        Range::Nan => "NaN".to_owned(),
        Range::Between(low, high) if low == high => show_f32(low),
        Range::Between(low, high) => format!("{low:e} to {high:e}"),
        Range::Anything => "anything".to_owned(),
    }
}
