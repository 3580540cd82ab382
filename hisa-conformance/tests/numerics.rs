//! Bounds against simulated kernels: never violated, close, and false declarations are found.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::backend::simulated::Simulated;
use hisa_conformance::backend::{Backend, basis_of};
use hisa_conformance::check::CHECKS;
use hisa_conformance::effort::DEFAULT_SEED;
use hisa_conformance::generate::by_name;
use hisa_conformance::numerics::Numerics;
use hisa_conformance::problem::Problem;
use hisa_conformance::runner::judge;
use hisa_conformance::summary::{Source, Summary};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// Findings that tests look at.
const KEPT: usize = 20;

/// Cases of a generator at a stride, on fresh backends.
fn run_part(
    (generator, stride, count): (&str, u64, u64),
    make: &(dyn Fn() -> Simulated + Sync),
) -> Summary {
    let generator = by_name(generator, DEFAULT_SEED, count).unwrap();
    let cases = (0..generator.len().div_ceil(stride)).into_par_iter();
    let judged = cases.fold(Summary::default, |mut part, number| {
        let index = number * stride;
        let generated = generator.case(index).unwrap();
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
        judge(
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

fn run(parts: &[(&str, u64, u64)], make: &(dyn Fn() -> Simulated + Sync)) -> Summary {
    let mut summary = Summary::default();
    for &part in parts {
        summary.merge(run_part(part, make), KEPT);
    }
    summary
}

const ALL: &[(&str, u64, u64)] = &[("edge", 1, 0), ("exhaustive", 41, 0), ("ragged", 1, 2000)];

fn simulated(name: &str) -> Simulated {
    Simulated::new(name).unwrap_or_else(|| panic!("{name}"))
}

fn shown(summary: &Summary) -> String {
    let findings = summary.findings.iter().take(5).map(|finding| {
        let check = CHECKS[finding.check].id();
        format!("{check} on {}\n  {:?}\n", finding.case, finding.detail)
    });
    findings.collect()
}

#[test]
fn measure() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for name in Simulated::names()
        .into_iter()
        .filter(|name| name.contains(&only))
    {
        for part in ALL {
            let start = std::time::Instant::now();
            let summary = run(&[*part], &|| simulated(&name));
            let cases = summary.total_cases();
            println!(
                "{name} {} {cases} cases {:?} findings {}\n{}",
                part.0,
                start.elapsed(),
                summary.findings_total,
                shown(&summary)
            );
            for (tensor, histogram) in &summary.measures.0 {
                println!(
                    "    {tensor}: {} values, {} unbounded, share {:.4}",
                    histogram.values, histogram.unbounded, histogram.share_max
                );
            }
        }
    }
}
