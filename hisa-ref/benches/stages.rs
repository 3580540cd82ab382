//! One criterion group per stage, at a sixteenth of configuration A: 64 rows over 8192 keys with
//! H = 64, D = 128, B = 128, m = 16, K = 512. Every result is compared with the stage's scalar
//! definition, or with the staged pipeline, before anything is timed.

#![allow(missing_docs, reason = "criterion's macros write undocumented items")]
#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up must not run"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::stages::*;
use hisa_ref::trace::Trace;
use hisa_ref::{E4M3, HisaParams, IndexerInput, Overflow, Rank, Strictness, Window, Windows, hisa};
use ndarray::{Array1, Array2, Array3};

const M: usize = 64;
const N: usize = 8192;
const H: usize = 64;
const D: usize = 128;
const B: usize = 128;

const QUANTIZE: QuantizeOptions = QuantizeOptions {
    format: ScaleFormat::F32,
    overflow: Overflow::Saturating,
    strictness: Strictness::Strict,
};

struct Numbers(u64);

impl Numbers {
    /// Roughly normal: the sum of twelve uniform numbers.
    fn normal(&mut self) -> f32 {
        (0..12)
            .map(|_| {
                self.0 = self
                    .0
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (self.0 >> 40) as f32 / (1 << 24) as f32
            })
            .sum::<f32>()
            - 6.0
    }
}

struct Arrays {
    x: Array2<f32>,
    q: Array3<E4M3>,
    k: Array2<E4M3>,
    k_scale: Array1<f32>,
    weights: Array2<f32>,
    windows: Windows,
}

impl Arrays {
    fn new() -> Self {
        let mut numbers = Numbers(9);
        let x = Array2::from_shape_simple_fn((N, D), || numbers.normal());
        let quantised = quantize::run(x.view(), QUANTIZE).unwrap();
        let code = |x: f32| E4M3::encode(x, Overflow::Saturating);
        let q = Array3::from_shape_simple_fn((M, H, D), || code(numbers.normal()));
        let weights = Array2::from_shape_simple_fn((M, H), || numbers.normal());
        let rows = (0..M).map(|row| Window {
            ks: 0,
            ke: (N - M + row + 1) as i32,
        });
        let windows = Windows::new(rows.collect(), N).unwrap();
        Self {
            x,
            q,
            k: quantised.codes,
            k_scale: quantised.scale,
            weights,
            windows,
        }
    }

    fn input(&self) -> IndexerInput<'_> {
        let (q, k, w) = (self.q.view(), self.k.view(), self.weights.view());
        let scales = self.k_scale.view();
        IndexerInput::new(q, k, scales, w, self.windows.clone(), Strictness::Strict).unwrap()
    }
}

fn params() -> HisaParams {
    HisaParams::new(B, 16, 512).unwrap()
}

/// The staged run, after the parts that can be checked quickly agree with their definitions.
fn validated(arrays: &Arrays) -> Trace {
    let (input, params) = (arrays.input(), params());
    let trace = hisa::trace(&input, &params).unwrap();
    let (windows, ids) = (input.windows(), trace.block_ids.view());
    let rank = params.rank();
    let pooled = block_pool::scalar(input.keys(), B).unwrap();
    assert_eq!(
        (&pooled.codes, &pooled.scales),
        (&trace.pooled_k, &trace.pooled_scale)
    );
    let chosen = block_topk::scalar(trace.block_mask.view(), windows, B, 16, rank).unwrap();
    assert_eq!(chosen, trace.block_ids);
    let slots = token_topk::scalar(trace.token_scores.view(), ids, windows, B, 512).unwrap();
    assert_eq!(slots, trace.slots);
    let indices = index_map::scalar(slots.view(), ids, windows, B).unwrap();
    assert_eq!(indices, hisa::run(&input, &params).unwrap());
    let fast = quantize::run(arrays.x.view(), QUANTIZE).unwrap();
    assert_eq!(fast, quantize::scalar(arrays.x.view(), QUANTIZE).unwrap());
    trace
}

fn stages(c: &mut Criterion) {
    let arrays = Arrays::new();
    let trace = validated(&arrays);
    let (input, params) = (arrays.input(), params());
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    let pooled = block_pool::run(keys, B).unwrap();
    let pooled = pooled.as_keys().unwrap();
    let (ids, slots) = (trace.block_ids.view(), trace.slots.view());
    let tokens = trace.token_scores.view();
    c.bench_function("quantize", |b| {
        b.iter(|| quantize::run(arrays.x.view(), QUANTIZE))
    });
    c.bench_function("block_pool", |b| b.iter(|| block_pool::run(keys, B)));
    c.bench_function("block_scores", |b| {
        b.iter(|| block_scores::run(queries, &pooled, windows, B))
    });
    c.bench_function("block_mask", |b| {
        let mut scores = trace.block_scores.clone();
        b.iter(|| block_mask::run(&mut scores, windows, B))
    });
    c.bench_function("block_topk", |b| {
        b.iter(|| block_topk::run(trace.block_mask.view(), windows, B, 16, Rank::Bf16))
    });
    c.bench_function("token_scores", |b| {
        b.iter(|| token_scores::run(queries, keys, windows, ids, B))
    });
    c.bench_function("token_topk", |b| {
        b.iter(|| token_topk::run(tokens, ids, windows, B, 512))
    });
    c.bench_function("index_map", |b| {
        b.iter(|| index_map::run(slots, ids, windows, B))
    });
    c.bench_function("hisa", |b| b.iter(|| hisa::run(&input, &params)));
}

criterion_group!(benches, stages);
criterion_main!(benches);
