//! Shrinking real faults: backends that are wrong on purpose, judged by the checks of a run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod faults;

use faults::{Broken, Fault};
use hisa_conformance::backend::Backend;
use hisa_conformance::backend::oracle::Oracle;
use hisa_conformance::backend::reference::Reference;
use hisa_conformance::case::Case;
use hisa_conformance::check::{self, CHECKS, Verdict};
use hisa_conformance::generate::by_name;
use hisa_conformance::problem::Problem;
use hisa_conformance::save::{self, Origin, save};
use hisa_conformance::shrink::{Budget, Ended, shrink};
use hisa_conformance::trial::Trial;
use hisa_conformance::truth::Truth;

/// A fault, a check that finds it, and a case on which it does.
const FAULTS: [(Fault, &str, &str); 21] = [
    (
        Fault::TiesHigher,
        "token_topk.selection",
        "hisa:M=3,N=64,H=2,D=16,B=8,m=8,K=8/win=0:64x3/v=ties/seed=3",
    ),
    (
        Fault::NanFirst,
        "token_topk.selection",
        "hisa:M=1,N=64,H=1,D=16,B=16,m=4,K=20/win=3:60\
         /q=e0,k=e0,s=prog:7fc00000x20.3f800000+1.perm,w=first,x=normal",
    ),
    (
        Fault::InfinityAsPadding,
        "token_topk.count",
        "hisa:M=4,N=60,H=1,D=16,B=8,m=8,K=50/win=0:60x4\
         /q=e0,k=e0,s=prog:3f800000x10.7f800000x30.3f800000.perm,w=minus,x=normal",
    ),
    (
        Fault::TailZero,
        "token_topk.unique",
        "hisa:M=20,N=20,H=2,D=16,B=4,m=2,K=8/cu=0.9.20/v=real/seed=4",
    ),
    (
        Fault::GuardWritten,
        "token_topk.guard",
        "hisa:M=9,N=50,H=2,D=16,B=4,m=4,K=11/win=0:50x9/v=real/seed=4",
    ),
    (
        Fault::BlockWindowFloor,
        "block_mask.mask",
        "hisa:M=6,N=300,H=4,D=32,B=16,m=4,K=32/win=5:123x2.16:64.40:299x3/v=real/seed=5",
    ),
    (
        Fault::LastNotForced,
        "block_mask.mask",
        "hisa:M=40,N=40,H=4,D=32,B=8,m=2,K=8/cu=0.17.40/v=normal/seed=5",
    ),
    (
        Fault::PoolTailByB,
        "block_pool.values",
        "hisa:M=2,N=133,H=2,D=24,B=16,m=2,K=8/win=0:133x2/v=real/seed=6",
    ),
    (
        Fault::PoolReciprocal,
        "block_pool.values",
        "hisa:M=2,N=200,H=1,D=32,B=8,m=2,K=8/win=0:200x2/v=pooltie/seed=6",
    ),
    (
        Fault::PoolFloorLost,
        "block_pool.values",
        "hisa:M=2,N=100,H=1,D=16,B=8,m=2,K=8/win=0:100x2/v=zeros/seed=2",
    ),
    (
        Fault::PoolNanDropped,
        "block_pool.values",
        "hisa:M=2,N=100,H=1,D=16,B=8,m=2,K=8/win=0:100x2/v=nan/seed=2",
    ),
    (
        Fault::RankAsF32,
        "block_topk.selection",
        "hisa:M=1,N=128,H=1,D=16,B=2,m=8,K=8/win=0:128\
         /q=basis,k=blocks:3f800000+180x64.perm,s=own,w=first,x=normal",
    ),
    (
        Fault::QuantizeReciprocal,
        "quantize.values",
        "hisa:M=2,N=60,H=1,D=64,B=8,m=2,K=8/win=0:60x2/v=extreme/seed=4",
    ),
    (
        Fault::Ue8m0Ignored,
        "quantize.values",
        "hisa:M=2,N=60,H=1,D=64,B=8,m=2,K=8/win=0:60x2/v=real/seed=5",
    ),
    (
        Fault::NoRelu,
        "token_scores.scores",
        "hisa:M=3,N=60,H=4,D=32,B=8,m=3,K=8/win=0:60x3/v=real/seed=5",
    ),
    (
        Fault::WeightsAsBf16,
        "token_scores.scores",
        "hisa:M=3,N=60,H=4,D=32,B=8,m=3,K=8/win=0:60x3/v=bf16weight/seed=5",
    ),
    (
        Fault::SubnormalsFlushed,
        "token_scores.scores",
        "hisa:M=3,N=60,H=4,D=32,B=8,m=3,K=8/win=0:60x3/v=subnormal/seed=5",
    ),
    (
        Fault::AbsoluteIds,
        "index_map.values",
        "hisa:M=30,N=30,H=2,D=16,B=4,m=2,K=5/cu=0.7.7.30/v=real/seed=5",
    ),
    (
        Fault::EmptySequenceSkipped,
        "windows.values",
        "hisa:M=60,N=60,H=2,D=8,B=4,m=2,K=4/cu=0.5.20.20.31.50.60/v=real/seed=3",
    ),
    (
        Fault::EmptyRowsUnwritten,
        "hisa.stale",
        "hisa:M=5,N=40,H=2,D=16,B=4,m=2,K=4/win=0:40.3:3.0:9.pad.40:40/v=real/seed=3",
    ),
    (
        Fault::RollBackStale,
        "append.values",
        "hisa:M=2,N=70,H=2,D=16,B=8,m=2,K=4/win=0:70x2/v=real/seed=51",
    ),
];

