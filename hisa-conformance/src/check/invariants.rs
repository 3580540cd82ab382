//! Invariants any implementation can be held to (SPEC 10), here on the reference itself.

use super::oracle::{floats_differ, ids_differ};
use super::{Context, Verdict};
use crate::case::Inputs;
use hisa_ref::incremental::PooledCache;
use hisa_ref::stages::block_pool::{self, SCALE_MIN};
use hisa_ref::trace::Trace;
use hisa_ref::{E4M3, HisaParams, Keys, Result, Strictness, Window, Windows, hisa};
use ndarray::{Array2, Axis, Slice};

type Judged = Result<Verdict>;

fn fail(text: String) -> Judged {
    Ok(Verdict::Fail(text))
}

/// Judges every row of `indices` with its window.
fn every_row(context: &Context, rule: impl Fn(Window, &[i32]) -> Option<String>) -> Judged {
    for (row, &window) in context.inputs.windows.rows().iter().enumerate() {
        let ids = context.indices.row(row);
        if let Some(text) = rule(window, ids.as_slice().unwrap_or(&[])) {
            return fail(format!(
                "row {row}, window [{}, {}): {text}",
                window.ks, window.ke
            ));
        }
    }
    Ok(Verdict::Pass)
}

pub(super) fn shape(context: &Context) -> Judged {
    let (m, k, nb) = (
        context.case.m,
        context.case.topk_tokens,
        context.case.blocks(),
    );
    let trace = &context.trace;
    let shapes = [
        ("indices", context.indices.dim(), (m, k)),
        ("slots", trace.slots.dim(), (m, k)),
        (
            "token_scores",
            trace.token_scores.dim(),
            (m, context.params().slots()),
        ),
        (
            "block_ids",
            trace.block_ids.dim(),
            (m, context.case.block_topk),
        ),
        ("block_mask", trace.block_mask.dim(), (m, nb)),
        ("pooled_k", trace.pooled_k.dim(), (nb, context.case.d)),
        ("pooled_scale", (trace.pooled_scale.len(), 1), (nb, 1)),
    ];
    for (name, got, expected) in shapes {
        if got != expected {
            return fail(format!("{name} has shape {got:?}, expected {expected:?}"));
        }
    }
    Ok(Verdict::Pass)
}

pub(super) fn range(context: &Context) -> Judged {
    every_row(context, |window, ids| {
        let outside = ids
            .iter()
            .find(|&&id| id != -1 && !(0..window.len() as i64).contains(&id.into()));
        outside.map(|id| format!("id {id} is neither -1 nor within the window"))
    })
}

pub(super) fn tail(context: &Context) -> Judged {
    every_row(context, |_, ids| {
        let gap = ids
            .windows(2)
            .position(|pair| pair[0] == -1 && pair[1] != -1);
        gap.map(|at| format!("id {} stands after a -1, at column {}", ids[at + 1], at + 1))
    })
}

pub(super) fn unique(context: &Context) -> Judged {
    every_row(context, |_, ids| {
        let mut valid: Vec<i32> = ids.iter().copied().filter(|&id| id != -1).collect();
        valid.sort_unstable();
        let twice = valid.windows(2).find(|pair| pair[0] == pair[1]);
        twice.map(|pair| format!("id {} stands twice", pair[0]))
    })
}

pub(super) fn count(context: &Context) -> Judged {
    let b = context.case.block_size;
    for (row, &window) in context.inputs.windows.rows().iter().enumerate() {
        let chosen = context.trace.block_ids.row(row);
        let visible: usize = (window.keys())
            .filter(|key| chosen.iter().any(|&id| id >= 0 && id as usize == key / b))
            .count();
        let expected = visible.min(context.case.topk_tokens);
        let got = context
            .indices
            .row(row)
            .iter()
            .filter(|&&id| id != -1)
            .count();
        if got != expected {
            return fail(format!("row {row} has {got} ids, expected {expected}"));
        }
    }
    Ok(Verdict::Pass)
}

pub(super) fn forced(context: &Context) -> Judged {
    let mut applies = false;
    for (row, window) in context.inputs.windows.rows().iter().enumerate() {
        let blocks = window.blocks(context.case.block_size);
        if blocks.is_empty() {
            continue;
        }
        applies = true;
        let ids = context.trace.block_ids.row(row);
        let chosen = |block: usize| ids.iter().any(|&id| id == block as i32);
        let (first, last) = (blocks.start, blocks.end - 1);
        if !chosen(last) || context.case.block_topk >= 2 && !chosen(first) {
            return fail(format!(
                "row {row} lacks block {first} or {last}, the ends of its window"
            ));
        }
    }
    Ok(if applies {
        Verdict::Pass
    } else {
        Verdict::NotApplicable
    })
}

