//! Stages and indexers on a GPU against the reference and the model of their arithmetic.
//! Without a GPU every test says so and passes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod device;

use device::{Numbers, Tensors, assert_same, assert_same_but_nan_payloads};
use device::{class, host, model_score};
use hisa_cuda::{Host, Scoring};
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::stages::*;
use hisa_ref::{E4M3, HisaParams, Keys, Overflow, Queries, Rank, Strictness, Windows};
use hisa_ref::{dsa, hisa, model};
use ndarray::{Array2, ArrayView2};

const CASES: usize = 150;

/// Sizes around warps and tiles, and now and then a long row.
fn sizes(numbers: &mut Numbers) -> [usize; 4] {
    let m = numbers.pick(&[0, 1, 2, 5, 17]);
    let n = numbers.pick(&[0, 1, 3, 31, 32, 33, 100, 129, 500]);
    let h = numbers.pick(&[1, 2, 7, 8, 9, 31, 64, 128]);
    let d = numbers.pick(&[1, 3, 16, 17, 32, 64, 100, 128, 256]);
    [m, n, h, d]
}

fn params(numbers: &mut Numbers) -> HisaParams {
    let b = numbers.pick(&[1, 2, 3, 7, 16, 64, 128, 1000]);
    let m = numbers.pick(&[1, 2, 3, 8, 64, 300]);
    let k = numbers.pick(&[1, 2, 7, 32, 100, 1000]);
    let rank = numbers.pick(&[Rank::Bf16, Rank::F32]);
    HisaParams::new(b, m, k).unwrap().with_rank(rank)
}

#[test]
fn exact_stages_and_indexers_have_the_bits_of_the_reference() {
    let Some((mut host, _guard)) = host("exact") else {
        return;
    };
    let mut numbers = Numbers(1);
    for case in 0..CASES {
        let sizes = sizes(&mut numbers);
        let params = params(&mut numbers);
        let tensors = match case % 2 {
            0 => Tensors::new(&mut numbers, sizes),
            _ => Tensors::wild(&mut numbers, sizes),
        };
        exact_case(
            &mut host,
            &tensors,
            &params,
            &format!("case {case} {sizes:?} {params:?}"),
        );
    }
}

fn exact_case(host: &mut Host, tensors: &Tensors, params: &HisaParams, what: &str) {
    let input = tensors.input();
    let (b, rank, windows) = (params.block_size(), params.rank(), &tensors.windows);
    let trace = hisa::trace(&input, params).unwrap();
    let pooled = host.block_pool(input.keys(), b).unwrap();
    assert_eq!(pooled.codes, trace.pooled_k, "{what}: pooled_k");
    let scales = |scales: &ndarray::Array1<f32>| scales.clone().insert_axis(ndarray::Axis(1));
    let (got, expected) = (scales(&pooled.scales), scales(&trace.pooled_scale));
    assert_same(&format!("{what}: pooled_scale"), &got, &expected);
    let keys = pooled.as_keys().unwrap();
    let scoring = Scoring::Exact;
    let mut scores = host
        .block_scores(input.queries(), &keys, windows, b, scoring)
        .unwrap();
    assert_same(
        &format!("{what}: block_scores"),
        &scores,
        &trace.block_scores,
    );
    host.block_mask(&mut scores, windows, b).unwrap();
    assert_same(&format!("{what}: block_mask"), &scores, &trace.block_mask);
    let kept = (b, params.block_topk());
    let ids = host
        .block_topk(trace.block_mask.view(), windows, kept, rank)
        .unwrap();
    assert_eq!(ids, trace.block_ids, "{what}: block_ids");
    let scores = host.token_scores(&input, ids.view(), b, scoring).unwrap();
    assert_same(
        &format!("{what}: token_scores"),
        &scores,
        &trace.token_scores,
    );
    let k = params.topk_tokens();
    let slots = host
        .token_topk(trace.token_scores.view(), ids.view(), windows, b, k)
        .unwrap();
    assert_eq!(slots, trace.slots, "{what}: slots");
    let indices = host
        .index_map(slots.view(), ids.view(), windows, b)
        .unwrap();
    assert_eq!(indices, trace.indices, "{what}: index_map");
    let indices = host.hisa(&input, params, scoring).unwrap();
    assert_eq!(indices, trace.indices, "{what}: hisa");
    let flat = host.dsa(&input, k, scoring).unwrap();
    assert_eq!(flat, dsa::run(&input, k).unwrap(), "{what}: dsa");
}

