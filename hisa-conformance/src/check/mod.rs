//! The checks, in the order they are judged.
//!
//! Every entry of [`CHECKS`] names the job it looks at, the word of the check, and the SPEC clause
//! it holds the backend to. Jobs come in the order of the data; within a job, checks come in the
//! order of [`Group`], so that the first finding of a case is the one nearest to its cause.

mod accepted;
mod bounded;
mod mask;
pub(crate) mod plain;
pub mod related;
pub(crate) mod relations;
mod scores;
mod selection;
mod slots;

use crate::op::Op;
use crate::trial::Trial;
use hisa_ref::Stage::*;
use related::Relate;
use serde::{Deserialize, Serialize};

/// What one check found on one case.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The backend does what the clause says.
    Pass,
    /// The case says nothing about this clause, and why.
    NotApplicable(&'static str),
    /// The backend does not take the case, and why.
    Skip(String),
    /// The backend departs from the clause.
    Fail(Box<Detail>),
}

/// Where a backend departs from a clause, and by how much.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Detail {
    /// The first coordinate: `slots[0, 3]`.
    pub at: String,
    /// What the specification asks for there, with its bits.
    pub expected: String,
    /// What the backend wrote.
    pub got: String,
    /// What the declared arithmetic allows, and how far beyond it the value is.
    pub bound: Option<String>,
    /// Further elements of the same kind.
    pub more: u64,
    /// The cause, in a sentence, where it can be told.
    pub cause: Option<String>,
    /// The last lines a port wrote on standard error, where it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
}

/// Kinds of checks, in the order in which a job is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// It gives an answer at all.
    Runs,
    /// Types and sizes.
    Shape,
    /// The pattern of infinities.
    Mask,
    /// Ids by themselves: range, tail, duplicates, number.
    Slots,
    /// Values.
    Scores,
    /// The chosen sets, and their order.
    Selection,
    /// Runs of related problems against each other.
    Relations,
    /// Two runs of the same problem.
    Repeat,
    /// Bytes that are not the backend's to write.
    Guard,
    /// Old contents of outputs and workspace.
    Stale,
}

impl Group {
    /// All groups in order.
    pub const ALL: [Self; 10] = [
        Self::Runs,
        Self::Shape,
        Self::Mask,
        Self::Slots,
        Self::Scores,
        Self::Selection,
        Self::Relations,
        Self::Repeat,
        Self::Guard,
        Self::Stale,
    ];

    /// The word of reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Shape => "shape",
            Self::Mask => "mask",
            Self::Slots => "slots",
            Self::Scores => "scores",
            Self::Selection => "selection",
            Self::Relations => "relations",
            Self::Repeat => "repeat",
            Self::Guard => "guard",
            Self::Stale => "stale",
        }
    }
}

/// A check: job, group, word, clause, and what it does.
#[derive(Clone, Copy)]
pub struct Check {
    /// What it looks at.
    pub op: Op,
    /// When it is judged.
    pub group: Group,
    /// Its word.
    pub name: &'static str,
    /// SPEC clause.
    pub clause: &'static str,
    /// Judges one case.
    pub judge: fn(&mut Trial<'_>, Op) -> Verdict,
    /// Which related problems it runs the job on, where it does.
    pub relate: Option<Relate>,
}

impl Check {
    /// `token_topk.selection`: how commands, expectations and reports name it.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}.{}", self.op, self.name)
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (SPEC {})", self.id(), self.clause)
    }
}

/// Position in [`CHECKS`] of the check with this id.
#[must_use]
pub fn position(id: &str) -> Option<usize> {
    CHECKS.iter().position(|check| check.id() == id)
}

/// The checks every job has, around those of its own.
macro_rules! checks {
    ($($op:expr => [
        $($group:ident $name:literal $clause:literal $judge:path $(, $relate:path)?;)*
    ])*) => {
        &[$(
            check($op, Group::Runs, "runs", "10.18", plain::runs),
            check($op, Group::Shape, "shape", "10.1", plain::shape),
            $(own!($op, $group $name $clause $judge $(, $relate)?),)*
            check($op, Group::Repeat, "repeat", "10.10", plain::repeat),
            check($op, Group::Guard, "guard", "10.19", plain::guard),
            check($op, Group::Guard, "inputs", "10.12", plain::inputs),
            check($op, Group::Stale, "stale", "10.11", plain::stale),
        )*]
    };
}

