// The portable scorer: SPEC S.1 in the arithmetic of mma.sync m16n8k16 over f16, which holds every
// e4m3 value. Its bits are those of hisa_ref::model, class hopper-hgmma-f16 (sm_90 and sm_100) or
// ampere-hmma-f16 (sm_80, sm_89), epilogue DeepGemmSm90 fused, scale outside, NaN kept (S.7).
//
// A CTA scores one row, blockIdx.x, against an equal share of its columns, blockIdx.y of gridDim.y.
// Keys are the 16 rows of a fragment, heads its 8 columns. The query waits in shared memory as
// fragments of f16; each warp takes a tile of keys at a time, whose codes arrive while the tile
// before is scored.
//
// blockDim.x is 128 or 256. Dynamic shared memory, in bytes, with T = ceil(h / 8), S the least of
// 2, 4, 8, 16 with 16 * S >= d, and F = 2 up to S = 8, else 1:
//     32 * T  +  256 * T * S  +  (blockDim.x / 32) * 2 * 16 * F * (16 * S + 16)
//     weights    query           two buffers of 16 * F keys for each warp
#pragma once

#include "common/ptx.cuh"
#include "common/slots.cuh"

constexpr int HEADS_PER_TILE = 8;
constexpr int CODES_PER_STEP = 16;

struct __align__(16) Codes16 {
    u32 words[4];
};

// Codes first, first + 1, ... of a vector of d codes, zeros behind its end.
__device__ __forceinline__ Codes16 load_chunk(const u8* codes, i32 first, i32 d, bool aligned) {
    if (aligned) {
        return *reinterpret_cast<const Codes16*>(codes + first);
    }
    Codes16 loaded = {};
#pragma unroll
    for (int i = 0; i < CODES_PER_STEP; ++i) {
        const u32 code = first + i < d ? codes[first + i] : 0;
        loaded.words[i / 4] |= code << i % 4 * 8;
    }
    return loaded;
}

// Whether every 16 codes of vectors of d codes from there on can be read at once.
__device__ __forceinline__ bool whole_chunks(const u8* codes, i32 d) {
    return d % CODES_PER_STEP == 0 && reinterpret_cast<u64>(codes) % 16 == 0;
}

// The keys that columns refer to: codes [keys, d] and a scale each.
struct ScoredKeys {
    const u8* codes;
    const f32* scale;
    i32 d;
    bool aligned;

    __device__ ScoredKeys(const u8* codes, const f32* scale, i32 d)
        : codes(codes), scale(scale), d(d), aligned(whole_chunks(codes, d)) {}
};

// The query row in shared memory: weights, then fragments in the order in which lanes read them.
template <int STEPS>
struct Query {
    f32* weights;  // [8 * tiles]
    u32* heads;    // [tiles][STEPS][lane][2]
    int tiles;

    __device__ Query(u8* shared, i32 h)
        : weights(reinterpret_cast<f32*>(shared)),
          tiles((h + HEADS_PER_TILE - 1) / HEADS_PER_TILE) {
        heads = reinterpret_cast<u32*>(weights + tiles * HEADS_PER_TILE);
    }

    __device__ u8* end() const { return reinterpret_cast<u8*>(heads + tiles * STEPS * WARP * 2); }

    // All threads of the CTA together; the caller waits for them.
    __device__ void load(const u8* q, const f32* w, i32 h, i32 d) {
        const bool aligned = whole_chunks(q, d);
        const int threads = static_cast<int>(blockDim.x);
        for (int head = threadIdx.x; head < tiles * HEADS_PER_TILE; head += threads) {
            // A missing head adds its weight times +0: only -0 leaves every sum as it is.
            weights[head] = head < h ? w[head] : -0.0f;
        }
        for (int item = threadIdx.x; item < tiles * HEADS_PER_TILE * STEPS; item += threads) {
            const int head = item / STEPS;
            const int step = item % STEPS;
            const int first = step * CODES_PER_STEP;
            Codes16 codes = {};
            if (head < h && first < d) {
                codes = load_chunk(q + static_cast<i64>(head) * d, first, d, aligned);
            }
            store(head, step, codes);
        }
    }

