//! The whole indexers: `hisa`, the flat `dsa` and the `block_sparse` baseline.

use super::scores::{block_scores, flat_scores, token_scores};
use super::selection::{block_mask, block_topk, flat_topk, index_map, push_padded, token_topk};
use super::windows::window_keys;
use super::{OracleInput, OracleParams, block_pool};

/// Every tensor of a `hisa` run; tensors are row-major.
#[derive(Clone, Debug)]
pub struct OracleTrace {
    /// e4m3 codes of the mean keys, `[Nb, D]`.
    pub pooled_k: Vec<u8>,
    /// Scale of each mean key, `[Nb]`.
    pub pooled_scale: Vec<f32>,
    /// Scores of the blocks, `[M, Nb]`, `-inf` outside the block window.
    pub block_scores: Vec<f32>,
    /// Scores after masking and forcing, `[M, Nb]`.
    pub block_mask: Vec<f32>,
    /// Selected blocks, `[M, m]`, ascending, then -1.
    pub block_ids: Vec<i32>,
    /// Scores of the keys in the selected blocks, `[M, m * B]`, `-inf` where a slot has none.
    pub token_scores: Vec<f32>,
    /// Selected slots, `[M, K]`, best first, then -1.
    pub slots: Vec<i32>,
    /// Selected tokens relative to `ks`, `[M, K]`, best first, then -1.
    pub indices: Vec<i32>,
}

/// Every tensor of a `dsa` run; tensors are row-major.
#[derive(Clone, Debug)]
pub struct DsaTrace {
    /// Scores of all keys, `[M, N]`, `-inf` outside the window.
    pub flat_scores: Vec<f32>,
    /// Selected slots `key - ks`, `[M, K]`, best first, then -1.
    pub slots: Vec<i32>,
    /// Selected tokens relative to `ks`, `[M, K]`: the slots again.
    pub indices: Vec<i32>,
}

/// What a `block_sparse` run selects; tensors are row-major, `m` is `ceil(K / B)`.
#[derive(Clone, Debug)]
pub struct BlockSparseTrace {
    /// Selected blocks, `[M, m]`, ascending, then -1.
    pub block_ids: Vec<i32>,
    /// Every key of those blocks that is in the window, relative to `ks`, `[M, m * B]`,
    /// ascending, then -1.
    pub indices: Vec<i32>,
}

/// The hierarchical indexer: best blocks by their mean key, then best tokens of those blocks.
/// SPEC 9.1.
pub fn hisa(input: &OracleInput, params: &OracleParams) -> OracleTrace {
    let windows = &input.windows;
    let (pooled_k, pooled_scale) = block_pool(&input.k, &input.k_scale, input.d, params.block_size);
    let blocks = pooled_scale.len();
    let block_scores = block_scores(input, params, &pooled_k, &pooled_scale);
    let block_mask = block_mask(&block_scores, windows, blocks, params.block_size);
    let block_ids = block_topk(&block_mask, windows, blocks, params);
    let token_scores = token_scores(input, params, &block_ids);
    let slots = token_topk(&token_scores, &block_ids, windows, params);
    let indices = index_map(&slots, &block_ids, windows, params);
    OracleTrace {
        pooled_k,
        pooled_scale,
        block_scores,
        block_mask,
        block_ids,
        token_scores,
        slots,
        indices,
    }
}

/// The flat indexer: best tokens of the whole window. SPEC 9.2.
pub fn dsa(input: &OracleInput, topk_tokens: usize) -> DsaTrace {
    let flat_scores = flat_scores(input);
    let slots = flat_topk(&flat_scores, &input.windows, input.n, topk_tokens);
    let indices = slots.clone();
    DsaTrace {
        flat_scores,
        slots,
        indices,
    }
}

