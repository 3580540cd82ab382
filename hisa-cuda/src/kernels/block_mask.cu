// Stage 4, block_mask (SPEC 4): -inf outside the block window, +inf at its ends, in place.
// Scores are never read: what stays keeps its bits because nothing touches it.
//
// grid (M, chunks), block 256 (any), no dynamic shared memory.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(1024) block_mask(
    f32* scores, const i32* ks, const i32* ke, i64 n, i64 nb, i64 b
) {
    const i64 row = blockIdx.x;
    const BlockWindow blocks = block_window(load_window(ks, ke, row, n), b);
    f32* out = scores + row * nb;
    const i64 step = i64{gridDim.y} * blockDim.x;
    for (i64 block = i64{blockIdx.y} * blockDim.x + threadIdx.x; block < nb; block += step) {
        if (!blocks.contains(block)) {
            out[block] = neg_inf();
        } else if (block == blocks.first || block == blocks.last - 1) {
            out[block] = pos_inf();
        }
    }
}
