//! Other rules for scores.

use super::Alternative;
use crate::backend::{Buffer, Buffers, Guarded, Job};
use hisa_ref::E4M3;
use hisa_ref::Stage::{self, BlockScores, TokenScores};
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::model::{DotClass, dot};

/// The same rules for both scoring stages.
macro_rules! for_both {
    ($($does:literal $rule:expr;)*) => {
        &[$(
            Alternative { stage: BlockScores, does: $does, outputs: |job| scores(job, $rule) },
            Alternative { stage: TokenScores, does: $does, outputs: |job| scores(job, $rule) },
        )*]
    };
}

pub(super) const ALTERNATIVES: &[Alternative] = for_both! {
    "lacks the ReLU" Rule { relu: |dot| dot, ..RULE };
    "turns NaN into 0 in the ReLU" Rule { relu: |dot| if dot > 0.0 { dot } else { 0.0 }, ..RULE };
    "rounds weights to bf16" Rule { weight: round_to_bf16, ..RULE };
    "leaves out the scale" Rule { scale: |_| 1.0, ..RULE };
    "rounds scores to bf16" Rule { score: round_to_bf16, ..RULE };
    "adds heads in f32, in order" Rule { sum: Sum::F32, ..RULE };
    "adds heads in f32, in order, with fused multiply-adds" Rule { sum: Sum::F32Fused, ..RULE };
    "takes dots as wgmma of Hopper does" Rule { class: DotClass::HopperQgmma, ..RULE };
    "takes dots as the matrix unit of Ada does" Rule { class: DotClass::AdaQmma, ..RULE };
    "takes dots as Blackwell does" Rule { class: DotClass::BlackwellF25, ..RULE };
    "takes dots as mma.sync of Hopper does" Rule { class: DotClass::HmmaEmulated, ..RULE };
    "takes dots of f16 as wgmma of Hopper does" Rule { class: DotClass::HopperHgmmaF16, ..RULE };
    "takes dots of f16 as mma.sync of Ampere does" Rule { class: DotClass::AmpereHmmaF16, ..RULE };
    "takes dots as wgmma of Hopper does, and adds heads in f32"
        Rule { class: DotClass::HopperQgmma, sum: Sum::F32, ..RULE };
};

#[derive(Clone, Copy)]
enum Sum {
    /// In f64: exact for the small cases a finding shrinks to.
    F64,
    F32,
    F32Fused,
}

#[derive(Clone, Copy)]
struct Rule {
    class: DotClass,
    relu: fn(f32) -> f32,
    weight: fn(f32) -> f32,
    scale: fn(f32) -> f32,
    score: fn(f32) -> f32,
    sum: Sum,
}

const RULE: Rule = Rule {
    class: DotClass::Exact,
    relu: |dot| if dot < 0.0 { 0.0 } else { dot },
    weight: |weight| weight,
    scale: |scale| scale,
    score: |score| score,
    sum: Sum::F64,
};

impl Rule {
    fn of(&self, q: &[E4M3], weights: &[f32], key: &[E4M3], scale: f32) -> f32 {
        let heads = q.chunks_exact(key.len().max(1)).zip(weights);
        let terms = heads.map(|(row, &weight)| {
            (
                (self.weight)(weight),
                (self.relu)(dot(self.class, row, key)),
            )
        });
        let scale = (self.scale)(scale);
        let score = match self.sum {
            Sum::F64 => {
                let sum: f64 = terms.map(|(w, d)| f64::from(w) * f64::from(d)).sum();
                (f64::from(scale) * sum) as f32
            }
            Sum::F32 => scale * terms.fold(0.0, |sum, (w, d)| sum + w * d),
            Sum::F32Fused => {
                scale * terms.fold(0.0, |sum, (w, d)| hisa_ref::model::epilogue::fma(w, d, sum))
            }
        };
        (self.score)(score)
    }
}

fn scores(job: &Job<'_>, rule: Rule) -> Option<Buffers> {
    let (q, weights) = (job.tensors.codes("q")?, job.tensors.f32("weights")?);
    let row_of_q = job.h * job.d;
    let score = |row: usize, key: &[E4M3], scale: f32| {
        let q = &q.body()[row * row_of_q..(row + 1) * row_of_q];
        rule.of(q, weights.row(row), key, scale)
    };
    let b = job.params.block_size();
    let mut buffers = Buffers::default();
    match job.op {
        crate::op::Op::Stage(Stage::BlockScores) => {
            let (k, s) = (
                job.tensors.codes("pooled_k")?,
                job.tensors.f32("pooled_scale")?.body(),
            );
            let mut out = Guarded::filled(&[job.m, s.len()], f32::NEG_INFINITY);
            for (row, window) in job.windows.rows().iter().enumerate() {
                for block in window.blocks(b) {
                    out.body_mut()[row * s.len() + block] = score(row, k.row(block), s[block]);
                }
            }
            buffers.put("block_scores", Buffer::F32(out));
        }
        _ => {
            let (k, s) = (job.tensors.codes("k")?, job.tensors.f32("k_scale")?.body());
            let (ids, slots) = (job.tensors.i32("block_ids")?, job.params.slots());
            let mut out = Guarded::filled(&[job.m, slots], f32::NEG_INFINITY);
            for (row, window) in job.windows.rows().iter().enumerate() {
                for slot in 0..slots {
                    let Ok(block) = usize::try_from(ids.row(row)[slot / b]) else {
                        continue;
                    };
                    let key = block * b + slot % b;
                    if window.contains(key) {
                        out.body_mut()[row * slots + slot] = score(row, k.row(key), s[key]);
                    }
                }
            }
            buffers.put("token_scores", Buffer::F32(out));
        }
    }
    Some(buffers)
}
