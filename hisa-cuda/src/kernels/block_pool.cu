// Stage 2, block_pool: the mean of each block of B keys, quantised again (SPEC 2).
//
// grid (blocks to pool), block 256; block `first + blockIdx.x` of the keys is pooled. D is at most
// 256. A thread owns four dims and every groups-th key of the block.
//
// A mean is one rounding of a real number. f64 sums that carry their own rounding errors decide
// it almost always; where they do not, it is computed in integers.
#include "common/e4m3.cuh"
#include "common/types.cuh"
#include "common/wide.cuh"

constexpr int THREADS = 256;
constexpr int DIMS_MAX = 256;
constexpr int QUAD = 4;   // dims of a thread
constexpr int BATCH = 4;  // keys of a thread in flight
constexpr u32 SCALE_MIN_BITS = 0x2edbe6ffu;  // the f32 next to 1e-10

// Scales enter times 2^SCALE_EXPONENT, so that neither they nor their products with codes times
// 2^TINY_EXPONENT leave the normal numbers of f64. Both are powers of two and cost no rounding.
constexpr i32 SCALE_EXPONENT = 860;
constexpr i32 SUM_EXPONENT = TINY_EXPONENT + SCALE_EXPONENT;

// A sum as `sum + error`, which misses the real one only by the roundings of `error`. Those are
// relative to `size`, the sum of the magnitudes that went into it.
struct Sum {
    f64 sum;
    f64 error;
    f64 size;
};

// TwoSum: the rounded sum, and exactly what it misses.
__device__ __forceinline__ f64 two_sum(f64 a, f64 b, f64& missing) {
    const f64 sum = __dadd_rn(a, b);
    const f64 of_b = __dadd_rn(sum, -a);
    const f64 of_a = __dadd_rn(sum, -of_b);
    missing = __dadd_rn(__dadd_rn(a, -of_a), __dadd_rn(b, -of_b));
    return sum;
}

__device__ __forceinline__ void add_term(Sum& total, f64 term) {
    f64 missing;
    total.sum = two_sum(total.sum, term, missing);
    total.error = __dadd_rn(total.error, missing);
    total.size = __dadd_rn(total.size, missing < 0 ? -missing : missing);
}

__device__ __forceinline__ void merge(Sum& total, const Sum& other) {
    add_term(total, other.sum);
    total.error = __dadd_rn(total.error, other.error);
    total.size = __dadd_rn(total.size, other.size);
}

// The keys [start, end) of one block.
struct Keys {
    const u8* codes;
    const f32* scales;
    i64 start;
    i64 end;
    i32 d;
};

// This thread's part of the sums of dims [dim, dim + 4): one key of `step`. Loads go out in
// batches, ahead of the sums that wait for them.
template <bool WORDS>
__device__ __forceinline__ void sum_keys(const Keys& keys, i64 from, i32 step, i32 dim,
                                         Sum (&sums)[QUAD]) {
    const f64 shift = power_of_two(SCALE_EXPONENT);
    bool poisoned = false;
    for (i64 first = from; first < keys.end; first += BATCH * step) {
        u32 codes[BATCH];
        f32 scales[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const i64 key = first + i * step;
            const bool inside = key < keys.end;
            codes[i] = inside ? load_codes(keys.codes + key * keys.d, dim, keys.d, WORDS) : 0;
            scales[i] = inside ? keys.scales[key] : 0;
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const f64 scale = __dmul_rn(scales[i], shift);
            poisoned |= any_nan(codes[i]);
#pragma unroll
            for (int j = 0; j < QUAD; ++j) {
                add_term(sums[j], __dmul_rn(tiny_f64(codes[i] >> (8 * j)), scale));
            }
        }
    }
    // One NaN mean makes the whole block NaN (2.6), so all four dims may share it.
    if (poisoned) sums[0].sum = sums[1].sum = sums[2].sum = sums[3].sum = canonical_nan();
}

// RN32(total / count), if the interval around the computed quotient decides it.
//
// With u = 2^-53: at most count + 512 additions form `error`, so it misses at most
// (count + 600) u size. sum + error is high + low exactly, and high / count is the quotient plus
// remainder / count exactly. |remainder| / count and |low| / count are at most u |quotient| each,
// forming the ends costs u of them each: together less than 8 u |quotient|. Where nothing was
// rounded the quotient is the real mean, ties included.
__device__ __forceinline__ bool decided_mean(const Sum& total, f64 count, f32& mean) {
    f64 low;
    const f64 high = two_sum(total.sum, total.error, low);
    const f64 quotient = __ddiv_rn(high, count);
    const f64 remainder = __fma_rn(-quotient, count, high);
    f64 width = 0;
    if (low != 0 || remainder != 0 || total.size != 0) {
        const f64 magnitude = quotient < 0 ? -quotient : quotient;
        const f64 of_error = total.size * ((count + 600) * power_of_two(-52)) / count;
        width = magnitude * power_of_two(-50) + of_error;
    }
    const f64 unit = power_of_two(-SUM_EXPONENT);
    const f32 least = __double2float_rn(__dadd_rn(quotient, -width) * unit);
    const f32 most = __double2float_rn(__dadd_rn(quotient, width) * unit);
    mean = __fadd_rn(least, 0.0f);  // a zero is +0.0 (V.4)
    return least == most;
}

