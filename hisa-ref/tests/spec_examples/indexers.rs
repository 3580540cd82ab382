//! How the whole indexers of an example are called.

use crate::calls::{
    Outputs, Path, RANK, choose_blocks, choose_tokens, map_slots, mask, pool, pooled,
    pooled_outputs, score_blocks, score_tokens,
};
use crate::example::Example;
use crate::tensor::Tensor;
use hisa_ref::incremental::PooledCache;
use hisa_ref::{HisaParams, IndexerInput, Keys, Result, block_sparse, dsa, hisa};
use ndarray::{Array2, s};

/// Calls `run` with the indexer's tensors, which live as long as the call.
pub(crate) fn with_input(
    example: &Example,
    run: impl FnOnce(&IndexerInput<'_>) -> Result<Outputs>,
) -> Result<Outputs> {
    let (q, k) = (example.codes_cube("q"), example.codes_matrix("k"));
    let (k_scale, weights) = (example.f32_vector("k_scale"), example.f32_matrix("weights"));
    let (windows, strictness) = (example.windows()?, example.strictness());
    let (q, k) = (q.view(), k.view());
    run(&IndexerInput::new(
        q,
        k,
        k_scale.view(),
        weights.view(),
        windows,
        strictness,
    )?)
}

fn hisa_params(example: &Example, block_topk: usize) -> Result<HisaParams> {
    let (b, k) = (example.size("block_size"), example.size("topk_tokens"));
    Ok(HisaParams::new(b, block_topk, k)?.with_rank(example.choice("rank", RANK)))
}

/// Stages 2 to 5 by their definitions, and the chosen blocks once more.
fn blocks_by_definition(
    input: &IndexerInput<'_>,
    params: &HisaParams,
    m: usize,
) -> Result<(Outputs, Array2<i32>)> {
    let (path, windows, b) = (Path::Scalar, input.windows(), params.block_size());
    let pooled = pool(path, input.keys(), b)?;
    let scores = score_blocks(path, input.queries(), &pooled, windows, b)?;
    let mut masked = scores.clone();
    mask(path, &mut masked, windows, b)?;
    let ids = choose_blocks(path, &masked, windows, (b, m, params.rank()))?;
    let mut outputs = pooled_outputs(&pooled);
    outputs.push(("block_scores", Tensor::f32s(&scores)));
    outputs.push(("block_mask", Tensor::f32s(&masked)));
    outputs.push(("block_ids", Tensor::i32s(&ids)));
    Ok((outputs, ids))
}

pub(crate) fn run_hisa(example: &Example, path: Path) -> Result<Outputs> {
    let params = hisa_params(example, example.size("block_topk"))?;
    with_input(example, |input| match path {
        Path::Scalar => {
            let (b, windows) = (params.block_size(), input.windows());
            let (mut outputs, ids) = blocks_by_definition(input, &params, params.block_topk())?;
            let scores = score_tokens(path, input, &ids, b)?;
            let slots = choose_tokens(path, (&scores, &ids), windows, b, params.topk_tokens())?;
            let indices = map_slots(path, &slots, &ids, windows, b)?;
            outputs.push(("token_scores", Tensor::f32s(&scores)));
            outputs.push(("slots", Tensor::i32s(&slots)));
            outputs.push(("indices", Tensor::i32s(&indices)));
            Ok(outputs)
        }
        Path::Fast => {
            let trace = hisa::trace(input, &params)?;
            let name = example.name();
            assert_eq!(
                trace.indices,
                hisa::run(input, &params)?,
                "{name}: run differs from trace"
            );
            Ok(vec![
                ("pooled_k", Tensor::codes(&trace.pooled_k)),
                ("pooled_scale", Tensor::f32s(&trace.pooled_scale)),
                ("block_scores", Tensor::f32s(&trace.block_scores)),
                ("block_mask", Tensor::f32s(&trace.block_mask)),
                ("block_ids", Tensor::i32s(&trace.block_ids)),
                ("token_scores", Tensor::f32s(&trace.token_scores)),
                ("slots", Tensor::i32s(&trace.slots)),
                ("indices", Tensor::i32s(&trace.indices)),
            ])
        }
    })
}

pub(crate) fn run_dsa(example: &Example, path: Path) -> Result<Outputs> {
    let k = example.size("topk_tokens");
    with_input(example, |input| match path {
        // All keys as one block: its slots are absolute keys, its indices the flat ones.
        Path::Scalar => {
            let (n, windows) = (input.keys().len(), input.windows());
            let ids = Array2::zeros((windows.len(), 1));
            let scores = score_tokens(path, input, &ids, n)?;
            let slots = choose_tokens(path, (&scores, &ids), windows, n, k)?;
            let indices = Tensor::i32s(&map_slots(path, &slots, &ids, windows, n)?);
            Ok(vec![
                ("flat_scores", Tensor::f32s(&scores)),
                ("slots", indices.clone()),
                ("indices", indices),
            ])
        }
        Path::Fast => {
            let trace = dsa::trace(input, k)?;
            let name = example.name();
            assert_eq!(
                trace.indices,
                dsa::run(input, k)?,
                "{name}: run differs from trace"
            );
            Ok(vec![
                ("flat_scores", Tensor::f32s(&trace.flat_scores)),
                ("slots", Tensor::i32s(&trace.slots)),
                ("indices", Tensor::i32s(&trace.indices)),
            ])
        }
    })
}

pub(crate) fn run_block_sparse(example: &Example, path: Path) -> Result<Outputs> {
    // The given m is not read (9.3); 1 would change every example if it were.
    let params = hisa_params(example, 1)?;
    with_input(example, |input| match path {
        Path::Scalar => {
            let b = params.block_size();
            let m = params.topk_tokens().div_ceil(b);
            let (mut outputs, ids) = blocks_by_definition(input, &params, m)?;
            let mut indices = Array2::from_elem((ids.nrows(), m * b), -1);
            for (row, window) in input.windows().rows().iter().enumerate() {
                let blocks = ids.row(row).into_iter().filter(|&&id| id >= 0);
                let keys = blocks.flat_map(|&id| id as usize * b..(id as usize + 1) * b);
                let visible = keys.filter(|&key| window.contains(key));
                for (index, key) in indices.row_mut(row).iter_mut().zip(visible) {
                    *index = key as i32 - window.ks;
                }
            }
            outputs.push(("indices", Tensor::i32s(&indices)));
            Ok(outputs)
        }
        Path::Fast => {
            let trace = block_sparse::trace(input, &params)?;
            Ok(vec![
                ("pooled_k", Tensor::codes(&trace.pooled_k)),
                ("pooled_scale", Tensor::f32s(&trace.pooled_scale)),
                ("block_scores", Tensor::f32s(&trace.block_scores)),
                ("block_mask", Tensor::f32s(&trace.block_mask)),
                ("block_ids", Tensor::i32s(&trace.block_ids)),
                ("indices", Tensor::i32s(&trace.indices)),
            ])
        }
    })
}

pub(crate) fn run_incremental(example: &Example, path: Path) -> Result<Outputs> {
    if path == Path::Scalar {
        return pooled(example, path);
    }
    let (k, k_scale) = (example.codes_matrix("k"), example.f32_vector("k_scale"));
    let (strictness, b) = (example.strictness(), example.size("block_size"));
    let mut ends = vec![];
    for split in example.splits() {
        let mut cache = PooledCache::new(b, k.ncols())?;
        for len in split {
            let keys = cache.len()..cache.len() + len;
            let (codes, scales) = (k.slice(s![keys.clone(), ..]), k_scale.slice(s![keys]));
            cache.append(&Keys::new(codes, scales, strictness)?)?;
            let so_far = Keys::new(
                k.slice(s![..cache.len(), ..]),
                k_scale.slice(s![..cache.len()]),
                strictness,
            )?;
            let once = pooled_outputs(&pool(path, &so_far, b)?);
            assert_eq!(
                pooled_outputs(&cache.pooled()),
                once,
                "{}: a step",
                example.name()
            );
        }
        assert_eq!(
            cache.len(),
            k.nrows(),
            "{}: a split leaves keys",
            example.name()
        );
        ends.push(pooled_outputs(&cache.pooled()));
    }
    assert!(
        ends.iter().all(|end| *end == ends[0]),
        "{}: splits differ",
        example.name()
    );
    Ok(ends.swap_remove(0))
}
