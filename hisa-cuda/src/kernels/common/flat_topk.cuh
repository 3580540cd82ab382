// The selection of the flat indexer (SPEC 9.2): the best keys of the window, as key - ks, best
// first, then -1.
//
// grid (M), block 1024 (any multiple of 32 up to 1024).
// Dynamic shared memory: 8 * capacity bytes, capacity a power of two >= min(topk, n).
#pragma once
#include "common/best.cuh"

extern __shared__ __align__(16) unsigned char dynamic_shared[];

// Ranks by the score alone.
struct ScoreRank {
    __device__ __forceinline__ u32 operator()(i64, f32 score) const { return order_key(score); }
};

extern "C" __global__ void __launch_bounds__(1024) flat_topk(
    const f32* flat_scores, const i32* ks, const i32* ke, i32* slots, i64 n, i64 topk,
    i32 capacity
) {
    const i64 row = blockIdx.x;
    const Window window = load_window(ks, ke, row, n);
    const i64 count = window.length();
    const RowEntries<ScoreRank> keys{
        flat_scores + row * n + window.ks, count, EntryFormat(count, 32), {}
    };
    const i64 want = smaller(count, smaller(topk, capacity));
    u64* winners = reinterpret_cast<u64*>(dynamic_shared);
    best_first(keys, static_cast<u32>(count), static_cast<u32>(want), winners);
    i32* out = slots + row * topk;
    for (i64 i = threadIdx.x; i < want; i += blockDim.x) {
        out[i] = static_cast<i32>(keys.format.position(winners[i]));
    }
    fill_tail(out, want, topk);
}
