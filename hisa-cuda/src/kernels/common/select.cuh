// Exact selection of the best entries of a row, for rows of any length (SPEC 5.3, 7.2, 9.2).
//
// An entry is one integer: its rank above, the complement of its position below. No two entries of
// a row are equal, so equal scores, NaN and signed zeros need no care: the largest integers are the
// choice. The smallest chosen rank is found digit by digit from the top, and, where not all of that
// rank are chosen, the smallest chosen position in the same way. Entries are read anew for every
// digit; no buffer holds candidates, so none can overflow.
//
// `Entries` has a format, each(visit), and entry(rank, at). `each` calls visit(rank, at, present)
// once for every entry with `present` true, in whole warps.
#pragma once
#include "common/digits.cuh"
#include "common/order.cuh"
#include "common/walk.cuh"

// How rank and position share an integer. Positions are in [0, limit), limit at most 2^31.
struct EntryFormat {
    u32 limit;
    u32 position_bits;
    u32 rank_bits;

    __device__ __forceinline__ EntryFormat(i64 limit, u32 rank_bits)
        : limit(static_cast<u32>(limit)),
          position_bits(limit > 1 ? 64 - __clzll(limit - 1) : 0),
          rank_bits(rank_bits) {}

    __device__ __forceinline__ u64 pack(u32 rank, u32 position) const {
        return (u64{rank} << position_bits) + (limit - 1 - position);
    }
    __device__ __forceinline__ u32 low(u64 entry) const {
        return static_cast<u32>(entry) & ((1u << position_bits) - 1);
    }
    __device__ __forceinline__ u32 position(u64 entry) const { return limit - 1 - low(entry); }
};

// A contiguous row of scores. `Rank` maps (position, score) to a rank.
template <class Rank>
struct RowEntries {
    const f32* scores;
    u32 length;
    EntryFormat format;
    Rank rank;

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        const auto load = [&](u32 at) { return scores[at]; };
        walk(length, load, [&](f32 score, u32 at, bool present) {
            visit(rank(at, score), at, present);
        });
    }
    __device__ __forceinline__ u64 entry(u32 rank, u32 at) const { return format.pack(rank, at); }
};

// Where the largest numbers end: `lowest` is the smallest of them, or a smaller one above all
// others. Where it is not `found`, `want` of those that equal it are chosen.
struct Cut {
    u32 lowest;
    u32 want;
    bool found;
};

// Cuts off the `want` largest numbers of `bits` bits, and up to `spare` more. numbers.each(visit)
// calls visit(number, present). The counters are zero before and after.
template <u32 BITS, class Numbers>
__device__ __forceinline__ Cut cut_numbers(
    u32* counters, const Numbers& numbers, u32 bits, u32 want, u32 spare
) {
    u32 prefix = 0;
    u32 shift = bits;
    while (shift > 0) {
        const u32 width = min(shift, BITS);
        shift -= width;
        const u32 first = prefix << width;
        numbers.each([&](u32 number, bool present) {
            // Wraps to a large one for smaller numbers.
            const u32 digit = (number >> shift) - first;
            const bool counted = present && digit >> width == 0;
            u32* counter = &counters[counted ? digit : 0];
            if (counted) atomicAdd(counter, 1u);
        });
        __syncthreads();
        const Edge edge = find_edge<BITS>(counters, want);
        prefix = first + edge.digit;
        want -= edge.above;
        if (edge.inside <= want + spare) return {prefix << shift, want, true};
    }
    return {prefix, want, false};
}

// The ranks of entries.
template <class Entries>
struct Ranks {
    const Entries& entries;

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        entries.each([&](u32 rank, u32, bool present) { visit(rank, present); });
    }
};

// The positions of the entries of one rank, complemented.
template <class Entries>
struct TiedPositions {
    const Entries& entries;
    u32 tie;

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        entries.each([&](u32 rank, u32 at, bool present) {
            const bool tied = present && rank == tie;
            visit(tied ? entries.format.low(entries.entry(rank, at)) : 0, tied);
        });
    }
};

// The chosen entries are those from `entry` on; none of them has a rank below `rank`.
struct Threshold {
    u32 rank;
    u64 entry;
};

// Chooses the `want` largest entries, and up to `spare` more. 0 < want <= number of entries.
template <u32 BITS, class Entries>
__device__ __forceinline__ Threshold select_threshold(
    const Entries& entries, u32 want, u32 spare
) {
    u32* counters = digit_counters<BITS>();
    clear_counters<BITS>(counters);
    const EntryFormat& format = entries.format;
    const Ranks<Entries> ranks{entries};
    const Cut cut = cut_numbers<BITS>(counters, ranks, format.rank_bits, want, spare);
    const u64 first = u64{cut.lowest} << format.position_bits;
    if (cut.found) return {cut.lowest, first};
    const TiedPositions<Entries> tied{entries, cut.lowest};
    const Cut low = cut_numbers<BITS>(counters, tied, format.position_bits, cut.want, spare);
    return {cut.lowest, first + low.lowest};
}

// Copies the entries from the threshold on to `chosen`, in no order, at most `room` of them, and
// returns their number. All threads see them afterwards.
template <class Entries>
__device__ __forceinline__ u32 gather(
    const Entries& entries, Threshold threshold, u64* chosen, u32 room
) {
    __shared__ u32 next;
    if (threadIdx.x == 0) next = 0;
    __syncthreads();
    entries.each([&](u32 rank, u32 at, bool present) {
        if (!present || rank < threshold.rank) return;
        const u64 entry = entries.entry(rank, at);
        if (entry < threshold.entry) return;
        const u32 place = atomicAdd(&next, 1u);
        if (place < room) chosen[place] = entry;
    });
    __syncthreads();
    return min(next, room);
}
