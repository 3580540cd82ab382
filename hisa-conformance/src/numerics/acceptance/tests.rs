//! Sets of ids against true answers, and against answers drawn from the ranges.

use super::*;
use crate::backend::reference::Reference;
use crate::generate::by_name;
use crate::numerics::Numerics;
use crate::op::Op;
use crate::problem::Problem;
use crate::truth::Truth;

/// Random problems, small enough for every row to be looked at.
fn problems(seed: u64, count: u64) -> impl Iterator<Item = Problem> {
    let generator = by_name("ragged", seed, count).unwrap();
    let cases = (0..count).filter_map(move |index| Some(generator.case(index)?.case));
    let small = cases.filter(|case| case.m * case.n * case.h * case.d < 1 << 16);
    small.map(|case| Problem::new(&case).unwrap())
}

fn rows_with_keys(problem: &Problem) -> Vec<usize> {
    let windows = problem.inputs.windows.rows();
    let rows = 0..windows.len();
    rows.filter(|&row| !windows[row].is_empty()).collect()
}

#[test]
fn exact_scores_leave_one_answer_and_it_is_the_true_one() {
    let mut rows = 0;
    for problem in problems(3, 400) {
        let truth = Truth::new(&problem, &mut Reference::new());
        let bounds = Bounds::new(&problem, &truth, Numerics::default());
        for row in rows_with_keys(&problem) {
            for (op, accepted) in [(Op::Hisa, hisa(&bounds, row)), (Op::Dsa, dsa(&bounds, row))] {
                let ids = truth.of(op).unwrap().i32("indices").unwrap().row(row);
                let m = problem.inputs.params.block_topk();
                assert_eq!(accepted.objection(ids, m), None, "{op}");
                assert_eq!(accepted.disorder(ids), None, "{op}");
                for (id, token) in accepted.tokens.iter().enumerate() {
                    let chosen = ids.contains(&(id as i32));
                    let member = token.member;
                    assert_eq!((member.must, member.may), (chosen, chosen), "{op} {id}");
                }
                rows += 1;
            }
        }
    }
    assert!(rows > 1000, "{rows}");
}

