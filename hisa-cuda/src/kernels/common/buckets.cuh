// Sorts integers in shared memory, largest first, where they are few enough to be held in
// registers: into buckets by their distance from the largest, then by counting within a bucket.
#pragma once
#include "common/digits.cuh"

constexpr u32 BUCKET_BITS = 11;
constexpr u32 BUCKETS = 1u << BUCKET_BITS;
// Each key is compared with all of its bucket. Beyond this, a sorting network is faster.
constexpr u32 BUCKET_SIZE_MAX = 64;

// The most keys that are sorted with `KEYS` of them to a thread.
template <u32 KEYS>
__device__ __forceinline__ u32 bucket_sort_max() {
    return KEYS * blockDim.x;
}

// The smallest and the largest of some integers.
struct Range {
    u64 first;
    u64 last;

    __device__ __forceinline__ void include(Range other) {
        first = min(first, other.first);
        last = max(last, other.last);
    }
};

__device__ __forceinline__ Range warp_range(Range range) {
    for (u32 step = 1; step < WARP; step *= 2) {
        range.include({shuffle_xor(range.first, step), shuffle_xor(range.last, step)});
    }
    return range;
}

__device__ __forceinline__ Range cta_range(Range range) {
    __shared__ Range ranges[MAX_WARPS];
    range = warp_range(range);
    if (lane_index() == 0) ranges[warp_index()] = range;
    __syncthreads();
    return warp_range(ranges[min(lane_index(), warp_count() - 1)]);
}

// Buckets of one width, larger keys first.
struct Buckets {
    u64 largest;
    u32 shift;

    __device__ __forceinline__ Buckets(Range range) : largest(range.last), shift(0) {
        const u32 bits = 64 - __clzll(static_cast<i64>(range.last - range.first));
        if (bits > BUCKET_BITS) shift = bits - BUCKET_BITS;
    }
    __device__ __forceinline__ u32 operator()(u64 key) const {
        return static_cast<u32>((largest - key) >> shift);
    }
};

// The keys of a thread, taken out of the array so that it can be filled anew.
template <u32 KEYS>
struct HeldKeys {
    u64 keys[KEYS];
    u32 count;  // Of all threads.

    __device__ __forceinline__ HeldKeys(const u64* from, u32 count) : count(count) {
#pragma unroll
        for (u32 i = 0; i < KEYS; ++i) keys[i] = holds(i) ? from[index(i)] : 0;
    }

    __device__ __forceinline__ Range range() const {
        Range range{~u64{0}, 0};
        each([&](u64 key) { range.include({key, key}); });
        return range;
    }

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
#pragma unroll
        for (u32 i = 0; i < KEYS; ++i) {
            if (holds(i)) visit(keys[i]);
        }
    }

  private:
    __device__ __forceinline__ static u32 index(u32 i) { return i * blockDim.x + threadIdx.x; }
    __device__ __forceinline__ bool holds(u32 i) const { return index(i) < count; }
};

// Where the key at `at` of bucket [start, end) belongs. Equal keys, which only senseless block ids
// bring about, keep their places.
__device__ __forceinline__ u32 place_of(const u64* keys, u32 at, u32 start, u32 end) {
    const u64 key = keys[at];
    u32 place = start;
#pragma unroll 1  // Most buckets hold one or two.
    for (u32 other = start; other < end; ++other) {
        place += keys[other] > key || (keys[other] == key && other < at);
    }
    return place;
}

// Calls write(place, key) for the `want` largest keys, places counted from the largest. False, and
// nothing done to the keys, where one bucket holds too many. count <= bucket_sort_max<KEYS>().
// The keys are written by the time of the call, and change their order.
template <u32 KEYS, class Write>
__device__ __forceinline__ bool write_by_buckets(u64* keys, u32 count, u32 want, Write write) {
    __shared__ bool crowded;
    u32* counters = digit_counters<BUCKET_BITS>();
    if (threadIdx.x == 0) crowded = false;
    clear_counters<BUCKET_BITS>(counters);
    const HeldKeys<KEYS> held(keys, count);
    const Buckets buckets(cta_range(held.range()));
    held.each([&](u64 key) { atomicAdd(&counters[buckets(key)], 1u); });
    __syncthreads();
    if (sum_counters<BUCKET_BITS>(counters) > BUCKET_SIZE_MAX) crowded = true;
    __syncthreads();
    if (crowded) return false;
    // Moves the start of every bucket to its end.
    held.each([&](u64 key) { keys[atomicAdd(&counters[buckets(key)], 1u)] = key; });
    __syncthreads();
    for (u32 at = threadIdx.x; at < count; at += blockDim.x) {
        const u32 bucket = buckets(keys[at]);
        const u32 start = bucket > 0 ? counters[bucket - 1] : 0;
        const u32 place = place_of(keys, at, start, counters[bucket]);
        if (place < want) write(place, keys[at]);
    }
    return true;
}