/// NaN of any payload and either sign, quiet or signalling, and both zeros.
#[test]
fn block_mask_keeps_the_bits_of_what_it_does_not_mask() {
    let Some((mut host, _guard)) = host("mask") else {
        return;
    };
    let mut numbers = Numbers(6);
    for (rows, blocks) in [(1, 1), (3, 40), (5, 2049), (2, 5000)] {
        let b = numbers.pick(&[1, 3, 64]);
        let tensors = Tensors::wild(&mut numbers, [rows, blocks * b, 1, 1]);
        let windows = &tensors.windows;
        let scores = Array2::from_shape_simple_fn((rows, blocks), || {
            let any = numbers.next() as u32;
            let odd = [
                0x7F80_0001,
                0xFFC1_2345,
                0x7FFF_FFFF,
                0x8000_0000,
                0,
                any,
                any,
            ];
            f32::from_bits(numbers.pick(&odd))
        });
        let mut got = scores.clone();
        host.block_mask(&mut got, windows, b).unwrap();
        let expected = Array2::from_shape_fn(scores.dim(), |(row, block)| {
            let keys = windows.rows()[row].keys();
            if keys.is_empty() || block < keys.start / b || block > (keys.end - 1) / b {
                return f32::NEG_INFINITY;
            }
            match block == keys.start / b || block == (keys.end - 1) / b {
                true => f32::INFINITY,
                false => scores[(row, block)],
            }
        });
        let what = format!("[{rows}, {blocks}], blocks of {b}");
        assert_same(&what, &got, &expected);
        let mut reference = scores;
        block_mask::run(&mut reference, windows, b).unwrap();
        assert_same(&format!("{what}: reference"), &reference, &expected);
    }
}

#[test]
fn tensor_core_scores_have_the_bits_of_their_model() {
    let Some((mut host, _guard)) = host("model") else {
        return;
    };
    let Some(class) = class("model", &host) else {
        return;
    };
    let mut numbers = Numbers(2);
    for case in 0..CASES {
        let [m, n, h, d] = sizes(&mut numbers);
        let tensors = match case % 2 {
            0 => Tensors::new(&mut numbers, [m.min(5), n.min(129), h, d]),
            _ => Tensors::wild(&mut numbers, [m.min(5), n.min(129), h, d]),
        };
        let input = tensors.input();
        let windows = &tensors.windows;
        let (queries, keys) = (input.queries(), input.keys());
        let scores = host
            .block_scores(queries, keys, windows, 1, Scoring::TensorCores)
            .unwrap();
        let expected = Array2::from_shape_fn(scores.dim(), |(row, key)| {
            let window = windows.rows()[row];
            if !window.keys().contains(&key) {
                return f32::NEG_INFINITY;
            }
            model_score(class, queries, keys, (row, key))
        });
        let what = format!("case {case}: [{m}, {n}, {h}, {d}]");
        assert_same_but_nan_payloads(&what, &scores, &expected);
    }
}

#[test]
fn quantize_has_the_bits_of_the_reference() {
    let Some((mut host, _guard)) = host("quantize") else {
        return;
    };
    let mut numbers = Numbers(3);
    for case in 0..CASES {
        let shape = (
            numbers.below(9),
            numbers.pick(&[0, 1, 3, 64, 128, 129, 1000]),
        );
        let odd = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            1e-45,
            f32::MAX,
        ];
        let x = Array2::from_shape_simple_fn(shape, || match numbers.below(300) {
            0 => numbers.pick(&odd),
            1..=9 => f32::from_bits(numbers.next() as u32),
            _ => numbers.bell() * 10.0,
        });
        let options = QuantizeOptions {
            format: numbers.pick(&[ScaleFormat::F32, ScaleFormat::Ue8m0]),
            overflow: numbers.pick(&[Overflow::Saturating, Overflow::NonSaturating]),
            strictness: Strictness::Permissive,
        };
        let got = host.quantize(x.view(), options).unwrap();
        let expected = quantize::run(x.view(), options).unwrap();
        assert_eq!(
            got.codes, expected.codes,
            "case {case}: {shape:?} {options:?}"
        );
        let bits = |scale: &ndarray::Array1<f32>| scale.mapv(f32::to_bits);
        assert_eq!(bits(&got.scale), bits(&expected.scale), "case {case}");
    }
}

