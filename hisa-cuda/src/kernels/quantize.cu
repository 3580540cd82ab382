// Stage 1, quantize: rows of f32 or bf16 to e4m3 codes with one scale per row (SPEC 1).
//
// grid (rows), block 128. Strict mode is the caller's; this is the permissive rule of 1.5.
#include "common/e4m3.cuh"
#include "common/types.cuh"

constexpr int THREADS = 128;
constexpr u32 AMAX_MIN_BITS = 0x38d1b717u;  // the f32 next to 1e-4

__device__ __forceinline__ f32 value_of(f32 x) { return x; }
__device__ __forceinline__ f32 value_of(u16 bf16) {
    return __uint_as_float(static_cast<u32>(bf16) << 16);
}

// 1.1 on bits: magnitudes order as integers, and every NaN lies above infinity.
template <class Element>
__device__ __forceinline__ u32 largest_magnitude(const Element* x, i64 d) {
    u32 largest = AMAX_MIN_BITS;
    for (i64 i = threadIdx.x; i < d; i += THREADS) {
        largest = max(largest, __float_as_uint(value_of(x[i])) & 0x7fffffffu);
    }
    for (int step = WARP / 2; step > 0; step /= 2) {
        largest = max(largest, __shfl_xor_sync(FULL_WARP, largest, step));
    }
    __shared__ u32 of_warp[THREADS / WARP];
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = largest;
    __syncthreads();
    for (int warp = 0; warp < THREADS / WARP; ++warp) largest = max(largest, of_warp[warp]);
    return largest;
}

// 1.3: the least power of two not below a positive x, within [2^-127, 2^127].
__device__ __forceinline__ f32 next_power_of_two(f32 x) {
    constexpr u32 LEAST = 0x00400000u;  // 2^-127 is subnormal
    const u32 bits = __float_as_uint(x);
    if (bits <= LEAST) return __uint_as_float(LEAST);
    const u32 field = (bits >> 23) + ((bits & 0x7fffffu) != 0);
    return __uint_as_float(min(field, 254u) << 23);
}

// 1.2, 1.3, 1.5.
__device__ __forceinline__ f32 row_scale(u32 amax_bits, bool ue8m0) {
    if (amax_bits > POS_INF_BITS) return canonical_nan();
    const f32 scale = __fdiv_rn(__uint_as_float(amax_bits), 448.0f);
    return ue8m0 ? next_power_of_two(scale) : scale;
}

template <class Element>
__device__ __forceinline__ void quantize_row(const Element* x, u8* codes, f32* scale, i64 d,
                                             bool ue8m0, bool non_saturating) {
    const i64 row = blockIdx.x;
    const Element* values = x + row * d;
    const f32 by = row_scale(largest_magnitude(values, d), ue8m0);
    if (threadIdx.x == 0) scale[row] = by;
    for (i64 i = threadIdx.x; i < d; i += THREADS) {
        // 1.4: the f64 quotient is on the same side of every tie of e4m3 as the real one.
        const f64 quotient = __ddiv_rn(value_of(values[i]), by);
        const bool nan = quotient != quotient;
        codes[row * d + i] = nan ? E4M3_NAN : encode(quotient, non_saturating);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    quantize_f32(const f32* x, u8* codes, f32* scale, i64 rows, i64 d, i32 ue8m0,
                 i32 non_saturating) {
    if (blockIdx.x >= rows) return;
    quantize_row(x, codes, scale, d, ue8m0 != 0, non_saturating != 0);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    quantize_bf16(const u16* x, u8* codes, f32* scale, i64 rows, i64 d, i32 ue8m0,
                  i32 non_saturating) {
    if (blockIdx.x >= rows) return;
    quantize_row(x, codes, scale, d, ue8m0 != 0, non_saturating != 0);
}
