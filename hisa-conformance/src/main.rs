//! The `hisa` command.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    hisa_conformance::cli::main()
}
