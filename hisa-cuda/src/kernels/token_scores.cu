// token_scores[M, topk * b] f32: the score of each row against the keys of its chosen blocks, -inf
// where a slot has no key of the window. SPEC 6, S.
#include "common/score_exact.cuh"
#include "common/score_mma.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
    token_scores_mma(const u8* q, const f32* weights, const u8* k, const f32* k_scale,
                     const i32* block_ids, const i32* ks, const i32* ke, f32* out, i64 n, i32 h,
                     i32 d, i64 b, i64 topk) {
    const i64 row = blockIdx.x;
    const TokenColumns columns(load_window(ks, ke, row, n), block_ids + row * topk, b, topk);
    const ScoredKeys keys(k, k_scale, d);
    score_mma(columns, q + row * h * d, weights + row * h, keys, out + row * columns.count(), h);
}

extern "C" __global__ void __launch_bounds__(256)
    token_scores_exact(const u8* q, const f32* weights, const u8* k, const f32* k_scale,
                       const i32* block_ids, const i32* ks, const i32* ke, f32* out, i64 n,
                       i32 h, i32 d, i64 b, i64 topk) {
    const i64 row = blockIdx.x;
    const TokenColumns columns(load_window(ks, ke, row, n), block_ids + row * topk, b, topk);
    score_exact(columns, columns.count(), q + row * h * d, weights + row * h, k, k_scale,
                out + row * columns.count(), h, d);
}
