use super::*;
use crate::case::Case;
use crate::problem::Problem;
use hisa_ref::{Rank, Window};
use std::collections::HashSet;

const START: &str = "hisa:M=20,N=300,H=5,D=40,B=16,m=4,K=24,rank=f32/win=0:300x7.5:123x7.17:40x6\
    /v=heavy/seed=77/k.9.3=7e,w.1.2=7fc00000,s.250=00000001";

fn from(text: &str, fails: impl Fn(&Case) -> bool) -> Shrunk<Case> {
    let start: Case = text.parse().unwrap();
    assert!(fails(&start));
    let mut calls = 0;
    let mut seen = HashSet::from([start.to_string()]);
    let shrunk = shrink(start, Budget::default(), |case| {
        calls += 1;
        assert!(case.is_valid(), "{case}");
        assert!(seen.insert(case.to_string()), "{case} is tried twice");
        fails(case)
    });
    assert!(fails(&shrunk.smallest));
    assert_eq!(shrunk.calls, calls);
    assert_eq!(shrunk.ended, Ended::FixedPoint, "{}", shrunk.smallest);
    assert_eq!(shrunk.sizes, shrunk.smallest.sizes());
    shrunk
}

fn smallest(fails: impl Fn(&Case) -> bool) -> Case {
    from(START, fails).smallest
}

#[test]
fn a_threshold_of_keys_comes_back_exactly_and_everything_else_is_gone() {
    let shrunk = from(START, |case| case.n >= 40);
    assert_eq!(
        shrunk.smallest.to_string(),
        "hisa:M=1,N=40,H=1,D=1,B=1,m=1,K=1,rank=bf16/win=0:40\
         /q=zero,k=zero,s=one,w=one,x=zeros/seed=0x0"
    );
    assert_eq!(shrunk.sizes, [1, 40, 1, 1]);
    assert!(shrunk.calls < 500, "{}", shrunk.calls);
}

#[test]
fn the_same_threshold_is_found_from_offsets() {
    for text in [
        "hisa:M=300,N=300,H=3,D=8,B=4,m=2,K=4/cu=0.100.110.300/v=real/seed=9",
        "hisa:M=8,N=300,H=3,D=8,B=4,m=2,K=4/cuq=0.4.8,cuk=0.100.300/v=real/seed=9",
    ] {
        let case = from(text, |case| case.n >= 40).smallest;
        assert_eq!(case.sizes(), [1, 40, 1, 1], "{case}");
    }
}

#[test]
fn several_sizes_shrink_together() {
    let case = smallest(|case| case.n >= 40 && case.h >= 3);
    assert_eq!(case.sizes(), [1, 40, 3, 1]);
    let case = smallest(|case| case.d >= 24 && case.topk_tokens >= 5 && case.block_topk >= 2);
    assert_eq!(case.sizes(), [1, 0, 1, 24]);
    assert_eq!((case.topk_tokens, case.block_topk), (5, 2));
}

#[test]
fn what_is_not_monotone_is_found_too() {
    assert_eq!(smallest(|case| case.n % 7 == 6).n, 6);
    // Below 100 nothing fails: bisection ends beside the least, and steps of 7 go down to it.
    assert_eq!(smallest(|case| case.n >= 100 && case.n % 7 == 6).n, 104);
    let odd = smallest(|case| case.block_size % 2 == 0 && case.block_size > 5);
    assert_eq!(odd.block_size, 6);
    let text = START.replace("B=16", "B=33");
    assert_eq!(
        from(&text, |case| case.block_size % 2 == 1)
            .smallest
            .block_size,
        1
    );
    let fails = |case: &Case| case.block_size % 2 == 1 && case.n % case.block_size == 2;
    let text = START.replace("B=16", "B=149");
    assert_eq!(from(&text, fails).smallest.sizes()[1], 2);
}

#[test]
fn windows_become_whole_unless_they_matter() {
    let rows = |case: &Case| case.windows().unwrap().rows().to_vec();
    let case = smallest(|case| rows(case).iter().any(|w| w.ks % 4 == 1 && w.len() >= 10));
    assert_eq!(rows(&case), [Window { ks: 1, ke: 11 }]);
    let case = smallest(|case| {
        let rows = rows(case);
        case.m >= 2 && rows[0].len() >= 2 && rows[1..].iter().any(|w| w.ks > 5)
    });
    assert_eq!(
        rows(&case),
        [Window { ks: 0, ke: 6 }, Window { ks: 6, ke: 6 }]
    );
}