/// SPEC 10.17.
#[test]
fn every_changed_answer_is_objected_to_where_scores_are_exact() {
    let (mut sets, mut orders) = (0, 0);
    for problem in problems(4, 200) {
        let truth = Truth::new(&problem, &mut Reference::new());
        let bounds = Bounds::new(&problem, &truth, Numerics::default());
        for row in rows_with_keys(&problem) {
            let accepted = hisa(&bounds, row);
            let m = problem.inputs.params.block_topk();
            let ids = truth.of(Op::Hisa).unwrap().i32("indices").unwrap().row(row);
            let absent = (0..accepted.tokens.len() as i32).find(|id| !ids.contains(id));
            if let Some(absent) = absent.filter(|_| ids[0] >= 0) {
                let mut changed = ids.to_vec();
                changed[0] = absent;
                assert!(accepted.objection(&changed, m).is_some());
                sets += 1;
            }
            if ids.len() > 1 && ids[1] >= 0 {
                let mut changed = ids.to_vec();
                changed.swap(0, 1);
                assert!(accepted.disorder(&changed).is_some());
                orders += 1;
            }
        }
    }
    assert!(sets > 200 && orders > 200, "{sets} {orders}");
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number of the range: an end, or one between.
fn drawn(range: Range, state: &mut u64) -> f32 {
    let (low, high) = match range {
        Range::Nan => return f32::NAN,
        Range::Between(low, high) => (low, high),
        Range::Anything => (-1.0, 1.0),
    };
    match next(state) % 3 {
        0 => low,
        1 => high,
        _ => {
            let part = (next(state) >> 40) as f64 / (1u64 << 24) as f64;
            let between = f64::from(low) + (f64::from(high) - f64::from(low)) * part;
            let value = between as f32;
            if low <= value && value <= high {
                value
            } else {
                low
            }
        }
    }
}

/// The row of a backend whose scores are these: the rules of SPEC 5 and 7, written out.
fn answer(
    bounds: &Bounds<'_>,
    row: usize,
    blocks: &[f32],
    tokens: &[f32],
) -> (Vec<usize>, Vec<i32>) {
    let params = bounds.problem().inputs.params;
    let window = bounds.problem().inputs.windows.rows()[row];
    let (b, range) = (params.block_size(), window.blocks(params.block_size()));
    let mut ranked: Vec<usize> = range.clone().collect();
    ranked.sort_by_key(|&block| {
        let score = blocks[block - range.start];
        let key = match params.rank() {
            Rank::Bf16 => rank_key(round_to_bf16(score)),
            Rank::F32 => rank_key(score),
        };
        let forced = match block {
            _ if block + 1 == range.end => 0,
            _ if block == range.start => 1,
            _ => 2,
        };
        (forced, std::cmp::Reverse(key), block)
    });
    ranked.truncate(params.block_topk());
    let start = window.keys().start;
    let mut ids: Vec<usize> = window
        .keys()
        .filter(|key| ranked.contains(&(key / b)))
        .collect();
    ids.sort_by_key(|&key| (std::cmp::Reverse(rank_key(tokens[key - start])), key));
    ids.truncate(params.topk_tokens());
    (
        ranked,
        ids.into_iter().map(|key| (key - start) as i32).collect(),
    )
}

/// Whatever a backend computes within its ranges, its answer is accepted, and the number of ids is
/// the true one: only ends of a window can be cut, and whether these are chosen does not depend on
/// scores. SPEC 10.17.
#[test]
fn whatever_lies_in_the_ranges_gives_an_accepted_answer() {
    let declared = "block_pool=f32,scores=bounded:hopper-qgmma+bf16";
    let (mut state, mut different, mut rows) = (1, 0, 0);
    for problem in problems(5, 300) {
        let truth = Truth::new(&problem, &mut Reference::new());
        let bounds = Bounds::new(&problem, &truth, declared.parse().unwrap());
        let (b, m) = (problem.b(), problem.inputs.params.block_topk());
        for row in rows_with_keys(&problem) {
            let window = problem.inputs.windows.rows()[row];
            let accepted = hisa(&bounds, row);
            let ranges = bounds.chained_blocks(row, window.blocks(b));
            for _ in 0..3 {
                let blocks: Vec<f32> = ranges.iter().map(|&r| drawn(r, &mut state)).collect();
                let tokens = bounds.tokens(row).iter();
                let tokens: Vec<f32> = tokens.map(|s| drawn(s.range, &mut state)).collect();
                let (chosen, ids) = answer(&bounds, row, &blocks, &tokens);
                assert_eq!(accepted.objection(&ids, m), None, "{ids:?}");
                assert_eq!(accepted.disorder(&ids), None, "{ids:?}");
                for (member, block) in accepted.blocks.iter().zip(window.blocks(b)) {
                    let is_chosen = chosen.contains(&block);
                    assert!(member.may || !is_chosen);
                    assert!(is_chosen || !member.must);
                }
                let expected = truth.of(Op::Hisa).unwrap().i32("indices").unwrap().row(row);
                let valid: Vec<i32> = expected.iter().copied().filter(|&id| id >= 0).collect();
                assert_eq!(ids.len(), valid.len());
                different += usize::from(ids != valid);
                rows += 1;
            }
        }
    }
    assert!(different > rows / 20, "{different} of {rows}");
}

#[test]
fn equal_ends_go_to_the_lower_id() {
    let span = |low, high, id| Span::new(Range::Between(low, high), id, |score| score);
    assert!(span(1.0, 2.0, 3).certainly_beats(span(0.0, 1.0, 4)));
    assert!(!span(1.0, 2.0, 4).certainly_beats(span(0.0, 1.0, 3)));
    assert!(!span(0.0, 1.0, 3).certainly_beats(span(1.0, 2.0, 4)));
    let nan = Span::new(Range::Nan, 9, |score| score);
    assert!(span(-1.0, 1.0, 9).certainly_beats(nan));
    let anything = Span::new(Range::Anything, 0, |score| score);
    assert!(!span(f32::MAX, f32::MAX, 1).certainly_beats(anything));
    assert!(!nan.certainly_beats(anything));
}