pub(super) fn mask(context: &Context) -> Judged {
    let trace = &context.trace;
    for (row, window) in context.inputs.windows.rows().iter().enumerate() {
        let blocks = window.blocks(context.case.block_size);
        for (block, &masked) in trace.block_mask.row(row).iter().enumerate() {
            let expected = if !blocks.contains(&block) {
                f32::NEG_INFINITY
            } else if block == blocks.start || block + 1 == blocks.end {
                f32::INFINITY
            } else {
                trace.block_scores[(row, block)]
            };
            if masked.to_bits() != expected.to_bits() {
                return fail(format!(
                    "[{row}, {block}]: expected {expected}, got {masked}"
                ));
            }
        }
    }
    Ok(Verdict::Pass)
}

/// Up to `most` rows that see a key, spread over the case.
fn some_rows(context: &Context, most: usize) -> Vec<usize> {
    let rows = context.inputs.windows.rows();
    let seeing: Vec<usize> = (0..rows.len())
        .filter(|&row| !rows[row].is_empty())
        .collect();
    let step = seeing.len().div_ceil(most).max(1);
    seeing.into_iter().step_by(step).collect()
}

/// The inputs of some rows of a case, in the order given.
fn select_rows(inputs: &Inputs, rows: &[usize]) -> Result<Inputs> {
    let mut selected = inputs.clone();
    selected.tensors.q = inputs.tensors.q.select(Axis(0), rows);
    selected.tensors.weights = inputs.tensors.weights.select(Axis(0), rows);
    let windows = rows.iter().map(|&row| inputs.windows.rows()[row]).collect();
    selected.windows = Windows::new(windows, inputs.windows.n())?;
    Ok(selected)
}

/// Every key and scale outside the window becomes NaN; the row must not notice.
pub(super) fn window(context: &Context) -> Judged {
    let rows = some_rows(context, 2);
    for &row in &rows {
        let mut poisoned = select_rows(&context.inputs, &[row])?;
        let window = context.inputs.windows.rows()[row];
        for key in (0..context.case.n).filter(|&key| !window.contains(key)) {
            poisoned.tensors.k.row_mut(key).fill(E4M3::NAN);
            poisoned.tensors.k_scale[key] = f32::NAN;
        }
        let input = poisoned.indexer_input_with(Strictness::Permissive)?;
        let got = hisa::run(&input, &context.params())?;
        let expected = context
            .indices
            .slice_axis(Axis(0), Slice::from(row..row + 1));
        if let Some(text) = ids_differ(expected, &got, expected.shape()) {
            return fail(format!(
                "row {row} with everything outside its window poisoned: {text}"
            ));
        }
    }
    Ok(if rows.is_empty() {
        Verdict::NotApplicable
    } else {
        Verdict::Pass
    })
}

/// The rows in reverse order, and each of some rows alone.
pub(super) fn rows(context: &Context) -> Judged {
    let reversed: Vec<usize> = (0..context.case.m).rev().collect();
    let alone = some_rows(context, 2).into_iter().map(|row| vec![row]);
    for rows in alone.chain([reversed]) {
        let selected = select_rows(&context.inputs, &rows)?;
        let got = hisa::run(&selected.indexer_input()?, &context.params())?;
        let expected = context.indices.select(Axis(0), &rows);
        if let Some(text) = ids_differ(&expected, &got, expected.shape()) {
            return fail(format!("rows {rows:?} by themselves: {text}"));
        }
    }
    Ok(Verdict::Pass)
}

pub(super) fn repeat(context: &Context) -> Judged {
    let again = hisa::trace(&context.input()?, &context.params())?;
    let difference = traces_differ(&context.trace, &again);
    Ok(Verdict::from_difference(difference))
}

fn traces_differ(expected: &Trace, got: &Trace) -> Option<String> {
    floats_differ(
        &expected.pooled_scale,
        &got.pooled_scale,
        expected.pooled_scale.shape(),
    )
    .or_else(|| scores_differ(expected, got))
    .or_else(|| ids_differ(&expected.indices, &got.indices, expected.indices.shape()))
}

fn scores_differ(expected: &Trace, got: &Trace) -> Option<String> {
    let floats = |name: &str, expected: &Array2<f32>, got: &Array2<f32>| {
        let difference = floats_differ(expected, got, expected.shape());
        difference.map(|text| format!("{name}{text}"))
    };
    floats("block_scores", &expected.block_scores, &got.block_scores)
        .or_else(|| floats("token_scores", &expected.token_scores, &got.token_scores))
}

/// The arrays are borrowed immutably; this holds the reference to the promise all the same.
pub(super) fn inputs(context: &Context) -> Judged {
    let fresh = context.case.tensors().map(|tensors| tensors.digest());
    let kept = context.inputs.tensors.digest();
    Ok(match fresh {
        Ok(fresh) if fresh == kept => Verdict::Pass,
        Ok(fresh) => Verdict::Fail(format!("digest was {fresh:#x}, is {kept:#x}")),
        Err(error) => Verdict::Fail(error.to_string()),
    })
}

