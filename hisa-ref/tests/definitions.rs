//! Every stage's fast path against its scalar definition, bit for bit, on random small inputs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Case, KINDS, Kind, Numbers, bits};
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::stages::*;
use hisa_ref::{E4M3, HisaParams, Overflow, Rank, Strictness, dsa, hisa};
use ndarray::Array2;

/// Calls `check` with cases of every kind; sizes cover tails of D, H and N.
fn for_cases(count: u64, mut check: impl FnMut(&Case, usize, usize, usize, &str)) {
    for seed in 0..count {
        let mut r = Numbers(seed ^ 0x5EED);
        let kind = KINDS[seed as usize % KINDS.len()];
        let (m, n) = (r.below(7), r.below(41));
        let h = 1 + r.below(5);
        let d = [1, 2, 3, 8, 16, 17, 24, 32, 33, 64][r.below(10)];
        let b = 1 + r.below(9);
        let (keep, k) = (1 + r.below(6), 1 + r.below(20));
        let case = Case::new(seed, m, n, h, d, kind);
        let label = format!("seed {seed} {kind:?} M={m} N={n} H={h} D={d} B={b} m={keep} K={k}");
        check(&case, b, keep, k, &label);
    }
}

fn bits1(values: &ndarray::Array1<f32>) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// SPEC 2.0, 2.3, 3.0, 3.2, 4.0, 4.3, 5.0, 6.0, 6.1, 7.0, 8.0, 8.2 and 9.1.
#[test]
fn all_stages_from_pooling_on() {
    let mut blocks_dropped = 0;
    for_cases(1600, |case, b, keep, k, label| {
        let (queries, keys, windows) = (case.queries(), case.keys(), &case.windows);
        let pooled = block_pool::run(&keys, b).unwrap();
        let expected = block_pool::scalar(&keys, b).unwrap();
        assert_eq!(pooled.codes, expected.codes, "block_pool {label}");
        assert_eq!(
            bits1(&pooled.scales),
            bits1(&expected.scales),
            "block_pool {label}"
        );

        let pooled = pooled.as_keys().unwrap();
        let scores = block_scores::run(&queries, &pooled, windows, b).unwrap();
        let expected = block_scores::scalar(&queries, &pooled, windows, b).unwrap();
        assert_eq!(bits(&scores), bits(&expected), "block_scores {label}");

        let (mut masked, mut expected) = (scores.clone(), scores);
        block_mask::run(&mut masked, windows, b).unwrap();
        block_mask::scalar(&mut expected, windows, b).unwrap();
        assert_eq!(bits(&masked), bits(&expected), "block_mask {label}");
        let once = bits(&masked);
        block_mask::run(&mut masked, windows, b).unwrap();
        assert_eq!(bits(&masked), once, "block_mask is idempotent {label}");

        let rank = if k % 2 == 0 { Rank::Bf16 } else { Rank::F32 };
        let ids = block_topk::run(masked.view(), windows, b, keep, rank).unwrap();
        let expected = block_topk::scalar(masked.view(), windows, b, keep, rank).unwrap();
        assert_eq!(ids, expected, "block_topk {label}");
        blocks_dropped += windows
            .rows()
            .iter()
            .filter(|w| w.blocks(b).len() > keep)
            .count();

        let tokens = token_scores::run(&queries, &keys, windows, ids.view(), b).unwrap();
        let expected = token_scores::scalar(&queries, &keys, windows, ids.view(), b).unwrap();
        assert_eq!(bits(&tokens), bits(&expected), "token_scores {label}");

        let slots = token_topk::run(tokens.view(), ids.view(), windows, b, k).unwrap();
        let expected = token_topk::scalar(tokens.view(), ids.view(), windows, b, k).unwrap();
        assert_eq!(slots, expected, "token_topk {label}");

        let indices = index_map::run(slots.view(), ids.view(), windows, b).unwrap();
        let expected = index_map::scalar(slots.view(), ids.view(), windows, b).unwrap();
        assert_eq!(indices, expected, "index_map {label}");

        let params = HisaParams::new(b, keep, k).unwrap().with_rank(rank);
        let trace = hisa::trace(&case.input(), &params).unwrap();
        assert_eq!(trace.indices, indices, "trace {label}");
        assert_eq!(
            hisa::run(&case.input(), &params).unwrap(),
            indices,
            "run {label}"
        );
    });
    assert!(
        blocks_dropped > 500,
        "only {blocks_dropped} rows had to drop a block"
    );
}

