//! `hisa selftest`: faults planted in kernels, each of which a check has to find.

use super::{CliError, Outcome};
use clap::{Args, ValueEnum};

/// Arguments of `hisa selftest`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SelftestArgs {
    /// Whose kernels.
    #[arg(long, value_enum)]
    pub backend: Kernels,
    /// Hunt only this fault; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub fault: Vec<String>,
}

/// Kernels that faults can be planted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernels {
    /// Those of hisa-cuda.
    Cuda,
}

/// Hunts the faults and prints what became of each: exit status 1 where one is not found, or
/// where the kernels as they are have a finding.
///
/// # Errors
/// [`CliError::Run`] without a GPU and for names that mean nothing; [`CliError::Stdout`].
#[cfg(feature = "cuda")]
pub fn run(args: &SelftestArgs) -> Result<Outcome, CliError> {
    use super::engine::SELF_TEST_LIMIT;
    use crate::report::text::{TextOptions, faults};
    use crate::report::{SelfTest, SelfTestRow};
    use crate::runner::Launcher;
    use crate::selftest::gpu;

    let launcher = Launcher::new(None, SELF_TEST_LIMIT)?;
    let test = gpu::run(&launcher, &args.fault)?;
    let shown: Vec<&SelfTestRow> = test.rows.iter().collect();
    super::print(&faults(&shown, &TextOptions::for_stdout(0)))?;
    let totals = SelfTest {
        rows: test.rows.clone(),
        ..SelfTest::default()
    }
    .totals();
    let passed = if test.unchanged_passed { "yes" } else { "NO" };
    super::print(&format!("{totals}; unchanged kernels passed: {passed}"))?;
    Ok(if test.is_clean() {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}

/// This program was built without kernels.
///
/// # Errors
/// [`CliError::Run`], always.
#[cfg(not(feature = "cuda"))]
pub fn run(_: &SelftestArgs) -> Result<Outcome, CliError> {
    let why = match crate::backend::by_name("cuda") {
        Err(error) => error.to_string(),
        Ok(_) => String::new(),
    };
    Err(crate::runner::RunError::Refused { why }.into())
}
