//! From a failing check to what a stranger can act on: shrunk, saved, explained, replayed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::check::CHECKS;
use hisa_conformance::report::{Report, json};
use hisa_conformance::summary::Finding;
use std::path::Path;
use std::process::Command;

/// Exit status and standard output of `hisa` in `folder`.
fn hisa(arguments: &str, folder: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hisa"));
    let output = command
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

fn report(folder: &Path) -> Report {
    json::read(&std::fs::read_to_string(folder.join("r.json")).unwrap()).unwrap()
}

fn of_check<'a>(report: &'a Report, id: &str) -> &'a Finding {
    let mut findings = report.summary.findings.iter();
    findings
        .find(|finding| CHECKS[finding.check].id() == id)
        .unwrap()
}

const TIES: &str = "--backend mutant:ttopk-ties-high --stage token_topk";

#[test]
fn a_finding_is_shrunk_explained_saved_and_replays_from_its_line_and_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (status, text) = hisa(
        &format!("run {TIES} --cases 20 --no-self-test --json r.json --junit r.xml --html r.html"),
        folder.path(),
    );
    assert_eq!(status, Some(1), "{text}");
    let report = report(folder.path());
    assert!(!report.clean);
    let finding = of_check(&report, "token_topk.selection");
    let shrunk = finding.shrunk.as_ref().unwrap();
    assert_eq!(shrunk.sizes, [1, 2, 1, 1], "{}", shrunk.case);
    let cause = shrunk.detail.cause.as_deref().unwrap();
    assert!(cause.ends_with("breaks ties by the higher key"), "{cause}");
    assert!(report.portrait.is_some());

    let saved = finding.saved.as_ref().unwrap();
    for subject in [saved, &shrunk.case] {
        let (status, said) = hisa(&format!("replay {TIES} {subject}"), folder.path());
        assert_eq!(status, Some(1), "{said}");
        assert!(
            said.contains("FAIL token_topk.selection  SPEC 7.2"),
            "{said}"
        );
        assert!(said.contains("FAIL: selection"), "{said}");
        let (status, said) = hisa(&format!("replay {subject}"), folder.path());
        assert_eq!(status, Some(0), "the reference is right: {said}");
    }
    // The text ends with the very line that replays it.
    let line = text
        .lines()
        .find(|line| line.starts_with("  replay"))
        .unwrap();
    let shell = line
        .trim_start_matches("  replay")
        .trim()
        .trim_start_matches("hisa ");
    let output = Command::new("sh")
        .args(["-c", &format!("{} {shell}", env!("CARGO_BIN_EXE_hisa"))])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    for (name, holds) in [
        ("r.xml", "token_topk"),
        ("r.html", "ties by the higher key"),
    ] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.contains(holds), "{name}");
    }
}

#[test]
fn a_saved_file_shrinks_by_value() {
    let folder = tempfile::tempdir().unwrap();
    let run = format!("fuzz {TIES} --cases 40 --no-shrink --json r.json");
    assert_eq!(hisa(&run, folder.path()).0, Some(1));
    let large = report(folder.path());
    let finding = of_check(&large, "token_topk.selection");
    assert!(finding.shrunk.is_none());
    let file = finding.saved.as_ref().unwrap();
    let replay = format!("replay {TIES} {file} --shrink --json r.json");
    assert_eq!(hisa(&replay, folder.path()).0, Some(1));
    let small = report(folder.path());
    let finding = of_check(&small, "token_topk.selection");
    let shrunk = finding.shrunk.as_ref().unwrap();
    let [m, n, h, d] = shrunk.sizes;
    assert!(m == 1 && n <= 4 && h == 1 && d == 1, "{:?}", shrunk.sizes);
    assert_eq!(
        hisa(&format!("replay {TIES} {}", shrunk.case), folder.path()).0,
        Some(1)
    );
}

#[test]
fn known_deviations_leave_a_run_clean_and_must_stay_real() {
    let folder = tempfile::tempdir().unwrap();
    let row = |check: &str| {
        format!(
            "[[expect]]\nbackend = \"mutant:ttopk-ties-high\"\ncheck = \"{check}\"\n\
             reason = \"ties go up\"\nlink = \"https://example.org/1\"\n"
        )
    };
    let run = format!("fuzz {TIES} --cases 60 --expect e.toml --json r.json");
    let with = |checks: &[&str]| {
        let rows: String = checks.iter().map(|check| row(check)).collect();
        std::fs::write(folder.path().join("e.toml"), rows).unwrap();
        hisa(&run, folder.path()).0
    };
    let both = ["token_topk.selection", "token_topk.order"];
    assert_eq!(with(&both), Some(0));
    let known = report(folder.path());
    assert!(known.clean && known.summary.expected_total > 0);
    assert_eq!(known.summary.expected_total, known.summary.findings_total);
    assert_eq!(with(&both[..1]), Some(1), "the order is not expected");
    assert_eq!(
        with(&[
            "token_topk.selection",
            "token_topk.order",
            "token_topk.tail"
        ]),
        Some(1)
    );
    let reasons = report(folder.path()).reasons;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(
        reasons[0].contains("token_topk.tail: ties go up"),
        "{reasons:?}"
    );
    assert_eq!(with(&["token_topk.magic"]), Some(2));
}

/// The input of a case that kills its worker is on disk, by value, when it is reported.
#[test]
fn a_crash_leaves_its_input_behind() {
    let folder = tempfile::tempdir().unwrap();
    let run = "fuzz --backend saboteur:abort --stage token_topk --cases 40 --seed 1 --json r.json";
    let (status, text) = hisa(run, folder.path());
    assert_eq!(status, Some(1), "{text}");
    let report = report(folder.path());
    let finding = of_check(&report, "token_topk.runs");
    let shrunk = finding.shrunk.as_ref().unwrap();
    assert_eq!(shrunk.sizes, [1, 3, 1, 1], "{}", shrunk.case);
    assert!(
        shrunk.detail.got.contains("signal"),
        "{}",
        shrunk.detail.got
    );
    assert!(folder.path().join(finding.saved.as_ref().unwrap()).exists());
}