/// Whether `backend` fails the check of this id.
fn fails(problem: &Problem, backend: &mut dyn Backend, id: &str) -> bool {
    let check = CHECKS[check::position(id).unwrap()];
    let truth = Truth::new(problem, &mut Reference::new());
    let mut trial = Trial::new(problem, &truth, backend);
    matches!((check.judge)(&mut trial, check.op), Verdict::Fail(_))
}

#[test]
fn every_fault_shrinks_to_a_case_for_the_palm_of_a_hand() {
    let mut large = Vec::new();
    for (fault, id, start) in FAULTS {
        let start: Case = start.parse().unwrap();
        let mut broken = Broken::new(fault);
        let mut still = |case: &Case| fails(&Problem::new(case).unwrap(), &mut broken, id);
        if !still(&start) {
            large.push(format!("not noticed: {fault:?} {id} {start}"));
            continue;
        }
        let shrunk = shrink(start, Budget::default(), &mut still);
        let case = &shrunk.smallest;
        assert!(still(case), "{fault:?}");
        assert_eq!(shrunk.ended, Ended::FixedPoint, "{fault:?}");
        let [m, n, h, d] = shrunk.sizes;
        if m > 4 || n > 12 || h > 1 || d > 8 {
            large.push(format!("{fault:?} {case}"));
        }
    }
    assert!(large.is_empty(), "{large:#?}");
}

#[test]
fn the_corpus_catches_every_fault_again() {
    let corpus = by_name("corpus", 0, 0).unwrap();
    let cases: Vec<Case> = corpus.iter().map(|generated| generated.case).collect();
    for (fault, id, _) in FAULTS {
        let mut broken = Broken::new(fault);
        let mut caught = |case: &Case| fails(&Problem::new(case).unwrap(), &mut broken, id);
        assert!(cases.iter().any(&mut caught), "{fault:?}");
    }
}

#[test]
fn a_shrunk_problem_by_value_is_as_small_and_fails_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    for (fault, id, start) in FAULTS {
        let start: Case = start.parse().unwrap();
        let mut broken = Broken::new(fault);
        let mut still = |problem: &Problem| fails(problem, &mut broken, id);
        let shrunk = shrink(Problem::new(&start).unwrap(), Budget::default(), &mut still);
        let origin = Origin {
            check: Some(id.to_owned()),
            address: Some(start.to_string()),
        };
        let path = save(&shrunk.smallest, &origin, folder.path()).unwrap();
        let (problem, read) = save::read(&path).unwrap();
        assert_eq!(read, origin);
        assert!(still(&problem), "{fault:?}");
        let [m, n, h, d] = shrunk.sizes;
        assert!(
            m <= 4 && n <= 12 && h == 1 && d <= 8,
            "{fault:?} {:?}",
            shrunk.sizes
        );
    }
}

/// Guards the table above: none of its cases is wrong for the reference itself.
#[test]
fn the_reference_passes_where_the_broken_backends_fail() {
    for (_, id, start) in FAULTS {
        let start: Case = start.parse().unwrap();
        let problem = Problem::new(&start).unwrap();
        let check = CHECKS[check::position(id).unwrap()];
        let truth = Truth::new(&problem, &mut Oracle::new());
        let mut reference = Reference::new();
        let mut trial = Trial::new(&problem, &truth, &mut reference);
        assert_eq!(
            (check.judge)(&mut trial, check.op),
            Verdict::Pass,
            "{id} {start}"
        );
    }
}

/// Random cases, larger and of all kinds: the shapes a finding of a run has.
#[test]
fn random_cases_shrink_as_far() {
    let ragged = by_name("ragged", 0x5EED, 300).unwrap();
    let mut large = Vec::new();
    for (fault, id, _) in FAULTS {
        let mut broken = Broken::new(fault);
        let mut still = |case: &Case| fails(&Problem::new(case).unwrap(), &mut broken, id);
        let cases = ragged.iter().map(|generated| generated.case);
        let failing: Vec<Case> = cases.filter(|case| still(case)).take(4).collect();
        assert!(!failing.is_empty(), "{fault:?}");
        for start in failing {
            let shrunk = shrink(start.clone(), Budget::default(), &mut still);
            let [m, n, h, d] = shrunk.sizes;
            // Without boundary rows, a quotient and a product differ once in many elements.
            let most = if id == "quantize.values" { 32 } else { 8 };
            if m > 4 || n > 12 || h > 1 || d > most {
                large.push(format!("{fault:?} {start} -> {}", shrunk.smallest));
            }
        }
    }
    assert!(large.is_empty(), "{large:#?}");
}
