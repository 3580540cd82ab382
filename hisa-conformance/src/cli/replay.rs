//! `hisa replay`: one case, by its address, through every check.

use super::{CliError, Outcome, print};
use crate::case::Case;
use crate::report::text::{self, TextOptions};
use crate::report::{Report, RunInfo};
use crate::runner;
use clap::Args;

/// Arguments of `hisa replay`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReplayArgs {
    /// Address of the case, as a finding prints it.
    #[arg(value_name = "ADDRESS")]
    pub case: Case,
}

/// Runs the case and prints its findings and the verdict of every check.
///
/// # Errors
/// [`CliError::Case`] where the case cannot be run, [`CliError::Stdout`] where nothing can be
/// printed.
pub fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let problem = crate::problem::Problem::new(&args.case)?;
    let mut summary = crate::summary::Summary::default();
    let mut backend = crate::backend::reference::Reference::new();
    let mut basis = runner::basis(&backend);
    let source = crate::summary::Source {
        generator: "replay".into(),
        index: 0,
    };
    let address = args.case.to_string();
    runner::judge(
        &problem,
        (&source, &address),
        &mut backend,
        basis.as_mut(),
        &mut summary,
    );
    let info = RunInfo {
        backend: "reference".to_owned(),
        ..RunInfo::default()
    };
    let report = Report::new(info, summary, None);
    let options = TextOptions::for_stdout(usize::MAX);
    for finding in &report.summary.findings {
        print(&text::finding(&report, finding, &options))?;
    }
    print(text::verdicts(&report, &options).trim_end())?;
    let summary = report.summary;
    Ok(if summary.findings_total == 0 {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}
