// Block columns of a row and their keys in the window, for stages that walk over slots.
#pragma once
#include "common/cta.cuh"

// The keys of one block column that lie in the window. All three are below 2^31.
struct VisibleKeys {
    u32 offset;  // Of the first one within the block.
    u32 position;  // Of the first one within the window.
    u32 count;
};

// An id below 0 has no keys; one past the last block has none in any window.
__device__ __forceinline__ VisibleKeys visible_keys(i32 id, i64 b, Window window) {
    if (id < 0) return {0, 0, 0};
    const i64 block = id * b;
    const i64 start = larger(block, window.ks);
    const i64 end = smaller(block + b, window.ke);
    if (start >= end) return {0, 0, 0};
    return {
        static_cast<u32>(start - block), static_cast<u32>(start - window.ks),
        static_cast<u32>(end - start)
    };
}

// The CTA in groups of `width` threads, each of which takes a column at a time.
struct ColumnGroups {
    u32 width;  // A power of two.
    u32 count;
    u32 group;
    u32 thread;  // Within the group.

    // Groups are warps; wider where there are fewer columns than warps, narrower where blocks are
    // smaller than a warp: then b is less than twice the width.
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
    // Where the steps of a group over the keys of a column end: the same in all lanes of a warp.
    __device__ __forceinline__ u32 end_of_steps(u32 keys) const {
        return width < WARP ? 2 * width : (keys + width - 1) & (0 - width);
    }
};
