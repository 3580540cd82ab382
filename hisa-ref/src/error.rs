//! What a caller can get wrong, each with the argument, the place and the numbers.
//!
//! [`Error`](enum@Error) is the only error type of the crate. It wraps one small enum per subject,
//! so that a caller can match on the kind of mistake without parsing sentences.

use thiserror::Error;

/// Any refusal of this crate. Nothing has been computed or written when one is returned.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is zero, too large, or contradicts another one.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// A tensor does not have the shape its neighbours imply.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// `cu_seqlens` or a per-row window is malformed (SPEC W).
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A tensor holds a value that strict mode refuses (SPEC V.7).
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A block id or slot handed to a later stage cannot come from an earlier one.
    #[error(transparent)]
    Selection(#[from] SelectionError),
}

/// Result with this crate's [`Error`](enum@Error).
pub type Result<T> = std::result::Result<T, Error>;

/// A parameter that no run can use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParamError {
    /// `block_size`, `block_topk`, `topk_tokens` or a dimension is zero.
    #[error("{name} is 0; it must be at least 1")]
    Zero {
        /// Name of the parameter.
        name: &'static str,
    },
    /// A parameter or size is above its limit.
    #[error("{name} is {value}, above the limit of {limit} ({reason})")]
    TooLarge {
        /// Name of the parameter or of the size.
        name: &'static str,
        /// The value given.
        value: u128,
        /// The largest value allowed.
        limit: u128,
        /// Where the limit comes from.
        reason: &'static str,
    },
    /// A tensor would need more elements than can be addressed or allocated.
    #[error("{what} needs {shape:?} elements, more than this machine can hold")]
    Allocation {
        /// The tensor.
        what: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Context parallelism needs the rows to split evenly.
    #[error("context parallel: {rows} rows do not split into 2 x {ranks} equal chunks")]
    ContextParallelSplit {
        /// Query rows in total.
        rows: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// The rank lies outside the group.
    #[error("context parallel: rank {rank} is outside 0..{ranks}")]
    ContextParallelRank {
        /// The rank given.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// Kept dimensions of a quantisation are repeated or out of range.
    #[error("dims: entry {position} is {dim}; dims must be distinct and below {ndim}")]
    Dims {
        /// Position within `dims`.
        position: usize,
        /// The offending dimension.
        dim: usize,
        /// Number of dimensions of the tensor.
        ndim: usize,
    },
    /// A roll-back or write position lies outside what a cache holds.
    #[error("{what} {position} lies beyond the {len} keys the cache holds")]
    CachePosition {
        /// What was asked for.
        what: &'static str,
        /// The position given.
        position: usize,
        /// Keys held.
        len: usize,
    },
    /// A word is not one of the allowed ones.
    #[error("{name} is {value:?}; allowed: {allowed}")]
    Word {
        /// Name of the parameter.
        name: &'static str,
        /// The word given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

/// A tensor whose shape contradicts the others.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{argument} has shape {got:?}, expected {expected}")]
pub struct ShapeError {
    /// Name of the tensor.
    pub argument: &'static str,
    /// Its shape.
    pub got: Vec<usize>,
    /// The expected shape, in letters and numbers.
    pub expected: String,
}

impl ShapeError {
    /// `argument` has shape `got`, which is not `expected`.
    pub fn new(argument: &'static str, got: &[usize], expected: impl Into<String>) -> Self {
        Self {
            argument,
            got: got.to_vec(),
            expected: expected.into(),
        }
    }
}

/// Malformed sequence offsets or windows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// `cu_seqlens` needs at least its leading zero.
    #[error("{argument} is empty; it must hold at least the leading 0")]
    NoOffsets {
        /// Name of the array.
        argument: &'static str,
    },
    /// The first offset is not zero.
    #[error("{argument}[0] is {value}; it must be 0")]
    FirstOffset {
        /// Name of the array.
        argument: &'static str,
        /// The value found.
        value: i64,
    },
    /// Offsets decrease.
    #[error("{argument}[{position}] is {value}, below its predecessor {previous}")]
    Decreasing {
        /// Name of the array.
        argument: &'static str,
        /// Index of the entry that is too small.
        position: usize,
        /// Its value.
        value: i64,
        /// The entry before it.
        previous: i64,
    },
    /// The last offset is not the number of rows or keys.
    #[error("{argument}[{position}], the last entry, is {value}; it must be {what} = {expected}")]
    LastOffset {
        /// Name of the array.
        argument: &'static str,
        /// Index of the last entry.
        position: usize,
        /// Its value.
        value: i64,
        /// What it has to equal, a letter.
        what: &'static str,
        /// The number it has to equal.
        expected: usize,
    },
    /// Query and key offsets describe different numbers of sequences.
    #[error("cu_seqlens_q has {q} entries and cu_seqlens_k has {k}; they must be equal")]
    OffsetCounts {
        /// Entries of `cu_seqlens_q`.
        q: usize,
        /// Entries of `cu_seqlens_k`.
        k: usize,
    },
    /// One `cu_seqlens` for queries and keys needs as many of either.
    #[error("one cu_seqlens describes self-attention and needs M = N; M is {m} and N is {n}")]
    NotSelfAttention {
        /// Query rows.
        m: usize,
        /// Keys.
        n: usize,
    },
    /// `ks` and `ke` differ in length, or from the number of rows.
    #[error("ks has {ks} entries and ke has {ke}; both must have M = {m}")]
    RowCounts {
        /// Entries of `ks`.
        ks: usize,
        /// Entries of `ke`.
        ke: usize,
        /// Query rows.
        m: usize,
    },
    /// A non-empty window reaches outside the keys.
    #[error("row {row}: window [{ks}, {ke}) is not within the keys [0, {n})")]
    OutsideKeys {
        /// The query row.
        row: usize,
        /// First key of the window.
        ks: i64,
        /// One past the last key.
        ke: i64,
        /// Number of keys.
        n: usize,
    },
    /// `kv_stride` is zero.
    #[error("kv_stride is 0; it must be at least 1")]
    KvStride,
    /// Sequence windows with a stride need a start position per sequence.
    #[error("first_positions has {got} entries, one per sequence makes {expected}")]
    Positions {
        /// Entries given.
        got: usize,
        /// Number of sequences.
        expected: usize,
    },
}

/// A value that strict mode refuses, with its place in row-major order.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{argument}{index:?} is {value} ({rule})")]
pub struct ValueError {
    /// Name of the tensor.
    pub argument: &'static str,
    /// Coordinates of the first offending element.
    pub index: Vec<usize>,
    /// The value, decoded.
    pub value: f32,
    /// The rule it breaks.
    pub rule: &'static str,
}

/// Block ids or slots that no earlier stage could have produced.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// A block id is neither -1 nor a block.
    #[error("block_ids[{row}, {column}] is {id}; allowed are -1 and 0..{blocks}")]
    BlockId {
        /// Query row.
        row: usize,
        /// Column within the row.
        column: usize,
        /// The id found.
        id: i32,
        /// Number of pool blocks, Nb.
        blocks: usize,
    },
    /// A block id occurs twice in a row.
    #[error("block_ids[{row}, {column}] repeats block {id}, already at column {first}")]
    DuplicateBlock {
        /// Query row.
        row: usize,
        /// Column of the second occurrence.
        column: usize,
        /// Column of the first occurrence.
        first: usize,
        /// The id.
        id: i32,
    },
    /// A slot is neither -1 nor a slot.
    #[error("slots[{row}, {column}] is {slot}; allowed are -1 and 0..{slots}")]
    Slot {
        /// Query row.
        row: usize,
        /// Column within the row.
        column: usize,
        /// The slot found.
        slot: i32,
        /// Number of slots, S = m*B.
        slots: usize,
    },
    /// A slot points into a block that is -1.
    #[error("slots[{row}, {column}] is {slot}, which lies in block column {block}, a -1")]
    SlotInNoBlock {
        /// Query row.
        row: usize,
        /// Column within the row.
        column: usize,
        /// The slot found.
        slot: i32,
        /// Column of `block_ids` it lies in.
        block: usize,
    },
    /// A slot's key lies outside the row's window.
    #[error("slots[{row}, {column}] is {slot}, key {key}, outside the window [{ks}, {ke})")]
    SlotOutsideWindow {
        /// Query row.
        row: usize,
        /// Column within the row.
        column: usize,
        /// The slot found.
        slot: i32,
        /// The key it stands for.
        key: i64,
        /// First key of the window.
        ks: i64,
        /// One past the last key.
        ke: i64,
    },
}
