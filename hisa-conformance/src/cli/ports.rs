//! Several ports in turn: a report for each, then one table of all.

use super::engine::{EngineArgs, ReportArgs, Title, carry_out};
use super::{CliError, Outcome, note, print};
use crate::backend::port;
use crate::effort::FINDINGS_MAX;
use crate::report::Report;
use crate::report::compare::compare;
use crate::report::text::TextOptions;
use crate::runner::Plan;
use std::path::{Path, PathBuf};

/// Carries out the plan on every port that is named, or on its own backend.
///
/// # Errors
/// As [`carry_out`]. Of several ports one that cannot be run keeps none of the others from being
/// run; its error is the last thing said.
pub(super) fn carry_out_all(
    plan: &Plan,
    title: &Title,
    args: &EngineArgs,
) -> Result<Outcome, CliError> {
    let commands = &args.trial.port;
    if commands.len() < 2 {
        let report = carry_out(plan, title, &args.report)?;
        return Ok(outcome(&[report]));
    }
    refuse_shared_output(&args.report)?;
    let (mut reports, mut trouble) = (Vec::new(), Ok(()));
    for (number, command) in (1..).zip(commands) {
        let plan = Plan {
            backend: format!("{}{command}", port::PREFIX),
            ..plan.clone()
        };
        let title = Title {
            // The checks are the same for all.
            self_test: title.self_test && number == 1,
            ..title.clone()
        };
        match carry_out(&plan, &title, &numbered(&args.report, number)) {
            Ok(report) => {
                print("")?;
                reports.push(report);
            }
            Err(error) => {
                note(&error.to_string());
                trouble = trouble.and(Err(error));
            }
        }
    }
    if !reports.is_empty() {
        print(&compare(&reports, &TextOptions::for_stdout(FINDINGS_MAX)))?;
    }
    trouble.map(|()| outcome(&reports))
}

fn outcome(reports: &[Report]) -> Outcome {
    match reports.iter().all(|report| report.clean) {
        true => Outcome::Clean,
        false => Outcome::Findings,
    }
}

fn refuse_shared_output(args: &ReportArgs) -> Result<(), CliError> {
    let forms = [
        ("--json", &args.json),
        ("--junit", &args.junit),
        ("--html", &args.html),
    ];
    let to_stdout = |path: &PathBuf| path.as_os_str() == "-";
    match forms
        .iter()
        .find(|(_, path)| path.as_ref().is_some_and(to_stdout))
    {
        Some((option, _)) => {
            let why = format!("{option} - holds one report, and there are several ports");
            Err(CliError::Usage(why))
        }
        None => Ok(()),
    }
}

/// Every file with the number of its port before its extension: `report-2.json`.
fn numbered(args: &ReportArgs, number: usize) -> ReportArgs {
    let one = |path: &Option<PathBuf>| path.as_deref().map(|path| with_number(path, number));
    ReportArgs {
        json: one(&args.json),
        junit: one(&args.junit),
        html: one(&args.html),
        ..args.clone()
    }
}

fn with_number(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map(|extension| extension.to_string_lossy());
    let dot = extension
        .map(|extension| format!(".{extension}"))
        .unwrap_or_default();
    path.with_file_name(format!("{stem}-{number}{dot}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_before_their_extension() {
        let of = |path: &str| with_number(Path::new(path), 2);
        assert_eq!(of("a/report.json"), Path::new("a/report-2.json"));
        assert_eq!(of("report"), Path::new("report-2"));
    }
}
