// The PTX instructions that CUDA C++ has no name for, one function each. Nothing else uses asm.
//
// Lanes of a fragment: g = lane / 4, t = lane % 4 (PTX ISA, matrix fragments of mma).
#pragma once

#include "common/types.cuh"

// c += a * b, 16 x 8 x 16, f16 operands and an f32 accumulator; SASS HMMA.16816.F32.
//   a: rows g, g + 8, g, g + 8 at k = 2t, 2t, 2t + 8, 2t + 8, two consecutive k each
//   b: column g at k = 2t and 2t + 8, two consecutive k each
//   c: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
__device__ __forceinline__ void mma_f16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// c += a * b, 8 x 8 x 4, f64; SASS DMMA.884.
//   a: (row g, k = t)   b: (k = t, column g)   c: (g, 2t), (g, 2t + 1)
__device__ __forceinline__ void mma_f64(f64 (&c)[2], f64 a, f64 b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c[0]), "+d"(c[1])
        : "d"(a), "d"(b));
}

// Two e4m3 codes as two f16, exactly; the low byte becomes the low half. A NaN code is NaN.
__device__ __forceinline__ u32 e4m3x2_to_f16x2(u16 codes) {
    u32 halves;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
#else
    // Exponent and fraction seven bits up are the f16 of value / 2^8, subnormals included.
    const u32 apart = (codes & 0xffu) | (codes & 0xff00u) << 8;
    const u32 magnitude = (apart & 0x007f007fu) << 7;
    const u32 signed_halves = magnitude | (apart & 0x00800080u) << 8;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(signed_halves), "r"(0x5c005c00u));
    // Only the NaN code carries into bit 14 here; it becomes 0x7fff.
    const u32 nan = (magnitude + 0x00800080u) & 0x40004000u;
    halves |= nan | (nan - (nan >> 14));
#endif
    return halves;
}

// Starts a copy of 16 bytes; both addresses are multiples of 16.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
    const u32 address = static_cast<u32>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global)
                 : "memory");
}

// Closes the group of copies that this thread has started since the last group.
__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the last PENDING groups of this thread have arrived.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
