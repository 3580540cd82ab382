// Where a thread stands in its CTA, and work that all threads of a CTA do together.
// blockDim.x is a multiple of 32, at most 1024; every thread of the CTA makes each call.
#pragma once
#include "common/types.cuh"

constexpr u32 MAX_WARPS = 32;

__device__ __forceinline__ u32 lane_index() { return threadIdx.x % WARP; }
__device__ __forceinline__ u32 warp_index() { return threadIdx.x / WARP; }
__device__ __forceinline__ u32 warp_count() { return blockDim.x / WARP; }
__device__ __forceinline__ u32 lanes_below() { return (1u << lane_index()) - 1; }

__device__ __forceinline__ i64 ceil_div(i64 count, i64 size) {
    return count / size + (count % size != 0);
}

__device__ __forceinline__ u64 shuffle_xor(u64 value, u32 mask) {
    const u32 low = __shfl_xor_sync(FULL_WARP, static_cast<u32>(value), mask);
    const u32 high = __shfl_xor_sync(FULL_WARP, static_cast<u32>(value >> 32), mask);
    return (u64{high} << 32) + low;
}

// Sum of `value` over the lanes up to and including this one.
__device__ __forceinline__ u32 warp_prefix_sum(u32 value) {
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 below = __shfl_up_sync(FULL_WARP, value, step);
        if (lane_index() >= step) value += below;
    }
    return value;
}

// Sum of `value` over the threads before this one; `total` becomes the sum over all.
__device__ __forceinline__ u32 cta_exclusive_sum(u32 value, u32& total) {
    __shared__ u32 warp_sums[MAX_WARPS];
    const u32 inclusive = warp_prefix_sum(value);
    __syncthreads();  // An earlier call may still be reading.
    if (lane_index() == WARP - 1) warp_sums[warp_index()] = inclusive;
    __syncthreads();
    const u32 sums = lane_index() < warp_count() ? warp_sums[lane_index()] : 0;
    const u32 ends = warp_prefix_sum(sums);
    total = __shfl_sync(FULL_WARP, ends, WARP - 1);
    const u32 end = __shfl_sync(FULL_WARP, ends, warp_index());
    const u32 own = __shfl_sync(FULL_WARP, sums, warp_index());
    return end - own + inclusive - value;
}

// Writes -1 to columns [from, to) of a row.
__device__ __forceinline__ void fill_tail(i32* row, i64 from, i64 to) {
    for (i64 column = from + threadIdx.x; column < to; column += blockDim.x) row[column] = -1;
}
