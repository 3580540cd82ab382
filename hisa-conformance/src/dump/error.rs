//! What can be wrong with a dump: the file, the tensor and the numbers.

use safetensors::Dtype;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Any refusal of [`crate::dump`]. The message is one sentence and starts with the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What was attempted, a verb phrase.
        action: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// The path leads to a folder, a device or a pipe, or names no file at all.
    #[error("{}: not a regular file", file.display())]
    NotAFile {
        /// The path.
        file: PathBuf,
    },
    /// The container is damaged.
    #[error("{}: {problem}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// The damage.
        problem: HeaderError,
    },
    /// A tensor is missing or is not what its name promises.
    #[error("{}: tensor {tensor:?} {problem}", file.display())]
    Tensor {
        /// The file.
        file: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// What is wrong with it.
        problem: TensorError,
    },
    /// The windows are given in no way, in two, or in half of one.
    #[error("{}: {problem}", file.display())]
    Windows {
        /// The file.
        file: PathBuf,
        /// What was found.
        problem: WindowsProblem,
    },
    /// Keys in a cache of pages that cannot be gathered.
    #[error("{}: {problem}", file.display())]
    Paged {
        /// The file.
        file: PathBuf,
        /// What contradicts what.
        problem: PagedProblem,
    },
    /// Another content has the name that a file was to get.
    #[error("{}: exists with other bytes; nothing is overwritten", file.display())]
    Occupied {
        /// The file.
        file: PathBuf,
    },
    /// A parameter in the metadata cannot be read.
    #[error("{}: metadata {name} is {value:?}; allowed: {allowed}", file.display())]
    Param {
        /// The file.
        file: PathBuf,
        /// Name of the parameter.
        name: &'static str,
        /// The text found, shortened.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// The outputs of a run would not fit into the memory it may use.
    #[error(
        "the outputs need {bytes} bytes, above the limit of {limit}; \
         {largest} {shape:?} alone needs {largest_bytes}"
    )]
    OutputsTooLarge {
        /// All outputs together, in bytes.
        bytes: u128,
        /// The limit, in bytes.
        limit: u128,
        /// Name of the largest output.
        largest: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Its size in bytes.
        largest_bytes: u128,
    },
    /// Shapes, windows, values or parameters that the reference refuses.
    #[error(transparent)]
    Input(#[from] hisa_ref::Error),
}

impl DumpError {
    pub(crate) fn io(file: &Path, action: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io {
            file: file.to_owned(),
            action,
            source,
        }
    }

    pub(crate) fn tensor(file: &Path, tensor: &str, problem: TensorError) -> Self {
        Self::Tensor {
            file: file.to_owned(),
            tensor: tensor.to_owned(),
            problem,
        }
    }
}

