// The best entries of a row in order: selected, gathered into shared memory, sorted.
#pragma once
#include "common/select.cuh"
#include "common/sort.cuh"

// Leaves the `want` largest of `available` entries in `winners`, largest first, for all threads to
// read. `winners` has room for the power of two from `want` on.
template <class Entries>
__device__ __forceinline__ void best_first(
    const Entries& entries, u32 available, u32 want, u64* winners
) {
    if (want == 0) return;
    const u64 threshold = want < available ? select_threshold(entries, want) : 0;
    u32 size = 1;
    while (size < want) size *= 2;
    for (u32 i = want + threadIdx.x; i < size; i += blockDim.x) winners[i] = 0;
    gather(entries, threshold, winners, want);
    sort_descending(winners, size);
}