  private:
    // Lane 4 * (head % 8) + t reads the codes 2t, 2t + 1 and 2t + 8, 2t + 9.
    __device__ void store(int head, int step, const Codes16& codes) {
        const int place = (head / HEADS_PER_TILE * STEPS + step) * WARP + head % HEADS_PER_TILE * 4;
        Codes16* to = reinterpret_cast<Codes16*>(heads + place * 2);
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            const u32 low = codes.words[pair];
            const u32 high = codes.words[pair + 2];
            to[pair] = {e4m3x2_to_f16x2(static_cast<u16>(low)),
                        e4m3x2_to_f16x2(static_cast<u16>(high)),
                        e4m3x2_to_f16x2(static_cast<u16>(low >> 16)),
                        e4m3x2_to_f16x2(static_cast<u16>(high >> 16))};
        }
    }
};

// A tile of keys, one warp's work. Lane 4g + t answers for row 8t + g of it.
template <int STEPS>
struct Tile {
    // More fragments of D > 128 codes would not fit the registers.
    static constexpr int FRAGMENTS = STEPS <= 8 ? 2 : 1;
    static constexpr int KEYS = 16 * FRAGMENTS;
    // The pad spreads the eight rows that a warp reads at once over all banks.
    static constexpr int STRIDE = CODES_PER_STEP * STEPS + 16;
    static constexpr int BYTES = KEYS * STRIDE;

    i32 key;    // of this lane's row, or -1
    f32 scale;  // of that key
    bool any;   // whether a row of the tile has a key

    static __device__ u32 own_row() { return threadIdx.x % 4 * 8 + threadIdx.x % WARP / 4; }

    static __device__ bool owns() { return own_row() < KEYS; }

    // Starts the copies of the tile at column first + at and closes their group.
    template <class Columns>
    __device__ void fetch(const Columns& columns, const ScoredKeys& keys, i64 first, u32 at,
                          u32 length, u8* stage) {
        const u32 column = at + own_row();
        const bool there = owns() && column < length;
        key = there ? static_cast<i32>(columns.key(first + column)) : -1;
        scale = key >= 0 ? keys.scale[key] : 0.0f;
        any = __any_sync(FULL_WARP, key >= 0);
        if (any && keys.aligned) {
            copy<true>(keys, stage);
        } else if (any) {
            copy<false>(keys, stage);
        }
        copy_async_commit();
    }

    // The score of this lane's row. All lanes of the warp take part.
    __device__ f32 score(const Query<STEPS>& query, const u8* stage) const {
        u32 codes[FRAGMENTS][STEPS][4];
        read(codes, stage);
        f32 even[2 * FRAGMENTS] = {};
        f32 odd[2 * FRAGMENTS] = {};
        sum_heads(even, odd, codes, query);
        const int lane = threadIdx.x % WARP;
        f32 own = 0.0f;
#pragma unroll
        for (int part = 0; part < 2 * FRAGMENTS; ++part) {
            const f32 key_scale = __shfl_sync(FULL_WARP, scale, lane / 4 * 4 + part);
            f32 sum = __fmul_rn(__fadd_rn(even[part], odd[part]), key_scale);
            sum = __fadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, 1));
            sum = __fadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, 2));
            own = lane % 4 == part ? sum : own;
        }
        return own;
    }

  private:
    // Sixteen codes to a lane. Rows without a key and codes behind d are zeros.
    template <bool ALIGNED>
    __device__ void copy(const ScoredKeys& keys, u8* stage) const {
        constexpr int PASSES = KEYS * STEPS / WARP;
        constexpr int UNROLL = ALIGNED ? PASSES : 1;
#pragma unroll UNROLL
        for (int pass = 0; pass < PASSES; ++pass) {
            const int item = pass * WARP + threadIdx.x % WARP;
            const int row = item / STEPS;
            const i32 first = item % STEPS * CODES_PER_STEP;
            const i64 from = __shfl_sync(FULL_WARP, key, row % 8 * 4 + row / 8);
            const u8* codes = keys.codes + from * keys.d;
            Codes16* to = reinterpret_cast<Codes16*>(stage + row * STRIDE + first);
            if (from < 0 || first >= keys.d) {
                *to = {};
            } else if (ALIGNED) {
                copy_async_16(to, codes + first);
            } else {
                *to = load_chunk(codes, first, keys.d, false);
            }
        }
    }

    static __device__ void read(u32 (&codes)[FRAGMENTS][STEPS][4], const u8* stage) {
        const int lane = threadIdx.x % WARP;
        const u8* base = stage + lane / 4 * STRIDE + lane % 4 * 2;
#pragma unroll
        for (int fragment = 0; fragment < FRAGMENTS; ++fragment) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = fragment * 16 + i % 2 * 8;
                    const u8* at = base + row * STRIDE + step * CODES_PER_STEP + i / 2 * 8;
                    codes[fragment][step][i] = e4m3x2_to_f16x2(*reinterpret_cast<const u16*>(at));
                }
            }
        }
    }

    // Heads 8j + 2t and 8j + 2t + 1 for ascending j, into one sum each, for the rows g + 8 * part.
    static __device__ void sum_heads(f32 (&even)[2 * FRAGMENTS], f32 (&odd)[2 * FRAGMENTS],
                                     const u32 (&codes)[FRAGMENTS][STEPS][4],
                                     const Query<STEPS>& query) {
        const int lane = threadIdx.x % WARP;
        const f32* weights = query.weights + lane % 4 * 2;
        const u64* heads = reinterpret_cast<const u64*>(query.heads) + lane;
#pragma unroll 2
        for (int j = 0; j < query.tiles; ++j) {
            f32 dots[FRAGMENTS][4] = {};
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                const u64 pairs = heads[(j * STEPS + step) * WARP];
                const u32 head[2] = {static_cast<u32>(pairs), static_cast<u32>(pairs >> 32)};
#pragma unroll
                for (int fragment = 0; fragment < FRAGMENTS; ++fragment) {
                    mma_f16(dots[fragment], codes[fragment][step], head);
                }
            }
            const f32 first = weights[j * HEADS_PER_TILE];
            const f32 second = weights[j * HEADS_PER_TILE + 1];
#pragma unroll
            for (int part = 0; part < 2 * FRAGMENTS; ++part) {
                const f32* pair = &dots[part / 2][part % 2 * 2];
                even[part] = __fmaf_rn(relu(pair[0]), first, even[part]);
                odd[part] = __fmaf_rn(relu(pair[1]), second, odd[part]);
            }
        }
    }

    // Zeros become +0, and NaN stays: it is not at most 0.
    static __device__ f32 relu(f32 dot) { return dot <= 0.0f ? 0.0f : dot; }
};