// The same without rounding; every code and scale is finite.
__device__ __noinline__ f32 exact_mean(const Keys& keys, i32 dim) {
    Wide sum = {};
    for (i64 key = keys.start; key < keys.end; ++key) {
        const Factor by = factor(keys.scales[key]);
        const i64 code = units(keys.codes[key * keys.d + dim]);
        add_shifted(sum, code * by.mantissa, by.shift);
    }
    return divided_to_f32(sum, static_cast<u32>(keys.end - keys.start), F32_UNIT - 9);
}

// 2.2.
__device__ __forceinline__ f32 mean_of(const Keys& keys, const Sum& total, i32 dim) {
    // Finite terms cannot overflow here: an infinite or NaN sum is what the inputs make it.
    const f64 none = total.sum - total.sum;
    if (none != 0) {
        const f32 mean = __double2float_rn(total.sum);
        return f32_is_nan(mean) ? canonical_nan() : mean;
    }
    f32 mean;
    const bool decided = decided_mean(total, static_cast<f64>(keys.end - keys.start), mean);
    return decided ? mean : exact_mean(keys, dim);
}

// The largest of one number per thread.
__device__ __forceinline__ u32 largest_of_block(u32 bits) {
    __shared__ u32 of_warp[THREADS / WARP];
    for (int step = WARP / 2; step > 0; step /= 2) {
        bits = max(bits, __shfl_xor_sync(FULL_WARP, bits, step));
    }
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = bits;
    __syncthreads();
    for (int warp = 0; warp < THREADS / WARP; ++warp) bits = max(bits, of_warp[warp]);
    return bits;
}

// 2.3, 2.6, 2.7: NaN lies above infinity in the order of magnitudes' bits.
__device__ __forceinline__ f32 pooled_scale_of(u32 amax_bits) {
    if (amax_bits > POS_INF_BITS) return canonical_nan();
    const f32 scale = __fdiv_rn(__uint_as_float(amax_bits), 448.0f);
    return __uint_as_float(max(__float_as_uint(scale), SCALE_MIN_BITS));
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    block_pool(const u8* k, const f32* k_scale, u8* pooled_k, f32* pooled_scale, i64 n, i32 d,
               i64 b, i64 first) {
    __shared__ f64 parts[3][QUAD][THREADS];
    const i64 block = first + blockIdx.x;
    const Keys keys = {k, k_scale, block * b, smaller(block * b + b, n), d};
    if (keys.start >= keys.end || d > DIMS_MAX) return;
    const int thread = static_cast<int>(threadIdx.x);
    const int quads = (d + QUAD - 1) / QUAD;
    const int groups = THREADS / quads;
    Sum sums[QUAD] = {};
    if (thread / quads < groups) {
        const i64 from = keys.start + thread / quads;
        const i32 dim = thread % quads * QUAD;
        if (in_words(k, d)) {
            sum_keys<true>(keys, from, groups, dim, sums);
        } else {
            sum_keys<false>(keys, from, groups, dim, sums);
        }
    }
#pragma unroll
    for (int i = 0; i < QUAD; ++i) {
        parts[0][i][thread] = sums[i].sum;
        parts[1][i][thread] = sums[i].error;
        parts[2][i][thread] = sums[i].size;
    }
    __syncthreads();
    f32 mean = 0;
    if (thread < d) {
        Sum total = {};
        for (int group = 0; group < groups; ++group) {
            const int part = group * quads + thread / QUAD;
            const int i = thread % QUAD;
            merge(total, {parts[0][i][part], parts[1][i][part], parts[2][i][part]});
        }
        mean = mean_of(keys, total, thread);
    }
    const f32 scale = pooled_scale_of(largest_of_block(__float_as_uint(mean) & 0x7fffffffu));
    if (thread == 0) pooled_scale[block] = scale;
    // 2.4; the f64 quotient decides as in quantize, and inf / inf and a NaN scale give 0x7F.
    if (thread < d) pooled_k[block * d + thread] = encode(__ddiv_rn(mean, scale), false);
}
