//! The checks of a case, in the order they are judged.
//!
//! Every entry of [`CHECKS`] names what it looks at, the word of the check, and the SPEC clause it
//! holds the subject to. A check passes, does not apply, or fails with a sentence; a run in which
//! an entry never applied is itself at fault ([`crate::runner::Summary::unexercised`]).

mod context;
mod invariants;
mod oracle;

pub use context::Context;

/// What one check found on one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The subject does what the clause says.
    Pass,
    /// The case says nothing about this clause.
    NotApplicable,
    /// The subject departs from the clause; the sentence gives place and numbers.
    Fail(String),
}

impl Verdict {
    /// `Pass`, or `Fail` with the first difference.
    pub(crate) fn from_difference(difference: Option<String>) -> Self {
        difference.map_or(Self::Pass, Self::Fail)
    }
}

/// A check: subject, word, clause, and what it does.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Stage or indexer, by its one name.
    pub subject: &'static str,
    /// Word of the check.
    pub name: &'static str,
    /// SPEC clause.
    pub clause: &'static str,
    /// Judges one case.
    pub judge: fn(&Context) -> hisa_ref::Result<Verdict>,
}

macro_rules! checks {
    ($($subject:literal $name:literal $clause:literal $judge:path;)*) => {
        &[$(Check { subject: $subject, name: $name, clause: $clause, judge: $judge },)*]
    };
}

/// All checks.
pub const CHECKS: &[Check] = checks! {
    "windows" "oracle" "W.4" oracle::windows;
    "quantize" "oracle" "1.4" oracle::quantize;
    "block_pool" "oracle" "2.2" oracle::block_pool;
    "block_scores" "oracle" "3.1" oracle::block_scores;
    "block_mask" "oracle" "4.1" oracle::block_mask;
    "block_topk" "oracle" "5.3" oracle::block_topk;
    "token_scores" "oracle" "6.2" oracle::token_scores;
    "token_topk" "oracle" "7.2" oracle::token_topk;
    "index_map" "oracle" "8.1" oracle::index_map;
    "hisa" "oracle" "9.1" oracle::hisa;
    "dsa" "oracle" "9.2" oracle::dsa;
    "block_sparse" "oracle" "9.3" oracle::block_sparse;
    "hisa" "shape" "10.1" invariants::shape;
    "hisa" "range" "10.2" invariants::range;
    "hisa" "tail" "10.3" invariants::tail;
    "hisa" "unique" "10.4" invariants::unique;
    "hisa" "count" "10.5" invariants::count;
    "block_topk" "forced" "10.6" invariants::forced;
    "block_mask" "mask" "10.7" invariants::mask;
    "hisa" "window" "10.8" invariants::window;
    "hisa" "rows" "10.9" invariants::rows;
    "hisa" "repeat" "10.10" invariants::repeat;
    "hisa" "inputs" "10.12" invariants::inputs;
    "hisa" "nest" "10.13" invariants::nest;
    "hisa" "permute" "10.14" invariants::permute;
    "hisa" "scale" "10.15" invariants::scale;
    "hisa" "equal-flat" "10.16" invariants::equal_flat;
    "block_pool" "append" "9.5" invariants::append;
};
