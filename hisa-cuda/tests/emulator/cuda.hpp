// CUDA C++ as the kernels use it, for a C++17 compiler of the CPU.
//
// Included before every unit. A name that is missing here is one the kernels may not use.
#pragma once

#include "matrix.hpp"
#include "runtime.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// One section, so that the emulator can fill all of it before each block.
#define __shared__ static __attribute__((section("emulated_shared")))

#define threadIdx (emulator::thread_index)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)
using dim3 = emulator::Dim3;

#define EMULATOR_SITE(what) (emulator::Site{what, __FILE__, __LINE__})
#define __syncthreads() emulator::block_barrier(EMULATOR_SITE("__syncthreads"))
#define __syncwarp emulator::WarpBarrier{EMULATOR_SITE("__syncwarp")}
#define __shfl_sync(...) emulator::shuffle(EMULATOR_SITE("__shfl_sync"), __VA_ARGS__)
#define __shfl_xor_sync(...) emulator::shuffle_xor(EMULATOR_SITE("__shfl_xor_sync"), __VA_ARGS__)
#define __shfl_up_sync(...) emulator::shuffle_up(EMULATOR_SITE("__shfl_up_sync"), __VA_ARGS__)
#define __shfl_down_sync(...) \
    emulator::shuffle_down(EMULATOR_SITE("__shfl_down_sync"), __VA_ARGS__)
#define __ballot_sync(...) emulator::ballot(EMULATOR_SITE("__ballot_sync"), __VA_ARGS__)
#define __any_sync(...) (emulator::ballot(EMULATOR_SITE("__any_sync"), __VA_ARGS__) != 0)
#define __all_sync(...) (emulator::ballot(EMULATOR_SITE("__all_sync"), __VA_ARGS__) == ~0u)

namespace emulator {

struct WarpBarrier {
    Site site;
    void operator()(unsigned mask = ~0u) const { exchange(site, mask, 0); }
};

// The value of `source`, or the own one where there is no such lane in the segment.
template <typename T>
T from_lane(const Site& site, unsigned mask, T value, int source, int width) {
    auto values = exchange(site, mask, value);
    int first = int(lane()) / width * width;
    bool there = source >= first && source < first + width;
    return there ? values[source] : value;
}

template <typename T>
T shuffle(const Site& site, unsigned mask, T value, int source, int width = 32) {
    int first = int(lane()) / width * width;
    return from_lane(site, mask, value, first + (source & (width - 1)), width);
}

template <typename T>
T shuffle_xor(const Site& site, unsigned mask, T value, int bits, int width = 32) {
    return from_lane(site, mask, value, int(lane()) ^ bits, width);
}

template <typename T>
T shuffle_up(const Site& site, unsigned mask, T value, unsigned distance, int width = 32) {
    return from_lane(site, mask, value, int(lane()) - int(distance), width);
}

template <typename T>
T shuffle_down(const Site& site, unsigned mask, T value, unsigned distance, int width = 32) {
    return from_lane(site, mask, value, int(lane() + distance), width);
}

inline unsigned ballot(const Site& site, unsigned mask, bool vote) {
    auto votes = exchange(site, mask, vote);
    unsigned bits = 0;
    for (unsigned other = 0; other < 32; ++other) bits |= unsigned(votes[other]) << other;
    return bits;
}

template <typename To, typename From>
To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}

// NaN that the device computes has this one form.
inline float settle(float x) { return x == x ? x : bits<float>(0x7fffffffu); }

}  // namespace emulator

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __clzll(long long x) {
    return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __float_as_uint(float x) { return emulator::bits<unsigned>(x); }
inline int __float_as_int(float x) { return emulator::bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emulator::bits<float>(x); }
inline float __int_as_float(int x) { return emulator::bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::bits<double>(x); }

inline float __fadd_rn(float a, float b) { return emulator::settle(a + b); }
inline float __fsub_rn(float a, float b) { return emulator::settle(a - b); }
inline float __fmul_rn(float a, float b) { return emulator::settle(a * b); }
inline float __fdiv_rn(float a, float b) { return emulator::settle(a / b); }
inline float __fmaf_rn(float a, float b, float c) {
    return emulator::settle(__builtin_fmaf(a, b, c));
}
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline double rint(double x) { return __builtin_rint(x); }
inline double fabs(double x) { return __builtin_fabs(x); }
inline float fabsf(float x) { return __builtin_fabsf(x); }

inline float __double2float_rn(double x) { return emulator::settle(static_cast<float>(x)); }
inline float __double2float_rd(double x) {
    float nearest = __double2float_rn(x);
    return static_cast<double>(nearest) > x ? __builtin_nextafterf(nearest, -__builtin_inff())
                                            : nearest;
}
inline float __double2float_ru(double x) {
    float nearest = __double2float_rn(x);
    return static_cast<double>(nearest) < x ? __builtin_nextafterf(nearest, __builtin_inff())
                                            : nearest;
}

template <typename T>
T __ldg(const T* address) {
    return *address;
}

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }

// Fibers switch only where they ask to, so a plain read and write is atomic.
#define EMULATOR_ATOMIC(name, T, expression)                \
    inline T name(T* address, std::common_type_t<T> value) { \
        emulator::maybe_yield();                            \
        T old = *address;                                   \
        *address = expression;                              \
        return old;                                         \
    }
#define EMULATOR_ATOMICS(T)                                 \
    EMULATOR_ATOMIC(atomicMin, T, old < value ? old : value) \
    EMULATOR_ATOMIC(atomicMax, T, old > value ? old : value) \
    EMULATOR_ATOMIC(atomicOr, T, old | value)               \
    EMULATOR_ATOMIC(atomicAnd, T, old & value)              \
    EMULATOR_ATOMIC(atomicExch, T, value)
EMULATOR_ATOMICS(int)
EMULATOR_ATOMICS(unsigned)
EMULATOR_ATOMICS(unsigned long long)
EMULATOR_ATOMIC(atomicAdd, int, int(unsigned(old) + unsigned(value)))
EMULATOR_ATOMIC(atomicAdd, unsigned, old + value)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + value)

#define EMULATOR_VECTORS(T, name)                                                          \
    struct __align__(2 * sizeof(T)) name##2 {                                              \
        T x, y;                                                                            \
    };                                                                                     \
    struct __align__(4 * sizeof(T)) name##4 {                                              \
        T x, y, z, w;                                                                      \
    };                                                                                     \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                             \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTORS(unsigned char, uchar)
EMULATOR_VECTORS(unsigned short, ushort)
EMULATOR_VECTORS(int, int)
EMULATOR_VECTORS(unsigned, uint)
EMULATOR_VECTORS(float, float)
