//! `hisa bench`: speed of the reference, validated before it is timed.

use super::{CliError, Outcome, print};
use crate::bench::{self, Arrays, Data, Figure};
use clap::{Args, Subcommand};

/// Arguments of `hisa bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub target: Target,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Target {
    /// The reference on this machine's processor.
    Cpu {
        /// Threads to use, at most 1024 [default: all cores].
        #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// Timed rounds of each measurement, after one that is not counted; at most 1000.
        #[arg(long, value_name = "R", default_value_t = 5,
            value_parser = clap::value_parser!(u16).range(1..=1000))]
        rounds: u16,
    },
}

/// Measures and prints one line per figure.
///
/// # Errors
/// [`CliError::Bench`] where the fast path is wrong, or threads cannot be started.
pub fn run(args: &BenchArgs) -> Result<Outcome, CliError> {
    let Target::Cpu { threads, rounds } = args.target;
    let failed = |error: &dyn std::fmt::Display| CliError::Bench {
        reason: error.to_string(),
    };
    let pool = |threads: usize| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|e| failed(&e))
    };
    let rounds = usize::from(rounds);
    let all = pool(threads.map_or(0, usize::from))?;
    print(&format!(
        "{} threads, {rounds} rounds",
        all.current_num_threads()
    ))?;
    for data in [Data::Plain, Data::Quantised] {
        let shape = [bench::ROWS, bench::KEYS, 64, 128];
        let arrays = Arrays::new(data, shape).map_err(|e| failed(&e))?;
        let right = all
            .install(|| bench::validate(&arrays))
            .map_err(|e| failed(&e))?;
        if !right {
            return Err(failed(
                &"the fast path differs from the definition; nothing was timed",
            ));
        }
        print(&format!("{data:?} codes, validated"))?;
        let end_to_end = all.install(|| bench::end_to_end(&arrays, rounds));
        print(&line(&end_to_end.map_err(|e| failed(&e))?))?;
        if let (Data::Plain, Some(bytes)) = (data, bench::peak_memory_bytes()) {
            print(&format!(
                "  peak memory so far {:.0} MiB",
                bytes as f64 / f64::from(1 << 20)
            ))?;
        }
        let scoring = all.install(|| bench::scoring(&arrays, rounds));
        print(&line(&scoring.map_err(|e| failed(&e))?))?;
    }
    let small = pool(1)?.install(|| bench::small_cases(rounds));
    print(&line(&small.map_err(|e| failed(&e))?))?;
    Ok(Outcome::Clean)
}

fn line(figure: &Figure) -> String {
    let Figure {
        what,
        best,
        median,
        unit,
    } = figure;
    format!("  {what:<40} best {best:>10.2} {unit}, median {median:.2} {unit}")
}