#[test]
fn a_window_that_has_to_stay_empty_stays() {
    let text = "hisa:M=3,N=9,H=1,D=8,B=2,m=1,K=2/win=0:9.3:3.pad/v=ties";
    let empty = |case: &Case| case.windows().unwrap().rows().iter().any(|w| w.is_empty());
    let case = from(text, |case| case.n >= 2 && empty(case)).smallest;
    assert_eq!(case.to_string().split('/').nth(1), Some("win=0:0"));
}

#[test]
fn only_the_patches_that_matter_stay_and_move_with_their_element() {
    let nan = |case: &Case| case.tensors().unwrap().weights.iter().any(|w| w.is_nan());
    let case = smallest(nan);
    assert_eq!(case.sizes(), [1, 0, 1, 1]);
    let patches: Vec<String> = case.patches.iter().map(ToString::to_string).collect();
    assert_eq!(patches, ["w.0.0=7fc00000"]);
    let case = smallest(|case| {
        let tensors = case.tensors().unwrap();
        tensors.k_scale.iter().any(|s| s.to_bits() == 1)
    });
    assert_eq!(case.sizes(), [1, 1, 1, 1]);
    assert_eq!(case.patches[0].to_string(), "s.0=00000001");
}

#[test]
fn values_that_matter_stay() {
    let ties = |case: &Case| {
        let scales = case.tensors().unwrap().k_scale;
        let same = scales.iter().filter(|&&scale| scale == scales[0]).count();
        case.topk_tokens >= 3 && same >= 2 && scales.iter().any(|&scale| scale != scales[0])
    };
    let text = "hisa:M=1,N=40,H=1,D=16,B=4,m=10,K=8/win=0:40/q=e0,k=e0,\
        s=prog:3f800000+3r2x30p.41000000u90x5.40000000.perm,w=first,x=normal/seed=5";
    let case = from(text, ties).smallest;
    assert_eq!((case.n, case.topk_tokens), (3, 3));
    assert!(case.seed < 16);
    assert!(!case.to_string().contains("perm"), "{case}");
    let rank = smallest(|case| case.rank == Rank::F32);
    assert_eq!(rank.rank, Rank::F32);
}

#[test]
fn a_fault_of_offsets_keeps_offsets() {
    let text = "hisa:M=60,N=60,H=2,D=8,B=4,m=2,K=4/cu=0.5.20.20.31.50.60/v=real/seed=3";
    let empty_then_two = |case: &Case| {
        let Some(cu) = case.windows.source.query_offsets() else {
            return false;
        };
        let full = |pair: &[i64]| pair[0] < pair[1];
        let mut pairs = cu.windows(2).skip_while(|pair| full(pair));
        pairs.next().is_some() && pairs.filter(|pair| full(pair)).count() >= 2
    };
    let case = from(text, empty_then_two).smallest;
    assert_eq!(case.to_string().split('/').nth(1), Some("cu=0.0.1.2"));
    assert_eq!(case.sizes(), [2, 2, 1, 1]);
    let text = "hisa:M=9,N=30,H=1,D=8,B=4,m=2,K=4/cuq=0.12.16,cuk=0.10.30,stride=3,pos=9.80,\
        cp=0of2,pad=1/v=real";
    let strided = |case: &Case| case.to_string().contains("stride");
    let case = from(text, strided).smallest;
    assert_eq!(
        case.to_string().split('/').nth(1),
        Some("cuq=0.1,stride=1"),
        "{case}"
    );
}

#[test]
fn a_shrink_is_repeatable_and_keeps_its_budget() {
    let fails = |case: &Case| case.n.is_multiple_of(3) && case.d > 9;
    let run = |calls| {
        let budget = Budget {
            calls,
            ..Budget::default()
        };
        let shrunk = shrink(START.parse::<Case>().unwrap(), budget, fails);
        (shrunk.smallest, shrunk.calls, shrunk.ended)
    };
    assert_eq!(run(3000), run(3000));
    let (case, calls, ended) = run(10);
    assert_eq!((calls, ended), (10, Ended::Calls));
    assert!(fails(&case));
    let budget = Budget {
        time: Duration::ZERO,
        ..Budget::default()
    };
    let shrunk = shrink(START.parse::<Case>().unwrap(), budget, fails);
    assert_eq!((shrunk.calls, shrunk.ended), (0, Ended::Time));
}

