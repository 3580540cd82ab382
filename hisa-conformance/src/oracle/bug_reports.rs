//! Public bug reports as tests of the whole indexers, on rows of programmed scores: with one
//! head and every vector equal to 1, the score of a key is its scale times the weight.

use super::round::NAN;
use super::{OracleInput, OracleParams, dsa, hisa, windows_from_cu_seqlens};

const ONE: u8 = 0x38;
const INF: f32 = f32::INFINITY;

/// One row that sees all keys and scores them `weight * scales`.
fn weighted(weight: f32, scales: &[f32]) -> OracleInput {
    let n = scales.len();
    OracleInput {
        m: 1,
        n,
        h: 1,
        d: 1,
        q: vec![ONE],
        k: vec![ONE; n],
        k_scale: scales.to_vec(),
        weights: vec![weight],
        windows: vec![(0, n as i32)],
    }
}

fn params(block_size: usize, block_topk: usize, topk_tokens: usize) -> OracleParams {
    OracleParams {
        block_size,
        block_topk,
        topk_tokens,
        rank_bf16: true,
    }
}

/// What both indexers return when the block stage is out of play.
fn select(input: &OracleInput, topk_tokens: usize) -> Vec<i32> {
    let block_topk = input.n.div_ceil(4).max(1);
    let hierarchical = hisa(input, &params(4, block_topk, topk_tokens)).indices;
    assert_eq!(hierarchical, dsa(input, topk_tokens).indices);
    hierarchical
}

fn programmed(scores: &[f32], topk_tokens: usize) -> Vec<i32> {
    select(&weighted(1.0, scores), topk_tokens)
}

/// The expected answer for scores that are not negative.
fn sorted(scores: &[f32], topk_tokens: usize) -> Vec<i32> {
    let mut ids: Vec<i32> = (0..scores.len() as i32).collect();
    ids.sort_by(|&a, &b| scores[b as usize].partial_cmp(&scores[a as usize]).unwrap());
    ids.truncate(topk_tokens);
    ids
}

#[test]
fn br_01_shared_high_bits() {
    let scores: Vec<f32> = (0..8192)
        .map(|n| f32::from_bits(0x3F90_0000 | (n * 613 % 1024)))
        .collect();
    assert_eq!(programmed(&scores, 2048), sorted(&scores, 2048));
}

#[test]
fn br_02_many_scores_in_one_bin() {
    let score = |n: u32| match n * 5 % 8192 {
        0..100 => 2.0,
        bin @ 100..5100 => f32::from_bits(0x3F80_0000 + bin),
        _ => 0.5,
    };
    let scores: Vec<f32> = (0..8192).map(score).collect();
    assert_eq!(programmed(&scores, 2048), sorted(&scores, 2048));
}

#[test]
fn br_05_one_ulp_steps() {
    let scores: Vec<f32> = (0..16448)
        .map(|n| f32::from_bits(0x3F80_0000 + n))
        .collect();
    let last: Vec<i32> = (16448 - 2048..16448).rev().collect();
    assert_eq!(programmed(&scores, 2048), last);
}

#[test]
fn br_07_last_byte_only() {
    let scores: Vec<f32> = (0..4096u32)
        .map(|n| f32::from_bits(0x3F80_0000 + if n < 256 { n * 77 % 256 } else { 0 }))
        .collect();
    assert_eq!(programmed(&scores, 64), sorted(&scores, 64));
}

#[test]
fn br_08_the_bin_edge_counts_exactly_k() {
    assert_eq!(programmed(&[2.0, 2.0, 1.0, 1.0], 2), [0, 1]);
    assert_eq!(programmed(&[1.0, 2.0, 3.0], 3), [2, 1, 0]);
}

#[test]
fn br_10_zeros_fill_up_without_gaps() {
    let scores = [0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0];
    assert_eq!(programmed(&scores, 4), [5, 0, 1, 2]);
}

#[test]
fn br_12_the_plateau_has_one_answer() {
    let mut input = weighted(1.0, &[1.0; 64]);
    (input.h, input.q, input.weights) = (2, vec![ONE; 2], vec![1.0; 2]);
    input.k = vec![0xB8; 64];
    for key in [9, 30, 63] {
        input.k[key] = ONE;
    }
    assert_eq!(select(&input, 8), [9, 30, 63, 0, 1, 2, 3, 4]);
}

#[test]
fn br_17_finite_before_nan() {
    let n = f32::NAN;
    assert_eq!(programmed(&[n, n, 1.0, n, n, 2.0, n, n], 4), [5, 2, 0, 1]);
    assert_eq!(
        programmed(&[n, n, 1.0, -n, n, 2.0, n, n], 8),
        [5, 2, 0, 1, 3, 4, 6, 7]
    );
}

