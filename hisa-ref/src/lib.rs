#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bf16;
pub mod block_sparse;
pub mod bound;
pub mod dsa;
pub mod error;
pub mod exact;
pub mod fp8;
pub mod hisa;
pub mod incremental;
pub mod input;
pub mod model;
pub mod order;
pub mod params;
pub mod ragged;
mod rows;
pub mod scoring;
pub mod similarity;
pub mod stage;
pub mod stages;
pub mod trace;

pub use error::{Error, Result};
pub use fp8::{E4M3, Overflow};
pub use input::{IndexerInput, Keys, Queries};
pub use params::{HisaParams, Rank, Strictness};
pub use ragged::{CuSeqlens, Window, Windows};
pub use stage::Stage;
pub use trace::Trace;
