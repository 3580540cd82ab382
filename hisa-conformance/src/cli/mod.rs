//! The `hisa` command: arguments in, one outcome out. Nothing outside this module prints.
//!
//! Findings go to stdout; everything else, errors and notes, to stderr. Exit status: 0 clean,
//! 1 findings, 2 could not run.

mod ask;
pub mod bench;
pub mod check;
pub mod engine;
pub mod eval;
pub mod fixtures;
pub mod fuzz;
pub mod list;
mod ports;
pub mod replay;
pub mod run;
pub mod selftest;
pub mod worker;

use crate::backend::{BackendError, port};
use crate::case::CaseError;
use crate::dump::write::remove_unfinished;
use crate::dump::{DumpError, Indexer, Options};
use crate::expect::ExpectError;
use crate::fixture;
use crate::report::ReportError;
use crate::runner::{RunError, journal};
use crate::subject::SubjectError;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use hisa_ref::{Rank, Strictness};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error;

/// Checks implementations of the HISA sparse-attention indexer against an exact reference.
#[derive(Debug, Parser)]
#[command(name = "hisa", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate cases and check a backend: the reference against its independent second
    /// implementation, any other one against the reference.
    Run(run::RunArgs),
    /// Check a backend on random cases, for a number of cases or of minutes.
    Fuzz(fuzz::FuzzArgs),
    /// Run one case again, by the address a finding printed.
    Replay(replay::ReplayArgs),
    /// Run the reference on a dump and write what it computes.
    Eval(eval::EvalArgs),
    /// Compare somebody else's outputs for a dump with the reference, value by value.
    Check(check::CheckArgs),
    /// Write, check or list the golden fixtures.
    Fixtures(fixtures::FixturesArgs),
    /// Measure speed.
    Bench(bench::BenchArgs),
    /// Plant faults in the kernels of a backend and check that each is found.
    Selftest(selftest::SelftestArgs),
    /// Print the names of backends, generators, checks, flags, presets or stages.
    List(list::ListArgs),
    /// Run cases for another `hisa` process.
    #[command(hide = true)]
    Worker,
}

/// Parameters of a run; each overrides the metadata of the input file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args)]
pub struct ParamArgs {
    /// Which indexer: hisa, dsa or block-sparse [default: the file's, else hisa].
    #[arg(long, value_name = "NAME")]
    pub indexer: Option<Indexer>,
    /// Keys per pool block, B [default: the file's, else 128].
    #[arg(long, value_name = "B")]
    pub block_size: Option<usize>,
    /// Blocks kept per row, m [default: the file's, else 64].
    #[arg(long, value_name = "M")]
    pub block_topk: Option<usize>,
    /// Tokens kept per row, K [default: the file's, else 2048].
    #[arg(long = "topk", value_name = "K")]
    pub topk_tokens: Option<usize>,
    /// What block scores are rounded to before ranking: bf16 or f32 [default: the file's, else
    /// bf16].
    #[arg(long, value_name = "TYPE")]
    pub rank: Option<Rank>,
    /// Accept NaN, infinities and negative scales in the input.
    #[arg(long)]
    pub permissive: bool,
}

impl From<ParamArgs> for Options {
    fn from(args: ParamArgs) -> Self {
        Self {
            indexer: args.indexer,
            block_size: args.block_size,
            block_topk: args.block_topk,
            topk_tokens: args.topk_tokens,
            rank: args.rank,
            strictness: args.permissive.then_some(Strictness::Permissive),
        }
    }
}

/// How a command that could run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to report: exit status 0.
    Clean,
    /// Something was found and printed: exit status 1.
    Findings,
}

