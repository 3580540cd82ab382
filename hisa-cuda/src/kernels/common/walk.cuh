// A row of values, walked over by a whole CTA.
#pragma once
#include "common/cta.cuh"

// Calls visit(load(at), at, present) for each `at` in [0, length), at most 2^31, with `present`
// true; whole warps make each call together, so that `visit` may use warp intrinsics.
template <class Load, class Visit>
__device__ __forceinline__ void walk(u32 length, Load load, Visit visit) {
    constexpr u32 BATCH = 4;  // Loads in flight.
    u32 base = 0;
    for (; base + BATCH * blockDim.x <= length; base += BATCH * blockDim.x) {
        decltype(load(0)) values[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; ++i) values[i] = load(base + i * blockDim.x + threadIdx.x);
#pragma unroll
        for (u32 i = 0; i < BATCH; ++i) {
            visit(values[i], base + i * blockDim.x + threadIdx.x, true);
        }
    }
    for (; base < length; base += blockDim.x) {
        const u32 at = base + threadIdx.x;
        const bool present = at < length;
        visit(load(present ? at : base), at, present);
    }
}
