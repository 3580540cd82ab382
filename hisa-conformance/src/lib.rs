//! Checks any HISA indexer implementation against the exact reference.
#![forbid(unsafe_code)]

pub mod dump;
pub mod oracle;
