// Stage 7, token_topk (SPEC 7): the tokens to keep, as slots, best first, then -1.
// Position decides what is eligible, score decides the order; block ids may stand in any order.
//
// grid (M), block 512 (any multiple of 32 up to 512).
// Dynamic shared memory: 8 * capacity bytes, capacity a power of two >= min(topk, S), and behind
// them 4 * cached. Rows of at most `cached` slots are read once.
#include "common/token_entries.cuh"

extern __shared__ __align__(16) unsigned char dynamic_shared[];

constexpr u32 TOKEN_KEYS = 4;

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

extern "C" __global__ void __launch_bounds__(512, 3) token_topk(
    const f32* token_scores, const i32* block_ids, const i32* ks, const i32* ke, i32* slots,
    i64 n, i64 b, i64 blocks, i64 topk, i32 capacity, i32 cached
) {
    const i64 row = blockIdx.x;
    u64* winners = reinterpret_cast<u64*>(dynamic_shared);
    i32* out = slots + row * topk;
    const Window window = load_window(ks, ke, row, n);
    const i32* ids = block_ids + row * blocks;
    const ColumnFacts facts = column_facts(ids, blocks, b, window);
    const TokenPlaces places(ids, blocks, b, window, facts.ascending);
    const TokenEntries tokens(token_scores + row * blocks * b, places, window);
    const u32 room = static_cast<u32>(capacity);
    const u32 want = static_cast<u32>(smaller(facts.eligible, smaller(topk, capacity)));
    fill_tail(out, want, topk);
    if (want == 0) return;
    u32 gathered;
    if (blocks * b <= cached) {
        const CachedTokens copies(tokens, reinterpret_cast<u32*>(winners + room));
        gathered = gather_best<TOKEN_KEYS>(copies, facts.eligible, want, winners, room);
    } else {
        gathered = gather_best<TOKEN_KEYS>(tokens, facts.eligible, want, winners, room);
    }
    write_sorted<TOKEN_KEYS>(winners, gathered, want, [&](u32 place, u64 entry) {
        out[place] = static_cast<i32>(places.slot(places.format.position(entry)));
    });
}
