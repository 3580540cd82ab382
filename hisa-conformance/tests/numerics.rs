//! Bounds against simulated kernels: never violated, close, and false declarations are found.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::backend::simulated::Simulated;
use hisa_conformance::backend::{Backend, basis_of};
use hisa_conformance::check::CHECKS;
use hisa_conformance::effort::DEFAULT_SEED;
use hisa_conformance::generate::by_name;
use hisa_conformance::numerics::Numerics;
use hisa_conformance::problem::Problem;
use hisa_conformance::summary::{Source, Summary};
use hisa_conformance::worker::judge::judge_all;
use rayon::prelude::*;
use std::collections::BTreeSet;

/// Findings that tests look at.
const KEPT: usize = 20;

/// Cases of a generator at a stride, on fresh backends.
fn run_part(
    (name, stride, count): (&str, u64, u64),
    seed: u64,
    make: &(dyn Fn() -> Simulated + Sync),
) -> Summary {
    let generator = by_name(if name == "vectors" { "edge" } else { name }, seed, count).unwrap();
    let cases = (0..generator.len().div_ceil(stride)).into_par_iter();
    let judged = cases.fold(Summary::default, |mut part, number| {
        let index = number * stride;
        let generated = generator.case(index).unwrap();
        if name == "vectors" && !generated.comment.starts_with("vector T") {
            return part;
        }
        // What takes minutes in a model of a matrix unit proves nothing that small sizes do not.
        let case = &generated.case;
        if case.m * case.n * case.h * case.d > 1 << 18 {
            return part;
        }
        let problem = Problem::new(case).unwrap();
        let source = Source {
            generator: generator.name().to_owned(),
            index,
        };
        let mut backend = make();
        let mut basis = basis_of(backend.name());
        let address = case.to_string();
        judge_all(
            &problem,
            (&source, &address),
            &mut backend,
            basis.as_mut(),
            &mut part,
        );
        part.findings.truncate(KEPT);
        part
    });
    judged.reduce(Summary::default, |mut sum, part| {
        sum.merge(part, KEPT);
        sum
    })
}

fn run(parts: &[(&str, u64, u64)], seed: u64, make: &(dyn Fn() -> Simulated + Sync)) -> Summary {
    let mut summary = Summary::default();
    for &part in parts {
        summary.merge(run_part(part, seed, make), KEPT);
    }
    summary
}

fn simulated(name: &str) -> Simulated {
    Simulated::new(name).unwrap_or_else(|| panic!("{name}"))
}

fn declaring(name: &str, numerics: &str) -> Simulated {
    let numerics: Numerics = numerics.parse().unwrap();
    simulated(name).declaring(numerics)
}

fn shown(summary: &Summary) -> String {
    let findings = summary.findings.iter().take(5).map(|finding| {
        let check = CHECKS[finding.check].id();
        format!("{check} on {}\n  {:?}\n", finding.case, finding.detail)
    });
    findings.collect()
}

/// Checks that failed on any case.
fn failed(summary: &Summary) -> BTreeSet<String> {
    let tallies = summary.tallies.iter().zip(CHECKS);
    tallies
        .filter(|(tally, _)| tally.failed > 0)
        .map(|(_, check)| check.id())
        .collect()
}

/// Every simulated kernel on the corners, on small shapes, and on random cases of its own.
#[test]
fn simulated_kernels_keep_what_they_declare() {
    for (number, name) in Simulated::names().into_iter().enumerate() {
        let seed = DEFAULT_SEED + number as u64;
        let parts = [("edge", 3, 0), ("exhaustive", 97, 0), ("ragged", 1, 400)];
        let summary = run(&parts, seed, &|| simulated(&name));
        assert_eq!(summary.findings_total, 0, "{name}\n{}", shown(&summary));
        for tensor in ["block_scores.block_scores", "token_scores.token_scores"] {
            let histogram = &summary.measures.0[tensor];
            let bounded = histogram.values - histogram.unbounded;
            assert!(
                bounded > histogram.values / 2,
                "{name} {tensor} {histogram:?}"
            );
        }
    }
}

/// On the vectors that are hard on matrix units, errors come within these shares of the bounds.
/// The floors are what this test measured, cut to two digits: a bound that becomes looser fails.
#[test]
fn bounds_are_close_on_hard_vectors() {
    let ragged = ("ragged", 1, 200);
    for (name, part, floor) in [
        ("exact", ragged, 0.66),
        ("hopper-qgmma", VECTORS, 0.99),
        ("hopper-qgmma-unchained", VECTORS, 0.99),
        ("ada-qmma", VECTORS, 0.99),
        ("blackwell-f25", VECTORS, 0.99),
        ("hmma-emulated", VECTORS, 0.3),
        ("hopper-hgmma-f16", VECTORS, 0.99),
        ("ampere-hmma-f16", VECTORS, 0.99),
        ("f32", ragged, 0.66),
        ("f32-ftz", ragged, 0.99),
        ("bf16-out", VECTORS, 0.61),
    ] {
        let summary = run(&[part], DEFAULT_SEED, &|| simulated(name));
        let share = summary.measures.0["dsa.flat_scores"].share_max;
        println!("{name}: {share:.4} of the bound");
        assert_eq!(summary.findings_total, 0, "{name}\n{}", shown(&summary));
        assert!(share >= floor && share <= 1.0, "{name}: {share}");
    }
}

/// The last cases of `edge`.
const VECTORS: (&str, u64, u64) = ("vectors", 1, 0);

/// A declaration one step too good is found on the cases that are there for it. SPEC 10.17.
#[test]
fn false_declarations_are_found() {
    for (name, declared, check) in [
        ("hopper-qgmma", "scores=bounded:hmma-emulated", "dsa.scores"),
        (
            "hopper-qgmma",
            "scores=bounded:blackwell-f25",
            "token_scores.scores",
        ),
        ("hopper-qgmma", "exact", "dsa.selection"),
        ("ada-qmma", "scores=bounded:hmma-emulated", "dsa.scores"),
        (
            "ada-qmma:model",
            "scores=model:hopper-qgmma+deepgemm-sm90+fma",
            "dsa.scores",
        ),
        (
            "blackwell-f25",
            "scores=bounded:hmma-emulated",
            "dsa.scores",
        ),
        ("bf16-out", "scores=bounded:exact", "dsa.scores"),
    ] {
        let summary = run(&[VECTORS], DEFAULT_SEED, &|| declaring(name, declared));
        let failed = failed(&summary);
        assert!(failed.contains(check), "{name} as {declared}: {failed:?}");
    }
    // BR-85 is among the corners.
    let scores_alone = "scores=bounded:f32-any-order";
    let summary = run(&[("edge", 1, 0)], DEFAULT_SEED, &|| {
        declaring("f32", scores_alone)
    });
    let failed = failed(&summary);
    assert!(failed.contains("block_pool.values"), "{failed:?}");
    assert!(failed.contains("quantize.values"), "{failed:?}");
}

/// What a finding says: the bound, and how far beyond it the value is.
#[test]
fn findings_name_the_bound_and_the_excess() {
    let declared = "scores=bounded:hmma-emulated";
    let summary = run(&[VECTORS], DEFAULT_SEED, &|| {
        declaring("hopper-qgmma", declared)
    });
    let finding = (summary.findings.iter())
        .find(|finding| CHECKS[finding.check].id() == "dsa.scores")
        .unwrap();
    let bound = finding.detail.bound.as_deref().unwrap();
    assert!(bound.contains("times the bound"), "{bound}");
    assert!(bound.ends_with("of bounded:hmma-emulated"), "{bound}");
}
