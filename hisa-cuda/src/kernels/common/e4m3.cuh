// e4m3 codes: decode, and encode with one rounding (SPEC V.1, V.2).
#pragma once

#include "common/types.cuh"

constexpr u8 E4M3_NAN = 0x7f;
constexpr u8 E4M3_MAX = 0x7e;

__device__ __forceinline__ bool is_nan(u8 code) { return (code & 0x7f) == E4M3_NAN; }

// True if one of four codes is NaN.
__device__ __forceinline__ bool any_nan(u32 codes) {
    return (((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0;
}

// The value in units of 2^-9; the code is not NaN.
__device__ __forceinline__ i32 units(u8 code) {
    const i32 field = code >> 3 & 15;
    const i32 fraction = code & 7;
    const i32 magnitude = field == 0 ? fraction : (8 + fraction) << (field - 1);
    return code & 0x80 ? -magnitude : magnitude;
}

__device__ __forceinline__ f64 power_of_two(i32 exponent) {
    return __longlong_as_double(static_cast<i64>(exponent + 1023) << 52);
}

constexpr i32 TINY_EXPONENT = -1016;

// The value times 2^TINY_EXPONENT, the code being the lowest byte; a NaN code gives a number.
//
// Exponent and fraction of the code are those of that f64, subnormal codes included, as the two
// biases, 7 and 1023, are 1016 apart: no case is told apart.
__device__ __forceinline__ f64 tiny_f64(u32 code) {
    const u32 high = (code & 0x80u) << 24 | (code & 0x7fu) << 17;
    return __longlong_as_double(static_cast<i64>(static_cast<u64>(high) << 32));
}

// The value; zero keeps its sign, NaN is NaN.
__device__ __forceinline__ f64 decode_f64(u8 code) {
    if (is_nan(code)) return canonical_nan();
    return tiny_f64(code) * power_of_two(-TINY_EXPONENT);
}

// Four codes of a row of d from dim `first` on, the first one lowest; 0 beyond the row.
// `words` promises that the row starts at a multiple of 4 bytes and that d is one.
__device__ __forceinline__ u32 load_codes(const u8* row, i32 first, i32 d, bool words) {
    if (words) {
        return first < d ? *reinterpret_cast<const u32*>(row + first) : 0;
    }
    u32 codes = 0;
    for (i32 i = 0; i < 4; ++i) {
        if (first + i < d) codes |= static_cast<u32>(row[first + i]) << (8 * i);
    }
    return codes;
}

// True where rows of d codes from `codes` on can be read in words of four.
__device__ __forceinline__ bool in_words(const u8* codes, i32 d) {
    return d % 4 == 0 && reinterpret_cast<u64>(codes) % 4 == 0;
}

// V.2, in integers.
__device__ __forceinline__ u8 encode(f64 value, bool non_saturating) {
    const u64 bits = static_cast<u64>(__double_as_longlong(value));
    const u64 magnitude = bits & ~(1ull << 63);
    const u8 sign = static_cast<u8>(bits >> 63 << 7);
    constexpr u64 INFINITY_BITS = 0x7ffull << 52;
    constexpr u64 TIE_ABOVE_MAX = 0x407d000000000000ull;  // 464
    if (magnitude > INFINITY_BITS) return non_saturating ? sign | E4M3_NAN : E4M3_NAN;
    if (magnitude > TIE_ABOVE_MAX) return sign | (non_saturating ? E4M3_NAN : E4M3_MAX);
    const i32 exponent = static_cast<i32>(magnitude >> 52) - 1023;
    const i32 below = exponent < -6 ? -6 - exponent : 0;
    const i32 drop = 49 + below;
    if (drop > 53) return sign;  // below half of 2^-9
    const u64 significand = (magnitude & ((1ull << 52) - 1)) | 1ull << 52;
    const u64 odd = significand >> drop & 1;
    const u64 steps = (significand + (1ull << (drop - 1)) - 1 + odd) >> drop;
    // A carry to 16 steps runs into the exponent field by itself, and so do 8 subnormal ones.
    return sign | static_cast<u8>((exponent + below + 6) * 8 + static_cast<i32>(steps));
}
