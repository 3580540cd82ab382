//! Where infinities stand.

use super::plain::{place, some};
use super::{Detail, Verdict};
use crate::backend::buffer::show_f32;
use crate::op::Op;
use crate::trial::Trial;

/// `-inf` outside the block window, `+inf` at its ends.
pub(super) fn block_mask(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    let (windows, b) = (problem.inputs.windows.rows(), problem.b());
    pattern(trial, op, "block_mask", |row, block| {
        let blocks = windows[row].blocks(b);
        if !blocks.contains(&block) {
            Some((f32::NEG_INFINITY, "outside the block window"))
        } else if block == blocks.start || block + 1 == blocks.end {
            Some((f32::INFINITY, "at an end of the block window"))
        } else {
            None
        }
    })
}

/// `-inf` in slots without a visible key.
pub(super) fn token_scores(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let (truth, problem) = (trial.truth, trial.problem);
    let Some(ids) = truth.chain().i32("block_ids") else {
        return Verdict::NotApplicable("no block ids");
    };
    pattern(trial, op, "token_scores", |row, slot| {
        let hidden = problem.visible_key(ids, row, slot as i32).is_none();
        hidden.then_some((f32::NEG_INFINITY, "the slot has no visible key"))
    })
}

/// `-inf` outside the window.
pub(super) fn flat_scores(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let windows = trial.problem.inputs.windows.rows();
    pattern(trial, op, "flat_scores", |row, key| {
        let outside = !windows[row].contains(key);
        outside.then_some((f32::NEG_INFINITY, "the key is outside the window"))
    })
}

/// Every element for which `wanted` names an infinity is that infinity.
fn pattern(
    trial: &mut Trial<'_>,
    op: Op,
    name: &str,
    wanted: impl Fn(usize, usize) -> Option<(f32, &'static str)>,
) -> Verdict {
    let outputs = some!(trial.outputs(op));
    let Some(scores) = outputs.f32(name) else {
        return Verdict::NotApplicable("the tensor is not written");
    };
    let (mut applies, mut detail) = (false, None::<Detail>);
    let columns = scores.columns().max(1);
    for (at, &got) in scores.body().iter().enumerate() {
        let Some((infinity, why)) = wanted(at / columns, at % columns) else {
            continue;
        };
        applies = true;
        if got == infinity {
            continue;
        }
        match &mut detail {
            Some(detail) => detail.more += 1,
            None => {
                detail = Some(Detail {
                    at: place(name, scores.shape(), at),
                    expected: format!("{} ({why})", show_f32(infinity)),
                    got: show_f32(got),
                    ..Detail::default()
                });
            }
        }
    }
    match detail {
        Some(detail) => Verdict::Fail(Box::new(detail)),
        None if applies => Verdict::Pass,
        None => Verdict::NotApplicable("nothing is masked"),
    }
}