pub(super) fn nest(context: &Context) -> Judged {
    let p = context.params();
    let Ok(wider) = HisaParams::new(p.block_size(), p.block_topk(), p.topk_tokens() + 1) else {
        return Ok(Verdict::NotApplicable);
    };
    let got = hisa::run(&context.input()?, &wider.with_rank(p.rank()))?;
    let prefix = got.slice_axis(Axis(1), Slice::from(..p.topk_tokens()));
    Ok(Verdict::from_difference(ids_differ(
        &context.indices,
        prefix,
        prefix.shape(),
    )))
}

/// Heads in reverse order.
pub(super) fn permute(context: &Context) -> Judged {
    if context.case.h < 2 {
        return Ok(Verdict::NotApplicable);
    }
    let mut permuted = context.inputs.clone();
    permuted.tensors.q.invert_axis(Axis(1));
    permuted.tensors.weights.invert_axis(Axis(1));
    let got = hisa::trace(&permuted.indexer_input()?, &context.params())?;
    let difference = scores_differ(&context.trace, &got).or_else(|| {
        ids_differ(
            &context.trace.indices,
            &got.indices,
            context.trace.indices.shape(),
        )
    });
    Ok(Verdict::from_difference(difference))
}

/// All scales times 8, where nothing comes near the ends of the range or the floor.
pub(super) fn scale(context: &Context) -> Judged {
    const FACTOR: f32 = 8.0;
    let within = |value: f32, low: f32| value == 0.0 || (low..1.0 / low).contains(&value.abs());
    let score = |value: f32| value == f32::NEG_INFINITY || within(value, 1e-30);
    let (tensors, trace) = (&context.inputs.tensors, &context.trace);
    // With such weights and scales every term is a multiple of 2^-124: a score of zero is a true
    // zero and no underflow, which would not scale.
    let applies = context.inputs.strictness == Strictness::Strict
        && tensors.k_scale.iter().all(|&scale| within(scale, 1e-12))
        && tensors.weights.iter().all(|&weight| within(weight, 1e-6))
        && trace
            .pooled_scale
            .iter()
            .all(|&scale| scale > SCALE_MIN && scale < 1e30)
        && trace
            .token_scores
            .iter()
            .chain(&trace.block_scores)
            .all(|&value| score(value));
    if !applies || context.case.m == 0 || context.case.n == 0 {
        return Ok(Verdict::NotApplicable);
    }
    let mut scaled = context.inputs.clone();
    scaled.tensors.k_scale *= FACTOR;
    let got = hisa::trace(&scaled.indexer_input()?, &context.params())?;
    let expected = Trace {
        block_scores: &trace.block_scores * FACTOR,
        token_scores: &trace.token_scores * FACTOR,
        ..trace.clone()
    };
    let difference = scores_differ(&expected, &got)
        .or_else(|| ids_differ(&trace.indices, &got.indices, trace.indices.shape()));
    Ok(Verdict::from_difference(difference))
}

pub(super) fn equal_flat(context: &Context) -> Judged {
    let mut applies = false;
    for (row, window) in context.inputs.windows.rows().iter().enumerate() {
        if window.blocks(context.case.block_size).len() > context.case.block_topk {
            continue;
        }
        applies |= !window.is_empty();
        let (expected, got) = (context.dsa.indices.row(row), context.indices.row(row));
        if let Some(text) = ids_differ(expected, got, expected.shape()) {
            return fail(format!("row {row}: {text}"));
        }
    }
    Ok(if applies {
        Verdict::Pass
    } else {
        Verdict::NotApplicable
    })
}

/// Pooling in three pieces, the last one after a roll-back.
pub(super) fn append(context: &Context) -> Judged {
    let (n, b) = (context.case.n, context.case.block_size);
    if n == 0 {
        return Ok(Verdict::NotApplicable);
    }
    let (first, second) = (context.case.seed as usize % (n + 1), n);
    let tensors = &context.inputs.tensors;
    let piece = |from: usize, to: usize| {
        let slice = Slice::from(from..to);
        let (k, s) = (&tensors.k, &tensors.k_scale);
        let (k, s) = (k.slice_axis(Axis(0), slice), s.slice_axis(Axis(0), slice));
        Keys::new(k, s, Strictness::Permissive)
    };
    let mut cache = PooledCache::new(b, context.case.d)?;
    cache.append(&piece(0, first)?)?;
    cache.append(&piece(first, second)?)?;
    cache.truncate(first / 2)?;
    cache.append(&piece(first / 2, second)?)?;
    let expected = block_pool::run(&piece(0, n)?, b)?;
    let got = cache.pooled();
    if got.codes != expected.codes {
        return fail(format!(
            "codes differ for pieces 0..{first}, ..{n} and back to {}",
            first / 2
        ));
    }
    let difference = floats_differ(&expected.scales, &got.scales, expected.scales.shape());
    Ok(Verdict::from_difference(difference))
}
