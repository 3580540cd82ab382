//! Other rules for quantising and pooling.

use super::Alternative;
use crate::backend::{Buffer, Buffers, Guarded, Job};
use hisa_ref::Stage::{BlockPool, Quantize};
use hisa_ref::stages::block_pool::SCALE_MIN;
use hisa_ref::stages::quantize::{AMAX_MIN, ScaleFormat, next_power_of_two};
use hisa_ref::{E4M3, Overflow};

pub(super) const ALTERNATIVES: &[Alternative] = &[
    Alternative {
        stage: Quantize,
        does: "rounds the quotient to f32 before it encodes",
        outputs: |job| quantize(job, |x, scale, overflow| E4M3::encode(x / scale, overflow)),
    },
    Alternative {
        stage: Quantize,
        does: "multiplies by the reciprocal of the scale instead of dividing",
        outputs: |job| quantize(job, |x, scale, o| E4M3::encode(x * (1.0 / scale), o)),
    },
    Alternative {
        stage: Quantize,
        does: "rounds to f16 before it encodes",
        outputs: |job| {
            quantize(job, |x, scale, overflow| {
                let quotient = half::f16::from_f64(f64::from(x) / f64::from(scale));
                E4M3::encode(quotient.to_f32(), overflow)
            })
        },
    },
    Alternative {
        stage: Quantize,
        does: "saturates where it should not, or the reverse",
        outputs: |job| {
            quantize(job, |x, scale, overflow| {
                let other = match overflow {
                    Overflow::Saturating => Overflow::NonSaturating,
                    Overflow::NonSaturating => Overflow::Saturating,
                };
                E4M3::encode_f64(f64::from(x) / f64::from(scale), other)
            })
        },
    },
    Alternative {
        stage: BlockPool,
        does: "divides the last block by B instead of by its number of keys",
        outputs: |job| {
            pool(
                job,
                Pooling {
                    full_count: true,
                    ..Pooling::PLAIN
                },
            )
        },
    },
    Alternative {
        stage: BlockPool,
        does: "rounds the quotient to f32 before it encodes",
        outputs: |job| {
            pool(
                job,
                Pooling {
                    encode: |x, s| E4M3::encode(x / s, SAT),
                    ..PLAIN
                },
            )
        },
    },
    Alternative {
        stage: BlockPool,
        does: "multiplies by the reciprocal of the scale instead of dividing",
        outputs: |job| {
            pool(
                job,
                Pooling {
                    encode: |x, s| E4M3::encode(x * (1.0 / s), SAT),
                    ..PLAIN
                },
            )
        },
    },
    Alternative {
        stage: BlockPool,
        does: "multiplies amax by 1/448 instead of dividing",
        outputs: |job| {
            pool(
                job,
                Pooling {
                    scale: |amax| amax * (1.0 / 448.0),
                    ..PLAIN
                },
            )
        },
    },
    Alternative {
        stage: BlockPool,
        does: "rounds code times scale to e4m3 before it sums",
        outputs: |job| {
            let dequant = |code: E4M3, scale| E4M3::encode(code.to_f32() * scale, SAT).to_f32();
            pool(
                job,
                Pooling {
                    term: dequant,
                    ..PLAIN
                },
            )
        },
    },
    Alternative {
        stage: BlockPool,
        does: "lets NaN fall out of the largest magnitude",
        outputs: |job| {
            pool(
                job,
                Pooling {
                    nan_in_amax: false,
                    ..PLAIN
                },
            )
        },
    },
];

const SAT: Overflow = Overflow::Saturating;
const PLAIN: Pooling = Pooling::PLAIN;

fn quantize(job: &Job<'_>, encode: fn(f32, f32, Overflow) -> E4M3) -> Option<Buffers> {
    let x = job.tensors.f32("x")?;
    let mut codes = Guarded::filled(x.shape(), E4M3::ZERO);
    let mut scales = Guarded::filled(&x.shape()[..1], 0.0f32);
    let columns = x.columns().max(1);
    for (row, scale) in scales.body_mut().iter_mut().enumerate() {
        let amax = x
            .row(row)
            .iter()
            .fold(AMAX_MIN, |most, x| larger(most, x.abs()));
        *scale = match job.quantize.format {
            ScaleFormat::F32 => amax / 448.0,
            ScaleFormat::Ue8m0 => next_power_of_two(amax / 448.0),
        };
    }
    for (at, code) in codes.body_mut().iter_mut().enumerate() {
        *code = encode(
            x.body()[at],
            scales.body()[at / columns],
            job.quantize.overflow,
        );
    }
    let mut buffers = Buffers::default();
    buffers.put("codes", Buffer::Codes(codes));
    buffers.put("scale", Buffer::F32(scales));
    Some(buffers)
}

/// A maximum that keeps NaN.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// A way to pool, in f64 where the rule itself names no rounding.
#[derive(Clone, Copy)]
struct Pooling {
    term: fn(E4M3, f32) -> f32,
    full_count: bool,
    nan_in_amax: bool,
    scale: fn(f32) -> f32,
    encode: fn(f32, f32) -> E4M3,
}

impl Pooling {
    const PLAIN: Self = Self {
        term: |code, scale| code.to_f32() * scale,
        full_count: false,
        nan_in_amax: true,
        scale: |amax| amax / 448.0,
        encode: |x, scale| E4M3::encode_f64(f64::from(x) / f64::from(scale), SAT),
    };
}

fn pool(job: &Job<'_>, rule: Pooling) -> Option<Buffers> {
    let (k, scales) = (job.tensors.codes("k")?, job.tensors.f32("k_scale")?.body());
    let (b, d) = (job.params.block_size(), job.d);
    let blocks = hisa_ref::params::block_count(job.n, b);
    let mut codes = Guarded::filled(&[blocks, d], E4M3::ZERO);
    let mut pooled = Guarded::filled(&[blocks], 0.0f32);
    for block in 0..blocks {
        let keys = block * b..(block * b + b).min(job.n);
        let count = if rule.full_count { b } else { keys.len() } as f64;
        let mean = |dim: usize| {
            let terms = keys
                .clone()
                .map(|key| f64::from((rule.term)(k.row(key)[dim], scales[key])));
            (terms.sum::<f64>() / count) as f32
        };
        let means: Vec<f32> = (0..d).map(mean).collect();
        let amax = means.iter().fold(0.0f32, |most, mean| match mean.is_nan() {
            true if !rule.nan_in_amax => most,
            _ => larger(most, mean.abs()),
        });
        let scale = (rule.scale)(amax);
        let scale = if scale < SCALE_MIN { SCALE_MIN } else { scale };
        pooled.body_mut()[block] = scale;
        for (dim, &mean) in means.iter().enumerate() {
            codes.body_mut()[block * d + dim] = (rule.encode)(mean, scale);
        }
    }
    let mut buffers = Buffers::default();
    buffers.put("pooled_k", Buffer::Codes(codes));
    buffers.put("pooled_scale", Buffer::F32(pooled));
    Some(buffers)
}
