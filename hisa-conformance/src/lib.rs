//! Checks any HISA indexer implementation against the exact reference.
#![forbid(unsafe_code)]

pub mod cli;
pub mod dump;
pub mod oracle;