/// A line of [`CHECKS`]: with related problems, their comparison judges what it is told of them.
macro_rules! own {
    ($op:expr, $group:ident $name:literal $clause:literal $judge:path) => {
        check($op, Group::$group, $name, $clause, $judge)
    };
    ($op:expr, $group:ident $name:literal $clause:literal $judge:path, $relate:path) => {
        Check {
            relate: Some($relate),
            ..check($op, Group::$group, $name, $clause, |trial, op| {
                $judge(trial, op, $relate)
            })
        }
    };
}

const fn check(
    op: Op,
    group: Group,
    name: &'static str,
    clause: &'static str,
    judge: fn(&mut Trial<'_>, Op) -> Verdict,
) -> Check {
    Check {
        op,
        group,
        name,
        clause,
        judge,
        relate: None,
    }
}

/// All checks.
pub const CHECKS: &[Check] = checks! {
    Op::Windows => [
        Scores "values" "W.4" scores::values;
    ]
    Op::Stage(Quantize) => [
        Scores "values" "1.4" scores::values;
    ]
    Op::Stage(BlockPool) => [
        Scores "values" "2.2" scores::values;
    ]
    Op::Stage(BlockScores) => [
        Scores "scores" "3.1" scores::block_scores;
        Relations "permute" "10.14" relations::agree, related::permute;
    ]
    Op::Stage(BlockMask) => [
        Mask "mask" "10.7" mask::block_mask;
        Scores "values" "4.1" scores::values;
    ]
    Op::Stage(BlockTopk) => [
        Slots "range" "10.2" slots::blocks_range;
        Slots "unique" "10.4" slots::unique;
        Slots "forced" "10.6" slots::forced;
        Selection "selection" "5.3" selection::blocks;
    ]
    Op::Stage(TokenScores) => [
        Mask "mask" "6.2" mask::token_scores;
        Scores "scores" "6.2" scores::token_scores;
        Relations "permute" "10.14" relations::agree, related::permute;
        Relations "scale" "10.15" relations::agree, related::scale;
    ]
    Op::Stage(TokenTopk) => [
        Slots "range" "10.2" slots::range;
        Slots "tail" "10.3" slots::tail;
        Slots "unique" "10.4" slots::unique;
        Slots "count" "10.5" slots::count;
        Selection "selection" "7.2" selection::isolated;
        Selection "order" "7.2" selection::order;
    ]
    Op::Stage(IndexMap) => [
        Slots "range" "10.2" slots::range;
        Scores "values" "8.1" scores::values;
    ]
    Op::Append => [
        Scores "values" "9.5" scores::values;
    ]
    Op::Hisa => [
        Slots "range" "10.2" slots::range;
        Slots "tail" "10.3" slots::tail;
        Slots "unique" "10.4" slots::unique;
        Slots "count" "10.5" slots::count;
        Selection "selection" "9.1" selection::chained;
        Selection "order" "7.2" selection::order;
        Relations "window" "10.8" relations::agree, related::window;
        Relations "split" "10.9" relations::agree, related::split;
        Relations "rows" "10.9" relations::agree, related::rows;
        Relations "neighbours" "10.9" relations::agree, related::neighbours;
        Relations "nest" "10.13" relations::agree, related::nest;
        Relations "permute" "10.14" relations::agree, related::permute;
        Relations "scale" "10.15" relations::agree, related::scale;
        Relations "negate" "10.20" relations::agree, related::negate;
    ]
    Op::Dsa => [
        Mask "mask" "9.2" mask::flat_scores;
        Slots "range" "10.2" slots::range;
        Slots "tail" "10.3" slots::tail;
        Slots "unique" "10.4" slots::unique;
        Slots "count" "10.5" slots::count;
        Scores "scores" "9.2" scores::flat_scores;
        Selection "selection" "9.2" selection::chained;
        Selection "order" "9.2" selection::order;
        Relations "window" "10.8" relations::agree, related::window;
        Relations "rows" "10.9" relations::agree, related::rows;
        Relations "nest" "10.13" relations::agree, related::nest;
        Relations "negate" "10.20" relations::agree, related::negate;
        Relations "equal-flat" "10.16" relations::equal_flat;
    ]
    Op::BlockSparse => [
        Slots "range" "10.2" slots::range;
        Slots "tail" "10.3" slots::tail;
        Slots "unique" "10.4" slots::unique;
        Selection "selection" "9.3" selection::chained;
        Relations "rows" "10.9" relations::agree, related::rows;
        Relations "negate" "10.20" relations::agree, related::negate;
    ]
};
