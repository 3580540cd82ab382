//! The backends on a GPU. Tests that need one skip aloud where there is none; the others say what
//! a user without one is told.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hisa_conformance::backend::cuda::available;
use hisa_conformance::check::{CHECKS, position};
use hisa_conformance::effort::Effort;
use hisa_conformance::op::Op;
use hisa_conformance::runner::{self, Launcher, Nobody, Plan, RunOutcome, Suite};
use hisa_conformance::selftest::gpu;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const HISA: &str = env!("CARGO_BIN_EXE_hisa");

/// Whether there is a GPU; said aloud where there is none. One that cannot be used fails the test.
fn has_gpu(test: &str) -> bool {
    let Err(reason) = available() else {
        return true;
    };
    assert!(reason.is_absence(), "{test}: {reason}");
    let required = std::env::var_os("HISA_REQUIRE_GPU").unwrap_or_default();
    assert!(
        required.is_empty(),
        "{test}: HISA_REQUIRE_GPU is set, and {reason}"
    );
    eprintln!("SKIPPED: no CUDA device: {reason} ({test})");
    false
}

fn run(plan: &Plan) -> RunOutcome {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        program: Some(HISA.into()),
        state: Some(folder.path().join("state")),
        ..plan.clone()
    };
    runner::run(&plan, &mut Nobody).unwrap()
}

/// Edge, corpus and exhaustive cases and some random ones, every stage on true inputs and every
/// indexer end to end, with the checks of repeats, guards, inputs and old contents.
fn assert_clean(backend: &str) {
    let plan = Plan {
        cases: Some(2000),
        jobs: Some(4),
        ..Plan::new(backend, Effort::Quick)
    };
    let report = run(&plan);
    let findings = &report.summary.findings;
    assert!(findings.is_empty(), "{backend}: {findings:#?}");
    assert_eq!((report.deaths, report.stopped), (0, None), "{backend}");
    assert_eq!(report.summary.total_cases(), plan.promised());
    for op in Op::ALL.into_iter().filter(|&op| op != Op::Windows) {
        for check in ["runs", "repeat", "guard", "inputs", "stale"] {
            let at = position(&format!("{op}.{check}")).unwrap();
            let tally = &report.summary.tallies[at];
            assert!(tally.passed > 1000, "{backend} {op}.{check}: {tally:?}");
        }
    }
}

#[test]
fn tensor_cores_have_the_bits_of_their_model() {
    if has_gpu("model") {
        assert_clean("cuda");
    }
}

#[test]
fn exact_scores_have_the_bits_of_the_reference() {
    if has_gpu("exact") {
        assert_clean("cuda:exact");
    }
}

/// A fault of each kind of place: values, a guard, a lost device, a workspace.
#[test]
fn faults_in_kernels_are_found() {
    if !has_gpu("faults") {
        return;
    }
    let names = [
        "pool-first-scale",
        "pool-overrun",
        "map-trap",
        "hisa-accumulates",
    ];
    let launcher = Launcher::new(Some(Path::new(HISA)), Duration::from_secs(300)).unwrap();
    let test = gpu::run(&launcher, &names.map(str::to_owned)).unwrap();
    assert_eq!(test.rows.len(), names.len());
    // Two blocks that write one scale race, so the overrun may show as a value.
    for row in test.rows.iter().filter(|row| row.fault != "pool-overrun") {
        assert!(row.as_meant(), "{row:#?}");
    }
    assert!(test.is_clean(), "{test:#?}");
}

/// BR-99: what a lost device costs is the case it was lost in.
#[test]
fn a_lost_device_is_charged_to_its_job_and_later_cases_run() {
    if !has_gpu("lost") {
        return;
    }
    let plan = Plan {
        suite: Suite::Random,
        cases: Some(30),
        jobs: Some(1),
        ..Plan::new("cuda-fault:map-trap", Effort::Quick)
    };
    let report = run(&plan);
    let runs = position("index_map.runs").unwrap();
    assert!(report.deaths > 1);
    let found = &report.summary.findings;
    assert!(found.iter().any(|found| found.check == runs), "{found:#?}");
    for found in found {
        // The whole indexer ends with the same kernel; it runs where the stage did not trap.
        let op = CHECKS[found.check].op;
        assert!(op == CHECKS[runs].op || op == Op::Hisa, "{found:#?}");
    }
    // A fresh context each time: the first job of every case runs, after a loss too.
    let first = &report.summary.tallies[position("quantize.runs").unwrap()];
    assert_eq!(first.passed, report.summary.total_cases(), "{first:?}");
}

fn hisa(words: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(HISA);
    command.args(words.split_whitespace()).current_dir(&folder);
    command.output().unwrap()
}

#[test]
fn without_a_gpu_commands_say_why_and_end_with_2() {
    let Err(reason) = available() else {
        return; // there is one
    };
    let address = "hisa:M=1,N=2,H=1,D=8,B=2,m=1,K=1,rank=bf16/win=0:2/v=ties/seed=0x0";
    for (words, name) in [
        ("run --backend cuda --cases 1".to_owned(), "cuda"),
        (
            "run --backend cuda:exact --cases 1".to_owned(),
            "cuda:exact",
        ),
        ("fuzz --backend cuda --cases 1".to_owned(), "cuda"),
        (format!("replay {address} --backend cuda"), "cuda"),
        ("selftest --backend cuda".to_owned(), "cuda-fault:none"),
    ] {
        let output = hisa(&words);
        assert_eq!(output.status.code(), Some(2), "{words}");
        let said = String::from_utf8(output.stderr).unwrap();
        let wanted = format!("hisa: backend {name}: {reason}\n");
        assert!(said.ends_with(&wanted), "{words}: {said}");
        assert!(output.stdout.is_empty(), "{words}");
    }
    let listed = String::from_utf8(hisa("list backends").stdout).unwrap();
    for name in ["cuda", "cuda:exact"] {
        let line = listed
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap();
        assert!(line.ends_with(&format!("Not here: {reason}.")), "{line}");
    }
}
