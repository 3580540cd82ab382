// Types by width, the special values of SPEC V, and the windows of SPEC W. NVRTC comes without
// headers, so nothing is included.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
using f32 = float;
using f64 = double;

constexpr u32 FULL_WARP = 0xffffffffu;
constexpr int WARP = 32;

constexpr u32 POS_INF_BITS = 0x7f800000u;
constexpr u32 NEG_INF_BITS = 0xff800000u;
constexpr u32 CANONICAL_NAN_BITS = 0x7fc00000u;

__device__ __forceinline__ f32 pos_inf() { return __uint_as_float(POS_INF_BITS); }
__device__ __forceinline__ f32 neg_inf() { return __uint_as_float(NEG_INF_BITS); }
// The NaN that SPEC V.8 writes.
__device__ __forceinline__ f32 canonical_nan() { return __uint_as_float(CANONICAL_NAN_BITS); }

// By bits, so that no compiler flag can fold it away.
__device__ __forceinline__ bool f32_is_nan(f32 value) {
    return (__float_as_uint(value) & 0x7fffffffu) > POS_INF_BITS;
}

__device__ __forceinline__ i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
__device__ __forceinline__ i64 larger(i64 a, i64 b) { return a > b ? a : b; }

// The keys [ks, ke) a row sees; an empty one is [0, 0).
struct Window {
    i64 ks;
    i64 ke;

    __device__ __forceinline__ i64 length() const { return ke - ks; }
    __device__ __forceinline__ bool contains(i64 key) const { return ks <= key && key < ke; }
};

// W.1. The ends are cut to [0, n] so that no metadata leads outside the keys.
__device__ __forceinline__ Window load_window(const i32* ks, const i32* ke, i64 row, i64 n) {
    const i64 start = larger(ks[row], 0);
    const i64 end = smaller(ke[row], n);
    return start < end ? Window{start, end} : Window{0, 0};
}

// The blocks [first, last) that a window touches; that of an empty window is [0, 0).
struct BlockWindow {
    i64 first;
    i64 last;

    // Whether the window touches that block.
    __device__ __forceinline__ bool contains(i64 block) const {
        return first <= block && block < last;
    }
};

// W.3. The ends of a window are in [0, 2^31), so 32-bit division serves.
__device__ __forceinline__ BlockWindow block_window(Window window, i64 b) {
    if (window.ks >= window.ke) return {0, 0};
    const u32 size = static_cast<u32>(b);
    return {static_cast<u32>(window.ks) / size, static_cast<u32>(window.ke - 1) / size + i64{1}};
}
