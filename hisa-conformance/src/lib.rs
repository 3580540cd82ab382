//! Checks any HISA indexer implementation against the exact reference.
//!
//! ```text
//! generate -> case -> runner -> worker -> check (oracle, invariants) -> report
//! dump     -> eval, check        files of users, in and out
//! ```
//!
//! The `hisa` command is a thin shell over these modules; see [`cli`].
#![forbid(unsafe_code)]

pub mod backend;
pub mod bench;
pub mod case;
pub mod cause;
pub mod check;
pub mod cli;
pub mod dump;
pub mod effort;
pub mod expect;
pub mod fixture;
pub mod flags;
pub mod generate;
pub mod measure;
pub mod numerics;
pub mod op;
pub mod oracle;
pub mod problem;
pub mod report;
pub mod runner;
pub mod save;
pub mod selftest;
pub mod shrink;
pub mod subject;
pub mod summary;
pub mod trial;
pub mod truth;
pub mod worker;
