//! How each stage of an example is called: by its definition and by its fast path.

use crate::example::Example;
use crate::indexers::{run_block_sparse, run_dsa, run_hisa, run_incremental, with_input};
use crate::tensor::{Kind, Tensor};
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::order::{compare_scores, rank_key};
use hisa_ref::stages::block_pool::Pooled;
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::stages::{
    block_mask, block_pool, block_scores, block_topk, index_map, quantize, token_scores, token_topk,
};
use hisa_ref::{E4M3, IndexerInput, Keys, Overflow, Queries, Rank, Result, Window, Windows};
use ndarray::{Array1, Array2};

/// Which of two implementations runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// The definition. For whole indexers: the definitions of the stages, chained.
    Scalar,
    /// What callers use.
    Fast,
}

/// Named results.
pub(crate) type Outputs = Vec<(&'static str, Tensor)>;

/// What an example of one stage may hold, and how it runs.
pub(crate) struct Call {
    pub(crate) stage: &'static str,
    pub(crate) inputs: &'static [&'static str],
    pub(crate) params: &'static [&'static str],
    /// True where windows are an input.
    pub(crate) windows: bool,
    /// Outputs that must be expected; a pipeline has more that may be.
    pub(crate) outputs: &'static [&'static str],
    pub(crate) run: fn(&Example, Path) -> Result<Outputs>,
}

const fn call(
    stage: &'static str,
    inputs: &'static [&'static str],
    params: &'static [&'static str],
    outputs: &'static [&'static str],
    run: fn(&Example, Path) -> Result<Outputs>,
) -> Call {
    Call {
        stage,
        inputs,
        params,
        windows: false,
        outputs,
        run,
    }
}

const fn windowed(mut call: Call) -> Call {
    call.windows = true;
    call
}

const INDEXER: &[&str] = &["q", "k", "k_scale", "weights"];
const POOLING: &[&str] = &["pooled_k", "pooled_scale"];
const WINDOW_PARAMS: &[&str] = &[
    "block_size",
    "kv_stride",
    "first_positions",
    "cp_rank",
    "cp_ranks",
    "rows",
];

/// One row for everything an example can call.
pub(crate) const CALLS: &[Call] = &[
    call("decode", &["codes"], &[], &["values"], decode),
    call("encode", &["x"], &["overflow"], &["codes"], encode),
    call("bf16", &["x"], &[], &["bf16"], bf16),
    call("order", &["x"], &[], &["order"], order),
    windowed(call("windows", &[], WINDOW_PARAMS, &["ks", "ke"], windows)),
    call(
        "quantize",
        &["x"],
        &["scale_format", "overflow", "strict", "dims"],
        &["codes", "scale"],
        quantized,
    ),
    call(
        "block_pool",
        &["k", "k_scale"],
        &["block_size", "strict"],
        POOLING,
        pooled,
    ),
    windowed(call(
        "block_scores",
        &["q", "weights", "pooled_k", "pooled_scale"],
        &["block_size", "strict"],
        &["block_scores"],
        scored_blocks,
    )),
    windowed(call(
        "block_mask",
        &["block_scores"],
        &["block_size"],
        &["block_mask"],
        masked,
    )),
    windowed(call(
        "block_topk",
        &["block_mask"],
        &["block_size", "block_topk", "rank"],
        &["block_ids"],
        chosen_blocks,
    )),
    windowed(call(
        "token_scores",
        &["q", "weights", "k", "k_scale", "block_ids"],
        &["block_size", "strict"],
        &["token_scores"],
        scored_tokens,
    )),
    windowed(call(
        "token_topk",
        &["token_scores", "block_ids"],
        &["block_size", "topk_tokens"],
        &["slots"],
        chosen_tokens,
    )),
    windowed(call(
        "index_map",
        &["slots", "block_ids"],
        &["block_size"],
        &["indices"],
        mapped,
    )),
    windowed(call(
        "hisa",
        INDEXER,
        &["block_size", "block_topk", "topk_tokens", "rank", "strict"],
        &["indices"],
        run_hisa,
    )),
    windowed(call(
        "dsa",
        INDEXER,
        &["topk_tokens", "strict"],
        &["indices"],
        run_dsa,
    )),
    windowed(call(
        "block_sparse",
        INDEXER,
        &["block_size", "topk_tokens", "rank", "strict"],
        &["indices"],
        run_block_sparse,
    )),
    call(
        "incremental",
        &["k", "k_scale", "splits"],
        &["block_size", "strict"],
        POOLING,
        run_incremental,
    ),
];

impl Call {
    /// The row of the example's stage.
    pub(crate) fn named(example: &Example) -> &'static Self {
        let found = CALLS.iter().find(|call| call.stage == example.stage());
        found.unwrap_or_else(|| panic!("{}: unknown stage {}", example.name(), example.stage()))
    }
}

const OVERFLOW: &[(&str, Overflow)] = &[
    ("saturating", Overflow::Saturating),
    ("non-saturating", Overflow::NonSaturating),
];
const FORMAT: &[(&str, ScaleFormat)] = &[("f32", ScaleFormat::F32), ("ue8m0", ScaleFormat::Ue8m0)];
pub(crate) const RANK: &[(&str, Rank)] = &[("bf16", Rank::Bf16), ("f32", Rank::F32)];

