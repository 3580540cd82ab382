// The selection of the flat indexer (SPEC 9.2): the best keys of the window, as key - ks, best
// first, then -1.
//
// grid (M), block 768 (any multiple of 32 up to 768).
// Dynamic shared memory: 8 * capacity bytes, capacity a power of two >= min(topk, n). Where it is
// more than that, the row is read fewer times.
#pragma once
#include "common/best.cuh"

extern __shared__ __align__(16) unsigned char dynamic_shared[];

constexpr u32 FLAT_KEYS = 6;

// Ranks by the score alone.
struct ScoreRank {
    __device__ __forceinline__ u32 operator()(u32, f32 score) const { return order_key(score); }
};

extern "C" __global__ void __launch_bounds__(768, 2) flat_topk(
    const f32* flat_scores, const i32* ks, const i32* ke, i32* slots, i64 n, i64 topk,
    i32 capacity
) {
    const i64 row = blockIdx.x;
    const Window window = load_window(ks, ke, row, n);
    const i64 length = window.length();
    const u32 count = static_cast<u32>(length);
    const RowEntries<ScoreRank> keys{
        flat_scores + row * n + window.ks, count, EntryFormat(length, 32), {}
    };
    const u32 want = static_cast<u32>(smaller(length, smaller(topk, capacity)));
    i32* out = slots + row * topk;
    fill_tail(out, want, topk);
    if (want == 0) return;
    u64* winners = reinterpret_cast<u64*>(dynamic_shared);
    const u32 room = static_cast<u32>(capacity);
    const u32 gathered = gather_best<FLAT_KEYS>(keys, count, want, winners, room);
    write_sorted<FLAT_KEYS>(winners, gathered, want, [&](u32 place, u64 entry) {
        out[place] = static_cast<i32>(keys.format.position(entry));
    });
}
