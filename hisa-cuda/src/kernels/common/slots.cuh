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

// Column c is key block_ids[c / b] * b + c % b: token_scores.
struct TokenColumns {
    const i32* ids;  // of this row
    i64 slots;       // topk * b
    i64 b;
    i64 blocks;  // ceil(n / b)
    Window window;

    __device__ TokenColumns(Window visible, const i32* row_ids, i64 n, i64 b, i64 topk)
        : ids(row_ids), slots(topk * b), b(b), blocks(n / b + (n % b != 0)), window(visible) {}

    __device__ i64 count() const { return slots; }

    __device__ i64 key(i64 column) const {
        const i64 block = column_block(column);
        const i64 first = first_key(block);
        const i64 key = first + (column - block * b);
        return first >= 0 && window.contains(key) ? key : -1;
    }

    // One block to a lane. Columns are at most 2^31 - 1, so lane offsets cannot overflow.
    __device__ bool any(i64 first, i64 last) const {
        if (window.ks >= window.ke || first >= last) {
            return false;
        }
        const i64 end = column_block(last - 1) + 1;
        bool seen = false;
        for (i64 base = column_block(first); base < end && !seen; base += WARP) {
            const i64 block = base + static_cast<i64>(threadIdx.x % WARP);
            const i64 start = block < end ? first_key(block) : -1;
            const bool meets = start >= 0 && start < window.ke && start + b > window.ks;
            seen = __any_sync(FULL_WARP, meets);
        }
        return seen;
    }

  private:
    // A 64-bit division costs several times one of 32 bits, and sizes hardly ever need it.
    __device__ i64 column_block(i64 column) const {
        if (((static_cast<u64>(column) | static_cast<u64>(b)) >> 32) == 0) {
            return static_cast<u32>(column) / static_cast<u32>(b);
        }
        return column / b;
    }

    // First key of the block chosen at that place, or -1.
    __device__ i64 first_key(i64 place) const {
        const i64 id = ids[place];
        return id >= 0 && id < blocks ? id * b : -1;
    }
};
