//! The stages that select: `block_mask`, `block_topk`, `token_topk` and `index_map`.

use super::OracleParams;
use super::order::best_first;
use super::round::round_bf16;
use super::windows::{window_blocks, window_keys};

/// Block scores `[M, blocks]` with `-inf` outside each row's block window and `+inf` at its first
/// and last block; every other score passes unchanged. SPEC 4.0 to 4.3.
pub fn block_mask(
    block_scores: &[f32],
    windows: &[(i32, i32)],
    blocks: usize,
    block_size: usize,
) -> Vec<f32> {
    let mut masked = block_scores.to_vec();
    for (row, &window) in windows.iter().enumerate() {
        let visible = window_blocks(window, block_size);
        for block in 0..blocks {
            let score = &mut masked[row * blocks + block];
            if !visible.contains(&block) {
                *score = f32::NEG_INFINITY;
            } else if block == visible.start || block + 1 == visible.end {
                *score = f32::INFINITY;
            }
        }
    }
    masked
}

/// Selected blocks `[M, m]` from masked scores `[M, blocks]`: ascending ids, then -1. The last
/// block of the window goes first, then its first block, then the best ranked. SPEC 5.0 to 5.5.
pub fn block_topk(
    block_mask: &[f32],
    windows: &[(i32, i32)],
    blocks: usize,
    params: &OracleParams,
) -> Vec<i32> {
    let mut block_ids = Vec::new();
    for (row, &window) in windows.iter().enumerate() {
        let visible = window_blocks(window, params.block_size);
        let mut order: Vec<usize> = visible.clone().collect();
        order.sort_by_key(|&block| {
            let mut score = block_mask[row * blocks + block];
            if params.rank_bf16 {
                score = f32::from_bits(round_bf16(score.to_bits()));
            }
            let turn = if block + 1 == visible.end {
                0
            } else if block == visible.start {
                1
            } else {
                2
            };
            (turn, best_first(score, block))
        });
        order.truncate(params.block_topk);
        order.sort_unstable();
        push_padded(&mut block_ids, order, params.block_topk);
    }
    block_ids
}

/// Best slots `[M, K]` from `token_scores` `[M, m * B]`: those whose key lies in the row's window,
/// best score first, ties by lower key, then -1. SPEC 7.0 to 7.2.
pub fn token_topk(
    token_scores: &[f32],
    block_ids: &[i32],
    windows: &[(i32, i32)],
    params: &OracleParams,
) -> Vec<i32> {
    let mut slots = Vec::new();
    for (row, &window) in windows.iter().enumerate() {
        let keys = window_keys(window);
        let mut order = Vec::new();
        for slot in 0..params.slots() {
            if let Some(key) = params
                .slot_key(row, slot, block_ids)
                .filter(|key| keys.contains(key))
            {
                let score = token_scores[row * params.slots() + slot];
                order.push((best_first(score, key), slot));
            }
        }
        order.sort_unstable();
        let order = order.into_iter().map(|(_, slot)| slot).collect();
        push_padded(&mut slots, order, params.topk_tokens);
    }
    slots
}

/// Best positions `[M, K]` from scores of every key `[M, n]`: `key - ks` of the keys in the row's
/// window, best score first, ties by lower key, then -1.
pub(super) fn flat_topk(
    flat_scores: &[f32],
    windows: &[(i32, i32)],
    n: usize,
    topk_tokens: usize,
) -> Vec<i32> {
    let mut slots = Vec::new();
    for (row, &window) in windows.iter().enumerate() {
        let keys = window_keys(window);
        let mut order: Vec<usize> = keys.clone().collect();
        order.sort_by_key(|&key| best_first(flat_scores[row * n + key], key));
        let order = order.into_iter().map(|key| key - keys.start).collect();
        push_padded(&mut slots, order, topk_tokens);
    }
    slots
}

/// Token ids relative to the window's start, `[M, K]`, from `slots` `[M, K]` element by element.
/// A slot that names no key of the window gives -1, like -1 itself. SPEC 8.0 to 8.2.
pub fn index_map(
    slots: &[i32],
    block_ids: &[i32],
    windows: &[(i32, i32)],
    params: &OracleParams,
) -> Vec<i32> {
    let mut indices = Vec::new();
    for (row, &window) in windows.iter().enumerate() {
        let keys = window_keys(window);
        for &slot in &slots[row * params.topk_tokens..(row + 1) * params.topk_tokens] {
            let slot = usize::try_from(slot)
                .ok()
                .filter(|&slot| slot < params.slots());
            let key = slot.and_then(|slot| params.slot_key(row, slot, block_ids));
            let key = key.filter(|key| keys.contains(key));
            indices.push(key.map_or(-1, |key| (key - keys.start) as i32));
        }
    }
    indices
}

