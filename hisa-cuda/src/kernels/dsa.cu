// The flat indexer. flat_scores[M, n] f32: the score of each row against each key of its window,
// -inf elsewhere. SPEC 9.2, S.
#include "common/flat_topk.cuh"
#include "common/score_exact.cuh"
#include "common/score_mma.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
    flat_scores_mma(const u8* q, const f32* weights, const u8* k, const f32* k_scale,
                    const i32* ks, const i32* ke, f32* out, i64 n, i32 h, i32 d) {
    const i64 row = blockIdx.x;
    const FlatColumns columns(load_window(ks, ke, row, n), n);
    const ScoredKeys keys(k, k_scale, d);
    score_mma(columns, q + row * h * d, weights + row * h, keys, out + row * n, h);
}

extern "C" __global__ void __launch_bounds__(256)
    flat_scores_exact(const u8* q, const f32* weights, const u8* k, const f32* k_scale,
                      const i32* ks, const i32* ke, f32* out, i64 n, i32 h, i32 d) {
    const i64 row = blockIdx.x;
    const FlatColumns columns(load_window(ks, ke, row, n), n);
    score_exact(columns, columns.count(), q + row * h * d, weights + row * h, k, k_scale,
                out + row * n, h, d);
}
