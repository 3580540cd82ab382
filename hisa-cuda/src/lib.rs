//! The HISA indexer on NVIDIA GPUs, one kernel per stage of `hisa_ref`.
//!
//! ```text
//! error  toolchain(driver, NVRTC, cache)  kernel(table)  slice  device  launch
//! stages/*  hisa  dsa  block_sparse  incremental  arena  host
//! ```

pub mod error;
pub mod kernel;
pub mod toolchain;

pub use error::{Error, Result};