/// A container that contradicts itself. Offsets and sizes are in bytes; offsets count from the
/// start of the data, which follows the header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Not even a header length.
    #[error("the file holds {bytes} bytes; the length of the header alone takes 8")]
    TooShort {
        /// Size of the file.
        bytes: u64,
    },
    /// The file is larger than this program reads or writes.
    #[error("the file takes {bytes} bytes, above the limit of {limit}")]
    FileTooLarge {
        /// Size of the file.
        bytes: u64,
        /// [`super::FILE_BYTES_MAX`].
        limit: u64,
    },
    /// The header is larger than any dump needs.
    #[error("the header takes {bytes} bytes, above the limit of {limit}")]
    TooLarge {
        /// Declared size of the header.
        bytes: u64,
        /// [`super::HEADER_BYTES_MAX`].
        limit: u64,
    },
    /// The file ends within the header.
    #[error("the header is declared as {bytes} bytes, but only {present} follow")]
    Truncated {
        /// Declared size of the header.
        bytes: u64,
        /// Bytes after the header length.
        present: u64,
    },
    /// The header is not a JSON object of the right form.
    #[error("the header is not a safetensors header: {reason}")]
    NotJson {
        /// The parser's sentence, with line and column.
        reason: String,
    },
    /// A name occurs twice.
    #[error("the header names {name:?} twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A metadata key occurs twice.
    #[error("the metadata names {key:?} twice")]
    DuplicateMetadata {
        /// The key.
        key: String,
    },
    /// A name is too long to be shown.
    #[error("the name {start:?}.. takes {bytes} bytes, above the limit of {limit}")]
    NameTooLong {
        /// How the name begins.
        start: String,
        /// Its length.
        bytes: usize,
        /// [`super::NAME_BYTES_MAX`].
        limit: usize,
    },
    /// A tensor has the name that is reserved for metadata.
    #[error("the name {name:?} is reserved for metadata")]
    ReservedName {
        /// [`super::METADATA_KEY`].
        name: &'static str,
    },
    /// A word that is no dtype.
    #[error("tensor {tensor:?} has the unknown dtype {dtype:?}")]
    UnknownDtype {
        /// Name of the tensor.
        tensor: String,
        /// The word, shortened.
        dtype: String,
    },
    /// More dimensions than are supported.
    #[error("tensor {tensor:?} has {rank} dimensions, above the limit of {limit}")]
    Rank {
        /// Name of the tensor.
        tensor: String,
        /// Number of dimensions.
        rank: usize,
        /// [`super::RANK_MAX`].
        limit: usize,
    },
    /// Extents whose product cannot be addressed.
    #[error("tensor {tensor:?} has shape {shape:?}, more {dtype} than can be addressed")]
    Overflow {
        /// Name of the tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// Elements narrower than a byte that do not fill whole bytes.
    #[error("tensor {tensor:?} has shape {shape:?}, which does not fill whole bytes as {dtype}")]
    PartialByte {
        /// Name of the tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// Offsets in the wrong order.
    #[error("tensor {tensor:?} ends at offset {end}, before its begin {begin}")]
    Backwards {
        /// Name of the tensor.
        tensor: String,
        /// First byte.
        begin: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Offsets that contradict shape and dtype.
    #[error("tensor {tensor:?} is {dtype} {shape:?}, {needed} bytes, but its offsets span {span}")]
    Size {
        /// Name of the tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<u64>,
        /// Bytes that shape and dtype make.
        needed: u64,
        /// Bytes between its offsets.
        span: u64,
    },
    /// Offsets outside the file.
    #[error("tensor {tensor:?} ends at offset {end}, but the file holds {present} bytes of data")]
    PastEnd {
        /// Name of the tensor.
        tensor: String,
        /// One past its last byte.
        end: u64,
        /// Bytes after the header.
        present: u64,
    },
    /// Two tensors share bytes.
    #[error("tensor {tensor:?} begins at offset {begin}, inside {other:?}, which ends at {end}")]
    Overlap {
        /// Name of the tensor.
        tensor: String,
        /// Its first byte.
        begin: u64,
        /// The tensor before it.
        other: String,
        /// One past the last byte of the tensor before it.
        end: u64,
    },
    /// Bytes that belong to no tensor, before one.
    #[error(
        "tensor {tensor:?} begins at offset {begin}; the bytes from {expected} are no tensor's"
    )]
    Gap {
        /// Name of the tensor after the gap.
        tensor: String,
        /// Its first byte.
        begin: u64,
        /// Where it had to begin.
        expected: u64,
    },
    /// Bytes that belong to no tensor, after the last one.
    #[error("the tensors end at offset {end}, but the file holds {present} bytes of data")]
    Trailing {
        /// One past the last byte of any tensor.
        end: u64,
        /// Bytes after the header.
        present: u64,
    },
}