/// SPEC 6.1, 7.2 and 8.1.
#[test]
fn selection_over_shuffled_block_columns() {
    // Ports return blocks in any order, with -1 anywhere; selection must not depend on it.
    for_cases(400, |case, b, keep, k, label| {
        let params = HisaParams::new(b, keep, k).unwrap();
        let trace = hisa::trace(&case.input(), &params).unwrap();
        let (queries, keys, windows) = (case.queries(), case.keys(), &case.windows);
        let columns = trace.block_ids.ncols();
        let order: Vec<usize> = (0..columns).map(|c| (c * 7 + 3) % columns).collect();
        let mut seen = order.clone();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() != columns {
            return;
        }
        let ids = trace.block_ids.select(ndarray::Axis(1), &order);
        let tokens = token_scores::run(&queries, &keys, windows, ids.view(), b).unwrap();
        let slots = token_topk::run(tokens.view(), ids.view(), windows, b, k).unwrap();
        let expected = token_topk::scalar(tokens.view(), ids.view(), windows, b, k).unwrap();
        assert_eq!(slots, expected, "{label}");
        let indices = index_map::run(slots.view(), ids.view(), windows, b).unwrap();
        assert_eq!(indices, trace.indices, "{label}");
    });
}

/// SPEC 9.2 and 9.4.
#[test]
fn dsa_run_equals_its_trace_and_hisa_with_all_blocks() {
    for_cases(400, |case, b, _, k, label| {
        let trace = dsa::trace(&case.input(), k).unwrap();
        assert_eq!(
            dsa::run(&case.input(), k).unwrap(),
            trace.indices,
            "{label}"
        );
        let all = HisaParams::new(b, case.keys().len().max(1), k).unwrap();
        assert_eq!(
            hisa::run(&case.input(), &all).unwrap(),
            trace.indices,
            "{label}"
        );
    });
}

/// SPEC 1.0 to 1.5.
#[test]
fn quantize_in_every_mode() {
    let formats = [ScaleFormat::F32, ScaleFormat::Ue8m0];
    let modes = [Overflow::Saturating, Overflow::NonSaturating];
    for seed in 0..600u64 {
        let mut r = Numbers(seed);
        let (rows, d) = (r.below(5), 1 + r.below(20));
        let small = seed % 3 == 0;
        let x = Array2::from_shape_simple_fn((rows, d), || match r.below(40) {
            0 if !small => f32::INFINITY,
            1 if !small => f32::NAN,
            2 => -0.0,
            3 => f32::from_bits(r.next() as u32),
            _ => r.unit() * 2f32.powi(r.below(24) as i32 - 16),
        });
        for format in formats {
            for overflow in modes {
                let strictness = Strictness::Permissive;
                let options = QuantizeOptions {
                    format,
                    overflow,
                    strictness,
                };
                let fast = quantize::run(x.view(), options).unwrap();
                let expected = quantize::scalar(x.view(), options).unwrap();
                assert_eq!(fast.codes, expected.codes, "seed {seed} {options:?}");
                assert_eq!(bits1(&fast.scale), bits1(&expected.scale), "seed {seed}");
            }
        }
    }
}

/// SPEC V.7 and S.7.
#[test]
fn special_values_really_reach_the_scores() {
    let (mut nan, mut infinite, mut ordinary) = (0, 0, 0);
    for seed in 0..40 {
        let case = Case::new(seed, 6, 30, 2, 8, Kind::Special);
        for score in dsa::trace(&case.input(), 4).unwrap().flat_scores {
            match score {
                s if s.is_nan() => nan += 1,
                s if s == f32::INFINITY => infinite += 1,
                s if s.is_finite() => ordinary += 1,
                _ => {}
            }
        }
    }
    assert!(
        nan > 100 && infinite > 30 && ordinary > 200,
        "{nan} {infinite} {ordinary}"
    );
    let plain = Case::new(1, 6, 30, 2, 8, Kind::Plain);
    assert!(plain.k.iter().all(|code: &E4M3| !code.is_nan()));
}

#[test]
fn powers_of_two_from_the_least_f32_on() {
    for x in [
        1,
        0x003F_FFFF,
        0x0040_0000,
        0x0040_0001,
        0x0080_0000,
        0x0080_0001,
    ] {
        let x = f32::from_bits(x);
        let exponent = f64::from(x).log2().ceil().clamp(-127.0, 127.0);
        let expected = exponent.exp2() as f32;
        assert_eq!(quantize::next_power_of_two(x), expected, "{x:e}");
    }
    assert_eq!(quantize::next_power_of_two(f32::MAX), 2f32.powi(127));
}
