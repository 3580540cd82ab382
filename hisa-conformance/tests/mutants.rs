//! Every planted fault is found, first by the check that is there for it, and a port without a
//! fault passes them all.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::backend::mutant::{MUTANTS, by_name};
use hisa_conformance::backend::reference::Reference;
use hisa_conformance::check::{CHECKS, position};
use hisa_conformance::flags::Flags;
use hisa_conformance::op::Op;
use hisa_conformance::problem::Problem;
use hisa_conformance::report::SelfTestRow;
use hisa_conformance::runner::Launcher;
use hisa_conformance::selftest::{self, Planted, cases, hunt};
use hisa_conformance::summary::Summary;
use hisa_conformance::worker::judge::{Exhibit, Terms, judge};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

#[test]
fn the_table_is_sane() {
    let names: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    assert_eq!(names.len(), MUTANTS.len(), "a name stands twice");
    assert!(MUTANTS.len() >= 90, "{} mutants", MUTANTS.len());
    for kind in 1..=17 {
        assert!(MUTANTS.iter().any(|mutant| mutant.kind == kind), "K{kind}");
    }
    for op in Op::ALL {
        assert!(MUTANTS.iter().any(|mutant| mutant.op == op), "{op}");
    }
    for mutant in MUTANTS {
        let id = mutant.caught_by;
        let check = position(id).map(|check| CHECKS[check].op);
        assert_eq!(check, Some(mutant.op), "{}: {id}", mutant.name);
        assert!(mutant.about.ends_with('.'), "{}", mutant.name);
        let name = by_name(mutant.name).unwrap().name().to_owned();
        assert_eq!(name, format!("mutant:{}", mutant.name));
    }
    assert!(by_name("none").is_some() && by_name("no such").is_none());
}

/// Bit for bit, on every edge case and some hundred others.
#[test]
fn the_port_without_a_fault_passes_everything() {
    let some: Vec<_> = cases().take(900).collect();
    some.par_iter().for_each(|(source, case)| {
        let problem = Problem::new(case).unwrap();
        let mut summary = Summary::default();
        let exhibit = Exhibit {
            problem: &problem,
            source,
            case: &case.to_string(),
            flags: &|| Flags::NONE,
        };
        let mut backend = by_name("none").unwrap();
        let basis = &mut Reference::new();
        let terms = Terms::of(&Op::ALL);
        judge(&exhibit, backend.as_mut(), basis, &terms, &mut summary);
        assert!(summary.findings.is_empty(), "{:#?}", summary.findings);
    });
}

fn said(row: &SelfTestRow) -> String {
    let got = row.caught_by.as_deref().unwrap_or("nothing");
    format!(
        "{}: meant {}, caught by {got} after {} cases",
        row.fault, row.meant, row.cases
    )
}

/// In worker processes, as `hisa run` does it, with the faults that end a process.
#[test]
fn every_fault_is_caught_by_the_check_it_names() {
    let program = Path::new(env!("CARGO_BIN_EXE_hisa"));
    let launcher = Launcher::new(Some(program), Duration::from_secs(60)).unwrap();
    let result = selftest::run(&launcher, 2).unwrap();
    let wrong: Vec<String> = result
        .rows
        .iter()
        .filter(|row| !row.as_meant())
        .map(said)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        MUTANTS.len(),
        wrong.join("\n")
    );
    assert_eq!(result.rows.len(), MUTANTS.len());
    assert!(result.canary_noticed && result.copy_passed);
    assert_eq!(result.why_unclean(), Vec::<String>::new());
    // Those that need thousands of keys or wide offsets stay large.
    let tiny = |row: &&SelfTestRow| {
        row.shrunk_sizes
            .is_some_and(|[m, n, h, d]| m <= 4 && n <= 40 && h <= 4 && d <= 40)
    };
    let tiny = result.rows.iter().filter(tiny).count();
    assert!(
        tiny * 10 >= MUTANTS.len() * 9,
        "{tiny} shrink to a few rows and keys"
    );
}

/// The self-test itself can fail: without checks no fault is found.
#[test]
fn without_checks_nothing_is_caught() {
    let some: Vec<_> = MUTANTS
        .iter()
        .filter(|mutant| mutant.survives())
        .take(5)
        .map(Planted::Port)
        .collect();
    let prey = hunt(&some, true, 30, &mut |_| {}).unwrap();
    assert_eq!(prey.len(), 5);
    assert!(
        prey.iter()
            .all(|prey| prey.finding.is_none() && prey.row().caught_by.is_none())
    );
}
