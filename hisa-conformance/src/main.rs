//! The `hisa` command.
#![forbid(unsafe_code)]
fn main() {}
