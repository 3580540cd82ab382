//! The reference against the oracle and the invariants, and proof that a difference is noticed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::case::Case;
use hisa_conformance::check::{CHECKS, Context, Verdict};
use hisa_conformance::effort::{DEFAULT_SEED, Effort};
use hisa_conformance::report::text;
use hisa_conformance::runner::{self, Plan, promised};
use std::collections::BTreeSet;

fn assert_clean(plan: Plan) {
    let summary = runner::run(&plan, || {});
    let findings: Vec<String> = summary.findings.iter().map(text::finding).collect();
    assert!(
        summary.is_clean(),
        "{}\n{}",
        findings.join("\n"),
        text::table(&summary)
    );
    assert_eq!(
        summary.total_cases(),
        promised(&plan),
        "a promised case did not run"
    );
}

/// 100,000 random cases beside the edge, exhaustive and DeepSeek ones.
#[test]
fn standard_effort() {
    assert_clean(Plan {
        seed: DEFAULT_SEED,
        cases: None,
        effort: Effort::Standard,
    });
}

/// A few seconds, under another seed: what mutation testing runs.
#[test]
fn reduced_effort() {
    assert_clean(Plan {
        seed: 0x5EED,
        cases: Some(1500),
        effort: Effort::Quick,
    });
}

#[test]
fn the_same_seed_gives_the_same_summary_on_any_number_of_threads() {
    let plan = Plan {
        seed: 5,
        cases: Some(200),
        effort: Effort::Quick,
    };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let summary = pool.install(|| runner::run(&plan, || {}));
        (summary.cases, summary.tallies, summary.findings)
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn every_stage_has_an_oracle_check_and_every_clause_exists() {
    let spec = include_str!("../../docs/SPEC.md");
    let subjects: BTreeSet<&str> = CHECKS
        .iter()
        .filter(|check| check.name == "oracle")
        .map(|check| check.subject)
        .collect();
    for stage in hisa_ref::Stage::ALL {
        assert!(
            subjects.contains(stage.name()),
            "{stage} has no oracle check"
        );
        let heading = format!("## {} {}", stage.section(), stage.name());
        assert!(
            spec.lines().any(|line| line == heading),
            "no heading {heading:?} in SPEC"
        );
    }
    for check in CHECKS {
        let clause = format!("**{}**", check.clause);
        assert!(
            spec.contains(&clause),
            "{}.{} cites {clause}",
            check.subject,
            check.name
        );
    }
}

/// Each oracle check must notice one changed element of what it looks at.
#[test]
fn every_oracle_check_notices_one_changed_element() {
    let mut case = Case::with_cu(&[0, 9, 24]);
    (case.h, case.seed, case.topk_tokens) = (2, 4, 5);
    let fresh = || Context::new(case.clone()).unwrap();
    type Damage = fn(&mut Context);
    let damages: [(&str, Damage); 11] = [
        ("windows", |c| c.oracle_input.windows[3].1 -= 1),
        ("block_pool", |c| c.oracle.pooled_k[0] ^= 1),
        ("block_scores", |c| flip(&mut c.oracle.block_scores[0])),
        ("block_mask", |c| flip(&mut c.oracle.block_mask[1])),
        ("block_topk", |c| c.oracle.block_ids[0] ^= 1),
        ("token_scores", |c| flip(&mut c.oracle.token_scores[0])),
        ("token_topk", |c| c.oracle.slots.swap(20, 21)),
        ("index_map", |c| c.oracle.indices[0] += 1),
        ("hisa", |c| c.indices[(5, 0)] += 1),
        ("dsa", |c| flip(&mut c.oracle_dsa.flat_scores[0])),
        ("block_sparse", |c| {
            c.oracle_block_sparse.as_mut().unwrap().indices[0] += 1
        }),
    ];
    for (subject, damage) in damages {
        let check = CHECKS
            .iter()
            .find(|c| c.subject == subject && c.name == "oracle")
            .unwrap();
        assert_eq!((check.judge)(&fresh()).unwrap(), Verdict::Pass, "{subject}");
        let mut context = fresh();
        damage(&mut context);
        let verdict = (check.judge)(&context).unwrap();
        assert!(
            matches!(verdict, Verdict::Fail(_)),
            "{subject}.oracle overlooked a change"
        );
    }
}

fn flip(value: &mut f32) {
    *value = f32::from_bits(value.to_bits() ^ 1);
}

/// Each invariant on ids must notice the fault it is named after.
#[test]
fn every_invariant_on_ids_notices_its_fault() {
    let mut case = Case::with_cu(&[0, 9, 24]);
    (case.h, case.seed, case.topk_tokens, case.block_topk) = (2, 4, 5, 3);
    let fresh = || Context::new(case.clone()).unwrap();
    type Damage = fn(&mut Context);
    let damages: [(&str, Damage); 13] = [
        ("shape", |c| c.indices = ndarray::Array2::zeros((1, 1))),
        ("range", |c| c.indices[(0, 0)] = 1),
        ("tail", |c| c.indices[(1, 0)] = -1),
        ("unique", |c| c.indices[(7, 1)] = c.indices[(7, 0)]),
        ("count", |c| c.indices[(8, 4)] = -1),
        ("forced", |c| c.trace.block_ids[(0, 0)] = 1),
        ("mask", |c| c.trace.block_mask[(0, 0)] = 1.0),
        ("window", |c| c.indices.row_mut(0)[0] = 1),
        ("rows", |c| c.indices[(9, 0)] = 1),
        ("repeat", |c| flip(&mut c.trace.block_scores[(0, 0)])),
        ("inputs", |c| c.inputs.tensors.k_scale[0] += 1.0),
        ("nest", |c| c.indices.row_mut(8).swap(0, 1)),
        ("equal-flat", |c| c.dsa.indices.row_mut(8).swap(0, 1)),
    ];
    for (name, damage) in damages {
        let check = CHECKS.iter().find(|check| check.name == name).unwrap();
        assert_eq!((check.judge)(&fresh()).unwrap(), Verdict::Pass, "{name}");
        let mut context = fresh();
        damage(&mut context);
        let verdict = (check.judge)(&context);
        let noticed = !matches!(verdict, Ok(Verdict::Pass | Verdict::NotApplicable));
        assert!(noticed, "{name} overlooked its fault");
    }
    for name in ["permute", "scale"] {
        let check = CHECKS.iter().find(|check| check.name == name).unwrap();
        assert_eq!((check.judge)(&fresh()).unwrap(), Verdict::Pass, "{name}");
        let mut context = fresh();
        let scores = &mut context.trace.token_scores;
        flip(scores.iter_mut().find(|score| score.is_normal()).unwrap());
        assert!(
            matches!((check.judge)(&context).unwrap(), Verdict::Fail(_)),
            "{name}"
        );
    }
}
