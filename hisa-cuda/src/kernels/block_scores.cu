// block_scores[M, nb] f32: the score of each row against each pooled block of its block window,
// -inf elsewhere. SPEC 3, S, W.3.
#include "common/score_exact.cuh"
#include "common/score_mma.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
    block_scores_mma(const u8* q, const f32* weights, const u8* pooled_k, const f32* pooled_scale,
                     const i32* ks, const i32* ke, f32* out, i64 n, i64 nb, i32 h, i32 d, i64 b) {
    const i64 row = blockIdx.x;
    const BlockColumns columns(load_window(ks, ke, row, n), nb, b);
    const ScoredKeys keys(pooled_k, pooled_scale, d);
    score_mma(columns, q + row * h * d, weights + row * h, keys, out + row * nb, h);
}

extern "C" __global__ void __launch_bounds__(256)
    block_scores_exact(const u8* q, const f32* weights, const u8* pooled_k,
                       const f32* pooled_scale, const i32* ks, const i32* ke, f32* out, i64 n,
                       i64 nb, i32 h, i32 d, i64 b) {
    const i64 row = blockIdx.x;
    const BlockColumns columns(load_window(ks, ke, row, n), nb, b);
    score_exact(columns, columns.count(), q + row * h * d, weights + row * h, pooled_k,
                pooled_scale, out + row * nb, h, d);
}
