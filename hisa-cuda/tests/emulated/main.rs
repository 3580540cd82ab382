//! The kernels on the CPU, from their real sources, against the reference bit for bit.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may panic and print"
)]

#[path = "../emulator/mod.rs"]
mod emulator;
mod garbage;
mod mutants;
mod pooling;
mod scorers;
mod selection;

mod selftest;
mod topk;
mod values;
