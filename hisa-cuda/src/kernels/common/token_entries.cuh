// The eligible slots of a row as entries (SPEC 7): read from the scores, or from a copy in shared
// memory.
#pragma once
#include "common/best.cuh"
#include "common/columns.cuh"

// No eligible slot has the rank 0; NaN has 1.
__device__ __forceinline__ u32 token_rank(f32 score) { return order_key(score) + 1; }

// The positions of entries: slots, where those ascend as their keys do; else keys, counted from the
// start of the window.
struct TokenPlaces {
    const i32* ids;
    u32 columns;
    u32 b;
    u32 ks;
    bool ascending;
    EntryFormat format;

    __device__ __forceinline__ TokenPlaces(
        const i32* ids, i64 columns, i64 b, Window window, bool ascending
    )
        : ids(ids), columns(static_cast<u32>(columns)), b(static_cast<u32>(b)),
          ks(static_cast<u32>(window.ks)), ascending(ascending),
          format(ascending ? columns * b : window.length(), 32) {}

    // Of an eligible slot.
    __device__ __forceinline__ u32 position(u32 slot) const {
        if (ascending) return slot;
        return static_cast<u32>(ids[slot / b]) * b + slot % b - ks;
    }

    __device__ __forceinline__ u32 slot(u32 position) const {
        if (ascending) return position;
        const u32 key = ks + position;
        const i32 block = static_cast<i32>(key / b);
        u32 column = 0;
        while (column < columns && ids[column] != block) ++column;
        return column * b + key % b;
    }
};

// Entries by slot, read from the scores.
struct TokenEntries {
    static constexpr u32 BATCH = 4;  // Loads in flight.

    const f32* scores;
    const TokenPlaces& places;
    Window window;
    ColumnGroups groups;
    EntryFormat format;

    __device__ __forceinline__ TokenEntries(
        const f32* scores, const TokenPlaces& places, Window window
    )
        : scores(scores), places(places), window(window), groups(places.columns, places.b),
          format(places.format) {}

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        for (u32 base = 0; base < places.columns; base += groups.count) {
            const u32 column = base + groups.group;
            const VisibleKeys keys = visible(column);
            const u32 first = keys.count > 0 ? column * places.b + keys.offset : 0;
            each_slot(first, keys.count, visit);
        }
    }
    __device__ __forceinline__ u64 entry(u32 rank, u32 slot) const {
        return format.pack(rank, places.position(slot));
    }

    // Writes the rank of every slot; 0 where it is not eligible.
    __device__ __forceinline__ void copy_ranks(u32* ranks) const {
        for (u32 column = groups.group; groups.takes(column, places.columns);
             column += groups.count) {
            const VisibleKeys keys = visible(column);
            const u32 first = column * places.b;
            for (u32 base = groups.thread; base < places.b; base += BATCH * groups.width) {
                copy_batch(ranks + first, scores + first, base, keys);
            }
        }
    }

  private:
    __device__ __forceinline__ VisibleKeys visible(u32 column) const {
        if (!groups.takes(column, places.columns)) return {0, 0, 0};
        return visible_keys(places.ids[column], places.b, window);
    }

    // Steps past the end copy the last slot once more: conditions would split the batch.
    __device__ __forceinline__ void copy_batch(
        u32* to, const f32* from, u32 base, VisibleKeys keys
    ) const {
        u32 ranks[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; ++i) {
            ranks[i] = token_rank(from[min(base + i * groups.width, places.b - 1)]);
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; ++i) {
            const u32 at = min(base + i * groups.width, places.b - 1);
            // At most the rank; no select, behind which a load would wait for the one before.
            to[at] = min(ranks[i], at - keys.offset < keys.count ? 0xffffffffu : 0);
        }
    }

    // The slot `first` exists, whatever the count.
    template <class Visit>
    __device__ __forceinline__ void each_slot(u32 first, u32 count, Visit visit) const {
        const f32* values = scores + first;
        const u32 end = groups.end_of_steps(count);
        for (u32 base = 0; base < end; base += BATCH * groups.width) {
            f32 batch[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; ++i) {
                const u32 at = base + i * groups.width + groups.thread;
                batch[i] = values[at < count ? at : 0];
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; ++i) {
                const u32 start = base + i * groups.width;
                if (start >= end) break;
                const u32 at = start + groups.thread;
                visit(token_rank(batch[i]), first + at, at < count);
            }
        }
    }
};

// The same from a copy of the ranks, by slot; 0 where the slot is not eligible.
struct CachedTokens {
    const TokenPlaces& places;
    const u32* ranks;
    u32 slots;
    EntryFormat format;

    // `ranks` has a place for every slot.
    __device__ __forceinline__ CachedTokens(const TokenEntries& tokens, u32* ranks)
        : places(tokens.places), ranks(ranks), slots(places.columns * places.b),
          format(places.format) {
        tokens.copy_ranks(ranks);
        __syncthreads();
    }

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        const auto load = [&](u32 slot) { return ranks[slot]; };
        walk(slots, load, [&](u32 rank, u32 slot, bool present) {
            visit(rank, slot, present && rank != 0);
        });
    }
    __device__ __forceinline__ u64 entry(u32 rank, u32 slot) const {
        return format.pack(rank, places.position(slot));
    }
};
