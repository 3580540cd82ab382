//! The `hisa` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Cases are many small tensors; the system's allocator takes a sixth of a run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    hisa_conformance::cli::main()
}
