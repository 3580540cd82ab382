//! Jobs: scores by the rule, everything that compares or counts by the reference.

use super::memo::{Query, Scorer};
use crate::backend::reference::Reference;
use crate::backend::{Backend, Element, Failure, Guarded, Job, Outputs};
use crate::op::Op;
use hisa_ref::order::rank_key;
use hisa_ref::params::block_count;
use hisa_ref::stages::{block_mask, block_topk, index_map, token_topk};
use hisa_ref::{E4M3, Keys, Stage, Strictness};
use ndarray::{Array2, ArrayView1};

type Done = Result<(), Failure>;

pub(super) fn run(
    mut scorer: Scorer<'_>,
    exact: &mut Reference,
    job: &mut Job<'_>,
    out: &mut Outputs,
) -> Done {
    let (rule, scorer) = (scorer.rule, &mut scorer);
    match job.op {
        Op::Stage(Stage::Quantize) if rule.quotients => quantize(rule, job, out),
        Op::Stage(Stage::BlockPool) | Op::Append if rule.quotients => {
            let pooled = pool(rule, job)?;
            copy(&pooled.codes, out.codes("pooled_k")?);
            copy(&pooled.scales, out.f32("pooled_scale")?);
            Ok(())
        }
        Op::Stage(Stage::BlockScores) => {
            let (codes, scales) = (job.codes("pooled_k")?, job.f32("pooled_scale")?);
            let scores = block_scores(scorer, job, codes.body(), scales.body())?;
            copy(&scores, out.f32("block_scores")?);
            Ok(())
        }
        Op::Stage(Stage::TokenScores) => {
            let scores = token_scores(scorer, job, job.i32("block_ids")?)?;
            copy(&scores, out.f32("token_scores")?);
            Ok(())
        }
        Op::Hisa => hisa(scorer, job, out),
        Op::Dsa => dsa(scorer, job, out),
        Op::BlockSparse => block_sparse(scorer, job, out),
        _ => exact.run(job, out),
    }
}

struct Pooled {
    codes: Vec<E4M3>,
    scales: Vec<f32>,
}

fn pool(rule: super::Rule, job: &Job<'_>) -> Result<Pooled, Failure> {
    let (codes, scales) = (job.codes("k")?, job.f32("k_scale")?);
    let (b, d) = (job.params.block_size(), job.d);
    if !rule.quotients {
        let scales = ArrayView1::from(scales.body());
        let keys = Keys::new(codes.view2(), scales, Strictness::Permissive)?;
        let made = hisa_ref::stages::block_pool::run(&keys, b)?;
        return Ok(Pooled {
            codes: made.codes.into_iter().collect(),
            scales: made.scales.to_vec(),
        });
    }
    let blocks = block_count(job.n, b);
    let mut pooled = Pooled {
        codes: vec![E4M3::ZERO; blocks * d],
        scales: Vec::with_capacity(blocks),
    };
    for (block, made) in pooled.codes.chunks_exact_mut(d).enumerate() {
        let keys = block * b..job.n.min((block + 1).saturating_mul(b));
        let part = &codes.body()[keys.start * d..keys.end * d];
        let scale = rule.pool(part, &scales.body()[keys], made);
        pooled.scales.push(scale);
    }
    Ok(pooled)
}

fn quantize(rule: super::Rule, job: &Job<'_>, out: &mut Outputs) -> Done {
    let x = job.f32("x")?;
    let d = x.columns();
    let mut codes = vec![E4M3::ZERO; x.body().len()];
    let mut scales = Vec::with_capacity(x.rows());
    for row in 0..x.rows() {
        let made = &mut codes[row * d..(row + 1) * d];
        scales.push(rule.quantize(x.row(row), job.quantize, made));
    }
    copy(&codes, out.codes("codes")?);
    copy(&scales, out.f32("scale")?);
    Ok(())
}

/// One row of queries.
fn query<'a>(job: &'a Job<'_>, row: usize) -> Result<Query<'a>, Failure> {
    Ok(Query::new(
        job.codes("q")?.row(row),
        job.f32("weights")?.row(row),
    ))
}

/// `[M, Nb]`, `-inf` outside the block window.
fn block_scores(
    scorer: &mut Scorer<'_>,
    job: &Job<'_>,
    codes: &[E4M3],
    scales: &[f32],
) -> Result<Vec<f32>, Failure> {
    let (b, d, blocks) = (job.params.block_size(), job.d, scales.len());
    let mut scores = vec![f32::NEG_INFINITY; job.m * blocks];
    for (row, window) in job.windows.rows().iter().enumerate() {
        let query = query(job, row)?;
        for block in window.blocks(b) {
            let key = &codes[block * d..(block + 1) * d];
            scores[row * blocks + block] = scorer.score(query, key, scales[block]);
        }
    }
    Ok(scores)
}

