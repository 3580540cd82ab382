//! Tensor dumps: the inputs and outputs of an indexer in safetensors files.
//!
//! ```text
//! bytes -> header (checked) -> TensorFile -> InputDump  -> hisa_ref::IndexerInput
//!                                         -> OutputDump <- a run
//!          write_atomic  <-  Tensor  <-  InputDump, OutputDump
//! ```
//!
//! A file is hostile until its header has been checked against its own length: nothing larger
//! than the header is read or allocated before that, and no byte string makes a reader panic.
//! Data may start at any byte; elements are assembled from little-endian bytes, never cast.
//!
//! What the `safetensors` crate checks and this module checks again, because its errors carry no
//! numbers and it wants the whole file in memory: header length, JSON, gaps and overlaps, sizes
//! against shapes, the end of the file. What it lets pass and this module refuses: names given
//! twice (it keeps the last), headers that do not begin with `{`, shapes whose non-zero extents
//! multiply past the address space but hold a zero, more than [`RANK_MAX`] dimensions, and names
//! longer than [`NAME_BYTES_MAX`]. Its writer orders metadata by a randomly seeded hash, so files
//! are written here as well.

pub mod compare;
pub mod error;
pub mod input;
pub mod output;
pub mod params;
pub mod size;

mod header;
mod paged;
mod read;
mod tensor;
pub mod write;

pub use error::{DumpError, HeaderError, PagedProblem, TensorError, WindowsProblem};
pub use header::TensorInfo;
pub use input::InputDump;
pub use output::OutputDump;
pub use params::{Indexer, Options, RunParams};
pub use read::TensorFile;
pub use safetensors::Dtype;
pub use tensor::{Data, Tensor};
pub use write::{to_bytes, write_atomic};

/// Largest header, in bytes. A dump holds some twenty tensors at about a hundred bytes each; a
/// parsed header can take ten times its length, so the format's own 100 MB is too much.
pub const HEADER_BYTES_MAX: u64 = 4 << 20;
/// Largest file, in bytes: larger dumps would be read into memory only to be refused later.
pub const FILE_BYTES_MAX: u64 = 8 << 30;
/// Most dimensions of a tensor, so that a message can show a whole shape.
pub const RANK_MAX: usize = 8;
/// Longest name of a tensor, in bytes, so that a message can show it.
pub const NAME_BYTES_MAX: usize = 256;
/// The header entry that holds strings instead of a tensor.
pub const METADATA_KEY: &str = "__metadata__";
