// Sorts integers in shared memory, largest first: a bitonic network. Steps within a segment of
// 128 run in registers, one warp a segment; only wider ones need the whole CTA.
#pragma once
#include "common/cta.cuh"

constexpr u32 PER_LANE = 4;
constexpr u32 SEGMENT = PER_LANE * WARP;

__device__ __forceinline__ void order_pair(u64& a, u64& b, bool descending) {
    if ((a < b) == descending) {
        const u64 swapped = a;
        a = b;
        b = swapped;
    }
}

// A segment in registers: element lane + 32 * i is values[i]. `start` is the index of element 0.
struct Segment {
    u64 values[PER_LANE];
    u32 start;

    __device__ __forceinline__ void load(const u64* keys, u32 size) {
#pragma unroll
        for (u32 i = 0; i < PER_LANE; ++i) {
            values[i] = index(i) < size ? keys[index(i)] : 0;
        }
    }

    __device__ __forceinline__ void store(u64* keys, u32 size) const {
#pragma unroll
        for (u32 i = 0; i < PER_LANE; ++i) {
            if (index(i) < size) keys[index(i)] = values[i];
        }
    }

    // Runs of `length` become sorted, descending and ascending by turns, where each was bitonic.
    __device__ __forceinline__ void merge(u32 length) {
        if (length >= 4 * WARP) merge_registers<2>(length);
        if (length >= 2 * WARP) merge_registers<1>(length);
        const u32 widest = length < WARP ? length / 2 : WARP / 2;
        for (u32 stride = widest; stride > 0; stride /= 2) merge_lanes(length, stride);
    }

  private:
    __device__ __forceinline__ u32 index(u32 i) const { return start + lane_index() + WARP * i; }

    template <u32 STRIDE>
    __device__ __forceinline__ void merge_registers(u32 length) {
#pragma unroll
        for (u32 i = 0; i < PER_LANE; ++i) {
            if ((i & STRIDE) == 0) {
                order_pair(values[i], values[i | STRIDE], (index(i) & length) == 0);
            }
        }
    }

    __device__ __forceinline__ void merge_lanes(u32 length, u32 stride) {
        const bool lower = (lane_index() & stride) == 0;
#pragma unroll
        for (u32 i = 0; i < PER_LANE; ++i) {
            const u64 other = shuffle_xor(values[i], stride);
            const bool keeps_larger = lower == ((index(i) & length) == 0);
            if ((other > values[i]) == keeps_larger) values[i] = other;
        }
    }
};

// Sorts `keys`; `size` is a power of two. The keys are written by the time of the call, and the
// result is there for all threads after it.
__device__ __forceinline__ void sort_descending(u64* keys, u32 size) {
    for (u32 start = warp_index() * SEGMENT; start < size; start += blockDim.x * PER_LANE) {
        Segment segment{{}, start};
        segment.load(keys, size);
        for (u32 length = 2; length <= SEGMENT; length *= 2) segment.merge(length);
        segment.store(keys, size);
    }
    __syncthreads();
    for (u32 length = 2 * SEGMENT; length <= size; length *= 2) {
        for (u32 stride = length / 2; stride >= SEGMENT; stride /= 2) {
            for (u32 pair = threadIdx.x; pair < size / 2; pair += blockDim.x) {
                const u32 at = 2 * pair - (pair & (stride - 1));
                order_pair(keys[at], keys[at + stride], (at & length) == 0);
            }
            __syncthreads();
        }
#pragma unroll 1
        for (u32 start = warp_index() * SEGMENT; start < size; start += blockDim.x * PER_LANE) {
            Segment segment{{}, start};
            segment.load(keys, size);
            segment.merge(length);
            segment.store(keys, size);
        }
        __syncthreads();
    }
}
