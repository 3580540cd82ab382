// Sums without rounding, in fixed point: where the interval of a fast sum does not decide the one
// rounding to f32 (SPEC V.6), the exact sum does. All of this is rarely run.
#pragma once

#include "common/types.cuh"

constexpr int WIDE_WORDS = 12;
// Every finite f32 is a multiple of 2^F32_UNIT.
constexpr i32 F32_UNIT = -149;

// A signed integer of 384 bits, two's complement, lowest word first.
//
// Room: a score sums dots (below 2^44) times weights (24 bits, up to 2^253 units) over heads, 328
// bits at 128 heads, and is multiplied by 24 bits of scale; a pooled mean sums 18 bits times 24
// bits, up to 2^253 units, over fewer than 2^31 keys, 326 bits.
struct Wide {
    u32 word[WIDE_WORDS];
};

// A finite f32: mantissa * 2^(F32_UNIT + shift).
struct Factor {
    i32 mantissa;
    i32 shift;
};

__device__ __forceinline__ Factor factor(f32 value) {
    const u32 bits = __float_as_uint(value);
    const i32 field = static_cast<i32>(bits >> 23 & 0xff);
    const i32 fraction = static_cast<i32>(bits & 0x7fffff);
    const i32 magnitude = field == 0 ? fraction : fraction | 0x800000;
    return {bits >> 31 ? -magnitude : magnitude, field == 0 ? 0 : field - 1};
}

__device__ __forceinline__ bool is_negative(const Wide& sum) {
    return sum.word[WIDE_WORDS - 1] >> 31;
}

__device__ __forceinline__ bool is_zero(const Wide& sum) {
    u32 bits = 0;
    for (int i = 0; i < WIDE_WORDS; ++i) bits |= sum.word[i];
    return bits == 0;
}

// sum += value * 2^shift.
__device__ __forceinline__ void add_shifted(Wide& sum, i64 value, i32 shift) {
    u64 carry = 0;
#pragma unroll
    for (int i = 0; i < WIDE_WORDS; ++i) {
        // Word i of the shifted value is its bits from `from` on; above 63 stands its sign.
        const i32 from = 32 * i - shift;
        u32 word = 0;
        if (from >= 0) {
            word = static_cast<u32>(value >> (from < 63 ? from : 63));
        } else if (from > -32) {
            word = static_cast<u32>(static_cast<u64>(value) << -from);
        }
        carry += static_cast<u64>(sum.word[i]) + word;
        sum.word[i] = static_cast<u32>(carry);
        carry >>= 32;
    }
}

// sum += integer * value, in units of 2^F32_UNIT; |integer| is below 2^62 and value finite.
__device__ __forceinline__ void add_product(Wide& sum, i64 integer, f32 value) {
    const Factor by = factor(value);
    add_shifted(sum, (integer & 0xffffffffll) * by.mantissa, by.shift);
    add_shifted(sum, (integer >> 32) * by.mantissa, by.shift + 32);
}

// Makes a sum its magnitude; true if it was negative.
__device__ __forceinline__ bool take_sign(Wide& sum) {
    const bool negative = is_negative(sum);
    u64 carry = negative;
    for (int i = 0; i < WIDE_WORDS; ++i) {
        carry += negative ? ~sum.word[i] : sum.word[i];
        sum.word[i] = static_cast<u32>(carry);
        carry >>= 32;
    }
    return negative;
}

__device__ __forceinline__ i32 top_bit(const Wide& magnitude) {
    i32 top = -1;
    for (int i = 0; i < WIDE_WORDS; ++i) {
        if (magnitude.word[i] != 0) top = 32 * i + 31 - __clz(static_cast<i32>(magnitude.word[i]));
    }
    return top;
}

// The 32 bits from position `low` on, which is 0 or more.
__device__ __forceinline__ u32 bits_from(const Wide& magnitude, i32 low) {
    u64 pair = 0;
    for (int i = 0; i < WIDE_WORDS; ++i) {
        if (i == low / 32) pair |= magnitude.word[i];
        if (i == low / 32 + 1) pair |= static_cast<u64>(magnitude.word[i]) << 32;
    }
    return static_cast<u32>(pair >> (low % 32));
}

// True if a bit below position `low` is set.
__device__ __forceinline__ bool any_below(const Wide& magnitude, i32 low) {
    u32 bits = 0;
    for (int i = 0; i < WIDE_WORDS; ++i) {
        if (i < low / 32) bits |= magnitude.word[i];
        if (i == low / 32) bits |= magnitude.word[i] & ((1u << (low % 32)) - 1);
    }
    return bits != 0;
}

// +-magnitude * 2^exponent, plus something below one unit if `rest`, as the nearest f32, ties to
// even. A zero is +0.0 (V.4). With a rest the exponent is below F32_UNIT.
__device__ __forceinline__ f32 round_f32(const Wide& magnitude, i32 exponent, bool rest,
                                         bool negative) {
    const i32 top = top_bit(magnitude);
    if (top < 0) return 0.0f;
    // Exponent of the last bit the result keeps: 24 bits, or the subnormal grid.
    const i32 last = top + exponent - 23 > F32_UNIT ? top + exponent - 23 : F32_UNIT;
    if (last > 104) return negative ? neg_inf() : pos_inf();
    const i32 drop = last - exponent;
    u32 kept;
    if (drop <= 0) {
        kept = magnitude.word[0] << -drop;
    } else if (drop > top + 1) {
        return 0.0f;
    } else {
        kept = bits_from(magnitude, drop);
        const bool half = bits_from(magnitude, drop - 1) & 1;
        kept += half && (rest || any_below(magnitude, drop - 1) || (kept & 1));
    }
    if (kept == 0) return 0.0f;
    // `kept` holds the leading one, which adds 1 to the field; a carry adds another.
    const u32 bits = (static_cast<u32>(last - F32_UNIT) << 23) + kept;
    return __uint_as_float(bits | static_cast<u32>(negative) << 31);
}

// sum * 2^exponent * value, rounded once; value is finite.
__device__ __forceinline__ f32 scaled_to_f32(Wide sum, f32 value, i32 exponent) {
    const bool negative = take_sign(sum);
    const Factor by = factor(value);
    const u32 multiplier = static_cast<u32>(by.mantissa < 0 ? -by.mantissa : by.mantissa);
    u64 carry = 0;
    for (int i = 0; i < WIDE_WORDS; ++i) {
        carry += static_cast<u64>(sum.word[i]) * multiplier;
        sum.word[i] = static_cast<u32>(carry);
        carry >>= 32;
    }
    const i32 unit = exponent + F32_UNIT + by.shift;
    return round_f32(sum, unit, false, negative != (by.mantissa < 0));
}

// sum * 2^exponent / count, rounded once; the exponent is below F32_UNIT.
__device__ __forceinline__ f32 divided_to_f32(Wide sum, u32 count, i32 exponent) {
    const bool negative = take_sign(sum);
    u64 rest = 0;
    for (int i = WIDE_WORDS - 1; i >= 0; --i) {
        const u64 dividend = rest << 32 | sum.word[i];
        sum.word[i] = static_cast<u32>(dividend / count);
        rest = dividend % count;
    }
    return round_f32(sum, exponent, rest != 0, negative);
}