#[test]
fn br_18_a_nan_row_keeps_its_lowest_keys() {
    let mut input = weighted(f32::NAN, &[1.0, 2.0, 3.0, 4.0]);
    (input.m, input.q, input.weights) = (2, vec![ONE; 2], vec![f32::NAN, 1.0]);
    input.windows = vec![(0, 4); 2];
    assert_eq!(select(&input, 4), [0, 1, 2, 3, 3, 2, 1, 0]);
    assert!(
        dsa(&input, 4).flat_scores[..4]
            .iter()
            .all(|score| score.to_bits() == NAN)
    );
}

#[test]
fn br_20_a_nan_row_and_one_token() {
    assert_eq!(programmed(&[f32::NAN; 3], 1), [0]);
}

#[test]
fn br_24_true_infinities_are_not_padding() {
    let mut scales = vec![INF; 60];
    (scales[3], scales[20], scales[53]) = (3.0, 1.0, 2.0);
    let input = OracleInput {
        windows: vec![(3, 54)],
        ..weighted(-1.0, &scales)
    };
    let mut expected = vec![17, 50, 0];
    expected.extend((1..51).filter(|id| ![17, 50].contains(id)).take(13));
    assert_eq!(select(&input, 16), expected);
}

#[test]
fn br_27_very_negative_is_not_masked() {
    assert_eq!(select(&weighted(-1.0, &[524_288.0]), 1), [0]);
}

#[test]
fn br_28_position_decides_validity() {
    assert_eq!(select(&weighted(-1.0, &[1.0, INF, 2.0]), 3), [0, 2, 1]);
}

#[test]
fn br_30_the_local_block_survives() {
    let input = weighted(
        1.0,
        &[9.0, 9.0, 9.0, 9.0, 5.0, 5.0, 5.0, 5.0, 1.0, 2.0, 3.0, 4.0],
    );
    let trace = hisa(&input, &params(4, 1, 2));
    assert_eq!((trace.block_ids, trace.indices), (vec![2], vec![11, 10]));
}

#[test]
fn br_32_zeros_tie_by_index() {
    assert_eq!(programmed(&[0.0, -0.0, 0.0], 2), [0, 1]);
}

#[test]
fn br_34_the_width_is_always_k() {
    assert_eq!(
        hisa(&weighted(1.0, &[1.0, 2.0]), &params(2, 1, 4)).indices,
        [1, 0, -1, -1]
    );
}

#[test]
fn br_36_no_id_twice() {
    assert_eq!(programmed(&[1.0, 1.0], 4), [0, 1, -1, -1]);
}

#[test]
fn br_41_short_windows() {
    for n in [1, 2, 3, 5, 7] {
        let mut whole: Vec<i32> = (0..n).collect();
        whole.resize(8, -1);
        assert_eq!(programmed(&vec![1.0; n as usize], 8), whole);
    }
}

#[test]
fn br_45_only_empty_windows() {
    let mut input = weighted(1.0, &[1.0]);
    (input.m, input.q, input.weights) = (32, vec![ONE; 32], vec![1.0; 32]);
    input.windows = (0..32).map(|row| (row % 2, row % 2)).collect();
    assert_eq!(select(&input, 3), [-1; 96]);
}

#[test]
fn br_49_any_block_size() {
    let scores: Vec<f32> = (0..20).map(|n| (n * 7 % 20) as f32).collect();
    for block_size in [1, 2, 3, 5, 7, 48, 100, 192] {
        let run = hisa(&weighted(1.0, &scores), &params(block_size, 20, 6));
        assert_eq!(run.indices, sorted(&scores, 6), "{block_size}");
    }
}

#[test]
fn br_59_ids_start_at_the_rows_own_window() {
    let windows = windows_from_cu_seqlens(&[0, 3, 6], 6);
    let input = OracleInput {
        m: 6,
        q: vec![ONE; 6],
        weights: vec![1.0; 6],
        windows,
        ..weighted(1.0, &[6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    };
    let indices = hisa(&input, &params(2, 3, 3)).indices;
    assert_eq!(indices[9..], [0, -1, -1, 0, 1, -1, 0, 1, 2]);
    assert_eq!(indices[..9], indices[9..]);
}

#[test]
fn br_81_zero_scales_tie() {
    assert_eq!(programmed(&[0.0; 8], 4), [0, 1, 2, 3]);
}

#[test]
fn br_92_weights_decide_the_token() {
    let input = OracleInput {
        m: 1,
        n: 2,
        h: 2,
        d: 2,
        q: vec![ONE, 0, 0, ONE],
        k: vec![0, ONE, ONE, 0],
        k_scale: vec![1.0; 2],
        weights: vec![1.0 + 2f32.powi(-9), 1.0],
        windows: vec![(0, 2)],
    };
    assert_eq!(select(&input, 1), [1]);
}
