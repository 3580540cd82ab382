use super::*;
use crate::backend::reference::Reference;
use crate::case::Case;
use crate::generate::by_name;

fn with_truth(case: &Case, look: impl FnOnce(&Problem, &Truth)) {
    let problem = Problem::new(case).unwrap();
    let truth = Truth::new(&problem, &mut Reference::new());
    look(&problem, &truth);
}

fn cases() -> impl Iterator<Item = Case> {
    let of = |name: &str, count: u64| {
        let generator = by_name(name, 5, count).unwrap();
        (0..generator.len()).map(move |index| generator.case(index).unwrap().case)
    };
    of("ragged", 500)
        .chain(of("edge", 0))
        .filter(|case| case.n * case.m * case.h < 4096)
}

/// Every rule differs from the specification somewhere, and is then named: itself, or one that
/// gives the same on that case.
#[test]
fn every_rule_is_told_from_the_truth_and_named() {
    let mut seen = vec![0u32; alternatives().count()];
    for case in cases() {
        with_truth(&case, |problem, truth| {
            for (index, alternative) in alternatives().enumerate() {
                let op = Op::Stage(alternative.stage);
                let job = Job::new(op, problem, truth.chain()).unwrap();
                let Some(outputs) = (alternative.outputs)(&job) else {
                    continue;
                };
                let named = cause(op, problem, truth, &outputs);
                if equal(alternative.stage, problem, truth.of(op).unwrap(), &outputs) {
                    assert_eq!(named, None, "{case}");
                } else {
                    assert!(named.is_some(), "{case}: {}", alternative.does);
                    seen[index] += 1;
                }
            }
        });
    }
    let silent: Vec<&str> = alternatives()
        .zip(&seen)
        .filter(|(_, seen)| **seen == 0)
        .map(|(alternative, _)| alternative.does)
        .collect();
    assert!(
        silent.is_empty(),
        "never differs from the truth: {silent:?}"
    );
}

/// What is no rule at all stays without a sentence.
#[test]
fn noise_is_not_explained() {
    let mut case = Case::with_cu(&[0, 9, 24]);
    (case.h, case.seed, case.topk_tokens) = (2, 4, 5);
    with_truth(&case, |problem, truth| {
        for stage in Stage::ALL {
            let op = Op::Stage(stage);
            let mut noise = truth.of(op).unwrap().clone();
            let name = op.outputs()[0];
            if let Some(ids) = noise.i32_mut(name) {
                ids.body_mut()[0] = 12_345;
            } else if let Some(scores) = noise.f32_mut(name) {
                scores.body_mut()[0] = 12_345.0;
            } else if let Some(codes) = noise.codes_mut(name) {
                let code = codes.body()[0].to_bits();
                codes.body_mut()[0] = hisa_ref::E4M3::from_bits(code ^ 0x12);
            }
            assert_eq!(cause(op, problem, truth, &noise), None, "{stage}");
        }
    });
}
