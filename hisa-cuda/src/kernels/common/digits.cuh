// Counters in shared memory, one for each value of a digit, and the sums over them by a whole CTA.
#pragma once
#include "common/cta.cuh"

// The counters of digits of `BITS` bits, in use by one step at a time. They are zero between
// searches once the CTA has cleared them.
template <u32 BITS>
__device__ __forceinline__ u32* digit_counters() {
    __shared__ u32 counters[1u << BITS];
    return counters;
}

template <u32 BITS>
__device__ __forceinline__ void clear_counters(u32* counters) {
    for (u32 i = threadIdx.x; i < 1u << BITS; i += blockDim.x) counters[i] = 0;
    __syncthreads();
}

// The part [start, end) of `length` counters that a warp has: whole rows of 32.
struct WarpRun {
    u32 start;
    u32 end;

    __device__ __forceinline__ WarpRun(u32 length) {
        const u32 warps = warp_count();
        const u32 run = (length / WARP + warps - 1) / warps * WARP;
        start = min(run * warp_index(), length);
        end = min(start + run, length);
    }
};

// The digit in which the `want` largest end.
struct Edge {
    u32 digit;
    u32 above;  // Entries with a larger digit.
    u32 inside;  // Entries with this digit.
};

// The counters are written by the time of the call, and zero after it. 0 < want <= their sum.
template <u32 BITS>
__device__ __forceinline__ Edge find_edge(u32* counters, u32 want) {
    __shared__ Edge edge;
    constexpr u32 TOP = (1u << BITS) - 1;
    // Largest digits first.
    const WarpRun run(1u << BITS);
    u32 sum = 0;
#pragma unroll 1
    for (u32 i = run.start + lane_index(); i < run.end; i += WARP) sum += counters[TOP - i];
    u32 total;
    u32 above = cta_exclusive_sum(sum, total);
    const u32 end = __shfl_sync(FULL_WARP, above + sum, WARP - 1);
    above = __shfl_sync(FULL_WARP, above, 0);
    const bool holds_edge = above < want && want <= end;
#pragma unroll 1  // Else the addresses take up registers for the whole kernel.
    for (u32 base = run.start; base < run.end; base += WARP) {
        u32* counter = &counters[TOP - base - lane_index()];
        if (holds_edge) {
            const u32 inside = *counter;
            const u32 upto = above + warp_prefix_sum(inside);
            if (upto - inside < want && want <= upto) {
                edge = {TOP - base - lane_index(), upto - inside, inside};
            }
            above = __shfl_sync(FULL_WARP, upto, WARP - 1);
        }
        *counter = 0;
    }
    __syncthreads();
    return edge;
}

// Replaces every counter by the sum of those before it. Returns the largest counter that the
// thread came across; each is read by one thread.
template <u32 BITS>
__device__ __forceinline__ u32 sum_counters(u32* counters) {
    const WarpRun run(1u << BITS);
    u32 sum = 0;
    u32 largest = 0;
#pragma unroll 1
    for (u32 i = run.start + lane_index(); i < run.end; i += WARP) {
        sum += counters[i];
        largest = max(largest, counters[i]);
    }
    u32 total;
    u32 next = __shfl_sync(FULL_WARP, cta_exclusive_sum(sum, total), 0);
#pragma unroll 1
    for (u32 i = run.start + lane_index(); i < run.end; i += WARP) {
        const u32 own = counters[i];
        const u32 upto = next + warp_prefix_sum(own);
        counters[i] = upto - own;
        next = __shfl_sync(FULL_WARP, upto, WARP - 1);
    }
    return largest;
}