fn problem() -> Problem {
    let text = "hisa:M=6,N=50,H=3,D=12,B=8,m=3,K=10,rank=f32/win=0:50x3.7:30x3/v=normal/seed=7";
    let mut problem = Problem::new(&text.parse::<Case>().unwrap()).unwrap();
    problem.inputs.tensors.k[(33, 7)] = hisa_ref::E4M3::from_bits(0x7E); // the only one
    problem
}

fn by_value(fails: impl Fn(&Problem) -> bool) -> Problem {
    assert!(fails(&problem()));
    let shrunk = shrink(problem(), Budget::default(), |problem| {
        assert!(problem.is_valid());
        fails(problem)
    });
    assert!(fails(&shrunk.smallest));
    assert_eq!(shrunk.ended, Ended::FixedPoint);
    shrunk.smallest
}

#[test]
fn a_problem_by_value_keeps_only_what_matters() {
    let small = by_value(|problem| problem.n() >= 20);
    assert_eq!(small.sizes(), [1, 20, 1, 1]);
    let params = &small.inputs.params;
    assert_eq!(
        (
            params.block_size(),
            params.block_topk(),
            params.topk_tokens()
        ),
        (1, 1, 1)
    );
    assert_eq!(params.rank(), Rank::Bf16);
    assert_eq!(small.inputs.windows.rows(), [Window { ks: 0, ke: 20 }]);
    assert_eq!((small.pieces, small.x), (vec![20], None));
    assert!(
        small
            .inputs
            .tensors
            .k_scale
            .iter()
            .all(|&scale| scale == 1.0)
    );
    assert!(
        small
            .inputs
            .tensors
            .k
            .iter()
            .all(|code| code.to_bits() == 0)
    );
}

#[test]
fn values_of_rows_keys_heads_and_dimensions_that_stay_do_not_change() {
    let (wanted, key) = (problem().inputs.tensors.weights[(4, 2)], 33);
    let scale = problem().inputs.tensors.k_scale[key];
    let code = problem().inputs.tensors.k[(key, 7)];
    let small = by_value(|problem| {
        let tensors = &problem.inputs.tensors;
        tensors.weights.iter().any(|&weight| weight == wanted)
            && tensors.k_scale.iter().any(|&other| other == scale)
            && tensors.k.iter().any(|&other| other == code)
    });
    assert_eq!(small.sizes(), [1, 1, 1, 1]);
    assert_eq!(small.inputs.tensors.weights[(0, 0)], wanted);
    assert_eq!(small.inputs.tensors.k_scale[0], scale);
    assert_eq!(small.inputs.tensors.k[(0, 0)], code);
}

#[test]
fn rows_for_quantize_shrink_by_themselves() {
    let wanted = problem().x.unwrap()[(31, 5)];
    let small = by_value(|problem| {
        let x = problem.x.as_ref();
        x.is_some_and(|x| x.iter().any(|&x| x == wanted))
    });
    assert_eq!(small.x.unwrap().shape(), [1, 1]);
    assert_eq!(small.inputs.tensors.k.len(), 0);
}

#[test]
fn offsets_of_a_problem_shrink_with_its_rows_and_keys() {
    let text = "hisa:M=30,N=30,H=2,D=8,B=4,m=2,K=4/cu=0.5.5.12.30/v=real/seed=3";
    let start = Problem::new(&text.parse::<Case>().unwrap()).unwrap();
    let shrunk = shrink(start, Budget::default(), |problem| {
        let windows = &problem.inputs.windows;
        problem.spec.is_some() && windows.rows().iter().any(|window| window.ks > 2)
    });
    let small = shrunk.smallest;
    assert_eq!(small.spec.as_ref().unwrap().to_string(), "cu=0.3.4");
    assert_eq!(small.sizes(), [4, 4, 1, 1]);
}

#[test]
fn a_window_moves_with_its_keys() {
    let window = |ks, ke| Window { ks, ke };
    assert_eq!(sizes::cut(window(3, 9), &(4..6)), window(3, 7));
    assert_eq!(sizes::cut(window(3, 9), &(0..5)), window(0, 4));
    assert_eq!(sizes::cut(window(3, 9), &(5..20)), window(3, 5));
    assert_eq!(sizes::cut(window(3, 9), &(1..12)), window(1, 1));
    assert_eq!(sizes::cut(Window::PADDING, &(0..5)), Window::PADDING);
    assert_eq!(sizes::cut(window(-2, -2), &(0..5)), window(-2, -2));
}
