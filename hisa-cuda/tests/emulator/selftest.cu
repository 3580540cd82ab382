// Small kernels for the tests of the emulator itself. Some are wrong on purpose.
#include "common/ptx.cuh"

__device__ __noinline__ u32 sum_of_block(u32 value) {
    __shared__ u32 sums[32];
    for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(FULL_WARP, value, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    u32 total = 0;
    for (u32 warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
    __syncthreads();
    return total;
}

template <typename T>
__device__ T twice(T value) {
    __shared__ T kept[1];
    if (threadIdx.x == 0) kept[0] = value + value;
    __syncthreads();
    T result = kept[0];
    __syncthreads();
    return result;
}

extern "C" __global__ void __launch_bounds__(256) block_sums(const u32* x, u32* out, i64 columns) {
    u32 sum = 0;
    for (i64 at = threadIdx.x; at < columns; at += blockDim.x) {
        sum += x[i64(blockIdx.x) * columns + at];
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = twice(sum) / 2;
    else twice(0u);
}

// Every warp intrinsic once: 8 results for each thread.
extern "C" __global__ void warp_intrinsics(i32* out) {
    i32 lane = i32(threadIdx.x % 32);
    i32* mine = out + i64(threadIdx.x) * 8;
    mine[0] = __shfl_sync(FULL_WARP, lane, lane + 5);
    mine[1] = __shfl_xor_sync(FULL_WARP, lane, 3);
    mine[2] = __shfl_up_sync(FULL_WARP, lane, 2);
    mine[3] = __shfl_down_sync(FULL_WARP, lane, 2, 8);
    mine[4] = i32(__ballot_sync(FULL_WARP, lane % 3 == 0));
    mine[5] = __any_sync(FULL_WARP, lane == 7);
    mine[6] = __all_sync(FULL_WARP, lane != 7);
    __syncwarp();
    mine[7] = __shfl_sync(FULL_WARP, lane, 1, 4);
}

extern "C" __global__ void missing_barrier(u32* out) {
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    u32* values = reinterpret_cast<u32*>(dynamic_shared);
    values[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void early_exit(u32* out) {
    if (threadIdx.x == 40) return;
    __syncthreads();
    out[threadIdx.x] = 0;
}

extern "C" __global__ void lonely_lane(u32* out) {
    if (threadIdx.x != 33) out[threadIdx.x] = __ballot_sync(FULL_WARP, true);
}

extern "C" __global__ void two_barriers(u32* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 0;
}

extern "C" __global__ void unwritten_shared(u32* out) {
    __shared__ u32 values[64];
    out[threadIdx.x] = values[threadIdx.x];
}

extern "C" __global__ void beside(const u32* x, u32* out, i64 read, i64 write) {
    if (threadIdx.x == 0) out[write] = x[read];
}

extern "C" __global__ void write_input(const u32* x, u32* out) {
    if (threadIdx.x == 0) const_cast<u32*>(x)[0] = out[0] = 1;
}

extern "C" __global__ void wide_load(const u8* x, u32* out, i64 at) {
    if (threadIdx.x == 0) out[0] = reinterpret_cast<const uint4*>(x + at)->w;
}

extern "C" __global__ void shift(u32* out, i32 by) {
    if (threadIdx.x == 0) out[0] = 1u << by;
}

// Copies 16 bytes for each thread through shared memory, without waiting for them if so asked.
extern "C" __global__ void copies(const u8* x, u8* out, i32 wait) {
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    copy_async_16(dynamic_shared + 16 * threadIdx.x, x + 16 * threadIdx.x);
    copy_async_commit();
    if (wait != 0) copy_async_wait<0>();
    __syncthreads();
    u32 other = blockDim.x - 1 - threadIdx.x;
    for (u32 at = 16 * other; at < 16 * other + 16; ++at) out[at] = dynamic_shared[at];
}

// The dots of 16 keys with 8 queries of 16 codes, accumulated onto c.
extern "C" __global__ void tile_f16(const u8* keys, const u8* queries, f32* c) {
    u32 group = threadIdx.x >> 2, pair = threadIdx.x & 3;
    u32 a[4], b[2];
    for (u32 part = 0; part < 4; ++part) {
        const u8* at = keys + 16 * (group + 8 * (part & 1)) + 2 * pair + 8 * (part >> 1);
        a[part] = e4m3x2_to_f16x2(u16(at[0] | at[1] << 8));
    }
    for (u32 part = 0; part < 2; ++part) {
        const u8* at = queries + 16 * group + 2 * pair + 8 * part;
        b[part] = e4m3x2_to_f16x2(u16(at[0] | at[1] << 8));
    }
    f32 sums[4];
    for (u32 i = 0; i < 4; ++i) sums[i] = c[8 * (group + 8 * (i >> 1)) + 2 * pair + (i & 1)];
    mma_f16(sums, a, b);
    for (u32 i = 0; i < 4; ++i) c[8 * (group + 8 * (i >> 1)) + 2 * pair + (i & 1)] = sums[i];
}

extern "C" __global__ void tile_f64(const f64* a, const f64* b, f64* c) {
    u32 row = threadIdx.x >> 2, pair = threadIdx.x & 3;
    f64 sums[2] = {c[8 * row + 2 * pair], c[8 * row + 2 * pair + 1]};
    mma_f64(sums, a[4 * row + pair], b[8 * pair + row]);
    for (u32 i = 0; i < 2; ++i) c[8 * row + 2 * pair + i] = sums[i];
}
