// Stage 5, block_topk (SPEC 5): the blocks to keep, in ascending id, then -1.
//
// grid (M), block 128; 512 for rows of more than 2048 blocks (any multiple of 32 up to 512).
// No dynamic shared memory.
#include "common/select.cuh"

// Rows are short: clearing and adding up more counters would take longer than another digit.
constexpr u32 DIGIT_BITS = 8;

// The last block of the window before its first, both before any score (5.3, 5.4).
struct BlockRank {
    u32 last;  // The position of the last block; the first has position 0.
    bool bf16;

    __device__ __forceinline__ u32 operator()(u32 position, f32 score) const {
        // No score reaches the two ranks above that of +inf.
        const u32 largest = bf16 ? 0xffffu : 0xffffffffu;
        if (position == last) return largest;
        if (position == 0) return largest - 1;
        // Rounding leaves the lower half empty.
        return bf16 ? order_key(round_bf16(score)) >> 16 : order_key(score);
    }
};

// Writes the chosen blocks in ascending id. Each warp has a run of its own of the row, counts the
// chosen in it, and writes behind the warps before it.
__device__ void write_ascending(
    const RowEntries<BlockRank>& blocks, u64 threshold, i64 first, i32* out
) {
    const i64 run = ceil_div(blocks.length, i64{warp_count()} * WARP) * WARP;
    const i64 start = run * warp_index();
    const i64 end = smaller(start + run, blocks.length);
    const auto chosen = [&](i64 base) {
        const i64 at = base + lane_index();
        if (at >= end) return false;
        const u32 position = static_cast<u32>(at);
        return blocks.entry(blocks.rank(position, blocks.scores[at]), position) >= threshold;
    };
    u32 count = 0;
    for (i64 base = start; base < end; base += WARP) {
        count += __popc(__ballot_sync(FULL_WARP, chosen(base)));
    }
    u32 total;
    u32 next = cta_exclusive_sum(lane_index() == 0 ? count : 0, total);
    next = __shfl_sync(FULL_WARP, next, 0);
    for (i64 base = start; base < end; base += WARP) {
        const bool taken = chosen(base);
        const u32 lanes = __ballot_sync(FULL_WARP, taken);
        if (taken) {
            const i64 at = base + lane_index();
            out[next + __popc(lanes & lanes_below())] = static_cast<i32>(first + at);
        }
        next += __popc(lanes);
    }
}

extern "C" __global__ void __launch_bounds__(512) block_topk(
    const f32* masked, const i32* ks, const i32* ke, i32* block_ids, i64 n, i64 nb, i64 b,
    i64 topk, i32 rank_bf16
) {
    const i64 row = blockIdx.x;
    const BlockWindow window = block_window(load_window(ks, ke, row, n), b);
    const i64 count = smaller(window.last, nb) - window.first;
    i32* out = block_ids + row * topk;
    if (count <= topk) {
        for (i64 i = threadIdx.x; i < count; i += blockDim.x) {
            out[i] = static_cast<i32>(window.first + i);
        }
        fill_tail(out, larger(count, 0), topk);
        return;
    }
    const bool bf16 = rank_bf16 != 0;
    const u32 length = static_cast<u32>(count);
    const RowEntries<BlockRank> blocks{
        masked + row * nb + window.first, length, EntryFormat(count, bf16 ? 16 : 32),
        BlockRank{length - 1, bf16}
    };
    const u32 want = static_cast<u32>(topk);
    const Threshold threshold = select_threshold<DIGIT_BITS>(blocks, want, 0);
    write_ascending(blocks, threshold.entry, window.first, out);
}