/// `[M, S]`, `-inf` where no key is visible.
fn token_scores(
    scorer: &mut Scorer<'_>,
    job: &Job<'_>,
    ids: &Guarded<i32>,
) -> Result<Vec<f32>, Failure> {
    let (codes, scales) = (job.codes("k")?, job.f32("k_scale")?.body());
    let (b, slots) = (job.params.block_size(), job.params.slots());
    let mut scores = vec![f32::NEG_INFINITY; job.m * slots];
    for (row, window) in job.windows.rows().iter().enumerate() {
        let query = query(job, row)?;
        for (column, &id) in ids.row(row).iter().enumerate() {
            let Ok(block) = usize::try_from(id) else {
                continue;
            };
            let first = block * b;
            let keys = first.max(window.keys().start)..(first + b).min(window.keys().end);
            for key in keys {
                let at = row * slots + column * b + key - first;
                scores[at] = scorer.score(query, codes.row(key), scales[key]);
            }
        }
    }
    Ok(scores)
}

/// Pooling, block scores and the choice of `count` blocks.
fn chosen(scorer: &mut Scorer<'_>, job: &Job<'_>, count: usize) -> Result<Array2<i32>, Failure> {
    let pooled = pool(scorer.rule, job)?;
    let scores = block_scores(scorer, job, &pooled.codes, &pooled.scales)?;
    let mut scores = matrix(job.m, pooled.scales.len(), scores)?;
    let (b, rank) = (job.params.block_size(), job.params.rank());
    block_mask::run(&mut scores, job.windows, b)?;
    Ok(block_topk::run(scores.view(), job.windows, b, count, rank)?)
}

fn hisa(scorer: &mut Scorer<'_>, job: &Job<'_>, out: &mut Outputs) -> Done {
    let params = job.params;
    let ids = chosen(scorer, job, params.block_topk())?;
    let scores = token_scores(scorer, job, &Guarded::from_array(&ids))?;
    let scores = matrix(job.m, params.slots(), scores)?;
    let (b, k) = (params.block_size(), params.topk_tokens());
    let slots = token_topk::run(scores.view(), ids.view(), job.windows, b, k)?;
    let indices = index_map::run(slots.view(), ids.view(), job.windows, b)?;
    copy(&indices, out.i32("indices")?);
    Ok(())
}

fn dsa(scorer: &mut Scorer<'_>, job: &Job<'_>, out: &mut Outputs) -> Done {
    let (codes, scales) = (job.codes("k")?, job.f32("k_scale")?.body());
    let k = job.params.topk_tokens();
    let mut scores = vec![f32::NEG_INFINITY; job.m * job.n];
    let mut indices = vec![-1; job.m * k];
    for (row, window) in job.windows.rows().iter().enumerate() {
        let query = query(job, row)?;
        let keys = window.keys();
        let mut ranked = Vec::with_capacity(keys.len());
        for key in keys.clone() {
            let score = scorer.score(query, codes.row(key), scales[key]);
            scores[row * job.n + key] = score;
            ranked.push((std::cmp::Reverse(rank_key(score)), key));
        }
        ranked.sort_unstable();
        let places = indices[row * k..(row + 1) * k].iter_mut();
        for (place, (_, key)) in places.zip(ranked) {
            *place = (key - keys.start) as i32;
        }
    }
    copy(&scores, out.f32("flat_scores")?);
    copy(&indices, out.i32("indices")?);
    Ok(())
}

fn block_sparse(scorer: &mut Scorer<'_>, job: &Job<'_>, out: &mut Outputs) -> Done {
    let b = job.params.block_size();
    let count = job.params.topk_tokens().div_ceil(b);
    let ids = chosen(scorer, job, count)?;
    let columns = count * b;
    let mut indices = vec![-1; job.m * columns];
    for (row, window) in job.windows.rows().iter().enumerate() {
        let chosen = ids.row(row);
        let blocks = chosen.iter().filter_map(|&id| usize::try_from(id).ok());
        let keys = blocks.flat_map(|block| block * b..(block + 1) * b);
        let visible = keys.filter(|&key| window.contains(key));
        let places = indices[row * columns..(row + 1) * columns].iter_mut();
        for (place, key) in places.zip(visible) {
            *place = (key - window.keys().start) as i32;
        }
    }
    copy(&ids, out.i32("block_ids")?);
    copy(&indices, out.i32("indices")?);
    Ok(())
}

fn matrix<T>(rows: usize, columns: usize, values: Vec<T>) -> Result<Array2<T>, Failure> {
    let shaped = Array2::from_shape_vec((rows, columns), values);
    shaped.map_err(|error| Failure::Error(error.to_string()))
}

fn copy<'a, T: Element>(values: impl IntoIterator<Item = &'a T>, place: &mut Guarded<T>) {
    for (place, &value) in place.body_mut().iter_mut().zip(values) {
        *place = value;
    }
}
