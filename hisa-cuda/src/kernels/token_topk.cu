// Stage 7, token_topk (SPEC 7): the tokens to keep, as slots, best first, then -1.
// Position decides what is eligible, score decides the order; block ids may stand in any order.
//
// grid (M), block 256 (any multiple of 32 up to 256).
// Dynamic shared memory: 8 * capacity bytes, capacity a power of two >= min(topk, S).
#include "common/best.cuh"
#include "common/columns.cuh"

extern __shared__ __align__(16) unsigned char dynamic_shared[];

// The eligible slots of a row. Position: the key, counted from the start of the window.
struct TokenEntries {
    const f32* scores;
    const i32* ids;
    u32 columns;
    u32 b;
    Window window;
    ColumnGroups groups;
    EntryFormat format;

    // As RowEntries::each.
    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        for (u32 base = 0; base < columns; base += groups.count) {
            const u32 column = base + groups.group;
            VisibleKeys keys{0, 0, 0};
            if (groups.takes(column, columns)) keys = visible_keys(ids[column], b, window);
            each_key(scores + (u64{column} * b + keys.offset), keys, visit);
        }
    }

  private:
    template <class Visit>
    __device__ __forceinline__ void each_key(
        const f32* values, VisibleKeys keys, Visit visit
    ) const {
        constexpr int BATCH = 4;  // Loads in flight.
        const u32 end = groups.end_of_steps(keys.count);
        for (u32 base = 0; base < end; base += BATCH * groups.width) {
            f32 batch[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                const u32 at = base + i * groups.width + groups.thread;
                batch[i] = at < keys.count ? values[at] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                const u32 start = base + i * groups.width;
                if (start >= end) break;
                const u32 at = start + groups.thread;
                const u64 entry = format.pack(order_key(batch[i]), keys.position + at);
                visit(entry, at < keys.count);
            }
        }
    }
};

// What one walk over the block ids finds out.
struct ColumnFacts {
    u32 eligible;
    bool ascending;  // Ids ascend, and every -1 stands behind them.
};

__device__ __forceinline__ ColumnFacts column_facts(
    const i32* ids, i64 columns, i64 b, Window window
) {
    __shared__ u32 eligible;
    __shared__ u32 descents;
    if (threadIdx.x == 0) eligible = descents = 0;
    __syncthreads();
    u32 sum = 0;
    for (i64 column = threadIdx.x; column < columns; column += blockDim.x) {
        const i32 id = ids[column];
        sum += visible_keys(id, b, window).count;
        // Unsigned, -1 is the largest id.
        const u32 before = static_cast<u32>(column > 0 ? ids[column - 1] : 0);
        if (before > static_cast<u32>(id)) atomicAdd(&descents, 1u);
    }
    if (sum != 0) atomicAdd(&eligible, sum);
    __syncthreads();
    return {eligible, descents == 0};
}

// The column that holds `block`; `columns` where none does.
__device__ __forceinline__ i64 column_of(
    i32 block, const i32* ids, i64 columns, bool ascending
) {
    i64 from = 0;
    if (!ascending) {
        while (from < columns && ids[from] != block) ++from;
        return from;
    }
    i64 to = columns;
    while (from < to) {
        const i64 middle = (from + to) / 2;
        if (static_cast<u32>(ids[middle]) < static_cast<u32>(block)) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

__device__ __forceinline__ i32 slot_of(const TokenEntries& tokens, u64 entry, bool ascending) {
    const u32 key = static_cast<u32>(tokens.window.ks + tokens.format.position(entry));
    const i32 block = static_cast<i32>(key / tokens.b);
    const i64 column = column_of(block, tokens.ids, tokens.columns, ascending);
    return static_cast<i32>(column * tokens.b + key % tokens.b);
}

extern "C" __global__ void __launch_bounds__(256, 5) token_topk(
    const f32* token_scores, const i32* block_ids, const i32* ks, const i32* ke, i32* slots,
    i64 n, i64 b, i64 blocks, i64 topk, i32 capacity
) {
    const i64 row = blockIdx.x;
    u64* winners = reinterpret_cast<u64*>(dynamic_shared);
    i32* out = slots + row * topk;
    const Window window = load_window(ks, ke, row, n);
    const TokenEntries tokens{
        token_scores + row * blocks * b, block_ids + row * blocks, static_cast<u32>(blocks),
        static_cast<u32>(b), window, ColumnGroups(blocks, b),
        EntryFormat(window.length(), 32)
    };
    const ColumnFacts facts = column_facts(tokens.ids, blocks, b, window);
    const u32 want = static_cast<u32>(smaller(facts.eligible, smaller(topk, capacity)));
    best_first(tokens, facts.eligible, want, winners);
    for (u32 i = threadIdx.x; i < want; i += blockDim.x) {
        out[i] = slot_of(tokens, winners[i], facts.ascending);
    }
    fill_tail(out, want, topk);
}
