//! The table of faults, in the order data flows. No fault but `map-trap`, which is there for that,
//! loses the device: what is found then is the loss and not the fault.

use super::Fault;
use crate::op::Op;
use hisa_cuda::Scoring::{Exact, TensorCores};
use hisa_cuda::kernel::Unit;
use hisa_ref::Stage;

const QUANTIZE: Op = Op::Stage(Stage::Quantize);
const POOL: Op = Op::Stage(Stage::BlockPool);
const BLOCKS: Op = Op::Stage(Stage::BlockScores);
const MASK: Op = Op::Stage(Stage::BlockMask);
const BTOPK: Op = Op::Stage(Stage::BlockTopk);
const TOKENS: Op = Op::Stage(Stage::TokenScores);
const TTOPK: Op = Op::Stage(Stage::TokenTopk);
const MAP: Op = Op::Stage(Stage::IndexMap);

/// `"name" kind OP, "check" Unit Scoring "find" => "replace", "what the kernel does wrong";`
macro_rules! faults {
    ($($name:literal $kind:literal $op:expr, $caught_by:literal $unit:ident $scoring:ident
        $find:literal => $replace:literal, $about:literal;)*) => {
        &[$(Fault {
            name: $name,
            kind: $kind,
            op: $op,
            caught_by: $caught_by,
            about: $about,
            unit: Unit::$unit,
            scoring: $scoring,
            find: $find,
            replace: $replace,
        }),*]
    };
}

