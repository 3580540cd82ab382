//! Every planted fault is found, first by the check that is there for it, and a port without a
//! fault passes them all.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::backend::mutant::{MUTANTS, Mutant, by_name};
use hisa_conformance::backend::reference::Reference;
use hisa_conformance::check::{CHECKS, position};
use hisa_conformance::effort::{DEFAULT_SEED, Effort};
use hisa_conformance::op::Op;
use hisa_conformance::problem::Problem;
use hisa_conformance::report::text;
use hisa_conformance::runner::{Plan, generators, judge_by};
use hisa_conformance::summary::{Finding, Source, Summary};
use hisa_conformance::truth::Truth;
use rayon::prelude::*;
use std::collections::BTreeSet;

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
        assert!(position(id).is_some(), "{}: no check {id}", mutant.name);
        assert!(mutant.about.ends_with('.'), "{}", mutant.name);
        assert_eq!(
            by_name(mutant.name).unwrap().name(),
            format!("mutant:{}", mutant.name)
        );
    }
    assert!(by_name("none").is_some() && by_name("no such").is_none());
}

/// The cases of `hisa run` without the DeepSeek ones.
fn cases(share: impl Fn(&str, u64) -> u64) -> impl Iterator<Item = (Source, String, Problem)> {
    let plan = Plan {
        backend: "reference".to_owned(),
        seed: DEFAULT_SEED,
        cases: None,
        effort: Effort::Quick,
    };
    let parts = generators(&plan)
        .into_iter()
        .filter(|(part, _)| part.name() != "deepseek");
    let parts: Vec<_> = parts
        .map(|(part, stride)| {
            let count = share(part.name(), part.len().div_ceil(stride));
            (part, stride, count)
        })
        .collect();
    parts.into_iter().flat_map(|(part, stride, count)| {
        let mut indices: Vec<u64> = (0..count).map(|at| at * stride).collect();
        if part.name() == "edge" {
            // Small cases first: the large ones are then left to the few that need them.
            indices.sort_by_key(|&index| {
                let case = part.case(index).unwrap().case;
                case.m * (case.n + case.block_size * case.block_topk) * case.h * case.d
            });
        }
        indices.into_iter().map(move |index| {
            let generated = part.case(index).unwrap();
            let source = Source {
                generator: part.name().to_owned(),
                index,
            };
            let address = generated.case.to_string();
            (source, address, Problem::new(&generated.case).unwrap())
        })
    })
}

fn judged(
    name: &str,
    (source, case): (&Source, &str),
    problem: &Problem,
    truth: &Truth,
) -> Vec<Finding> {
    let mut summary = Summary::default();
    let mut backend = by_name(name).unwrap();
    judge_by(
        (problem, truth),
        (source, case),
        backend.as_mut(),
        &mut summary,
    );
    summary.findings
}

/// Bit for bit, on every edge case and some hundred others.
#[test]
fn the_port_without_a_fault_passes_everything() {
    let share = |name: &str, all: u64| if name == "edge" { all } else { 400 };
    let cases: Vec<_> = cases(share).collect();
    assert!(cases.len() > 1000, "{} cases", cases.len());
    cases.par_iter().for_each(|(source, case, problem)| {
        let truth = Truth::new(problem, &mut Reference::new());
        let findings = judged("none", (source, case), problem, &truth);
        let found: Vec<String> = findings.iter().map(text::finding).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
}

/// The first finding of each mutant on the first case on which it has any, and how many cases
/// that took.
fn first_findings() -> Vec<(&'static Mutant, Option<Finding>, usize)> {
    let mut alive: Vec<&Mutant> = MUTANTS.iter().filter(|mutant| mutant.survives()).collect();
    let mut found = Vec::new();
    let mut count = 0;
    for (source, case, problem) in cases(|_, all| all) {
        if alive.is_empty() {
            break;
        }
        count += 1;
        let truth = Truth::new(&problem, &mut Reference::new());
        let verdicts: Vec<Option<Finding>> = alive
            .par_iter()
            .map(|mutant| {
                let findings = judged(mutant.name, (&source, &case), &problem, &truth);
                findings.into_iter().next()
            })
            .collect();
        let mut verdicts = verdicts.into_iter();
        alive.retain(|mutant| match verdicts.next().flatten() {
            Some(finding) => {
                found.push((*mutant, Some(finding), count));
                false
            }
            None => true,
        });
    }
    found.extend(alive.into_iter().map(|mutant| (mutant, None, count)));
    found
}

#[test]
fn every_mutant_is_found_by_the_check_it_names() {
    let found = first_findings();
    let wrong: Vec<String> = found
        .iter()
        .filter_map(|(mutant, finding, cases)| {
            let Some(finding) = finding else {
                return Some(format!("{}: not found in {cases} cases", mutant.name));
            };
            let check = CHECKS[finding.check].id();
            (check != mutant.caught_by).then(|| {
                let wanted = mutant.caught_by;
                let shown = text::finding(finding);
                format!(
                    "{}: wanted {wanted}, case {cases}: {check}: {shown}",
                    mutant.name
                )
            })
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        found.len(),
        wrong.join("\n")
    );
}
