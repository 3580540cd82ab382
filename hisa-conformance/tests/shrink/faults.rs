//! Backends that are wrong on purpose: the reference, with one fault each.

use hisa_conformance::backend::reference::Reference;
use hisa_conformance::backend::{
    Backend, Buffers, Capabilities, Failure, Guarded, Job, MARGIN, Outputs,
};
use hisa_conformance::case::{WindowSource, WindowSpec};
use hisa_conformance::op::Op;
use hisa_ref::order::compare_scores;
use hisa_ref::stages::quantize::ScaleFormat;
use hisa_ref::stages::{block_pool, block_topk, quantize};
use hisa_ref::{E4M3, Keys, Overflow, Rank, Stage, Strictness};
use ndarray::{Array1, Array2};
use std::cmp::Ordering;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    TiesHigher,
    NanFirst,
    InfinityAsPadding,
    TailZero,
    GuardWritten,
    BlockWindowFloor,
    LastNotForced,
    PoolTailByB,
    PoolReciprocal,
    PoolFloorLost,
    PoolNanDropped,
    RankAsF32,
    QuantizeReciprocal,
    Ue8m0Ignored,
    NoRelu,
    WeightsAsBf16,
    SubnormalsFlushed,
    AbsoluteIds,
    EmptySequenceSkipped,
    EmptyRowsUnwritten,
    RollBackStale,
}

/// The reference with a fault.
pub(crate) struct Broken {
    fault: Fault,
    reference: Reference,
    capabilities: Capabilities,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            fault,
            reference: Reference::new(),
            capabilities: Capabilities::all(),
        }
    }
}