/// Appends exactly `width` ids: the first of `ids`, then -1.
pub(super) fn push_padded(row: &mut Vec<i32>, ids: Vec<usize>, width: usize) {
    let end = row.len() + width;
    row.extend(ids.into_iter().take(width).map(|id| id as i32));
    row.resize(end, -1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f32 = f32::INFINITY;

    fn params(block_size: usize, block_topk: usize, topk_tokens: usize) -> OracleParams {
        OracleParams {
            block_size,
            block_topk,
            topk_tokens,
            rank_bf16: true,
        }
    }

    /// Blocks that one row selects, blocks of one key, the window over all of them.
    fn select_blocks(scores: &[f32], params: OracleParams) -> Vec<i32> {
        let windows = [(0, scores.len() as i32)];
        let masked = block_mask(scores, &windows, scores.len(), 1);
        block_topk(&masked, &windows, scores.len(), &params)
    }

    /// SPEC 4.1 to 4.3.
    #[test]
    fn mask_is_exact_and_idempotent() {
        let odd_nan = f32::from_bits(0xFF80_0123);
        let scores = [1.0, 2.0, odd_nan, -0.0, 5.0, 6.0];
        let windows = [(3, 10)];
        let masked = block_mask(&scores, &windows, 6, 2);
        let expected = [-INF, INF, odd_nan, -0.0, INF, -INF].map(f32::to_bits);
        assert_eq!(
            masked.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            expected
        );
        let again = block_mask(&masked, &windows, 6, 2);
        assert_eq!(
            again.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn br_55_an_empty_window_forces_nothing() {
        for window in [(2, 2), (0, 0), (4, 4), (i32::MAX, 0)] {
            let masked = block_mask(&[1.0, INF, f32::NAN, 0.0], &[window], 4, 1);
            assert_eq!(masked, [-INF; 4]);
            assert_eq!(
                block_topk(&masked, &[window], 4, &params(1, 2, 2)),
                [-1, -1]
            );
        }
    }

    #[test]
    fn br_13_blocks_tie_after_bf16() {
        let scores: Vec<f32> = (0..64)
            .map(|i| f32::from_bits(0x3F80_0000 + i * 509))
            .collect();
        let by_bf16 = select_blocks(&scores, params(1, 8, 1));
        assert_eq!(by_bf16, [0, 1, 2, 3, 4, 5, 6, 63]);
        let by_f32 = select_blocks(
            &scores,
            OracleParams {
                rank_bf16: false,
                ..params(1, 8, 1)
            },
        );
        assert_eq!(by_f32, [0, 57, 58, 59, 60, 61, 62, 63]);
    }

    #[test]
    fn br_25_forced_blocks_are_never_left_out() {
        // The others rise, and some of them round to +inf or are +inf.
        let mut scores: Vec<f32> = (0..40).map(|i| i as f32).collect();
        assert_eq!(
            select_blocks(&scores, params(1, 8, 1)),
            [0, 33, 34, 35, 36, 37, 38, 39]
        );
        scores[1..30].fill(f32::MAX);
        scores[30] = INF;
        assert_eq!(select_blocks(&scores, params(1, 4, 1)), [0, 1, 2, 39]);
        let by_f32 = OracleParams {
            rank_bf16: false,
            ..params(1, 4, 1)
        };
        assert_eq!(select_blocks(&scores, by_f32), [0, 1, 30, 39]);
    }

    #[test]
    fn br_30_one_block_is_the_last() {
        assert_eq!(select_blocks(&[9.0, 5.0, 1.0], params(1, 1, 1)), [2]);
        assert_eq!(select_blocks(&[9.0, 5.0, 1.0], params(1, 2, 1)), [0, 2]);
        assert_eq!(select_blocks(&[9.0], params(1, 2, 1)), [0, -1]);
    }

    #[test]
    fn br_93_blocks_rank_by_half_even_bf16() {
        let scores = [0, 0x3F80_8000, 0x3F80_8001, 0x3F81_8000, 0x7F80_0001, 0].map(f32::from_bits);
        assert_eq!(select_blocks(&scores, params(1, 3, 1)), [0, 3, 5]);
        assert_eq!(select_blocks(&scores, params(1, 4, 1)), [0, 2, 3, 5]);
        assert_eq!(select_blocks(&scores, params(1, 5, 1)), [0, 1, 2, 3, 5]);
    }

    /// SPEC 5.2 and 5.4.
    #[test]
    fn forcing_is_by_position() {
        // Handed a row that was never masked, the stage still forces the ends.
        let ids = block_topk(&[-5.0, 9.0, 8.0, f32::NAN], &[(0, 4)], 4, &params(1, 3, 1));
        assert_eq!(ids, [0, 1, 3]);
    }

    #[test]
    fn nan_blocks_come_last() {
        let scores = [0.0, f32::NAN, -INF, f32::NAN, 0.0];
        assert_eq!(select_blocks(&scores, params(1, 3, 1)), [0, 2, 4]);
        assert_eq!(select_blocks(&scores, params(1, 4, 1)), [0, 1, 2, 4]);
    }

    #[test]
    fn token_ties_go_to_the_lower_key_wherever_its_slot_is() {
        let params = params(2, 3, 4);
        let block_ids = [2, -1, 0];
        let scores = [1.0, 2.0, 7.0, 7.0, 9.0, 2.0];
        // Window [1, 6): key 0 in slot 4 is out, and so are the slots of the missing block.
        let slots = token_topk(&scores, &block_ids, &[(1, 6)], &params);
        assert_eq!(slots, [5, 1, 0, -1]);
        assert_eq!(
            index_map(&slots, &block_ids, &[(1, 6)], &params),
            [0, 4, 3, -1]
        );
    }

    /// SPEC 8.1 and 8.2.
    #[test]
    fn index_map_keeps_positions() {
        let indices = index_map(&[-1, 1, -1], &[1], &[(2, 4)], &params(2, 1, 3));
        assert_eq!(indices, [-1, 1, -1]);
    }
}
