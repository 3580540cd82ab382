//! The oracle as a backend.

use super::{Backend, Capabilities, Failure, Guarded, Job, Outputs, not_offered};
use crate::case::{Shard, WindowSource};
use crate::op::Op;
use crate::oracle::{self as second, OracleInput, OracleParams};
use hisa_ref::stages::quantize::ScaleFormat;
use hisa_ref::{E4M3, Overflow, Rank, Stage};

/// The big-integer oracle.
#[derive(Debug)]
pub struct Oracle {
    capabilities: Capabilities,
}

impl Oracle {
    /// The one there is. It does not pool in pieces.
    #[must_use]
    pub fn new() -> Self {
        let mut capabilities = Capabilities::all();
        capabilities.ops.retain(|&op| op != Op::Append);
        Self { capabilities }
    }
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        let params = params(job);
        match job.op {
            Op::Windows => windows(job, out),
            Op::Stage(Stage::Quantize) => quantize(job, out),
            Op::Stage(Stage::BlockPool) => {
                let (k, scales) = (bytes(job.codes("k")?), job.f32("k_scale")?.body());
                let (codes, scales) = second::block_pool(&k, scales, job.d, params.block_size);
                out.codes("pooled_k")?
                    .write(codes.into_iter().map(E4M3::from_bits));
                out.f32("pooled_scale")?.write(scales);
                Ok(())
            }
            Op::Stage(stage) => run_stage(stage, job, &params, out),
            Op::Append => Err(not_offered(job.op)),
            Op::Hisa => {
                let trace = second::hisa(&input(job)?, &params);
                out.i32("indices")?.write(trace.indices);
                Ok(())
            }
            Op::Dsa => {
                let trace = second::dsa(&input(job)?, params.topk_tokens);
                out.f32("flat_scores")?.write(trace.flat_scores);
                out.i32("indices")?.write(trace.indices);
                Ok(())
            }
            Op::BlockSparse => {
                let blocks = params.topk_tokens.div_ceil(params.block_size);
                hisa_ref::params::slots_per_row(params.block_size, blocks)?;
                let trace = second::block_sparse(&input(job)?, &params);
                out.i32("block_ids")?.write(trace.block_ids);
                out.i32("indices")?.write(trace.indices);
                Ok(())
            }
        }
    }
}

fn run_stage(
    stage: Stage,
    job: &Job<'_>,
    params: &OracleParams,
    out: &mut Outputs,
) -> Result<(), Failure> {
    let windows = rows(job);
    match stage {
        Stage::Quantize | Stage::BlockPool => return Err(not_offered(job.op)),
        Stage::BlockScores => {
            let (codes, scales) = (bytes(job.codes("pooled_k")?), job.f32("pooled_scale")?);
            let scores = second::block_scores(&query(job)?, params, &codes, scales.body());
            out.f32("block_scores")?.write(scores);
        }
        Stage::BlockMask => {
            let scores = job.f32("block_scores")?;
            let blocks = scores.columns();
            let masked = second::block_mask(scores.body(), &windows, blocks, params.block_size);
            out.f32("block_mask")?.write(masked);
        }
        Stage::BlockTopk => {
            let masked = job.f32("block_mask")?;
            let ids = second::block_topk(masked.body(), &windows, masked.columns(), params);
            out.i32("block_ids")?.write(ids);
        }
        Stage::TokenScores => {
            let scores = second::token_scores(&input(job)?, params, job.i32("block_ids")?.body());
            out.f32("token_scores")?.write(scores);
        }
        Stage::TokenTopk => {
            let (scores, ids) = (
                job.f32("token_scores")?.body(),
                job.i32("block_ids")?.body(),
            );
            out.i32("slots")?
                .write(second::token_topk(scores, ids, &windows, params));
        }
        Stage::IndexMap => {
            let (slots, ids) = (job.i32("slots")?.body(), job.i32("block_ids")?.body());
            out.i32("indices")?
                .write(second::index_map(slots, ids, &windows, params));
        }
    }
    Ok(())
}

/// Windows made from offsets, by the oracle's own rules.
fn windows(job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let spec = job
        .spec
        .ok_or_else(|| Failure::Unsupported("no offsets".into()))?;
    let rows = job.m - spec.padding_rows;
    let global_rows = rows * spec.shard.map_or(1, |shard| shard.ranks);
    let narrow = |offsets: &[i64]| offsets.iter().map(|&at| at as i32).collect::<Vec<i32>>();
    let global = match &spec.source {
        WindowSource::Rows(rows) => rows.iter().map(|window| (window.ks, window.ke)).collect(),
        WindowSource::Causal(cu) => second::windows_from_cu_seqlens(&narrow(cu), global_rows),
        WindowSource::Separate { q, k } => {
            second::windows_from_offsets(&narrow(q), &narrow(k), global_rows)
        }
        WindowSource::Strided {
            q,
            k,
            stride,
            first_positions,
        } => {
            let first: Vec<i64> = first_positions.iter().map(|&p| p.into()).collect();
            let k = k.as_deref().map(narrow);
            let stride = *stride as i32;
            second::windows_with_stride(&narrow(q), stride, &first, k.as_deref(), global_rows)
        }
    };
    let mut made = match spec.shard {
        Some(Shard { rank, ranks }) => second::windows_zigzag(&global, rank, ranks),
        None => global,
    };
    made.resize(job.m, second::NO_SEQUENCE);
    out.i32("ks")?.write(made.iter().map(|window| window.0));
    out.i32("ke")?.write(made.iter().map(|window| window.1));
    Ok(())
}

fn quantize(job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let x = job.f32("x")?;
    let overflow = match job.quantize.overflow {
        Overflow::Saturating => second::e4m3::Overflow::Saturating,
        Overflow::NonSaturating => second::e4m3::Overflow::NonSaturating,
    };
    let format = match job.quantize.format {
        ScaleFormat::F32 => second::ScaleFormat::Float32,
        ScaleFormat::Ue8m0 => second::ScaleFormat::Ue8m0,
    };
    let (codes, scales) = second::quantize(x.body(), x.columns().max(1), overflow, format);
    out.codes("codes")?
        .write(codes.into_iter().map(E4M3::from_bits));
    out.f32("scale")?
        .write(scales.into_iter().map(f32::from_bits));
    Ok(())
}

fn params(job: &Job<'_>) -> OracleParams {
    OracleParams {
        block_size: job.params.block_size(),
        block_topk: job.params.block_topk(),
        topk_tokens: job.params.topk_tokens(),
        rank_bf16: job.params.rank() == Rank::Bf16,
    }
}

fn rows(job: &Job<'_>) -> Vec<(i32, i32)> {
    let rows = job.windows.rows().iter();
    rows.map(|window| (window.ks, window.ke)).collect()
}

fn bytes(codes: &Guarded<E4M3>) -> Vec<u8> {
    codes.body().iter().map(|code| code.to_bits()).collect()
}

/// Queries and windows alone, for a stage that takes its keys apart.
fn query(job: &Job<'_>) -> Result<OracleInput, Failure> {
    Ok(OracleInput {
        m: job.m,
        n: job.n,
        h: job.h,
        d: job.d,
        q: bytes(job.codes("q")?),
        k: Vec::new(),
        k_scale: Vec::new(),
        weights: job.f32("weights")?.body().to_vec(),
        windows: rows(job),
    })
}

fn input(job: &Job<'_>) -> Result<OracleInput, Failure> {
    Ok(OracleInput {
        k: bytes(job.codes("k")?),
        k_scale: job.f32("k_scale")?.body().to_vec(),
        ..query(job)?
    })
}