impl Backend for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        let before = out.tensors.clone();
        self.reference.run(job, out)?;
        let made = &mut out.tensors;
        match (self.fault, job.op) {
            (fault, Op::Stage(Stage::TokenTopk)) => token_topk(fault, job, made),
            (fault, Op::Stage(Stage::BlockMask)) => block_mask(fault, job, made),
            (fault, Op::Stage(Stage::BlockPool)) => pool(fault, job, made),
            (fault, Op::Stage(Stage::TokenScores)) => scores(fault, job, made),
            (fault, Op::Stage(Stage::Quantize)) => quantized(fault, job, made),
            (Fault::RankAsF32, Op::Stage(Stage::BlockTopk)) => {
                let (b, m) = (job.params.block_size(), job.params.block_topk());
                let masked = job.f32("block_mask")?.view2();
                let ids = block_topk::run(masked, job.windows, b, m, Rank::F32)?;
                *made.i32_mut("block_ids").unwrap() = Guarded::from_array(&ids);
            }
            (Fault::AbsoluteIds, Op::Stage(Stage::IndexMap)) => {
                let indices = made.i32_mut("indices").unwrap();
                let columns = indices.columns();
                for (at, id) in indices.body_mut().iter_mut().enumerate() {
                    *id += if *id < 0 {
                        0
                    } else {
                        job.windows.rows()[at / columns].ks
                    };
                }
            }
            (Fault::EmptySequenceSkipped, Op::Windows) => skip_empty(job, made),
            (Fault::EmptyRowsUnwritten, Op::Hisa) => {
                let (old, new) = (before.i32("indices").unwrap(), made.i32_mut("indices"));
                let new = new.unwrap();
                let columns = new.columns();
                for (row, window) in job.windows.rows().iter().enumerate() {
                    if window.is_empty() {
                        new.body_mut()[row * columns..][..columns].copy_from_slice(old.row(row));
                    }
                }
            }
            (Fault::RollBackStale, Op::Append) => {
                let b = job.params.block_size();
                let backwards = job.pieces.windows(2).filter(|pair| pair[1] < pair[0]);
                for end in backwards
                    .map(|pair| pair[1])
                    .filter(|end| !end.is_multiple_of(b))
                {
                    made.f32_mut("pooled_scale").unwrap().body_mut()[end / b] *= 2.0;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn token_topk(fault: Fault, job: &Job<'_>, made: &mut Buffers) {
    let order: fn(f32, f32) -> Ordering = match fault {
        Fault::TiesHigher => compare_scores,
        Fault::NanFirst => |a, b| b.is_nan().cmp(&a.is_nan()).then(compare_scores(a, b)),
        Fault::TailZero | Fault::InfinityAsPadding => compare_scores,
        Fault::GuardWritten => {
            let slots = made.i32_mut("slots").unwrap();
            if slots.columns() % 4 == 3 {
                let end = slots.arena().len() - MARGIN;
                slots.arena_mut()[end] = 0;
            }
            return;
        }
        _ => return,
    };
    let (scores, ids) = (
        job.f32("token_scores").unwrap(),
        job.i32("block_ids").unwrap(),
    );
    let b = job.params.block_size();
    let slots = made.i32_mut("slots").unwrap();
    let columns = slots.columns();
    for (row, &window) in job.windows.rows().iter().enumerate() {
        let key = |slot: usize| {
            let id = usize::try_from(ids.row(row)[slot / b]).ok()?;
            Some(id * b + slot % b).filter(|&key| window.contains(key))
        };
        let scores = scores.row(row);
        let padding = fault == Fault::InfinityAsPadding;
        let mut eligible: Vec<usize> = (0..scores.len()).filter(|&s| key(s).is_some()).collect();
        eligible.retain(|&slot| !padding || scores[slot] != f32::NEG_INFINITY);
        eligible.sort_by(|&a, &b| {
            let tie = key(a).cmp(&key(b));
            let tie = if fault == Fault::TiesHigher {
                tie.reverse()
            } else {
                tie
            };
            order(scores[a], scores[b]).then(tie)
        });
        let rest = if fault == Fault::TailZero { 0 } else { -1 };
        for (column, slot) in slots.body_mut()[row * columns..][..columns]
            .iter_mut()
            .enumerate()
        {
            *slot = eligible.get(column).map_or(rest, |&slot| slot as i32);
        }
    }
}

fn block_mask(fault: Fault, job: &Job<'_>, made: &mut Buffers) {
    let b = job.params.block_size();
    let masked = made.f32_mut("block_mask").unwrap();
    let columns = masked.columns();
    let plain = job.f32("block_scores").unwrap();
    for (row, window) in job.windows.rows().iter().enumerate() {
        let blocks = window.blocks(b);
        let Some(last) = blocks.end.checked_sub(1).filter(|_| !blocks.is_empty()) else {
            continue;
        };
        let place = &mut masked.body_mut()[row * columns + last];
        match fault {
            Fault::BlockWindowFloor if !(window.ke as usize).is_multiple_of(b) => {
                *place = f32::NEG_INFINITY
            }
            Fault::LastNotForced if last > blocks.start => *place = plain.row(row)[last],
            _ => {}
        }
    }
}

fn pool(fault: Fault, job: &Job<'_>, made: &mut Buffers) {
    let b = job.params.block_size();
    let mut k: Array2<E4M3> = job.codes("k").unwrap().view2().to_owned();
    let mut scales: Array1<f32> = job.f32("k_scale").unwrap().body().to_vec().into();
    match fault {
        Fault::PoolTailByB => {
            while !k.nrows().is_multiple_of(b) {
                k.push_row(Array1::from_elem(job.d, E4M3::ZERO).view())
                    .unwrap();
                scales
                    .append(ndarray::Axis(0), Array1::ones(1).view())
                    .unwrap();
            }
        }
        Fault::PoolNanDropped => k.mapv_inplace(|c| if c.is_nan() { E4M3::ZERO } else { c }),
        Fault::PoolFloorLost => {
            for scale in made.f32_mut("pooled_scale").unwrap().body_mut() {
                *scale = if *scale == block_pool::SCALE_MIN {
                    0.0
                } else {
                    *scale
                };
            }
            return;
        }
        Fault::PoolReciprocal => {
            let pooled = made.f32("pooled_scale").unwrap().body().to_vec();
            let codes = made.codes_mut("pooled_k").unwrap();
            for (at, code) in codes.body_mut().iter_mut().enumerate() {
                let (block, column) = (at / job.d, at % job.d);
                let keys = block * b..(block * b + b).min(job.n);
                let count = keys.len() as f64;
                let of = |key: usize| f64::from(k[(key, column)].to_f32()) * f64::from(scales[key]);
                let mean = (keys.map(of).sum::<f64>() / count) as f32;
                *code = E4M3::encode(mean * (1.0 / pooled[block]), Overflow::Saturating);
            }
            return;
        }
        _ => return,
    }
    let keys = Keys::new(k.view(), scales.view(), Strictness::Permissive).unwrap();
    let pooled = block_pool::run(&keys, b).unwrap();
    *made.codes_mut("pooled_k").unwrap() = Guarded::from_array(&pooled.codes);
    *made.f32_mut("pooled_scale").unwrap() = Guarded::from_array(&pooled.scales);
}

fn quantized(fault: Fault, job: &Job<'_>, made: &mut Buffers) {
    let x = job.f32("x").unwrap().view2();
    match fault {
        Fault::QuantizeReciprocal => {
            let scale = made.f32("scale").unwrap().body().to_vec();
            let codes = made.codes_mut("codes").unwrap();
            for ((at, &x), code) in x.indexed_iter().zip(codes.body_mut()) {
                *code = E4M3::encode(x * (1.0 / scale[at.0]), job.quantize.overflow);
            }
        }
        Fault::Ue8m0Ignored => {
            let mut options = job.quantize;
            options.format = ScaleFormat::F32;
            let all = quantize::run(x, options).unwrap();
            *made.codes_mut("codes").unwrap() = Guarded::from_array(&all.codes);
            *made.f32_mut("scale").unwrap() = Guarded::from_array(&all.scale);
        }
        _ => {}
    }
}

fn scores(fault: Fault, job: &Job<'_>, made: &mut Buffers) {
    if !matches!(
        fault,
        Fault::NoRelu | Fault::WeightsAsBf16 | Fault::SubnormalsFlushed
    ) {
        return;
    }
    let (q, k) = (job.codes("q").unwrap().body(), job.codes("k").unwrap());
    let (scales, weights) = (job.f32("k_scale").unwrap(), job.f32("weights").unwrap());
    let (ids, b) = (job.i32("block_ids").unwrap(), job.params.block_size());
    let scores = made.f32_mut("token_scores").unwrap();
    let columns = scores.columns();
    for (at, score) in scores.body_mut().iter_mut().enumerate() {
        if fault == Fault::SubnormalsFlushed {
            *score = if score.is_subnormal() { 0.0 } else { *score };
            continue;
        }
        if !score.is_finite() {
            continue;
        }
        let (row, slot) = (at / columns, at % columns);
        let key = ids.row(row)[slot / b] as usize * b + slot % b;
        let mut sum = 0.0;
        for (head, &weight) in weights.row(row).iter().enumerate() {
            let query = &q[(row * job.h + head) * job.d..][..job.d];
            let pairs = query.iter().zip(k.row(key));
            let dot: f64 = pairs.map(|(q, k)| f64::from(q.to_f32() * k.to_f32())).sum();
            sum += match fault {
                Fault::NoRelu => dot * f64::from(weight),
                _ if dot < 0.0 => 0.0,
                _ => dot * f64::from(f32::from_bits(weight.to_bits() & 0xFFFF_0000)),
            };
        }
        *score = (sum * f64::from(scales.body()[key])) as f32;
    }
}

/// Numbers sequences without the empty ones, and looks offsets up by that number.
fn skip_empty(job: &Job<'_>, made: &mut Buffers) {
    let Some(WindowSpec {
        source: WindowSource::Causal(cu),
        shard: None,
        padding_rows: 0,
    }) = job.spec
    else {
        return;
    };
    let full = cu.windows(2).filter(|pair| pair[0] < pair[1]);
    let ks = made.i32_mut("ks").unwrap();
    for (number, pair) in full.enumerate() {
        ks.body_mut()[pair[0] as usize..pair[1] as usize].fill(cu[number] as i32);
    }
}
