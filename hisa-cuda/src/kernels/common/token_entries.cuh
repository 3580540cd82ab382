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
            VisibleKeys keys{0, 0, 0};
            if (groups.takes(column, places.columns)) {
                keys = visible_keys(places.ids[column], places.b, window);
            }
            each_slot(column * places.b + keys.offset, keys.count, visit);
        }
    }
    __device__ __forceinline__ u64 entry(u32 rank, u32 slot) const {
        return format.pack(rank, places.position(slot));
    }

  private:
    template <class Visit>
    __device__ __forceinline__ void each_slot(u32 first, u32 count, Visit visit) const {
        constexpr int BATCH = 4;  // Loads in flight.
        const f32* values = scores + first;
        const u32 end = groups.end_of_steps(count);
        for (u32 base = 0; base < end; base += BATCH * groups.width) {
            f32 batch[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                const u32 at = base + i * groups.width + groups.thread;
                batch[i] = at < count ? values[at] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
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
        for (u32 slot = threadIdx.x; slot < slots; slot += blockDim.x) ranks[slot] = 0;
        __syncthreads();
        tokens.each([&](u32 rank, u32 slot, bool present) {
            if (present) ranks[slot] = rank;
        });
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
