//! Kernels with one change each: the comparisons of this test must notice every one of them.

use crate::emulator::{Unit, have_compiler, kernel_text};
use crate::{pooling, scorers, selection, topk};
use std::sync::Mutex;

type Check = fn(&Unit) -> Result<(), String>;

/// A unit, the file in it that is changed, the text that is there once, and what replaces it.
type Change = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Check,
);

const CHANGES: &[Change] = &[
    // block_mask: the last block is not forced.
    (
        "block_mask.cu",
        "block_mask.cu",
        "block == blocks.last - 1",
        "block == blocks.last",
        selection::check_block_mask,
    ),
    // Windows end at their last key.
    (
        "block_mask.cu",
        "common/types.cuh",
        "static_cast<u32>(window.ke - 1) / size",
        "static_cast<u32>(window.ke) / size",
        selection::check_block_mask,
    ),
    // The block at the threshold is left out.
    (
        "block_topk.cu",
        "block_topk.cu",
        ">= threshold;",
        "> threshold;",
        selection::check_block_topk,
    ),
    // NaN ranks first.
    (
        "block_topk.cu",
        "common/order.cuh",
        "return f32_is_nan(score) ? 0 : key;",
        "return f32_is_nan(score) ? 0xffffffffu : key;",
        selection::check_block_topk,
    ),
    // bf16 by dropping bits.
    (
        "block_topk.cu",
        "common/order.cuh",
        "(bits + 0x7fffu + (bits >> 16 & 1u))",
        "bits",
        selection::check_block_topk,
    ),
    // Negative zero ranks below zero.
    (
        "token_topk.cu",
        "common/order.cuh",
        "if (bits << 1 == 0) bits = 0;",
        "",
        topk::check_token_topk,
    ),
    // A histogram is read before all warps have counted.
    (
        "token_topk.cu",
        "common/select.cuh",
        "        __syncthreads();\n        const Edge edge",
        "        const Edge edge",
        topk::check_token_topk,
    ),
    // Every row is taken for one with ascending ids.
    (
        "token_topk.cu",
        "token_topk.cu",
        "descents == 0}",
        "true}",
        topk::check_token_topk,
    ),
    // Counters of one digit are left to the next.
    (
        "token_topk.cu",
        "common/digits.cuh",
        "*counter = 0;",
        "",
        topk::check_token_topk,
    ),
    // Better entries are counted among the ties.
    (
        "token_topk.cu",
        "common/select.cuh",
        "present && rank == tie;",
        "present && rank >= tie;",
        topk::check_token_topk,
    ),
    // The search ends with more entries than there is room for.
    (
        "dsa.cu",
        "common/best.cuh",
        "want, room - want)",
        "want, room)",
        topk::check_flat_topk,
    ),
    // NaN has the rank of slots that are not eligible.
    (
        "token_topk.cu",
        "common/token_entries.cuh",
        "return order_key(score) + 1;",
        "return order_key(score);",
        topk::check_token_topk,
    ),
    // Slots that are not eligible rank last.
    (
        "token_topk.cu",
        "common/token_entries.cuh",
        "present && rank != 0",
        "present",
        topk::check_token_topk,
    ),
    // Ties go to the lower slot.
    (
        "token_topk.cu",
        "common/token_entries.cuh",
        "if (ascending) return slot;",
        "return slot;",
        topk::check_token_topk,
    ),
    // Slots before the window are eligible.
    (
        "token_topk.cu",
        "common/token_entries.cuh",
        "at - keys.offset < keys.count",
        "at < keys.offset + keys.count",
        topk::check_token_topk,
    ),
    // A key counts itself.
    (
        "dsa.cu",
        "common/buckets.cuh",
        "place += keys[other] > key ||",
        "place += keys[other] >= key ||",
        topk::check_flat_topk,
    ),
    // Keys are compared before all have moved.
    (
        "token_topk.cu",
        "common/buckets.cuh",
        "    __syncthreads();\n    for (u32 at = threadIdx.x",
        "    for (u32 at = threadIdx.x",
        topk::check_token_topk,
    ),
    // Rows with a full bucket are left as they are.
    (
        "token_topk.cu",
        "common/buckets.cuh",
        "if (crowded) return false;",
        "if (crowded) return true;",
        topk::check_token_topk,
    ),
    // The sort ascends.
    (
        "dsa.cu",
        "common/sort.cuh",
        "if ((a < b) == descending)",
        "if ((a > b) == descending)",
        topk::check_flat_topk,
    ),
    // Keys are not counted from the start of the window.
    (
        "index_map.cu",
        "index_map.cu",
        "static_cast<i32>(key - window.ks)",
        "static_cast<i32>(key)",
        selection::check_index_map,
    ),
    // A tile is read before all threads have written their part.
    (
        "block_sparse.cu",
        "block_sparse.cu",
        "    __syncthreads();\n    return total;",
        "    return total;",
        selection::check_block_sparse,
    ),
    // The quotient is rounded to f32 first.
    (
        "quantize.cu",
        "quantize.cu",
        "__ddiv_rn(value_of(values[i]), by)",
        "__fdiv_rn(value_of(values[i]), by)",
        pooling::check_quantize,
    ),
    // Ties go away from zero.
    (
        "quantize.cu",
        "common/e4m3.cuh",
        "(1ull << (drop - 1)) - 1 + odd",
        "(1ull << (drop - 1))",
        pooling::check_quantize,
    ),
    // The last block is taken for a full one.
    (
        "block_pool.cu",
        "block_pool.cu",
        "decided_mean(total, static_cast<f64>(keys.end - keys.start), mean)",
        "decided_mean(total, 128.0, mean)",
        pooling::check_block_pool,
    ),
    // A mean that the interval does not decide is taken as it is.
    (
        "block_pool.cu",
        "block_pool.cu",
        "return decided ? mean : exact_mean(keys, dim);",
        "return decided ? mean : mean;",
        pooling::check_block_pool,
    ),
    // A sum over keys is read before all warps have written theirs.
    (
        "block_pool.cu",
        "block_pool.cu",
        "    __syncthreads();\n    f32 mean = 0;",
        "    f32 mean = 0;",
        pooling::check_block_pool,
    ),
    // Codes are read before they arrived.
    (
        "block_scores.cu",
        "common/score_mma.cuh",
        "copy_async_wait<1>();",
        "copy_async_wait<2>();",
        scorers::check_block_scores_mma,
    ),
    // Lanes read what other lanes have not waited for.
    (
        "token_scores.cu",
        "common/score_mma.cuh",
        "        copy_async_wait<1>();\n        __syncwarp();\n",
        "        copy_async_wait<1>();\n",
        scorers::check_token_scores_mma,
    ),
    // NaN is clamped to zero.
    (
        "token_scores.cu",
        "common/score_mma.cuh",
        "return dot <= 0.0f ? 0.0f : dot;",
        "return dot > 0.0f ? dot : 0.0f;",
        scorers::check_token_scores_mma,
    ),
    // Lanes are added in another order.
    (
        "block_scores.cu",
        "common/score_mma.cuh",
        "sum = __fadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, 1));",
        "sum = __fadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, 3));",
        scorers::check_block_scores_mma,
    ),
    // A score that the interval does not decide is taken as it is.
    (
        "block_scores.cu",
        "common/score_exact.cuh",
        "return least == most;",
        "return true;",
        scorers::check_block_scores_exact,
    ),
    // A tie that is computed without rounding goes up.
    (
        "token_scores.cu",
        "common/wide.cuh",
        "any_below(magnitude, drop - 1) || (kept & 1)",
        "true",
        scorers::check_token_scores_exact,
    ),
    // A window loses its first key.
    (
        "dsa.cu",
        "common/types.cuh",
        "return ks <= key && key < ke;",
        "return ks < key && key < ke;",
        scorers::check_flat_scores_mma,
    ),
];

/// What the check says of the kernel with the change.
fn verdict(change: &Change) -> Result<(), String> {
    let &(unit, file, from, to, check) = change;
    let text = kernel_text(file);
    assert_eq!(
        text.matches(from).count(),
        1,
        "{file} holds {from:?} not once"
    );
    check(&Unit::with(unit, &[(file, text.replace(from, to))], &[]))
}

#[test]
fn every_planted_change_is_noticed() {
    if !have_compiler() {
        return;
    }
    let waiting = Mutex::new(CHANGES.iter());
    let missed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().next();
                    let Some(change) = next else { break };
                    match verdict(change) {
                        Ok(()) => missed.lock().unwrap().push((change.1, change.2)),
                        Err(error) => println!("{}: {:.200}", change.3.trim(), error),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(
        missed.is_empty(),
        "these changes went unnoticed: {missed:#?}"
    );
}
