// The order of scores (SPEC V.5) as integers, and the rounding to bf16 (SPEC V.3).
#pragma once
#include "common/types.cuh"

// A larger key ranks before a smaller one. Both zeros have one key; every NaN has 0, which is
// below the key of -inf.
__device__ __forceinline__ u32 order_key(f32 score) {
    // Without branches: it takes most of the time to walk over a row.
    u32 bits = __float_as_uint(score);
    if (bits << 1 == 0) bits = 0;
    const u32 key = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
    return f32_is_nan(score) ? 0 : key;
}

// To nearest, ties to even, as an f32 whose lower half is 0; NaN stays NaN.
__device__ __forceinline__ f32 round_bf16(f32 value) {
    const u32 bits = __float_as_uint(value);
    // A payload in the lower half alone would otherwise vanish and leave an infinity.
    if (f32_is_nan(value)) return __uint_as_float((bits | 0x00400000u) & 0xffff0000u);
    return __uint_as_float((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}
