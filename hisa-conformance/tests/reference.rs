//! The reference against the oracle and the invariants, in worker processes as users run it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::check::CHECKS;
use hisa_conformance::effort::Effort;
use hisa_conformance::op::Op;
use hisa_conformance::runner::{self, Nobody, Plan, RunOutcome};
use hisa_conformance::summary::{Summary, Tally};
use hisa_conformance::worker::About;
use std::collections::BTreeSet;

fn reference(effort: Effort) -> Plan {
    Plan {
        program: Some(env!("CARGO_BIN_EXE_hisa").into()),
        ..Plan::new("reference", effort)
    }
}

fn assert_clean(plan: &Plan) {
    let report = runner::run(plan, &mut Nobody).unwrap();
    let summary = &report.summary;
    let complaints = report.complaints();
    assert!(report.is_clean(), "{complaints:?}\n{:#?}", summary.findings);
    assert_eq!(summary.total_cases(), plan.promised());
}

/// 100,000 random cases beside the edge, exhaustive and DeepSeek ones.
#[test]
fn standard_effort() {
    let plan = reference(Effort::Standard);
    let ragged = plan
        .parts()
        .into_iter()
        .find(|part| part.generator == "ragged");
    assert_eq!(ragged.unwrap().len, 100_000);
    assert_clean(&plan);
}

/// A few seconds, under another seed: what mutation testing runs.
#[test]
fn reduced_effort() {
    assert_clean(&Plan {
        seed: 0x5EED,
        cases: Some(1500),
        ..reference(Effort::Quick)
    });
}

#[test]
fn every_check_cites_a_clause_of_the_specification() {
    let spec = include_str!("../../docs/SPEC.md");
    for check in CHECKS {
        let clause = format!("**{}**", check.clause);
        assert!(spec.contains(&clause), "{} cites {clause}", check.id());
    }
    let ids: BTreeSet<String> = CHECKS
        .iter()
        .map(hisa_conformance::check::Check::id)
        .collect();
    assert_eq!(ids.len(), CHECKS.len(), "an id names two checks");
}

#[test]
fn every_job_is_compared_with_the_truth() {
    let spec = include_str!("../../docs/SPEC.md");
    let judged = |op: Op| {
        let mut words = CHECKS
            .iter()
            .filter(|check| check.op == op)
            .map(|check| check.name);
        words.any(|word| ["values", "scores", "selection"].contains(&word))
    };
    for op in Op::ALL {
        assert!(judged(op), "{op} is not compared with the truth");
    }
    for stage in hisa_ref::Stage::ALL {
        let heading = format!("## {} {}", stage.section(), stage.name());
        assert!(spec.lines().any(|line| line == heading), "no {heading:?}");
    }
}

#[test]
fn a_check_that_no_case_exercised_makes_a_run_unclean() {
    let all = Tally {
        passed: 1,
        ..Tally::default()
    };
    let mut report = RunOutcome {
        summary: Summary {
            cases: [("ragged".to_owned(), 1)].into(),
            tallies: vec![all; CHECKS.len()],
            ..Summary::default()
        },
        ops: Op::ALL.to_vec(),
        promised: 1,
        stopped: None,
        deaths: 0,
        about: About::default(),
    };
    assert!(report.is_clean());
    let idle = CHECKS.iter().position(|check| check.op == Op::Dsa).unwrap();
    report.summary.tallies[idle] = Tally {
        not_applicable: 1,
        ..Tally::default()
    };
    assert_eq!(
        report.complaints(),
        [format!("1 check never exercised: {}", CHECKS[idle].id())]
    );
    // What was not asked for, and what the backend does not take, is no gap.
    report.ops = vec![Op::Hisa];
    assert!(report.is_clean());
    report.ops = Op::ALL.to_vec();
    report.summary.tallies[idle].skipped = 1;
    assert!(report.is_clean());
    report.promised = 2;
    assert_eq!(report.complaints(), ["1 of 2 cases were run"]);
    (report.promised, report.stopped) = (1, Some("stopped early".into()));
    assert!(!report.is_clean());
    (report.stopped, report.summary.findings_total) = (None, 1);
    assert!(!report.is_clean());
    report.summary.expected_total = 1;
    assert!(report.is_clean());
}
