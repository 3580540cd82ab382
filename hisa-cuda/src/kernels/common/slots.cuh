// Which key a column of a row of scores stands for: SPEC W.3, 3.1, 6.1, 6.2, 9.2.
//
// Every map has
//   count()           columns of the row
//   key(column)       the key, or -1 where the entry is -inf; column is in [0, count())
//   any(first, last)  false only if no column of [first, last) has a key. All lanes of a warp call
//                     it with the same arguments and get the same answer.
#pragma once

#include "common/types.cuh"

// Column c is pooled block c: block_scores.
struct BlockColumns {
    i64 blocks;
    BlockWindow window;

    __device__ BlockColumns(Window visible, i64 nb, i64 b)
        : blocks(nb), window(block_window(visible, b)) {
        // A pooled tensor shorter than ceil(n / b) blocks must not be read behind its end.
        window.last = smaller(window.last, nb);
    }

    __device__ i64 count() const { return blocks; }

    __device__ i64 key(i64 column) const {
        return window.contains(column) ? column : -1;
    }

    __device__ bool any(i64 first, i64 last) const {
        return first < window.last && window.first < last;
    }
};

// Column c is key c: the flat indexer.
struct FlatColumns {
    i64 keys;
    Window window;

    __device__ FlatColumns(Window visible, i64 n) : keys(n), window(visible) {}

    __device__ i64 count() const { return keys; }

    __device__ i64 key(i64 column) const {
        return window.contains(column) ? column : -1;
    }

    __device__ bool any(i64 first, i64 last) const {
        return first < window.ke && window.ks < last;
    }
};

// Column c is key block_ids[c / b] * b + c % b: token_scores. The window, which is within [0, n),
// refuses what no id may lead to: an id below 0 gives keys below 0, a large one keys behind n.
struct TokenColumns {
    const i32* ids;  // of this row
    i64 slots;       // topk * b
    i64 b;
    Window window;

    __device__ TokenColumns(Window visible, const i32* row_ids, i64 b, i64 topk)
        : ids(row_ids), slots(topk * b), b(b), window(visible) {}

    __device__ i64 count() const { return slots; }

    __device__ i64 key(i64 column) const {
        const i64 place = place_of(column);
        const i64 key = ids[place] * b + (column - place * b);
        return window.contains(key) ? key : -1;
    }

    // One block to a lane.
    __device__ bool any(i64 first, i64 last) const {
        if (window.length() == 0 || first >= last) {
            return false;
        }
        const i64 end = place_of(last - 1) + 1;
        bool seen = false;
        for (i64 base = place_of(first); base < end && !seen; base += WARP) {
            const i64 place = base + static_cast<i64>(threadIdx.x % WARP);
            const i64 start = place < end ? ids[place] * b : -b;
            seen = __any_sync(FULL_WARP, start < window.ke && start + b > window.ks);
        }
        return seen;
    }

  private:
    // Which chosen block a column belongs to. Sizes hardly ever need a division of 64 bits, which
    // costs several times one of 32.
    __device__ i64 place_of(i64 column) const {
        if (((static_cast<u64>(column) | static_cast<u64>(b)) >> 32) == 0) {
            return static_cast<u32>(column) / static_cast<u32>(b);
        }
        return column / b;
    }
};