fn decode(example: &Example, path: Path) -> Result<Outputs> {
    let value = |code: E4M3| match path {
        Path::Scalar if code.is_nan() => f32::from_bits(0x7FC0_0000),
        Path::Scalar if code.to_bits() == 0x80 => -0.0,
        Path::Scalar => code.units() as f32 / 512.0,
        Path::Fast => code.to_f32(),
    };
    Ok(vec![(
        "values",
        Tensor::f32s(&example.codes_vector("codes").mapv(value)),
    )])
}

fn encode(example: &Example, path: Path) -> Result<Outputs> {
    let overflow = example.choice("overflow", OVERFLOW);
    let code = |x: f32| match path {
        Path::Scalar => E4M3::encode(x, overflow),
        Path::Fast => E4M3::encode_f64(f64::from(x), overflow),
    };
    Ok(vec![(
        "codes",
        Tensor::codes(&example.f32_vector("x").mapv(code)),
    )])
}

fn bf16(example: &Example, _: Path) -> Result<Outputs> {
    let rounded = example.f32_vector("x").mapv(round_to_bf16);
    // V.3 leaves the payload of a NaN open.
    let canonical = rounded.mapv(|x| {
        if x.is_nan() {
            f32::from_bits(0x7FC0_0000)
        } else {
            x
        }
    });
    Ok(vec![("bf16", Tensor::f32s(&canonical))])
}

fn order(example: &Example, path: Path) -> Result<Outputs> {
    let x = example.f32_vector("x");
    let mut order: Vec<i32> = (0..x.len() as i32).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (x[a as usize], x[b as usize]);
        match path {
            Path::Scalar => compare_scores(a, b),
            Path::Fast => rank_key(b).cmp(&rank_key(a)),
        }
    });
    Ok(vec![("order", Tensor::i32s(&Array1::from(order)))])
}

fn windows(example: &Example, _: Path) -> Result<Outputs> {
    let mut windows = example.windows()?;
    if let Some(ranks) = example.param("cp_ranks") {
        windows = windows.context_parallel(example.size("cp_rank"), ranks)?;
    }
    if let Some(rows) = example.param("rows") {
        windows = windows.padded_to(rows)?;
    }
    let rows = windows.rows();
    let ends = |end: fn(&Window) -> i32| Tensor::i32s(&rows.iter().map(end).collect::<Array1<_>>());
    let mut outputs = vec![("ks", ends(|row| row.ks)), ("ke", ends(|row| row.ke))];
    if let Some(block_size) = example.param("block_size") {
        let blocks = Array2::from_shape_fn((rows.len(), 2), |(row, end)| {
            let blocks = rows[row].blocks(block_size);
            [blocks.start, blocks.end][end] as i32
        });
        outputs.push(("block_windows", Tensor::i32s(&blocks)));
    }
    Ok(outputs)
}

fn quantized(example: &Example, path: Path) -> Result<Outputs> {
    let options = QuantizeOptions {
        format: example.choice("scale_format", FORMAT),
        overflow: example.choice("overflow", OVERFLOW),
        strictness: example.strictness(),
    };
    if let Some(dims) = example.list("dims") {
        // The rule is that of rows; only the grouping, which has one implementation, is new.
        let x = example.tensor("x", Kind::F32).dynamic(f32::from_bits);
        let grouped = quantize::run_dims(x.view(), &dims, options)?;
        return Ok(vec![
            ("codes", Tensor::codes(&grouped.codes)),
            ("scale", Tensor::f32s(&grouped.scale)),
        ]);
    }
    let x = example.f32_matrix("x");
    let quantized = match path {
        Path::Scalar => quantize::scalar(x.view(), options),
        Path::Fast => quantize::run(x.view(), options),
    }?;
    Ok(vec![
        ("codes", Tensor::codes(&quantized.codes)),
        ("scale", Tensor::f32s(&quantized.scale)),
    ])
}

pub(crate) fn pooled_outputs(pooled: &Pooled) -> Outputs {
    vec![
        ("pooled_k", Tensor::codes(&pooled.codes)),
        ("pooled_scale", Tensor::f32s(&pooled.scales)),
    ]
}

pub(crate) fn pool(path: Path, keys: &Keys<'_>, block_size: usize) -> Result<Pooled> {
    match path {
        Path::Scalar => block_pool::scalar(keys, block_size),
        Path::Fast => block_pool::run(keys, block_size),
    }
}

pub(crate) fn pooled(example: &Example, path: Path) -> Result<Outputs> {
    let (k, k_scale) = (example.codes_matrix("k"), example.f32_vector("k_scale"));
    let keys = Keys::new(k.view(), k_scale.view(), example.strictness())?;
    Ok(pooled_outputs(&pool(
        path,
        &keys,
        example.size("block_size"),
    )?))
}

