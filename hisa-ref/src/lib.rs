#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bf16;
pub mod error;
pub mod exact;
pub mod fp8;
pub mod input;
pub mod order;
pub mod params;
pub mod ragged;
pub mod scoring;

pub use error::{Error, Result};
pub use fp8::{E4M3, Overflow};
pub use input::{IndexerInput, Keys, Queries};
pub use params::{HisaParams, Rank, Strictness};
pub use ragged::{CuSeqlens, Window, Windows};