/// All faults.
pub const FAULTS: &[Fault] = faults! {
    "quantize-reciprocal" 12 QUANTIZE, "quantize.values" Quantize Exact
        "__ddiv_rn(value_of(values[i]), by)" => "__dmul_rn(value_of(values[i]), __frcp_rn(by))",
        "Multiplies by a rounded reciprocal of the scale.";
    "quantize-no-floor" 12 QUANTIZE, "quantize.values" Quantize Exact
        "u32 largest = AMAX_MIN_BITS;" => "u32 largest = 0;",
        "Leaves the floor of the largest magnitude out, so that rows of zeros divide by 0.";
    "quantize-truncate" 11 QUANTIZE, "quantize.values" Quantize Exact
        "(significand + (1ull << (drop - 1)) - 1 + odd) >> drop"
            => "(significand + 0 * odd) >> drop",
        "Encodes by dropping bits.";
    "quantize-half-up" 11 QUANTIZE, "quantize.values" Quantize Exact
        "- 1 + odd) >> drop" => "+ 0 * odd) >> drop",
        "Encodes ties away from zero.";
    "quantize-flush" 11 QUANTIZE, "quantize.values" Quantize Exact
        "if (drop > 53) return sign;" => "if (exponent < -6) return sign;",
        "Encodes what is below the normal codes as zero.";
    "quantize-floor-scale" 12 QUANTIZE, "quantize.values" Quantize Exact
        "(bits >> 23) + ((bits & 0x7fffffu) != 0)" => "bits >> 23",
        "Rounds power-of-two scales down.";
    "quantize-dims-128" 17 QUANTIZE, "quantize.values" Quantize Exact
        "for (i64 i = threadIdx.x; i < d; i += THREADS) {\n        largest"
            => "for (i64 i = threadIdx.x; i < min(d, i64{128}); i += THREADS) {\n        largest",
        "Looks for the largest magnitude among the first 128 dims.";
    "quantize-accumulates" 15 QUANTIZE, "quantize.stale" Quantize Exact
        "scale[row] = by;" => "scale[row] += by;",
        "Adds scales to what the output holds.";

    "pool-full-count" 7 POOL, "block_pool.values" BlockPool Exact
        "mean = mean_of(keys, total, thread);"
            => "mean = mean_of({k, k_scale, block * b, block * b + b, d}, total, thread);",
        "Divides the sum of a short last block by B.";
    "pool-no-floor" 12 POOL, "block_pool.values" BlockPool Exact
        "max(__float_as_uint(scale), SCALE_MIN_BITS)" => "__float_as_uint(scale)",
        "Leaves the floor of the scale out.";
    "pool-first-scale" 12 POOL, "block_pool.values" BlockPool Exact
        "keys.scales[key] : 0;" => "keys.scales[keys.start] : 0;",
        "Takes the scale of the first key of a block for all of them.";
    "pool-reciprocal-count" 14 POOL, "block_pool.values" BlockPool Exact
        "mean = __fadd_rn(least, 0.0f);"
            => "mean = __fmul_rn(__double2float_rn(high * unit), __frcp_rn(f32(count)));",
        "Multiplies the rounded sum by a reciprocal of the count in f32.";
    "pool-reciprocal-scale" 12 POOL, "block_pool.values" BlockPool Exact
        "encode(__ddiv_rn(mean, scale), false)"
            => "encode(__fmul_rn(mean, __frcp_rn(scale)), false)",
        "Multiplies by a rounded reciprocal of the scale.";
    "pool-nan-laundered" 3 POOL, "block_pool.values" BlockPool Exact
        "if (amax_bits > POS_INF_BITS) return canonical_nan();"
            => "if (amax_bits > POS_INF_BITS) amax_bits = POS_INF_BITS;",
        "Gives a block with NaN an infinite scale.";
    "pool-no-barrier" 16 POOL, "block_pool.values" BlockPool Exact
        "__syncthreads();\n    f32 mean = 0;" => "f32 mean = 0;",
        "Adds up the sums of other warps without waiting for them.";
    "pool-overrun" 17 POOL, "block_pool.guard" BlockPool Exact
        "if (thread == 0) pooled_scale[block] = scale;"
            => "if (thread <= (blockIdx.x + 1 == gridDim.x)) pooled_scale[block + thread] = scale;",
        "Writes one scale more than there are blocks.";

    "blocks-no-relu" 13 BLOCKS, "block_scores.scores" BlockScores TensorCores
        "return dot <= 0.0f ? 0.0f : dot;" => "return dot;",
        "Leaves negative dots in the head sum.";
    "blocks-exact-no-relu" 13 BLOCKS, "block_scores.scores" BlockScores Exact
        "const f64 clamped = dot < 0 ? 0 : dot;" => "const f64 clamped = dot;",
        "Leaves negative dots in the head sum of the exact scorer.";
    "blocks-head-tail" 17 BLOCKS, "block_scores.scores" BlockScores TensorCores
        "tiles((h + HEADS_PER_TILE - 1) / HEADS_PER_TILE)" => "tiles(h / HEADS_PER_TILE)",
        "Leaves out the heads beyond the last whole tile of eight.";
    "blocks-dim-tail" 17 BLOCKS, "block_scores.scores" BlockScores TensorCores
        "const u32 code = first + i < d ? codes[first + i] : 0;"
            => "const u32 code = codes[first + i];",
        "Fills the last step of 16 dims with the codes behind the row.";

    "mask-inclusive" 9 MASK, "block_mask.mask" BlockMask Exact
        "static_cast<u32>(window.ke - 1) / size" => "static_cast<u32>(window.ke) / size",
        "Takes ke as the last key of the window.";
    "mask-no-last" 4 MASK, "block_mask.mask" BlockMask Exact
        "block == blocks.first || block == blocks.last - 1" => "block == blocks.first",
        "Does not force the last block.";
    "mask-empty-forces" 8 MASK, "block_mask.mask" BlockMask Exact
        "if (window.ks >= window.ke) return {0, 0};"
            => "if (window.ks >= window.ke) return {0, 1};",
        "Forces a block of an empty window.";

    "btopk-ties-high" 2 BTOPK, "block_topk.selection" BlockTopk Exact
        "+ (limit - 1 - position);" => "+ position;",
        "Takes the later of two blocks of one score.";
    "btopk-truncate" 14 BTOPK, "block_topk.selection" BlockTopk Exact
        "order_key(round_bf16(score)) >> 16" => "order_key(score) >> 16",
        "Drops the lower half of scores instead of rounding to bf16.";
    "btopk-forced-by-score" 4 BTOPK, "block_topk.forced" BlockTopk Exact
        "if (position == last) return largest;" => "",
        "Lets an infinite score compete with the last block.";
    "btopk-stale-tail" 15 BTOPK, "block_topk.range" BlockTopk Exact
        "fill_tail(out, larger(count, 0), topk);" => "",
        "Leaves the columns behind the last block as they were.";

    "tokens-nan-dropped" 3 TOKENS, "token_scores.scores" TokenScores TensorCores
        "return dot <= 0.0f ? 0.0f : dot;" => "return dot > 0.0f ? dot : 0.0f;",
        "Makes a NaN dot zero.";
    "tokens-tile-scale" 12 TOKENS, "token_scores.scores" TokenScores TensorCores
        "__shfl_sync(FULL_WARP, scale, lane / 4 * 4 + part)" => "__shfl_sync(FULL_WARP, scale, 0)",
        "Takes the scale of the first key of a tile for all of them.";
    "tokens-offset-ignored" 9 TOKENS, "token_scores.mask" TokenScores TensorCores
        "ids[place] * b + (column - place * b);" => "ids[place] * b;",
        "Scores the first key of a block in all its slots.";
    "tokens-exact-undecided" 14 TOKENS, "token_scores.scores" TokenScores Exact
        "return least == most;" => "return true;",
        "Takes one end of the interval where it does not decide the rounding.";

    "ttopk-coarse-key" 1 TTOPK, "token_topk.selection" TokenTopk Exact
        "while (shift > 0) {" => "while (shift > 24) {",
        "Ends the search for the threshold two or three digits early.";
    "ttopk-ties-high" 2 TTOPK, "token_topk.selection" TokenTopk Exact
        "+ (limit - 1 - position);
    }
    __device__ __forceinline__ u32 low(u64 entry) const {
        return static_cast<u32>(entry) & ((1u << position_bits) - 1);
    }
    __device__ __forceinline__ u32 position(u64 entry) const { return limit - 1 - low(entry); }"
        => "+ position;
    }
    __device__ __forceinline__ u32 low(u64 entry) const {
        return static_cast<u32>(entry) & ((1u << position_bits) - 1);
    }
    __device__ __forceinline__ u32 position(u64 entry) const { return low(entry); }",
        "Takes the later of two keys of one score.";
    "ttopk-unsorted" 2 TTOPK, "token_topk.order" TokenTopk Exact
        "out[place] = static_cast<i32>(" => "out[want - 1 - place] = static_cast<i32>(",
        "Writes the best slot last.";
    "ttopk-nan-largest" 3 TTOPK, "token_topk.selection" TokenTopk Exact
        "return f32_is_nan(score) ? 0 : key;" => "return f32_is_nan(score) ? 0xfffffffeu : key;",
        "Ranks NaN first.";
    "ttopk-zeros-by-sign" 5 TTOPK, "token_topk.selection" TokenTopk Exact
        "if (bits << 1 == 0) bits = 0;" => "",
        "Ranks -0 after +0.";
    "ttopk-stale-tail" 15 TTOPK, "token_topk.unique" TokenTopk Exact
        "fill_tail(out, want, topk);" => "",
        "Leaves the columns behind the last slot as they were.";
    "ttopk-overrun" 17 TTOPK, "token_topk.guard" TokenTopk Exact
        "fill_tail(out, want, topk);" => "fill_tail(out, want, topk + 1);",
        "Writes a -1 behind every row.";

    "map-absolute" 9 MAP, "index_map.range" IndexMap Exact
        "static_cast<i32>(key - window.ks)" => "static_cast<i32>(key)",
        "Writes keys, not their places in the window.";
    "map-minus-one" 6 MAP, "index_map.range" IndexMap Exact
        "if (slot < 0) return -1;" => "if (slot < 0) return 0;",
        "Maps a missing slot to the first key.";
    "map-trap" 16 MAP, "index_map.runs" IndexMap Exact
        "if (slot < 0) return -1;" => "if (slot < 0) __trap();",
        "Stops the device at a missing slot, which it says only later.";
    "map-u16-row" 10 MAP, "index_map.values" IndexMap Exact
        "const i64 at = row * topk + column;"
            => "const i64 at = static_cast<u16>(row * topk) + column;",
        "Holds the offset of a row in 16 bits.";

    "append-from-zero" 9 Op::Append, "append.values" BlockPool Exact
        "const i64 block = first + blockIdx.x;" => "const i64 block = blockIdx.x;",
        "Pools as many blocks from the first one on as should be pooled at the end.";
    "hisa-accumulates" 15 Op::Hisa, "hisa.stale" TokenScores TensorCores
        "out[first + column] = tile.key >= 0" => "out[first + column] += tile.key >= 0",
        "Adds token scores to what the workspace holds.";

    "dsa-inclusive" 9 Op::Dsa, "dsa.mask" Dsa Exact
        "return ks <= key && key < ke;" => "return ks <= key && key <= ke;",
        "Takes ke as the last key of the window.";
    "dsa-unfused" 14 Op::Dsa, "dsa.scores" Dsa TensorCores
        "__fmaf_rn(relu(pair[0]), first, even[part])"
            => "__fadd_rn(even[part], __fmul_rn(relu(pair[0]), first))",
        "Rounds the products of even heads before it adds them.";
    "dsa-u16-row" 10 Op::Dsa, "dsa.selection" Dsa Exact
        "flat_scores + row * n + window.ks"
            => "flat_scores + static_cast<u16>(row * n) + window.ks",
        "Holds the offset of a row in 16 bits.";
    "sparse-whole-blocks" 9 Op::BlockSparse, "block_sparse.tail" BlockSparse Exact
        "const i64 start = larger(block, window.ks);" => "const i64 start = block;",
        "Starts at the first key of a block, not at that of the window.";
    "sparse-no-tail" 6 Op::BlockSparse, "block_sparse.range" BlockSparse Exact
        "fill_tail(out, written, blocks * b);" => "",
        "Leaves the columns behind the last key as they were.";
};
