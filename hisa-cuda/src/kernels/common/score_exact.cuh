// The scoring rule S, exactly: block_scores, token_scores and the flat indexer.
//
// A warp scores eight keys at a time. Their dots with all heads are exact in FP64 tensor cores:
// every product is an integer multiple of one unit and every partial sum is below 2^53 units. The
// head sum is rounded, but its error is bounded; where the interval does not decide the rounding
// to f32, the warp computes that score again in integers.
//
// block 32 * warps, any number; D at most 256, H at most 128. Dynamic shared memory in bytes, with
// HP = H rounded up to 32 and DP = D rounded up to 16:  2 * HP * DP + 8 * HP  (66,560 at most).
#pragma once

#include "common/e4m3.cuh"
#include "common/ptx.cuh"
#include "common/types.cuh"
#include "common/wide.cuh"

namespace exact {

constexpr i32 KEYS = 8;            // per warp: the rows of one mma
constexpr i32 TILES = 4;           // mma columns per pass over a key, eight heads each
constexpr i32 HEADS = 8 * TILES;   // heads per pass
constexpr i32 CHUNK = 16;          // dims per load: four codes to each lane of a quad
constexpr i32 DOT_UNIT = -18;      // products of codes are multiples of 2^-18

// Keys enter an mma times 2^TINY_EXPONENT, the query times 2^QUERY_EXPONENT (both together would
// leave f64), and weights make up for what is missing. No power of two costs a rounding.
constexpr i32 QUERY_EXPONENT = 1000;
constexpr i32 WEIGHT_EXPONENT = -(TINY_EXPONENT + QUERY_EXPONENT);

__device__ __forceinline__ i32 round_up(i32 value, i32 step) {
    return (value + step - 1) / step * step;
}

// A query row as it lies in global memory.
struct Query {
    const u8* codes;
    const f32* weights;
    i32 heads;
    i32 d;
};

// The same in shared memory. `codes` holds, for each pass, chunk, tile and lane, the upper halves
// of the upper halves of four f64, which is all that is not zero in them: head lane / 4 of the
// tile at dims 4 * (lane % 4) .. + 4 of the chunk.
struct Staged {
    u64* codes;
    f64* weights;
    i32 passes;
    i32 chunks;
};

// The upper 16 bits of the f64 of code * 2^QUERY_EXPONENT; that of NaN is NaN (S.7).
__device__ __forceinline__ u64 staged_code(u8 code) {
    const f64 value = decode_f64(code) * power_of_two(QUERY_EXPONENT);
    return static_cast<u64>(__double_as_longlong(value)) >> 48;
}

__device__ __forceinline__ f64 from_upper_half(u32 half) {
    return __longlong_as_double(static_cast<i64>(static_cast<u64>(half) << 32));
}

// All threads of the block; ends with a barrier.
__device__ __forceinline__ Staged stage(const Query& query, unsigned char* shared) {
    Staged staged;
    const i32 padded = round_up(query.heads, HEADS);
    staged.passes = padded / HEADS;
    staged.chunks = round_up(query.d, CHUNK) / CHUNK;
    staged.weights = reinterpret_cast<f64*>(shared);
    staged.codes = reinterpret_cast<u64*>(staged.weights + padded);
    const i32 threads = static_cast<i32>(blockDim.x);
    const bool words = in_words(query.codes, query.d);
    const i32 quads = staged.passes * staged.chunks * TILES * WARP;
    for (i32 at = static_cast<i32>(threadIdx.x); at < quads; at += threads) {
        const i32 lane = at % WARP;
        const i32 tile = at / WARP % TILES;
        const i32 chunk = at / (WARP * TILES) % staged.chunks;
        const i32 pass = at / (WARP * TILES) / staged.chunks;
        const i32 head = pass * HEADS + tile * 8 + lane / 4;
        u64 four = 0;
        if (head < query.heads) {
            const u8* row = query.codes + static_cast<i64>(head) * query.d;
            const u32 codes = load_codes(row, chunk * CHUNK + lane % 4 * 4, query.d, words);
            for (i32 i = 0; i < 4; ++i) {
                four |= staged_code(static_cast<u8>(codes >> (8 * i))) << (16 * i);
            }
        }
        staged.codes[at] = four;
    }
    for (i32 head = static_cast<i32>(threadIdx.x); head < padded; head += threads) {
        const f64 weight = head < query.heads ? query.weights[head] : 0.0f;
        staged.weights[head] = weight * power_of_two(WEIGHT_EXPONENT);
    }
    __syncthreads();
    return staged;
}

// The key of a quad of lanes; a null pointer counts as zeros.
struct Key {
    const u8* codes;
    i32 d;
    bool words;
};

__device__ __forceinline__ u32 key_codes(const Key& key, i32 chunk) {
    const i32 first = chunk * CHUNK + static_cast<i32>(threadIdx.x % 4) * 4;
    return key.codes == nullptr ? 0 : load_codes(key.codes, first, key.d, key.words);
}

// Dots of the quad's key with the heads of one pass: those of heads 2t, 2t + 1 of every tile,
// t = lane % 4. True if a code of the key that this lane saw is NaN; its dots mean nothing then.
//
// Dims are dealt to the steps of the mma in an order of their own, the same for both operands.
__device__ __forceinline__ bool pass_dots(const Staged& staged, const Key& key, i32 pass,
                                          f64 (&dots)[TILES][2]) {
    const i32 lane = static_cast<i32>(threadIdx.x % WARP);
    const u64* query = staged.codes + pass * staged.chunks * TILES * WARP + lane;
    bool nan = false;
    u32 next = key_codes(key, 0);
    for (i32 chunk = 0; chunk < staged.chunks; ++chunk, query += TILES * WARP) {
        const u32 codes = next;
        next = key_codes(key, chunk + 1);
        nan |= any_nan(codes);
        u32 query_codes[TILES][2];
#pragma unroll
        for (i32 tile = 0; tile < TILES; ++tile) {
            const u64 four = query[tile * WARP];
            query_codes[tile][0] = static_cast<u32>(four);
            query_codes[tile][1] = static_cast<u32>(four >> 32);
        }
#pragma unroll
        for (i32 step = 0; step < 4; ++step) {
            const f64 of_key = tiny_f64(codes >> (8 * step));
#pragma unroll
            for (i32 tile = 0; tile < TILES; ++tile) {
                const u32 pair = query_codes[tile][step / 2];
                const u32 upper = step % 2 == 0 ? pair << 16 : pair & 0xffff0000u;
                mma_f64(dots[tile], of_key, from_upper_half(upper));
            }
        }
    }
    return nan;
}

// sum_h w[h] * max(0, dot_h) with its roundings, and the sum of the magnitudes of its terms.
struct HeadSum {
    f64 sum;
    f64 size;
};

// Of the key of this lane's quad, the same in its four lanes. All lanes of a warp together.
__device__ __forceinline__ HeadSum head_sum(const Staged& staged, const Key& key) {
    HeadSum total = {0, 0};
    bool nan = false;
    const f64* weights = staged.weights + threadIdx.x % 4 * 2;
    for (i32 pass = 0; pass < staged.passes; ++pass) {
        f64 dots[TILES][2] = {};
        nan |= pass_dots(staged, key, pass, dots);
#pragma unroll
        for (i32 i = 0; i < 2 * TILES; ++i) {
            const f64 dot = dots[i / 2][i % 2];
            const f64 clamped = dot < 0 ? 0 : dot;  // NaN stays (S.7)
            const f64 weight = weights[pass * HEADS + i / 2 * 8 + i % 2];
            total.sum = __fma_rn(weight, clamped, total.sum);
            total.size = __fma_rn(weight < 0 ? -weight : weight, clamped, total.size);
        }
    }
    if (nan) total.sum = canonical_nan();
    for (i32 step = 1; step < 4; step *= 2) {
        total.sum = __dadd_rn(total.sum, __shfl_xor_sync(FULL_WARP, total.sum, step));
        total.size = __dadd_rn(total.size, __shfl_xor_sync(FULL_WARP, total.size, step));
    }
    return total;
}

// RN32(scale * sum), if the interval around it decides the rounding or nothing is finite.
//
// With u = 2^-53 and n heads: dots and weights are exact, a term goes through at most n fused
// additions and two more, so sum misses the real one by at most (n + 3) u times the real size, and
// size the real one by the same share. The product with the scale and either end of the interval
// cost another u each, the width itself three of its own. (n + 16) u covers all of this with room
// for the terms of higher order. Nothing overflows or underflows in f64. An infinite scale makes
// the width infinite or NaN and an end NaN, which decides nothing.
__device__ __forceinline__ bool decided_score(const HeadSum& total, f32 scale, i32 heads,
                                              f32& score) {
    const f64 product = __dmul_rn(total.sum, scale);
    if (total.sum - total.sum != 0 || f32_is_nan(scale)) {
        // An infinite or NaN sum comes from the inputs alone: V.7 is the arithmetic of IEEE 754.
        score = product != product ? canonical_nan() : __double2float_rn(product);
        return true;
    }
    const f64 factor = scale < 0 ? -scale : scale;
    const f64 width = __dmul_rn(__dmul_rn(total.size, factor), (heads + 16) * power_of_two(-53));
    const f32 least = __double2float_rn(__dadd_rn(product, -width));
    const f32 most = __double2float_rn(__dadd_rn(product, width));
    score = __fadd_rn(least, 0.0f);  // a zero is +0.0 (S.6)
    return least == most;
}

__device__ __forceinline__ i64 exact_dot(const u8* q, const u8* key, i32 d) {
    i64 dot = 0;
    for (i32 dim = 0; dim < d; ++dim) {
        dot += static_cast<i64>(units(q[dim])) * units(key[dim]);
    }
    return dot;
}

// The score of one key without rounding, by all lanes of a warp with the same arguments; codes and
// weights are finite.
__device__ __noinline__ f32 exact_score(const Query& query, const u8* key, f32 scale) {
    Wide sum = {};
    const i32 lane = static_cast<i32>(threadIdx.x % WARP);
    for (i32 base = 0; base < query.heads; base += WARP) {
        const i32 head = base + lane;
        i64 dot = 0;
        f32 weight = 0;
        if (head < query.heads) {
            const u8* row = query.codes + static_cast<i64>(head) * query.d;
            dot = exact_dot(row, key, query.d);
            weight = query.weights[head];
        }
        if (dot < 0) dot = 0;
        for (i32 source = 0; source < WARP && base + source < query.heads; ++source) {
            const i64 its_dot = __shfl_sync(FULL_WARP, dot, source);
            add_product(sum, its_dot, __shfl_sync(FULL_WARP, weight, source));
        }
    }
    const f32 magnitude = scale < 0 ? -scale : scale;
    if (magnitude != pos_inf()) return scaled_to_f32(sum, scale, DOT_UNIT + F32_UNIT);
    if (is_zero(sum)) return canonical_nan();
    return is_negative(sum) != (scale < 0) ? neg_inf() : pos_inf();
}

// Scores of the warp's eight keys, each in the four lanes of its quad; key is -1 for none.
__device__ __forceinline__ f32 warp_scores(const Query& query, const Staged& staged, i64 key,
                                           const u8* keys, const f32* scales, bool words) {
    const u8* codes = key < 0 ? nullptr : keys + key * query.d;
    const f32 scale = key < 0 ? 0 : scales[key];
    const HeadSum total = head_sum(staged, {codes, query.d, words});
    f32 score = neg_inf();
    const bool decided = key < 0 || decided_score(total, scale, query.heads, score);
    const i32 quad = static_cast<i32>(threadIdx.x % WARP / 4);
    u32 open = __ballot_sync(FULL_WARP, !decided);
    while (open != 0) {
        const i32 lane = __ffs(static_cast<i32>(open)) - 1;
        const i64 its_key = __shfl_sync(FULL_WARP, key, lane);
        const u8* its_codes = keys + its_key * query.d;
        const f32 exact = exact_score(query, its_codes, __shfl_sync(FULL_WARP, scale, lane));
        if (quad == lane / 4) score = exact;
        open &= ~(15u << (lane / 4 * 4));
    }
    return key < 0 ? neg_inf() : score;
}

}  // namespace exact

// Writes out_row[c] for the columns c of a row that fall to this block: eight to a warp, warps of
// all blocks with this blockIdx.x in turn.
template <class Columns>
__device__ __forceinline__ void score_exact(const Columns& columns, i64 count, const u8* q_row,
                                            const f32* w_row, const u8* keys, const f32* scales,
                                            f32* out_row, i32 h, i32 d) {
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    const exact::Query query = {q_row, w_row, h, d};
    const exact::Staged staged = exact::stage(query, dynamic_shared);
    const bool words = in_words(keys, d);
    const i32 lane = static_cast<i32>(threadIdx.x % WARP);
    const i64 warps = blockDim.x / WARP;
    const i64 stride = gridDim.y * warps * exact::KEYS;
    i64 first = (blockIdx.y * warps + threadIdx.x / WARP) * exact::KEYS;
    for (; first < count; first += stride) {
        const i64 column = first + lane / 4;
        const i64 key = column < count ? columns.key(column) : -1;
        f32 score = neg_inf();
        if (__any_sync(FULL_WARP, key >= 0)) {
            score = exact::warp_scores(query, staged, key, keys, scales, words);
        }
        if (lane % 4 == 0 && column < count) out_row[column] = score;
    }
}
