// The last step of the block_sparse baseline (SPEC 9.3): key - ks of every key of the chosen
// blocks that lies in the window, in the order of the blocks, then -1. Block ids ascend, so the
// keys do.
//
// grid (M), block 256 (any multiple of 32 up to 1024), no dynamic shared memory.
#include "common/columns.cuh"

constexpr u32 MAX_THREADS = 1024;

// One column a thread: where its keys begin in the window and in the output.
struct Tile {
    u32 position[MAX_THREADS];
    u32 output[MAX_THREADS];
    u32 count[MAX_THREADS];
};

// `written` is what the columns before this tile gave. Returns what the tile adds. A row has fewer
// than 2^31 columns, so 32 bits hold every sum.
__device__ __forceinline__ u32 fill_tile(Tile& tile, VisibleKeys keys, u32 written) {
    u32 total;
    const u32 before = cta_exclusive_sum(keys.count, total);
    tile.position[threadIdx.x] = keys.position;
    tile.output[threadIdx.x] = written + before;
    tile.count[threadIdx.x] = keys.count;
    __syncthreads();
    return total;
}

extern "C" __global__ void __launch_bounds__(1024) block_sparse_indices(
    const i32* block_ids, const i32* ks, const i32* ke, i32* indices, i64 n, i64 b, i64 blocks
) {
    __shared__ Tile tile;
    const i64 row = blockIdx.x;
    const Window window = load_window(ks, ke, row, n);
    const i32* ids = block_ids + row * blocks;
    i32* out = indices + row * blocks * b;
    const ColumnGroups groups(blocks, b);
    u32 written = 0;
    for (i64 base = 0; base < blocks; base += blockDim.x) {
        const i64 own = base + threadIdx.x;
        const VisibleKeys keys = visible_keys(own < blocks ? ids[own] : -1, b, window);
        const u32 total = fill_tile(tile, keys, written);
        const i64 columns = smaller(blocks - base, blockDim.x);
        for (i64 column = groups.group; groups.takes(column, columns); column += groups.count) {
            i32* to = out + tile.output[column];
            for (u32 i = groups.thread; i < tile.count[column]; i += groups.width) {
                to[i] = static_cast<i32>(tile.position[column] + i);
            }
        }
        written += total;  // The sum over the next tile waits for all threads to be here.
    }
    fill_tail(out, written, blocks * b);
}
