// Stage 8, index_map (SPEC 8): slots to positions within the row's window, element by element.
// A slot that the stage must refuse (8.3) gives -1 here; the host refuses it before.
//
// grid (M, chunks), block 256 (any), no dynamic shared memory.
#include "common/types.cuh"

__device__ __forceinline__ i32 index_of(
    i32 slot, const i32* ids, i64 blocks, u32 b, Window window
) {
    if (slot < 0) return -1;
    const u32 column = static_cast<u32>(slot) / b;
    if (column >= blocks || ids[column] < 0) return -1;
    const i64 key = i64{ids[column]} * b + static_cast<u32>(slot) % b;
    return window.contains(key) ? static_cast<i32>(key - window.ks) : -1;
}

extern "C" __global__ void __launch_bounds__(1024) index_map(
    const i32* slots, const i32* block_ids, const i32* ks, const i32* ke, i32* indices, i64 n,
    i64 b, i64 blocks, i64 topk
) {
    const i64 row = blockIdx.x;
    const Window window = load_window(ks, ke, row, n);
    const i32* ids = block_ids + row * blocks;
    const i64 step = i64{gridDim.y} * blockDim.x;
    i64 column = i64{blockIdx.y} * blockDim.x + threadIdx.x;
    for (; column < topk; column += step) {
        const i64 at = row * topk + column;
        indices[at] = index_of(slots[at], ids, blocks, static_cast<u32>(b), window);
    }
}
