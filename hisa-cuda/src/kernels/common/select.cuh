// Exact selection of the best entries of a row, for rows of any length (SPEC 5.3, 7.2, 9.2).
//
// An entry is one integer: its rank above, the complement of its position below. No two entries of
// a row are equal, so equal scores, NaN and signed zeros need no care: the largest integers are the
// choice. The smallest chosen one is found digit by digit from the top. Entries are read anew for
// every digit; no buffer holds candidates, so none can overflow.
#pragma once
#include "common/cta.cuh"
#include "common/order.cuh"

constexpr u32 DIGIT_BITS = 8;
constexpr u32 DIGITS = 1u << DIGIT_BITS;
constexpr u32 DIGITS_PER_LANE = DIGITS / WARP;

// How rank and position share an integer. Positions are in [0, limit), limit at most 2^31.
struct EntryFormat {
    u32 limit;
    u32 position_bits;
    u32 rank_bits;

    __device__ __forceinline__ EntryFormat(i64 limit, u32 rank_bits)
        : limit(static_cast<u32>(limit)),
          position_bits(limit > 1 ? 64 - __clzll(limit - 1) : 0),
          rank_bits(rank_bits) {}

    __device__ __forceinline__ u32 bits() const { return rank_bits + position_bits; }
    __device__ __forceinline__ u64 pack(u32 rank, i64 position) const {
        return (u64{rank} << position_bits) + (limit - 1 - static_cast<u32>(position));
    }
    __device__ __forceinline__ i64 position(u64 entry) const {
        const u64 below = entry & ((u64{1} << position_bits) - 1);
        return limit - 1 - static_cast<u32>(below);
    }
};

// A contiguous row of scores. `Rank` maps (position, score) to a rank.
//
// `each` calls visit(entry, present) once for every entry with `present` true; whole warps make
// each call together, so that `visit` may use warp intrinsics.
template <class Rank>
struct RowEntries {
    const f32* scores;
    i64 length;
    EntryFormat format;
    Rank rank;

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        constexpr int BATCH = 4;  // Loads in flight.
        for (i64 base = 0; base < length; base += BATCH * i64{blockDim.x}) {
            f32 values[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                const i64 at = base + i * i64{blockDim.x} + threadIdx.x;
                values[i] = at < length ? scores[at] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                const i64 start = base + i * i64{blockDim.x};
                if (start >= length) break;
                const i64 at = start + threadIdx.x;
                visit(format.pack(rank(at, values[i]), at), at < length);
            }
        }
    }
};

// Adds the digits of a warp. Where all its digits are one, as in rows full of one score, a single
// lane adds them: 32 additions to one counter could queue up.
__device__ __forceinline__ void count_digit(u32* counts, u32 digit, bool counted) {
    const u32 lanes = __ballot_sync(FULL_WARP, counted);
    if (lanes == 0) return;
    const u32 leader = __ffs(lanes) - 1;
    const u32 common = __shfl_sync(FULL_WARP, digit, leader);
    if (__any_sync(FULL_WARP, counted && digit != common)) {
        if (counted) atomicAdd(&counts[digit], 1u);
    } else if (lane_index() == leader) {
        atomicAdd(&counts[common], static_cast<u32>(__popc(lanes)));
    }
}

// The digit in which the `want` largest end.
struct Edge {
    u32 digit;
    u32 above;  // Entries with a larger digit.
    u32 inside;  // Entries with this digit.
};

// One warp looks for the edge, and leaves the counts at zero.
__device__ __forceinline__ void find_edge(u32* counts, u32 want, Edge* edge) {
    // Lane 0 has the largest digits.
    const u32 first = (WARP - 1 - lane_index()) * DIGITS_PER_LANE;
    u32 sum = 0;
    for (u32 i = 0; i < DIGITS_PER_LANE; ++i) {
        // Turned by lane, so that the lanes read from different banks.
        sum += counts[first + (i + lane_index() / 4) % DIGITS_PER_LANE];
    }
    const u32 upto = warp_prefix_sum(sum);
    u32 above = upto - sum;
    if (above < want && want <= upto) {
        u32 digit = first + DIGITS_PER_LANE - 1;
        while (want > above + counts[digit]) above += counts[digit--];
        *edge = {digit, above, counts[digit]};
    }
    __syncwarp();
    for (u32 i = lane_index(); i < DIGITS; i += WARP) counts[i] = 0;
}

// The smallest of the `want` largest entries, or a smaller number above all others.
// 0 < want <= number of entries.
template <class Entries>
__device__ __forceinline__ u64 select_threshold(const Entries& entries, u32 want) {
    __shared__ u32 counts[DIGITS];
    __shared__ Edge edge;
    for (u32 i = threadIdx.x; i < DIGITS; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    u64 prefix = 0;
    u32 shift = entries.format.bits();
    while (shift > 0) {
        const u32 width = shift < DIGIT_BITS ? shift : DIGIT_BITS;
        const u32 mask = (1u << width) - 1;
        shift -= width;
        entries.each([&](u64 entry, bool present) {
            const u64 upper = entry >> shift;
            const bool counted = present && upper >> width == prefix;
            count_digit(counts, static_cast<u32>(upper) & mask, counted);
        });
        __syncthreads();
        if (warp_index() == 0) find_edge(counts, want, &edge);
        __syncthreads();
        prefix = (prefix << width) + edge.digit;
        want -= edge.above;
        if (edge.inside == want) break;
    }
    return prefix << shift;
}

// Copies the entries from `threshold` on to `chosen`, in no order, at most `room` of them. All
// threads see them afterwards.
template <class Entries>
__device__ __forceinline__ void gather(
    const Entries& entries, u64 threshold, u64* chosen, u32 room
) {
    __shared__ u32 next;
    if (threadIdx.x == 0) next = 0;
    __syncthreads();
    entries.each([&](u64 entry, bool present) {
        const bool taken = present && entry >= threshold;
        const u32 lanes = __ballot_sync(FULL_WARP, taken);
        if (lanes == 0) return;
        u32 start = 0;
        if (lane_index() == 0) start = atomicAdd(&next, static_cast<u32>(__popc(lanes)));
        start = __shfl_sync(FULL_WARP, start, 0);
        const u32 at = start + __popc(lanes & lanes_below());
        if (taken && at < room) chosen[at] = entry;
    });
    __syncthreads();
}
