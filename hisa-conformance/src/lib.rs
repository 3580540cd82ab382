//! Checks any HISA indexer implementation against the exact reference.
#![forbid(unsafe_code)]

pub mod case;
pub mod flags;
pub mod generate;
pub mod oracle;
