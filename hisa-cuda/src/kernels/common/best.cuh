// The best entries of a row in order: selected, gathered into shared memory, sorted.
#pragma once
#include "common/buckets.cuh"
#include "common/select.cuh"
#include "common/sort.cuh"

constexpr u32 SELECT_BITS = 11;

// Sorts `count` keys with a network and calls write(place, key) for the `want` largest.
template <class Write>
__device__ __forceinline__ void write_by_network(u64* keys, u32 count, u32 want, Write write) {
    u32 size = 1;
    while (size < count) size *= 2;
    for (u32 i = count + threadIdx.x; i < size; i += blockDim.x) keys[i] = 0;
    __syncthreads();
    sort_descending(keys, size);
    for (u32 i = threadIdx.x; i < want; i += blockDim.x) write(i, keys[i]);
}

// As write_by_network, by the way that is faster. `KEYS` to a thread are held in registers.
template <u32 KEYS, class Write>
__device__ __forceinline__ void write_sorted(u64* keys, u32 count, u32 want, Write write) {
    if (count <= bucket_sort_max<KEYS>() && write_by_buckets<KEYS>(keys, count, want, write)) {
        return;
    }
    write_by_network(keys, count, want, write);
}

// Leaves the `want` largest of `available` entries in `winners`, and perhaps a few more, in no
// order. Returns their number. `winners` has room for `capacity` of them, at least `want`. `KEYS`
// is that of the sort which follows.
template <u32 KEYS, class Entries>
__device__ __forceinline__ u32 gather_best(
    const Entries& entries, u32 available, u32 want, u64* winners, u32 capacity
) {
    // Room to spare ends the search sooner; too many would take the slower sort.
    const u32 sorted = bucket_sort_max<KEYS>();
    const u32 room = want <= sorted ? min(capacity, sorted) : capacity;
    Threshold threshold{0, 0};
    if (want < available) {
        threshold = select_threshold<SELECT_BITS>(entries, want, room - want);
    }
    return gather(entries, threshold, winners, room);
}
