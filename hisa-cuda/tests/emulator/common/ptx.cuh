// The instructions of src/kernels/common/ptx.cuh, computed. Fragments are laid out as PTX says.
#pragma once

#include "common/types.cuh"

template <int M>
struct Fragment {
    u32 word[M];
};

// D = A B + D for the 16x16 matrix A (row-major) and the 16x8 matrix B (column-major), both f16.
#define mma_f16(...) mma_f16_at(EMULATOR_SITE("mma_f16"), __VA_ARGS__)
inline void mma_f16_at(const emulator::Site& site, f32 (&c)[4], const u32 (&a)[4],
                       const u32 (&b)[2]) {
    Fragment<6> own{{a[0], a[1], a[2], a[3], b[0], b[1]}};
    auto fragments = emulator::exchange(site, FULL_WARP, own);
    u32 group = emulator::lane() >> 2, pair = emulator::lane() & 3;
    for (u32 i = 0; i < 4; ++i) {
        u32 row_half = i >> 1, column = 2 * pair + (i & 1);
        emulator::Half row[16], col[16];
        for (u32 k = 0; k < 16; ++k) {
            u32 holder = (k & 7) >> 1, upper = k >> 3, shift = (k & 1) * 16;
            Fragment<6> left = fragments[group * 4 + holder];
            Fragment<6> right = fragments[column * 4 + holder];
            row[k] = static_cast<u16>(left.word[row_half + 2 * upper] >> shift);
            col[k] = static_cast<u16>(right.word[4 + upper] >> shift);
        }
        c[i] = emulator::multiply_add(site, row, col, c[i]);
    }
}

// D = A B + D for the 8x4 matrix A and the 4x8 matrix B, f64. The order of the four additions is
// not documented, so it changes with the schedule: results must not depend on it.
#define mma_f64(...) mma_f64_at(EMULATOR_SITE("mma_f64"), __VA_ARGS__)
inline void mma_f64_at(const emulator::Site& site, f64 (&c)[2], f64 a, f64 b) {
    struct Pair {
        f64 a, b;
    };
    auto pairs = emulator::exchange(site, FULL_WARP, Pair{a, b});
    u32 row = emulator::lane() >> 2, pair = emulator::lane() & 3;
    for (u32 i = 0; i < 2; ++i) {
        u32 column = 2 * pair + i;
        for (u32 step = 0; step < 4; ++step) {
            u32 k = (emulator::seed() & 1) ? 3 - step : step;
            c[i] = __fma_rn(pairs[row * 4 + k].a, pairs[column * 4 + k].b, c[i]);
        }
    }
}

inline u32 e4m3_to_f16(u32 code) {
    u32 sign = (code & 0x80) << 8, exponent = code >> 3 & 15, fraction = code & 7;
    if ((code & 0x7f) == 0x7f) return sign | 0x7fff;
    if (exponent != 0) return sign | (exponent + 8) << 10 | fraction << 7;
    if (fraction == 0) return sign;
    u32 top = 31 - u32(__clz(int(fraction)));
    return sign | (top + 6) << 10 | ((fraction << (10 - top)) & 0x3ff);
}

// The code in the low byte becomes the low half.
inline u32 e4m3x2_to_f16x2(u16 codes) {
    return e4m3_to_f16(codes & 0xff) | e4m3_to_f16(codes >> 8) << 16;
}

#define copy_async_16(...) \
    emulator::copy_async(EMULATOR_SITE("copy_async_16"), __VA_ARGS__, 16)
inline void copy_async_commit() { emulator::copy_async_commit(); }
template <int N>
inline void copy_async_wait() {
    emulator::copy_async_wait(N);
}
