//! JUnit XML, for CI servers: one suite per job, one case per check.
//!
//! A failing check is a failure, one that no case exercised an error, one the backend does not
//! take or whose failures are all known is skipped. Whatever else makes a run unclean is an
//! error of the suite `run`, so that no unclean run looks green.

use super::matrix::{State, state};
use super::{CheckInfo, Report, ReportError, SelfTest, sink, words};
use crate::op::Op;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use std::path::Path;
use std::time::Duration;

/// The XML text.
///
/// # Errors
/// [`ReportError::Junit`], which no report is known to cause.
pub fn to_string(report: &Report) -> Result<String, ReportError> {
    let mut suites =
        quick_junit::Report::new(format!("hisa {}", words::plain(&report.run.backend)));
    if let Ok(elapsed) = Duration::try_from_secs_f64(report.run.elapsed) {
        suites.set_time(elapsed);
    }
    suites.add_test_suite(whole_run(report));
    if report.summary.total_cases() > 0 {
        suites.add_test_suites(Op::ALL.into_iter().map(|op| job(report, op)));
    }
    suites.add_test_suites(report.self_test.as_ref().map(faults));
    Ok(suites.to_string()?)
}

/// Writes the XML to `path`, complete or not at all; `-` is standard output.
///
/// # Errors
/// [`ReportError`] where it cannot be written.
pub fn write(report: &Report, path: &Path) -> Result<(), ReportError> {
    sink::write(path, &to_string(report)?)
}

/// Whether the run is clean, apart from what single checks say.
fn whole_run(report: &Report) -> TestSuite {
    let mut suite = TestSuite::new("run");
    let run = &report.run;
    let properties = [
        ("version", &report.version),
        ("backend", &run.backend),
        ("basis", &run.basis),
        ("arithmetic", &run.arithmetic),
        ("seed", &run.seed),
        ("effort", &run.effort),
        ("date", &run.date),
    ];
    for (name, value) in properties {
        suite.add_property((name, words::plain(value).as_str()));
    }
    let status = if report.clean {
        TestCaseStatus::success()
    } else {
        error("not clean", &report.reasons.join("\n"))
    };
    let mut case = TestCase::new("clean", status);
    case.set_classname("run");
    suite.add_test_case(case);
    suite
}

fn job(report: &Report, op: Op) -> TestSuite {
    let mut suite = TestSuite::new(op.name());
    for (check, info) in report.checks.iter().enumerate() {
        if info.job == op.name() && report.judged(&info.job) {
            suite.add_test_case(check_case(report, check, info));
        }
    }
    suite
}

fn check_case(report: &Report, check: usize, info: &CheckInfo) -> TestCase {
    let name = info.id.split_once('.').map_or(&*info.id, |(_, name)| name);
    let status = match state(report, check) {
        State::Fail(cases) => {
            let message = format!(
                "SPEC {}: {} failed",
                info.clause,
                words::count(cases, "case")
            );
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(message).set_type(info.group.name());
            status.set_description(findings(report, check));
            status
        }
        State::Known(cases) => {
            let known = format!("{} failed, all known", words::count(cases, "case"));
            skipped(&known, &findings(report, check))
        }
        State::Skip => skipped(&skip_reasons(report, &info.job), ""),
        State::Never => error("not exercised", "no case exercised this check"),
        State::Ok | State::Partly | State::None => TestCaseStatus::success(),
    };
    let mut case = TestCase::new(name, status);
    case.set_classname(info.job.as_str());
    case
}

/// The findings kept of a check, as the terminal shows them.
fn findings(report: &Report, check: usize) -> String {
    let options = super::text::TextOptions {
        colour: false,
        findings_max: usize::MAX,
        all_faults: false,
    };
    let of_check = report.summary.findings.iter().filter(|f| f.check == check);
    let texts: Vec<String> = of_check
        .map(|finding| super::text::finding(report, finding, &options))
        .collect();
    if texts.is_empty() {
        return "its findings were not among those kept".to_owned();
    }
    texts.join("\n\n")
}

/// Why the backend does not take a job: the reasons counted under its name.
fn skip_reasons(report: &Report, job: &str) -> String {
    let of_job = |why: &String| Some(why.strip_prefix(job)?.strip_prefix(": ")?.to_owned());
    let reasons: Vec<String> = report.summary.skips.keys().filter_map(of_job).collect();
    words::plain(&reasons.join("; "))
}

fn faults(self_test: &SelfTest) -> TestSuite {
    let mut suite = TestSuite::new("self-test");
    let fault = |row: &super::SelfTestRow| {
        let status = match &row.caught_by {
            Some(check) if *check == row.meant => TestCaseStatus::success(),
            Some(check) => failure(&format!("caught by {check}, meant: {}", row.meant)),
            None => failure(&format!("not caught, meant: {}", row.meant)),
        };
        (
            format!("K{} {}", row.kind, words::plain(&row.fault)),
            status,
        )
    };
    let whole = [
        ("idle backend is noticed", self_test.canary_noticed),
        ("faultless copy passes", self_test.copy_passed),
    ];
    let whole = whole.map(|(name, holds)| {
        let status = if holds {
            TestCaseStatus::success()
        } else {
            failure("it does not hold")
        };
        (name.to_owned(), status)
    });
    for (name, status) in self_test.rows.iter().map(fault).chain(whole) {
        let mut case = TestCase::new(name, status);
        case.set_classname("self-test");
        suite.add_test_case(case);
    }
    suite
}

fn failure(message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(words::plain(message));
    status
}

fn error(message: &str, text: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_message(message).set_description(text);
    status
}

fn skipped(message: &str, text: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(message);
    if !text.is_empty() {
        status.set_description(text);
    }
    status
}
