// Block columns of a row and their keys in the window, for stages that walk over slots.
#pragma once
#include "common/cta.cuh"

// The keys of one block column that lie in the window.
struct VisibleKeys {
    i64 offset;  // Of the first one within the block.
    i64 position;  // Of the first one within the window.
    i64 count;
};

// An id below 0 has no keys; one past the last block has none in any window.
__device__ __forceinline__ VisibleKeys visible_keys(i32 id, i64 b, Window window) {
    if (id < 0) return {0, 0, 0};
    const i64 block = id * b;
    const i64 start = larger(block, window.ks);
    const i64 end = smaller(block + b, window.ke);
    return {start - block, start - window.ks, larger(end - start, 0)};
}

// The CTA in groups of `width` threads, each of which takes a column at a time.
struct ColumnGroups {
    u32 width;
    u32 count;
    u32 group;
    u32 thread;  // Within the group.

    // Groups are warps; wider where there are fewer columns than warps, narrower where blocks are
    // smaller than a warp. A width below a warp is more than half of b.
    __device__ __forceinline__ ColumnGroups(i64 columns, i64 b) : width(WARP) {
        while (width > b) width /= 2;
        while (width >= WARP && 2 * width <= blockDim.x && blockDim.x / width > columns) {
            width *= 2;
        }
        count = blockDim.x / width;
        group = threadIdx.x / width;
        thread = threadIdx.x % width;
    }

    // Threads left over beside the last group have no columns.
    __device__ __forceinline__ bool takes(i64 column, i64 columns) const {
        return group < count && column < columns;
    }
    // Steps of a group over `keys` keys of a column, the same number in all lanes of a warp.
    __device__ __forceinline__ i64 steps(i64 keys, i64 b) const {
        return ceil_div(width < WARP ? b : keys, width);
    }
};
