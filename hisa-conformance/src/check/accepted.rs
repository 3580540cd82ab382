//! Judging the ids of whole indexers by the sets that declared numerics allow (SPEC 10.17).

use super::bounded::{Complaints, show_range};
use super::plain::{place, some};
use super::slots::ids_of;
use super::{Detail, Verdict};
use crate::backend::buffer::show_f32;
use crate::numerics::Bounds;
use crate::numerics::acceptance::{self, Accepted, Objection};
use crate::op::Op;
use crate::trial::Trial;
use hisa_ref::bound::Range;

/// The sets of ids of a whole indexer (SPEC 10.17).
pub(super) fn selection(trial: &mut Trial<'_>, op: Op) -> Verdict {
    judge_rows(trial, op, |bounds, row, ids| match op {
        Op::BlockSparse => whole_blocks(bounds, row, ids),
        _ => {
            let (accepted, block_topk) = accepted(bounds, op, row);
            let objection = accepted.objection(ids, block_topk)?;
            Some(describe(bounds, row, ids, (&accepted, objection)))
        }
    })
}

/// No id behind another that it certainly comes before.
pub(super) fn order(trial: &mut Trial<'_>, op: Op) -> Verdict {
    judge_rows(trial, op, |bounds, row, ids| {
        let (accepted, _) = accepted(bounds, op, row);
        let objection = accepted.disorder(ids)?;
        Some(describe(bounds, row, ids, (&accepted, objection)))
    })
}

fn accepted(bounds: &Bounds<'_>, op: Op, row: usize) -> (Accepted, usize) {
    match op {
        Op::Dsa => (acceptance::dsa(bounds, row), 1),
        _ => {
            let block_topk = bounds.problem().inputs.params.block_topk();
            (acceptance::hisa(bounds, row), block_topk)
        }
    }
}

/// A column, and what is wrong with it.
type Finding = (usize, Detail);

fn judge_rows(
    trial: &mut Trial<'_>,
    op: Op,
    rule: impl Fn(&Bounds<'_>, usize, &[i32]) -> Option<Finding>,
) -> Verdict {
    if trial.truth.of(op).is_err() {
        return Verdict::NotApplicable("there is no answer to compare with");
    }
    let name = ids_of(op);
    let Some(ids) = some!(trial.outputs(op)).i32(name).cloned() else {
        return Verdict::NotApplicable("the tensor is not written");
    };
    let bounds = trial.bounds();
    let (mut complaints, mut seen, mut bounded) = (Complaints::default(), false, false);
    for row in 0..ids.rows() {
        let scores = bounds.tokens(row);
        seen |= !scores.is_empty();
        bounded |= scores.iter().any(|score| score.range != Range::Anything);
        if let Some((column, detail)) = rule(&bounds, row, ids.row(row)) {
            complaints.add(|| Detail {
                at: place(name, ids.shape(), row * ids.columns() + column),
                ..detail
            });
        }
    }
    complaints.verdict(bounded || !seen, "no score has a finite bound")
}

fn describe(
    bounds: &Bounds<'_>,
    row: usize,
    ids: &[i32],
    (accepted, objection): (&Accepted, Objection),
) -> Finding {
    let scores = bounds.tokens(row);
    let shown = |token: usize| {
        let score = &scores[token];
        format!(
            "id {token}, exact score {}, allowed {}",
            show_f32(score.exact),
            show_range(score.range)
        )
    };
    let id = |column: usize| ids[column] as usize;
    let kth = accepted.kth_certain.map(|token| {
        let k = bounds.problem().inputs.params.topk_tokens();
        format!("the {k}. of the certain candidates is {}", shown(token))
    });
    let (column, expected, got) = match objection {
        Objection::Block(column) => (
            column,
            "an id of a block that the bounds allow to be chosen".to_owned(),
            shown(id(column)),
        ),
        Objection::Blocks(column) => (
            column,
            "ids of at most m blocks".to_owned(),
            format!("one of a further block: {}", shown(id(column))),
        ),
        Objection::Beaten(column) => (
            column,
            "an id that is not certainly beaten by K others".to_owned(),
            shown(id(column)),
        ),
        Objection::Missing(token) => (0, shown(token), "a row without it".to_owned()),
        Objection::PassedOver(token, column) => (
            column,
            format!("{}, before it", shown(token)),
            format!("{} in its place", shown(id(column))),
        ),
        Objection::Order(token, column) => (
            column,
            format!("{}, before it", shown(token)),
            shown(id(column)),
        ),
    };
    let detail = Detail {
        expected,
        got,
        bound: Some(bounds.numerics().to_string()),
        cause: kth,
        ..Detail::default()
    };
    (column, detail)
}

/// Every in-window key of every chosen block, and nothing else (SPEC 9.3).
fn whole_blocks(bounds: &Bounds<'_>, row: usize, ids: &[i32]) -> Option<Finding> {
    let problem = bounds.problem();
    let (window, b) = (problem.inputs.windows.rows()[row], problem.b());
    let (first, start) = (window.blocks(b).start, window.keys().start);
    let block_topk = problem.sparse_blocks();
    let members = acceptance::blocks(bounds, row, block_topk);
    let mut held = vec![0usize; members.len()];
    for (column, &id) in ids.iter().enumerate() {
        let Some(token) = usize::try_from(id).ok().filter(|&id| id < window.len()) else {
            continue;
        };
        let block = (start + token) / b - first;
        held[block] += 1;
        if !members[block].may {
            let expected = "an id of a block that the bounds allow to be chosen".to_owned();
            let got = format!("id {id} of block {}", first + block);
            return Some((column, sparse_detail(bounds, expected, got)));
        }
    }
    let chosen = held.iter().filter(|&&held| held > 0).count();
    let wanted = members.len().min(block_topk);
    for (block, &held) in held.iter().enumerate() {
        let from = ((first + block) * b).max(start);
        let to = (first + block + 1).saturating_mul(b).min(window.keys().end);
        let whole = to - from;
        if held != whole && (held > 0 || members[block].must) {
            let expected = format!("all {whole} visible keys of block {}", first + block);
            return Some((
                0,
                sparse_detail(bounds, expected, format!("{held} of them")),
            ));
        }
    }
    (chosen != wanted).then(|| {
        let expected = format!("keys of {wanted} blocks");
        (0, sparse_detail(bounds, expected, format!("of {chosen}")))
    })
}

fn sparse_detail(bounds: &Bounds<'_>, expected: String, got: String) -> Detail {
    Detail {
        expected,
        got,
        bound: Some(bounds.numerics().to_string()),
        ..Detail::default()
    }
}