pub(crate) fn score_blocks(
    path: Path,
    queries: &Queries<'_>,
    pooled: &Pooled,
    windows: &Windows,
    b: usize,
) -> Result<Array2<f32>> {
    let keys = pooled.as_keys()?;
    match path {
        Path::Scalar => block_scores::scalar(queries, &keys, windows, b),
        Path::Fast => block_scores::run(queries, &keys, windows, b),
    }
}

fn scored_blocks(example: &Example, path: Path) -> Result<Outputs> {
    let (q, weights) = (example.codes_cube("q"), example.f32_matrix("weights"));
    let queries = Queries::new(q.view(), weights.view(), example.strictness())?;
    let pooled = Pooled {
        codes: example.codes_matrix("pooled_k"),
        scales: example.f32_vector("pooled_scale"),
    };
    let (windows, b) = (example.windows()?, example.size("block_size"));
    let scores = score_blocks(path, &queries, &pooled, &windows, b)?;
    Ok(vec![("block_scores", Tensor::f32s(&scores))])
}

pub(crate) fn mask(
    path: Path,
    scores: &mut Array2<f32>,
    windows: &Windows,
    b: usize,
) -> Result<()> {
    match path {
        Path::Scalar => block_mask::scalar(scores, windows, b),
        Path::Fast => block_mask::run(scores, windows, b),
    }
}

fn masked(example: &Example, path: Path) -> Result<Outputs> {
    let (windows, b) = (example.windows()?, example.size("block_size"));
    let mut scores = example.f32_matrix("block_scores");
    mask(path, &mut scores, &windows, b)?;
    let once = Tensor::f32s(&scores);
    mask(path, &mut scores, &windows, b)?;
    assert_eq!(
        Tensor::f32s(&scores),
        once,
        "{}: masking twice differs",
        example.name()
    );
    Ok(vec![("block_mask", once)])
}

pub(crate) fn choose_blocks(
    path: Path,
    masked: &Array2<f32>,
    windows: &Windows,
    (b, m, rank): (usize, usize, Rank),
) -> Result<Array2<i32>> {
    match path {
        Path::Scalar => block_topk::scalar(masked.view(), windows, b, m, rank),
        Path::Fast => block_topk::run(masked.view(), windows, b, m, rank),
    }
}

fn chosen_blocks(example: &Example, path: Path) -> Result<Outputs> {
    let (windows, masked) = (example.windows()?, example.f32_matrix("block_mask"));
    let rank = example.choice("rank", RANK);
    let choice = (example.size("block_size"), example.size("block_topk"), rank);
    let ids = choose_blocks(path, &masked, &windows, choice)?;
    Ok(vec![("block_ids", Tensor::i32s(&ids))])
}

pub(crate) fn score_tokens(
    path: Path,
    input: &IndexerInput<'_>,
    block_ids: &Array2<i32>,
    b: usize,
) -> Result<Array2<f32>> {
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    match path {
        Path::Scalar => token_scores::scalar(queries, keys, windows, block_ids.view(), b),
        Path::Fast => token_scores::run(queries, keys, windows, block_ids.view(), b),
    }
}

fn scored_tokens(example: &Example, path: Path) -> Result<Outputs> {
    with_input(example, |input| {
        let ids = example.i32_matrix("block_ids");
        let scores = score_tokens(path, input, &ids, example.size("block_size"))?;
        Ok(vec![("token_scores", Tensor::f32s(&scores))])
    })
}

pub(crate) fn choose_tokens(
    path: Path,
    (scores, block_ids): (&Array2<f32>, &Array2<i32>),
    windows: &Windows,
    b: usize,
    k: usize,
) -> Result<Array2<i32>> {
    let (scores, block_ids) = (scores.view(), block_ids.view());
    match path {
        Path::Scalar => token_topk::scalar(scores, block_ids, windows, b, k),
        Path::Fast => token_topk::run(scores, block_ids, windows, b, k),
    }
}

fn chosen_tokens(example: &Example, path: Path) -> Result<Outputs> {
    let (scores, ids) = (
        example.f32_matrix("token_scores"),
        example.i32_matrix("block_ids"),
    );
    let (windows, b, k) = (
        example.windows()?,
        example.size("block_size"),
        example.size("topk_tokens"),
    );
    let slots = choose_tokens(path, (&scores, &ids), &windows, b, k)?;
    Ok(vec![("slots", Tensor::i32s(&slots))])
}

pub(crate) fn map_slots(
    path: Path,
    slots: &Array2<i32>,
    block_ids: &Array2<i32>,
    windows: &Windows,
    b: usize,
) -> Result<Array2<i32>> {
    match path {
        Path::Scalar => index_map::scalar(slots.view(), block_ids.view(), windows, b),
        Path::Fast => index_map::run(slots.view(), block_ids.view(), windows, b),
    }
}

fn mapped(example: &Example, path: Path) -> Result<Outputs> {
    let (slots, ids) = (example.i32_matrix("slots"), example.i32_matrix("block_ids"));
    let indices = map_slots(
        path,
        &slots,
        &ids,
        &example.windows()?,
        example.size("block_size"),
    )?;
    Ok(vec![("indices", Tensor::i32s(&indices))])
}
