//! Ids by themselves: what any answer must look like, whatever the scores.

use super::plain::{place, some};
use super::{Detail, Verdict};
use crate::backend::Guarded;
use crate::op::Op;
use crate::problem::Problem;
use crate::trial::Trial;
use hisa_ref::{Stage, Window};

/// The ids a job ends with.
pub(super) const fn ids_of(op: Op) -> &'static str {
    match op {
        Op::Stage(Stage::BlockTopk) => "block_ids",
        Op::Stage(Stage::TokenTopk) => "slots",
        _ => "indices",
    }
}

/// Judges every row; the first complaint is the finding, the others are counted.
fn every_row(
    trial: &mut Trial<'_>,
    op: Op,
    rule: impl Fn(usize, Window, &[i32]) -> Option<Complaint>,
) -> Verdict {
    let windows = trial.problem.inputs.windows.rows();
    let name = ids_of(op);
    let Some(ids) = some!(trial.outputs(op)).i32(name) else {
        return Verdict::NotApplicable("the tensor is not written");
    };
    let mut detail = None::<Detail>;
    for (row, &window) in windows.iter().enumerate() {
        let Some(complaint) = rule(row, window, ids.row(row)) else {
            continue;
        };
        match &mut detail {
            Some(detail) => detail.more += 1,
            None => {
                detail = Some(Detail {
                    at: place(name, ids.shape(), row * ids.columns() + complaint.column),
                    expected: complaint.expected,
                    got: complaint.got,
                    ..Detail::default()
                });
            }
        }
    }
    match detail {
        Some(detail) => Verdict::Fail(Box::new(detail)),
        None if windows.is_empty() => Verdict::NotApplicable("no rows"),
        None => Verdict::Pass,
    }
}

struct Complaint {
    column: usize,
    expected: String,
    got: String,
}

/// -1, or below the number of slots, or of keys in the window.
pub(super) fn range(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let slots = trial.problem.inputs.params.slots();
    let limit = move |window: Window| match op {
        Op::Stage(Stage::TokenTopk) => slots,
        _ => window.len(),
    };
    within(trial, op, limit)
}

/// -1, or below the number of blocks.
pub(super) fn blocks_range(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let blocks = trial.problem.blocks();
    within(trial, op, move |_| blocks)
}

fn within(trial: &mut Trial<'_>, op: Op, limit: impl Fn(Window) -> usize) -> Verdict {
    every_row(trial, op, |_, window, ids| {
        let limit = limit(window) as i64;
        let outside = |&id: &i32| id != -1 && !(0..limit).contains(&id.into());
        let column = ids.iter().position(outside)?;
        Some(Complaint {
            column,
            expected: format!("-1, or an id of at least 0 and below {limit}"),
            got: ids[column].to_string(),
        })
    })
}

pub(super) fn tail(trial: &mut Trial<'_>, op: Op) -> Verdict {
    every_row(trial, op, |_, _, ids| {
        let gap = ids
            .windows(2)
            .position(|pair| pair[0] == -1 && pair[1] != -1)?;
        Some(Complaint {
            column: gap + 1,
            expected: format!("-1, as in column {gap}"),
            got: ids[gap + 1].to_string(),
        })
    })
}

pub(super) fn unique(trial: &mut Trial<'_>, op: Op) -> Verdict {
    every_row(trial, op, |_, _, ids| {
        let mut valid: Vec<(i32, usize)> = (ids.iter().copied().zip(0..))
            .filter(|&(id, _)| id != -1)
            .collect();
        valid.sort_unstable();
        let twice = valid.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
        Some(Complaint {
            column: twice[1].1,
            expected: "an id once in a row".to_owned(),
            got: format!("{}, as in column {}", twice[1].0, twice[0].1),
        })
    })
}

/// As many valid ids as there are candidates, and no more than K.
pub(super) fn count(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let truth = trial.truth;
    let Ok(Some(expected)) = truth.of(op).map(|buffers| buffers.i32(ids_of(op))) else {
        return Verdict::NotApplicable("there is no answer to compare with");
    };
    let valid = |ids: &[i32]| ids.iter().filter(|&&id| id != -1).count();
    every_row(trial, op, |row, _, ids| {
        let (wanted, got) = (valid(expected.row(row)), valid(ids));
        (wanted != got).then(|| Complaint {
            column: wanted.min(got).min(ids.len().saturating_sub(1)),
            expected: format!("{wanted} valid ids in the row"),
            got: format!("{got}"),
        })
    })
}

/// The last block of the window, and its first if there is room for two.
pub(super) fn forced(trial: &mut Trial<'_>, op: Op) -> Verdict {
    let problem = trial.problem;
    if problem
        .inputs
        .windows
        .rows()
        .iter()
        .all(|window| window.is_empty())
    {
        return Verdict::NotApplicable("every window is empty");
    }
    let m = problem.inputs.params.block_topk();
    every_row(trial, op, |_, window, ids| {
        let blocks = window.blocks(problem.b());
        let wanted = [
            (blocks.end.checked_sub(1), "last"),
            (Some(blocks.start), "first"),
        ];
        let lacking = wanted.into_iter().take(m).find(|(block, _)| {
            !blocks.is_empty() && block.is_none_or(|block| !ids.contains(&(block as i32)))
        });
        let (block, end) = lacking?;
        Some(Complaint {
            column: 0,
            expected: format!("block {}, the {end} of the window", block.unwrap_or(0)),
            got: "a row without it".to_owned(),
        })
    })
}

impl Problem {
    /// The key a slot of `row` stands for, by these block ids; `None` for -1, for slots of no
    /// block, and for keys outside the window.
    #[must_use]
    pub fn visible_key(&self, ids: &Guarded<i32>, row: usize, slot: i32) -> Option<usize> {
        let (slot, b) = (usize::try_from(slot).ok()?, self.b());
        let block = usize::try_from(*ids.row(row).get(slot / b)?).ok()?;
        let key = block * b + slot % b;
        self.inputs.windows.rows()[row].contains(key).then_some(key)
    }
}