template <int STEPS, class Columns>
__device__ void score_columns(const Columns& columns, const u8* q, const f32* weights,
                              const ScoredKeys& keys, f32* out, i32 h) {
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    using KeyTile = Tile<STEPS>;
    const i64 share = (columns.count() + gridDim.y - 1) / gridDim.y;
    const i64 span = (share + KeyTile::KEYS - 1) / KeyTile::KEYS * KeyTile::KEYS;
    const i64 first = blockIdx.y * span;
    const i64 end = smaller(first + span, columns.count());
    if (first >= end) {
        return;
    }
    if (!columns.any(first, end)) {
        for (i64 column = first + threadIdx.x; column < end; column += blockDim.x) {
            out[column] = neg_inf();
        }
        return;
    }
    Query<STEPS> query(dynamic_shared, h);
    query.load(q, weights, h, keys.d);
    __syncthreads();

    // Offsets from the first column: a row has fewer than 2^31.
    const u32 length = static_cast<u32>(end - first);
    const u32 warp = threadIdx.x / WARP;
    const u32 stride = blockDim.x / WARP * KeyTile::KEYS;
    u8* stage = query.end() + warp * 2 * KeyTile::BYTES;
    int buffer = 0;
    u32 at = warp * KeyTile::KEYS;
    KeyTile next;
    next.fetch(columns, keys, first, at, length, stage);
    for (; at < length; at += stride) {
        const KeyTile tile = next;
        const int other = buffer ^ 1;
        next.fetch(columns, keys, first, at + stride, length, stage + other * KeyTile::BYTES);
        copy_async_wait<1>();
        __syncwarp();
        const f32 score = tile.any ? tile.score(query, stage + buffer * KeyTile::BYTES) : 0.0f;
        const u32 column = at + KeyTile::own_row();
        if (KeyTile::owns() && column < length) {
            out[first + column] = tile.key >= 0 ? score : neg_inf();
        }
        // The next fetch overwrites what lanes were reading.
        __syncwarp();
        buffer = other;
    }
}

// Scores the columns of one row; q, weights and out point at it.
template <class Columns>
__device__ void score_mma(const Columns& columns, const u8* q, const f32* weights,
                          const ScoredKeys& keys, f32* out, i32 h) {
    // A step over zero codes returns its accumulator, so d may be filled up further than to 16.
    if (keys.d <= 32) {
        score_columns<2>(columns, q, weights, keys, out, h);
    } else if (keys.d <= 64) {
        score_columns<4>(columns, q, weights, keys, out, h);
    } else if (keys.d <= 128) {
        score_columns<8>(columns, q, weights, keys, out, h);
    } else {
        score_columns<16>(columns, q, weights, keys, out, h);
    }
}