/// 4,096 vectors of each published stream, against the model, by the diagonal of a flat score; the
/// negated query shows the dots that the ReLU hides.
#[test]
fn dots_of_the_published_streams_have_the_bits_of_the_model() {
    let Some((mut host, _guard)) = host("streams") else {
        return;
    };
    let Some(class) = class("streams", &host) else {
        return;
    };
    for narrow in [false, true] {
        let (a, b) = stream(narrow);
        for negate in [false, true] {
            let q = match negate {
                true => a.mapv(|code| E4M3::from_bits(code.to_bits() ^ 0x80)),
                false => a.clone(),
            };
            let scores = diagonal(&mut host, &q, b.view());
            for (row, &score) in scores.iter().enumerate() {
                let (q, b) = (q.row(row).to_vec(), b.row(row).to_vec());
                let dot = model::dot(class, &q, &b);
                let expected = if dot > 0.0 { dot } else { 0.0 };
                assert_eq!(
                    score.to_bits(),
                    expected.to_bits(),
                    "{narrow} {negate} {row}"
                );
            }
        }
    }
}

/// Each query against the key of its own number.
fn diagonal(host: &mut Host, q: &Array2<E4M3>, k: ArrayView2<'_, E4M3>) -> Vec<f32> {
    let (m, d) = q.dim();
    let q = q.to_shape((m, 1, d)).unwrap();
    let weights = Array2::from_elem((m, 1), 1.0);
    let scale = ndarray::Array1::from_elem(m, 1.0);
    let (ks, ke): (Vec<i32>, Vec<i32>) = (0..m as i32).map(|row| (row, row + 1)).unzip();
    let windows = Windows::from_rows(&ks, &ke, m).unwrap();
    let queries = Queries::new(q.view(), weights.view(), Strictness::Strict).unwrap();
    let keys = Keys::new(k, scale.view(), Strictness::Strict).unwrap();
    let scores = host
        .block_scores(&queries, &keys, &windows, 1, Scoring::TensorCores)
        .unwrap();
    scores.diag().to_vec()
}

fn stream(narrow: bool) -> (Array2<E4M3>, Array2<E4M3>) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut byte = move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let byte = (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8;
        E4M3::from_bits(match narrow {
            true => byte & 0x80 | (0x28 + (byte & 0x1F)),
            false if byte & 0x7F == 0x7F => byte ^ 0x40,
            false => byte,
        })
    };
    let mut pair = Array2::from_elem((4096, 256), E4M3::ZERO);
    pair.map_inplace(|code| *code = byte());
    let half =
        |first: usize| Array2::from_shape_fn((4096, 128), |(row, d)| pair[(row, 2 * d + first)]);
    (half(0), half(1))
}

/// Places by the thousand, fewer and more of them than there are keys and blocks.
#[test]
fn many_blocks_and_tokens_are_kept_as_the_reference_keeps_them() {
    let Some((mut host, _guard)) = host("many") else {
        return;
    };
    let mut numbers = Numbers(5);
    for (b, m, k) in [
        (1, 8192, 8192),
        (3, 3000, 8192),
        (2, 8192, 5000),
        (1000, 30, 8191),
    ] {
        let params = HisaParams::new(b, m, k).unwrap();
        for wild in [false, true] {
            let sizes = [2, 20_000, 3, 16];
            let tensors = match wild {
                true => Tensors::wild(&mut numbers, sizes),
                false => Tensors::new(&mut numbers, sizes),
            };
            exact_case(&mut host, &tensors, &params, &format!("{params:?} {wild}"));
        }
    }
}

#[test]
fn few_rows_over_long_keys_have_the_bits_of_the_reference() {
    let Some((mut host, _guard)) = host("decode") else {
        return;
    };
    let mut numbers = Numbers(4);
    for m in [1, 3] {
        let tensors = Tensors::new(&mut numbers, [m, 40_000, 64, 128]);
        let input = tensors.input();
        let params = HisaParams::DEEPSEEK_V32;
        let indices = host.hisa(&input, &params, Scoring::Exact).unwrap();
        assert_eq!(indices, hisa::run(&input, &params).unwrap());
        let flat = host.dsa(&input, 2048, Scoring::Exact).unwrap();
        assert_eq!(flat, dsa::run(&input, 2048).unwrap());
    }
}