/// The baseline that keeps all tokens of the best `ceil(K / B)` blocks; `block_topk` of `params`
/// is not used. SPEC 9.3.
pub fn block_sparse(input: &OracleInput, params: &OracleParams) -> BlockSparseTrace {
    let block_topk_of_tokens = params.topk_tokens.div_ceil(params.block_size);
    let params = &OracleParams {
        block_topk: block_topk_of_tokens,
        ..*params
    };
    let windows = &input.windows;
    let (pooled_k, pooled_scale) = block_pool(&input.k, &input.k_scale, input.d, params.block_size);
    let blocks = pooled_scale.len();
    let scores = block_scores(input, params, &pooled_k, &pooled_scale);
    let masked = block_mask(&scores, windows, blocks, params.block_size);
    let block_ids = block_topk(&masked, windows, blocks, params);

    let mut indices = Vec::new();
    for (row, &window) in windows.iter().enumerate() {
        let keys = window_keys(window);
        // Block ids ascend, and so do the keys of their slots.
        let selected =
            (0..params.slots()).filter_map(|slot| params.slot_key(row, slot, &block_ids));
        let tokens = selected
            .filter(|key| keys.contains(key))
            .map(|key| key - keys.start);
        push_padded(&mut indices, tokens.collect(), params.slots());
    }
    BlockSparseTrace { block_ids, indices }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case whose numbers come from a small generator, so that sizes alone describe it.
    fn drawn(seed: u64, m: usize, n: usize, h: usize, d: usize) -> OracleInput {
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut codes = |count: usize| -> Vec<u8> {
            (0..count)
                .map(|_| (draw(0x7F) | draw(2) << 7) as u8)
                .collect()
        };
        let (q, k) = (codes(m * h * d), codes(n * d));
        let mut floats = |count: usize, low: f32| -> Vec<f32> {
            (0..count)
                .map(|_| draw(1 << 20) as f32 / 1_048_576.0 + low)
                .collect()
        };
        let (k_scale, weights) = (floats(n, 0.01), floats(m * h, -0.4));
        let mut window = |_| {
            let (a, b) = (draw(n as u64 + 1) as i32, draw(n as u64 + 1) as i32);
            if draw(8) == 0 {
                (b, a)
            } else {
                (a.min(b), a.max(b))
            }
        };
        let windows = (0..m).map(&mut window).collect();
        OracleInput {
            m,
            n,
            h,
            d,
            q,
            k,
            k_scale,
            weights,
            windows,
        }
    }

    fn params(block_size: usize, block_topk: usize, topk_tokens: usize) -> OracleParams {
        OracleParams {
            block_size,
            block_topk,
            topk_tokens,
            rank_bf16: true,
        }
    }

    #[test]
    fn enough_blocks_equal_the_flat_indexer() {
        for seed in 0..20 {
            let input = drawn(seed, 8, 40, 2, 16);
            for block_size in [1, 3, 8, 64] {
                let params = params(block_size, 40usize.div_ceil(block_size), 12);
                assert_eq!(hisa(&input, &params).indices, dsa(&input, 12).indices);
            }
        }
    }

    #[test]
    fn br_40_results_nest() {
        let input = drawn(7, 6, 50, 3, 8);
        let widest = hisa(&input, &params(4, 5, 51)).indices;
        for k in [1, 2, 19, 20, 21, 50] {
            let indices = hisa(&input, &params(4, 5, k)).indices;
            for row in 0..6 {
                assert_eq!(
                    indices[row * k..(row + 1) * k],
                    widest[row * 51..row * 51 + k]
                );
            }
        }
    }

    #[test]
    fn br_23_nothing_outside_the_window_matters() {
        let clean = OracleInput {
            windows: vec![(5, 22); 4],
            ..drawn(3, 4, 30, 2, 8)
        };
        let mut poisoned = clean.clone();
        for key in (0..5).chain(22..30) {
            poisoned.k[key * 8..(key + 1) * 8].fill(0x7F);
            poisoned.k_scale[key] = f32::NAN;
        }
        let params = params(4, 3, 9);
        assert_eq!(
            hisa(&clean, &params).indices,
            hisa(&poisoned, &params).indices
        );
        assert_eq!(dsa(&clean, 9).indices, dsa(&poisoned, 9).indices);
    }

    #[test]
    fn rows_are_independent() {
        let input = drawn(11, 5, 33, 2, 8);
        let params = params(4, 3, 7);
        let together = hisa(&input, &params).indices;
        for row in 0..5 {
            let alone = OracleInput {
                m: 1,
                q: input.q[row * 16..(row + 1) * 16].to_vec(),
                weights: input.weights[row * 2..(row + 1) * 2].to_vec(),
                windows: vec![input.windows[row]],
                ..input.clone()
            };
            assert_eq!(
                hisa(&alone, &params).indices,
                together[row * 7..(row + 1) * 7]
            );
        }
    }

    #[test]
    fn block_sparse_keeps_whole_blocks() {
        let input = OracleInput {
            windows: vec![(3, 19), (9, 9)],
            ..drawn(5, 2, 20, 1, 4)
        };
        let run = block_sparse(&input, &params(4, 1, 5));
        // Two blocks: the forced ones, with one and with three keys in the window.
        assert_eq!(run.block_ids, [0, 4, -1, -1]);
        assert_eq!(run.indices[..8], [0, 13, 14, 15, -1, -1, -1, -1]);
        assert_eq!(run.indices[8..], [-1; 8]);
    }

    #[test]
    fn br_54_shapes_without_rows_or_keys() {
        let none = drawn(1, 0, 9, 2, 4);
        let trace = hisa(&none, &params(4, 2, 3));
        assert_eq!((trace.pooled_scale.len(), trace.indices.len()), (3, 0));
        let no_keys = OracleInput {
            windows: vec![(0, 0); 2],
            ..drawn(1, 2, 0, 2, 4)
        };
        let trace = hisa(&no_keys, &params(4, 2, 3));
        assert_eq!((trace.block_scores.len(), trace.indices), (0, vec![-1; 6]));
        assert_eq!(dsa(&no_keys, 3).indices, [-1; 6]);
        assert_eq!(block_sparse(&no_keys, &params(4, 2, 3)).indices, [-1; 8]);
    }
}