/// A tensor that is not what its name promises. The sentence continues "tensor NAME ...".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TensorError {
    /// There is none.
    #[error("is missing; the file holds {}", list(found))]
    Missing {
        /// Names that are there, sorted, at most a dozen.
        found: Vec<String>,
    },
    /// An element type that is never reinterpreted as another one.
    #[error("is {got}; accepted: {}", list(accepted))]
    Dtype {
        /// Its element type.
        got: Dtype,
        /// What it may be.
        accepted: &'static [Dtype],
    },
    /// The wrong number of dimensions.
    #[error("has shape {got:?}; expected {expected}")]
    Dimensions {
        /// Its shape.
        got: Vec<usize>,
        /// The expected shape, in letters.
        expected: &'static str,
    },
    /// As many elements as its shape says are not there.
    #[error("has shape {shape:?} but {elements} elements")]
    Elements {
        /// Its shape.
        shape: Vec<usize>,
        /// Elements given.
        elements: usize,
    },
    /// A 64-bit id that no 32-bit id can carry.
    #[error("holds {value} at flat position {position}; ids must fit int32")]
    IdRange {
        /// Row-major position.
        position: usize,
        /// The id.
        value: i64,
    },
    /// The allocator refused.
    #[error("needs {bytes} bytes, more than this machine can hold")]
    Allocation {
        /// Bytes asked for.
        bytes: u64,
    },
}

/// Windows must be given in exactly one of three ways.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowsProblem {
    /// No way.
    #[error("no windows; expected {WAYS}")]
    None,
    /// Two or three ways.
    #[error(
        "windows are given by {}, which is more than one way; expected {WAYS}",
        list(found)
    )]
    Several {
        /// Names found.
        found: Vec<&'static str>,
    },
    /// Half of a pair.
    #[error("windows are given by {found} without {missing}; expected {WAYS}")]
    Half {
        /// Name found.
        found: &'static str,
        /// Its missing partner.
        missing: &'static str,
    },
}

/// A cache of pages, its table and the lengths that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PagedProblem {
    /// A part of the three tensors.
    #[error(
        "keys are given by {found} without {missing}; a cache is kv_cache, block_table, seq_lens"
    )]
    Part {
        /// Name found.
        found: &'static str,
        /// Name missing.
        missing: &'static str,
    },
    /// The keys by themselves too.
    #[error("keys are given by kv_cache and by {found}, which is more than one way")]
    Twice {
        /// Name found.
        found: &'static str,
    },
    /// Tensors of different numbers of sequences.
    #[error("block_table has {table} rows and seq_lens {lens} entries")]
    Sequences {
        /// Rows of the table.
        table: usize,
        /// Entries of the lengths.
        lens: usize,
    },
    /// A sequence longer than its row of the table, or of a negative length.
    #[error("seq_lens[{sequence}] is {len}, outside the 0 to {room} tokens of a block_table row")]
    Length {
        /// Which sequence.
        sequence: usize,
        /// Its length.
        len: i32,
        /// Tokens that a row of the table can hold.
        room: u64,
    },
    /// A page that is not there.
    #[error("block_table[{sequence}, {column}] is {entry}; kv_cache holds {pages} pages")]
    Page {
        /// Which sequence.
        sequence: usize,
        /// Which page of it.
        column: usize,
        /// The entry.
        entry: i32,
        /// Pages there are.
        pages: usize,
    },
    /// More keys than int32 counts.
    #[error("seq_lens add up to {keys} keys, above 2147483647")]
    Keys {
        /// Their sum.
        keys: u64,
    },
    /// Offsets of the keys that are not those of the sequences.
    #[error("cu_seqlens_k are not the sums of seq_lens, first at entry {entry}")]
    Offsets {
        /// Which entry, 0 for the first.
        entry: usize,
    },
}

const WAYS: &str = "either cu_seqlens, or cu_seqlens_q and cu_seqlens_k, or ks and ke";

fn list<T: std::fmt::Display>(words: &[T]) -> String {
    if words.is_empty() {
        return "none".to_owned();
    }
    words
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// At most `limit` characters of a text, for messages.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}