/// Why a command could not run: exit status 2. The message is one sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CliError {
    /// A file is damaged, or holds what the reference refuses.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The reference refused or ran out of memory.
    #[error("{}: {source}", file.display())]
    Refused {
        /// The input file.
        file: PathBuf,
        /// What it refused.
        source: hisa_ref::Error,
    },
    /// The output would replace the input.
    #[error("--out and --input both lead to {}", file.display())]
    SameFile {
        /// The file, as given.
        file: PathBuf,
    },
    /// The file to judge holds nothing that can be judged.
    #[error("{}: none of the outputs of {indexer} is there; expected at least one of {names}",
        file.display())]
    NothingToJudge {
        /// The file.
        file: PathBuf,
        /// Which indexer ran.
        indexer: Indexer,
        /// The names it could hold, separated by commas.
        names: String,
    },
    /// Standard output is gone.
    #[error("cannot write to standard output: {0}")]
    Stdout(std::io::Error),
    /// A case that cannot be run.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// A run that cannot be carried out.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The list of known deviations.
    #[error(transparent)]
    Expect(#[from] ExpectError),
    /// A report that cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// A port that cannot be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// There is nothing to replay.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// Fixtures that cannot be written, checked or listed.
    #[error(transparent)]
    Fixtures(#[from] fixtures::FixturesError),
    /// A benchmark that cannot be trusted or run.
    #[error("bench: {reason}")]
    Bench {
        /// Why.
        reason: String,
    },
}

impl CliError {
    /// Shapes, windows and values are refused by name but not by file; a user needs both.
    pub(crate) fn reading(file: &std::path::Path) -> impl Fn(DumpError) -> Self {
        move |error| match error {
            DumpError::Input(source) => Self::Refused {
                file: file.to_owned(),
                source,
            },
            other => Self::Dump(other),
        }
    }
}

const HELP_FOR_NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    // An interrupted write or run leaves nothing behind; workers end when their input closes.
    // 130 is what shells report for it.
    port::tree::adopt();
    let _ = ctrlc::set_handler(|| {
        port::interrupt();
        remove_unfinished();
        journal::remove_unfinished();
        fixture::write::remove_unfinished();
        std::process::exit(130);
    });
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != HELP_FOR_NO_COMMAND => {
            note(&usage_error(&error));
            return ExitCode::from(2);
        }
        // Help and version are answers, not errors; `hisa` alone gets the help, and status 2.
        Err(answer) => answer.exit(),
    };
    match dispatch(cli.command) {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Err(error) => {
            note(&error.to_string());
            ExitCode::from(2)
        }
    }
}

/// What is wrong with the arguments, in one line and without the usage text.
fn usage_error(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:"))
        .collect();
    let said = said.join(" ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    said.trim_end_matches("For more information, try '--help'.")
        .trim_end()
        .to_owned()
}

/// Runs one subcommand.
///
/// # Errors
/// [`CliError`] where it could not run.
pub fn dispatch(command: Command) -> Result<Outcome, CliError> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Fixtures(args) => fixtures::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Selftest(args) => selftest::run(&args),
        Command::List(args) => list::run(args),
        Command::Worker => worker::run(),
    }
}

/// One line on stderr. A closed stderr is no reason to fail, or to panic as the macro would.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "hisa: {}", one_line(text));
}

/// One line on stdout.
pub(crate) fn finding(text: &str) -> Result<(), CliError> {
    writeln!(std::io::stdout(), "{}", one_line(text)).map_err(CliError::Stdout)
}

/// Lines this program composed itself, on stdout.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    writeln!(std::io::stdout(), "{text}").map_err(CliError::Stdout)
}

/// File names may hold line breaks and terminal controls; messages may not.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_parameter_reaches_the_options() {
        let words = "hisa check --input x --got y --indexer block_sparse --block-size 2 \
                     --block-topk 3 --topk 4 --rank f32 --permissive";
        let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
        let Command::Check(args) = cli.command else {
            panic!("{cli:?}")
        };
        let expected = Options {
            indexer: Some(Indexer::BlockSparse),
            block_size: Some(2),
            block_topk: Some(3),
            topk_tokens: Some(4),
            rank: Some(Rank::F32),
            strictness: Some(Strictness::Permissive),
        };
        assert_eq!(Options::from(args.params), expected);
    }

    #[test]
    fn absent_parameters_stay_absent() {
        assert_eq!(Options::from(ParamArgs::default()), Options::default());
    }

    #[test]
    fn bad_usage_exits_with_2() {
        for words in [
            "hisa eval --input x",
            "hisa run --port x --backend oracle",
            "hisa check --input x",
            "hisa check --input x --got y --port z",
            "hisa eval --input x --out y --block-size -1",
            "hisa eval --input x --out y --rank f16",
            "hisa eval --input x --out y --indexer flat",
            "hisa bench",
            "hisa fuzz",
            "hisa fuzz --cases 1 --minutes 1",
            "hisa fuzz --cases 1 --shard 2/2",
            "hisa fuzz --minutes 0",
            "hisa run --stage nothing",
            "hisa run --jobs 0",
            "hisa list nothing",
            "hisa fixtures",
            "hisa fixtures export x",
            "hisa selftest",
            "hisa selftest --backend reference",
            "hisa nothing",
        ] {
            let error = Cli::try_parse_from(words.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words}");
        }
    }

    #[test]
    fn messages_stay_on_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[1m\u{e9}"), "a\\nb\\u{1b}[1m\u{e9}");
    }
}
