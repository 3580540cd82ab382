//! The table of mutants: one planted fault each, and the check that finds it.

use super::Mutant;
use crate::op::Op;
use hisa_ref::Stage;

const WINDOWS: Op = Op::Windows;
const QUANTIZE: Op = Op::Stage(Stage::Quantize);
const POOL: Op = Op::Stage(Stage::BlockPool);
const BLOCKS: Op = Op::Stage(Stage::BlockScores);
const MASK: Op = Op::Stage(Stage::BlockMask);
const BTOPK: Op = Op::Stage(Stage::BlockTopk);
const TOKENS: Op = Op::Stage(Stage::TokenScores);
const TTOPK: Op = Op::Stage(Stage::TokenTopk);
const MAP: Op = Op::Stage(Stage::IndexMap);
const APPEND: Op = Op::Append;
const HISA: Op = Op::Hisa;
const DSA: Op = Op::Dsa;
const SPARSE: Op = Op::BlockSparse;

/// `Variant "name" kind OP, "check" [reports] "what the port does wrong";`
macro_rules! faults {
    ($($fault:ident $name:literal $kind:literal $op:expr,
       $caught_by:literal [$($report:literal)*] $about:literal;)*) => {
        /// One planted fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum Fault {
            /// None at all.
            None,
            $(#[doc = $about] $fault,)*
        }

        /// Every mutant, in the order data flows.
        pub const MUTANTS: &[Mutant] = &[$(Mutant {
            name: $name,
            kind: $kind,
            op: $op,
            caught_by: $caught_by,
            about: $about,
            reports: &[$($report),*],
            fault: Fault::$fault,
        },)*];
    };
}

faults! {
    WindowsDenseSequences "windows-dense-sequences" 8 WINDOWS, "windows.values" [50]
        "Counts sequences among those that have rows, and looks up all with that number.";
    WindowsLowerBound "windows-lower-bound" 9 WINDOWS, "windows.values" []
        "Searches offsets with < for <=: the first row of a sequence belongs to the one before.";
    WindowsKeExclusive "windows-ke-exclusive" 9 WINDOWS, "windows.values" []
        "A row does not see itself.";
    WindowsCeilStride "windows-ceil-stride" 9 WINDOWS, "windows.values" []
        "Counts a key that stands for several positions before all of them are there.";
    WindowsContiguousShards "windows-contiguous-shards" 9 WINDOWS, "windows.values" []
        "A rank takes two chunks in a row where it holds mirrored ones.";
    WindowsLocalRows "windows-local-rows" 9 WINDOWS, "windows.values" [61]
        "Numbers the rows of a rank from 0.";
    WindowsPaddingRepeats "windows-padding-repeats" 7 WINDOWS, "windows.values" []
        "Padding rows get the window of the last real row.";
    WindowsLengthsIgnored "windows-lengths-ignored" 9 WINDOWS, "windows.values" [59]
        "Takes queries and keys of a sequence to be equally many.";
    WindowsFirstPosition "windows-first-position" 9 WINDOWS, "windows.values" []
        "Takes the first query of every sequence to be at position 0.";
    WindowsBelowStart "windows-below-start" 8 WINDOWS, "windows.values" []
        "Lets the end of a window fall below its start where a sequence has fewer keys than rows.";
    WindowsKsFromQueries "windows-ks-from-queries" 9 WINDOWS, "windows.values" [24]
        "Starts windows at the offset of the queries.";
    WindowsNextSequence "windows-next-sequence" 9 WINDOWS, "windows.values" [24]
        "Does not stop a window at the end of its sequence.";
    WindowsHalfOffsets "windows-half-offsets" 10 WINDOWS, "windows.values" [70]
        "Reads 64-bit offsets as 32-bit ones, so that every second is 0.";
    WindowsEmptyTail "windows-empty-tail" 8 WINDOWS, "windows.runs" [51]
        "Refuses repeated offsets at the end.";

    QuantizeTruncate "quantize-truncate" 11 QUANTIZE, "quantize.values" []
        "Encodes by dropping bits.";
    QuantizeHalfUp "quantize-half-up" 11 QUANTIZE, "quantize.values" []
        "Encodes ties away from zero.";
    QuantizeViaF16 "quantize-via-f16" 11 QUANTIZE, "quantize.values" [75]
        "Encodes through half precision.";
    QuantizeF32Quotient "quantize-f32-quotient" 14 QUANTIZE, "quantize.values" [85]
        "Rounds the quotient to f32 before it encodes.";
    QuantizeReciprocal "quantize-reciprocal" 12 QUANTIZE, "quantize.values" [85]
        "Multiplies by 1/scale.";
    QuantizeInverse448 "quantize-inverse-448" 12 QUANTIZE, "quantize.values" [85]
        "Multiplies amax by 1/448.";
    QuantizeOverflowSwapped "quantize-overflow-swapped" 11 QUANTIZE, "quantize.values" [73]
        "Saturates where it should not, and the other way round.";
    QuantizeLaneOverflow "quantize-lane-overflow" 11 QUANTIZE, "quantize.values" [78]
        "Saturates in lane 3 of 4 whatever is asked for, and not in the others.";
    QuantizeNanToMax "quantize-nan-to-max" 11 QUANTIZE, "quantize.values" [21]
        "Clamps NaN to the lower bound, -448.";
    QuantizeNanInMax "quantize-nan-in-max" 3 QUANTIZE, "quantize.values" [21]
        "Takes amax by a maximum that drops NaN.";
    QuantizeFlush "quantize-flush" 11 QUANTIZE, "quantize.values" [76]
        "Flushes subnormal codes to zero.";
    QuantizeLog2 "quantize-log2" 12 QUANTIZE, "quantize.values" [82]
        "Finds the power of two by log2 in f32.";
    QuantizeFloorScale "quantize-floor-scale" 12 QUANTIZE, "quantize.values" [82]
        "Rounds the power of two down.";
    QuantizeOldScale "quantize-old-scale" 12 QUANTIZE, "quantize.values" []
        "Divides by the scale from before it became a power of two.";
    QuantizeNoFloor "quantize-no-floor" 12 QUANTIZE, "quantize.values" [79]
        "Has no least amax: a zero row is 0/0.";
    QuantizeDimTail "quantize-dim-tail" 17 QUANTIZE, "quantize.values" [46]
        "Looks for amax in whole vectors of 16 only.";
    QuantizeFirstScale "quantize-first-scale" 12 QUANTIZE, "quantize.values" []
        "Encodes every row by the scale of row 0.";

    PoolFullTile "pool-full-tile" 7 POOL, "block_pool.values" [42 23]
        "Loads B keys and multiplies those past N by zero.";
    PoolFullCount "pool-full-count" 7 POOL, "block_pool.values" [44]
        "Divides the last block by B.";
    PoolHalfFull "pool-half-full" 7 POOL, "block_pool.values" [44]
        "Counts a last block that is less than half full as full.";
    PoolDropTail "pool-drop-tail" 7 POOL, "block_pool.values" [46]
        "Pools floor(N/B) blocks.";
    PoolFirstScale "pool-first-scale" 12 POOL, "block_pool.values" []
        "Uses the scale of a block's first key for all of them.";
    PoolPerSequence "pool-per-sequence" 9 POOL, "block_pool.values" [57]
        "Starts blocks anew with each sequence.";
    PoolFp8Dequant "pool-fp8-dequant" 13 POOL, "block_pool.values" [89]
        "Rounds code * scale to e4m3 before it is summed.";
    PoolF32Sum "pool-f32-sum" 14 POOL, "block_pool.values" []
        "Sums in f32.";
    PoolReciprocalScale "pool-reciprocal-scale" 12 POOL, "block_pool.values" [85]
        "Multiplies means by 1/scale.";
    PoolInverse448 "pool-inverse-448" 12 POOL, "block_pool.values" [85]
        "Multiplies amax by 1/448.";
    PoolReciprocalCount "pool-reciprocal-count" 14 POOL, "block_pool.values" []
        "Multiplies the sum by 1/count.";
    PoolF32Quotient "pool-f32-quotient" 12 POOL, "block_pool.values" [85]
        "Rounds mean / scale to f32 before it encodes.";
    PoolNoFloor "pool-no-floor" 12 POOL, "block_pool.values" [79]
        "Has no least scale: a zero block is 0/0.";
    PoolNanInMax "pool-nan-in-max" 3 POOL, "block_pool.values" [21]
        "Takes amax by a maximum that drops NaN.";
    PoolNanLaundered "pool-nan-laundered" 11 POOL, "block_pool.values" [21]
        "Clamps NaN means to -448 and keeps the scale finite.";
    PoolSignedMax "pool-signed-max" 13 POOL, "block_pool.values" []
        "Takes the largest mean where the largest magnitude is asked for.";
    PoolU16Offset "pool-u16-offset" 10 POOL, "block_pool.values" [66]
        "Wraps block * B * D at 16 bits.";
    PoolPairs "pool-pairs" 17 POOL, "block_pool.values" [49]
        "Takes keys in pairs and drops an odd last one.";
    PoolBlockOfOne "pool-block-of-one" 17 POOL, "block_pool.values" [49]
        "Pools in tiles of B/2 keys: none where B is 1.";
    PoolDimTail "pool-dim-tail" 17 POOL, "block_pool.values" [46]
        "Writes codes in whole vectors of 16 only.";
    PoolAccumulates "pool-accumulates" 15 POOL, "block_pool.stale" []
        "Sums into the output, which it takes to be zero.";
    PoolGuardBefore "pool-guard-before" 17 POOL, "block_pool.guard" []
        "Writes an aligned vector that starts before the scales.";

    BlocksNoRelu "blocks-no-relu" 13 BLOCKS, "block_scores.scores" [87]
        "Lets negative dots count.";
    BlocksReluOfSum "blocks-relu-of-sum" 13 BLOCKS, "block_scores.scores" [87]
        "Clamps the sum over heads, not each head.";
    BlocksFmaxRelu "blocks-fmax-relu" 3 BLOCKS, "block_scores.scores" []
        "The ReLU of NaN is 0.";
    BlocksBf16Weights "blocks-bf16-weights" 14 BLOCKS, "block_scores.scores" [92]
        "Rounds weights to bf16.";
    BlocksF32Heads "blocks-f32-heads" 14 BLOCKS, "block_scores.scores" []
        "Sums heads in f32.";
    BlocksBf16Sum "blocks-bf16-sum" 14 BLOCKS, "block_scores.scores" []
        "Sums heads in bf16.";
    BlocksHopper "blocks-hopper" 14 BLOCKS, "block_scores.scores" [91]
        "Takes dots with the 13 fraction bits of a tensor core and declares them exact.";
    BlocksNoScale "blocks-no-scale" 12 BLOCKS, "block_scores.scores" []
        "Forgets the pooled scale.";
    BlocksFloorEnd "blocks-floor-end" 9 BLOCKS, "block_scores.stale" []
        "Scores blocks up to floor(ke/B): the last one is left out.";
    BlocksHeadTail "blocks-head-tail" 17 BLOCKS, "block_scores.scores" [101]
        "Drops the heads beyond a multiple of 8.";
    BlocksHeadTile "blocks-head-tile" 17 BLOCKS, "block_scores.scores" [101]
        "Holds 32 heads and ignores the rest.";
    BlocksSwizzle "blocks-swizzle" 17 BLOCKS, "block_scores.scores" [100]
        "Undoes a swizzle that only D = 128 has.";
    BlocksDimTail "blocks-dim-tail" 17 BLOCKS, "block_scores.scores" [46]
        "Drops the dimensions beyond a multiple of 16.";
    BlocksQueryTile "blocks-query-tile" 17 BLOCKS, "block_scores.scores" [49]
        "Handles 128/H rows at a time, none where H is above 128.";
    BlocksU16Row "blocks-u16-row" 10 BLOCKS, "block_scores.scores" [65]
        "Wraps row * Nb at 16 bits.";
    BlocksI16Query "blocks-i16-query" 10 BLOCKS, "block_scores.scores" [65]
        "Takes row * H * D as a signed 16-bit number.";
    BlocksAccumulates "blocks-accumulates" 15 BLOCKS, "block_scores.stale" []
        "Adds to the output, which it takes to be zero.";
    BlocksRace "blocks-race" 16 BLOCKS, "block_scores.repeat" [97]
        "Lacks a barrier: from the second launch on, head 0 may be missed.";

    MaskAdds "mask-adds" 3 MASK, "block_mask.mask" [23]
        "Adds -inf where it should put it, so that NaN survives.";
    MaskNoForce "mask-no-force" 4 MASK, "block_mask.mask" []
        "Forces no block.";
    MaskNoLast "mask-no-last" 4 MASK, "block_mask.mask" []
        "Does not force the last block.";
    MaskNoFirst "mask-no-first" 4 MASK, "block_mask.mask" []
        "Does not force the first block.";
    MaskEmptyForces "mask-empty-forces" 8 MASK, "block_mask.mask" [55]
        "Forces the blocks in which the ends of an empty window fall.";
    MaskFloorEnd "mask-floor-end" 9 MASK, "block_mask.mask" []
        "Does not round the end of the block window up.";
    MaskCeilStart "mask-ceil-start" 9 MASK, "block_mask.mask" []
        "Rounds the start of the block window up.";
    MaskInclusive "mask-inclusive" 9 MASK, "block_mask.mask" []
        "Takes ke for the last key of the window.";
    MaskSentinel "mask-sentinel" 4 MASK, "block_mask.mask" [24]
        "Masks with the least finite f32.";
    MaskLargeForce "mask-large-force" 4 MASK, "block_mask.mask" []
        "Forces with 1e9.";
    MaskU16Ceil "mask-u16-ceil" 10 MASK, "block_mask.mask" [72]
        "Lets ke + B - 1 overflow, here at 16 bits.";
    MaskNanToZero "mask-nan-to-zero" 3 MASK, "block_mask.values" []
        "Replaces NaN by 0 on the way.";

    BtopkTiesHigh "btopk-ties-high" 2 BTOPK, "block_topk.selection" [13]
        "Gives ties to the higher block.";
    BtopkTiesParity "btopk-ties-parity" 2 BTOPK, "block_topk.selection" [13]
        "Gives ties to odd blocks first, as two halves of a warp may.";
    BtopkNanLargest "btopk-nan-largest" 3 BTOPK, "block_topk.selection" [17]
        "Ranks NaN above everything.";
    BtopkNanZero "btopk-nan-zero" 3 BTOPK, "block_topk.selection" []
        "Ranks NaN as 0.";
    BtopkF32Rank "btopk-f32-rank" 14 BTOPK, "block_topk.selection" [13]
        "Ranks by f32 where bf16 is asked for.";
    BtopkTruncate "btopk-truncate" 14 BTOPK, "block_topk.selection" [93]
        "Makes bf16 by dropping bits.";
    BtopkForcedByScore "btopk-forced-by-score" 4 BTOPK, "block_topk.forced" [25 30]
        "Knows forced blocks by +inf: others that round to it, or a lower id, outrank them.";
    BtopkFirstBeforeLast "btopk-first-before-last" 4 BTOPK, "block_topk.forced" [30]
        "Keeps the first block where there is room for one.";
    BtopkInfDropped "btopk-inf-dropped" 4 BTOPK, "block_topk.forced" [25]
        "Leaves out scores of +inf.";
    BtopkNarrow "btopk-narrow" 6 BTOPK, "block_topk.shape" [34]
        "Returns Nb columns where m is more.";
    BtopkPadZero "btopk-pad-zero" 6 BTOPK, "block_topk.range" [36]
        "Pads with block 0.";
    BtopkPadCount "btopk-pad-count" 6 BTOPK, "block_topk.range" [38]
        "Pads with the number of blocks.";
    BtopkStaleTail "btopk-stale-tail" 15 BTOPK, "block_topk.range" [11]
        "Does not write the columns beyond the chosen blocks.";
    BtopkSignedKey "btopk-signed-key" 5 BTOPK, "block_topk.selection" []
        "Compares bits as signed integers: negative scores come in reverse order.";
    BtopkLastColumn "btopk-last-column" 7 BTOPK, "block_topk.forced" []
        "Stops one block before the last of all.";
    BtopkCapped "btopk-capped" 17 BTOPK, "block_topk.selection" [40]
        "Keeps at most 64 blocks.";
    BtopkI8Ids "btopk-i8-ids" 10 BTOPK, "block_topk.range" [70]
        "Carries ids through 8 bits.";

    TokensInclusive "tokens-inclusive" 9 TOKENS, "token_scores.mask" []
        "Takes ke for the last key of the window.";
    TokensNoStart "tokens-no-start" 9 TOKENS, "token_scores.mask" [24]
        "Does not look at the start of the window.";
    TokensPastEnd "tokens-past-end" 7 TOKENS, "token_scores.mask" [42 64]
        "Does not look at the end of the window, and so reads keys past N.";
    TokensAddMask "tokens-add-mask" 3 TOKENS, "token_scores.mask" [23]
        "Masks by adding -inf to the score of whatever lies there.";
    TokensSentinel "tokens-sentinel" 4 TOKENS, "token_scores.mask" [27]
        "Masks with -5e4.";
    TokensOffsetIgnored "tokens-offset-ignored" 9 TOKENS, "token_scores.scores" []
        "Scores the first key of a block in all its slots.";
    TokensLocalRow "tokens-local-row" 9 TOKENS, "token_scores.scores" [61]
        "Takes the number of a row within its tile for its number.";
    TokensColumnAsBlock "tokens-column-as-block" 9 TOKENS, "token_scores.scores" []
        "Scores block t in place of the block that column t names.";
    TokensMinusOne "tokens-minus-one" 6 TOKENS, "token_scores.mask" [37]
        "Takes -1 for block 0.";
    TokensFirstScale "tokens-first-scale" 12 TOKENS, "token_scores.scores" []
        "Uses the scale of a block's first key for all of them.";
    TokensSlotScale "tokens-slot-scale" 12 TOKENS, "token_scores.scores" []
        "Takes the scale by slot, not by key.";
    TokensU16Offset "tokens-u16-offset" 10 TOKENS, "token_scores.scores" [66]
        "Wraps key * D at 16 bits.";
    TokensU16Row "tokens-u16-row" 10 TOKENS, "token_scores.mask" [65]
        "Wraps row * S at 16 bits.";
    TokensStaleTail "tokens-stale-tail" 15 TOKENS, "token_scores.mask" [11]
        "Does not write the slots of columns without a block.";
    TokensPairs "tokens-pairs" 17 TOKENS, "token_scores.scores" [49]
        "Takes the keys of a block in pairs and masks an odd last one.";
    TokensTile "tokens-tile" 17 TOKENS, "token_scores.scores" [104]
        "Scores 128 keys of a block at most.";
    TokensNanToInf "tokens-nan-to-inf" 3 TOKENS, "token_scores.scores" []
        "Turns NaN scores into -inf.";
    TokensBlockNan "tokens-block-nan" 3 TOKENS, "token_scores.scores" [79]
        "One NaN key makes the scores of its whole block NaN.";
    TokensScaleInRelu "tokens-scale-in-relu" 13 TOKENS, "token_scores.scores" [88]
        "Multiplies each dot by the scale before the ReLU.";
    TokensRoundedSum "tokens-rounded-sum" 14 TOKENS, "token_scores.scores" []
        "Rounds the sum over heads to f32 before the scale.";
    TokensF16Dots "tokens-f16-dots" 14 TOKENS, "token_scores.scores" []
        "Holds dots in half precision.";
    TokensBf16Scores "tokens-bf16-scores" 14 TOKENS, "token_scores.scores" [13]
        "Rounds scores to bf16.";
    TokensDecode480 "tokens-decode-480" 11 TOKENS, "token_scores.scores" [76]
        "Decodes 0x7F as 480.";
    TokensDecodeFlush "tokens-decode-flush" 11 TOKENS, "token_scores.scores" [76]
        "Decodes subnormal codes as 0.";
    TokensNanSkipped "tokens-nan-skipped" 3 TOKENS, "token_scores.scores" []
        "Leaves NaN products out of a dot.";
    TokensFlush "tokens-flush" 14 TOKENS, "token_scores.scores" []
        "Flushes subnormal scores to zero.";

    TtopkBuffer4096 "ttopk-buffer-4096" 1 TTOPK, "token_topk.selection" [2 5]
        "Keeps 4096 candidates of the threshold bin and drops the others.";
    TtopkBuffer32 "ttopk-buffer-32" 1 TTOPK, "token_topk.selection" [2 5]
        "The same with 32 candidates.";
    TtopkCoarseKey "ttopk-coarse-key" 1 TTOPK, "token_topk.selection" [1 7]
        "Orders the threshold bin by the upper 16 bits of the scores.";
    TtopkBinEdge "ttopk-bin-edge" 1 TTOPK, "token_topk.count" [8]
        "Finds no threshold bin where the number above its edge is K, and takes the topmost.";
    TtopkTiesHigh "ttopk-ties-high" 2 TTOPK, "token_topk.selection" [10]
        "Gives ties to the higher key.";
    TtopkTiesParity "ttopk-ties-parity" 2 TTOPK, "token_topk.selection" [12]
        "Gives ties to odd keys first.";
    TtopkTieBuffer "ttopk-tie-buffer" 2 TTOPK, "token_topk.tail" [10]
        "Has room for four ties at the threshold; the others leave -1 among the ids.";
    TtopkUnsorted "ttopk-unsorted" 2 TTOPK, "token_topk.order" [15]
        "Returns the right slots in ascending order.";
    TtopkNanLargest "ttopk-nan-largest" 3 TTOPK, "token_topk.selection" [17]
        "Ranks NaN above everything.";
    TtopkNanZero "ttopk-nan-zero" 3 TTOPK, "token_topk.order" []
        "Ranks NaN as 0.";
    TtopkNanLength "ttopk-nan-length" 3 TTOPK, "token_topk.range" [20]
        "Returns the number of slots in place of a NaN.";
    TtopkNanMax "ttopk-nan-max" 3 TTOPK, "token_topk.range" [18]
        "Returns INT_MAX for a row of nothing but NaN.";
    TtopkNanDropped "ttopk-nan-dropped" 3 TTOPK, "token_topk.count" [18]
        "Leaves NaN out.";
    TtopkScoreValidity "ttopk-score-validity" 4 TTOPK, "token_topk.count" [28]
        "Takes a score of -inf for padding.";
    TtopkBelowSentinel "ttopk-below-sentinel" 4 TTOPK, "token_topk.count" [27]
        "Takes a score below -5e4 for padding.";
    TtopkMaskedLanes "ttopk-masked-lanes" 4 TTOPK, "token_topk.count" [24]
        "Gives lanes outside the window -FLT_MAX, which outranks -inf.";
    TtopkZerosBySign "ttopk-zeros-by-sign" 5 TTOPK, "token_topk.selection" [32 33]
        "Orders -0 below +0.";
    TtopkTotalOrder "ttopk-total-order" 5 TTOPK, "token_topk.selection" [32]
        "Orders bits, so that a NaN stands above +inf or below -inf by its sign.";
    TtopkPadFirst "ttopk-pad-first" 6 TTOPK, "token_topk.tail" []
        "Puts the padding before the ids.";
    TtopkPadZero "ttopk-pad-zero" 6 TTOPK, "token_topk.unique" [36]
        "Picks slot 0 again where candidates run out.";
    TtopkNarrow "ttopk-narrow" 6 TTOPK, "token_topk.shape" [34]
        "Returns S columns where K is more.";
    TtopkHardK "ttopk-hard-k" 17 TTOPK, "token_topk.count" [40]
        "Keeps at most 2048 tokens.";
    TtopkSkipsLast "ttopk-skips-last" 7 TTOPK, "token_topk.count" [41]
        "Looks at whole vectors of four slots only.";
    TtopkBf16 "ttopk-bf16" 14 TTOPK, "token_topk.selection" [13]
        "Ranks scores rounded to bf16.";
    TtopkHistogram "ttopk-histogram" 15 TTOPK, "token_topk.stale" []
        "Relies on a workspace of zeros for its histogram.";
    TtopkStaleTail "ttopk-stale-tail" 15 TTOPK, "token_topk.unique" [11]
        "Does not write the columns beyond the chosen slots.";
    TtopkEmptyStale "ttopk-empty-stale" 15 TTOPK, "token_topk.unique" [45]
        "Returns early from an empty row and writes nothing.";
    TtopkU16Row "ttopk-u16-row" 10 TTOPK, "token_topk.unique" [65]
        "Wraps row * K at 16 bits.";
    TtopkRace "ttopk-race" 16 TTOPK, "token_topk.repeat" [12 97]
        "Breaks ties by arrival: from the second launch on they come in another order.";
    TtopkPanicNan "ttopk-panic-nan" 16 TTOPK, "token_topk.runs" [112]
        "Panics where a comparison meets NaN.";
    TtopkPanicEmpty "ttopk-panic-empty" 16 TTOPK, "token_topk.runs" [45]
        "Takes the best of an empty row.";
    TtopkAbort "ttopk-abort" 16 TTOPK, "token_topk.runs" [45 107]
        "Aborts the process on an empty row.";
    TtopkHang "ttopk-hang" 16 TTOPK, "token_topk.runs" [97]
        "Waits for ever for the K-th candidate of a row that has fewer.";
    TtopkOverrun "ttopk-overrun" 17 TTOPK, "token_topk.guard" [46 48]
        "Writes rows in vectors of four, beyond the last.";

    MapAbsolute "map-absolute" 9 MAP, "index_map.range" [59]
        "Does not subtract ks.";
    MapBlockRelative "map-block-relative" 9 MAP, "index_map.range" []
        "Subtracts the start of the block in which the window starts.";
    MapMinusOne "map-minus-one" 6 MAP, "index_map.range" [37]
        "Maps -1 like a slot.";
    MapRowZero "map-row-zero" 9 MAP, "index_map.range" []
        "Subtracts ks of row 0 in all rows.";
    MapOffsetIgnored "map-offset-ignored" 9 MAP, "index_map.values" []
        "Returns the first key of the block for all its slots.";
    MapNarrow "map-narrow" 6 MAP, "index_map.shape" [34]
        "Leaves out columns that no row fills.";
    MapPadLength "map-pad-length" 6 MAP, "index_map.range" [38]
        "Pads with the length of the window.";
    MapVectorTail "map-vector-tail" 17 MAP, "index_map.range" [46]
        "Maps whole vectors of four columns only.";
    MapU16Row "map-u16-row" 10 MAP, "index_map.values" [65]
        "Wraps row * K at 16 bits.";
    MapInPlace "map-in-place" 13 MAP, "index_map.inputs" []
        "Maps slots in place, in the input.";

    AppendTailKept "append-tail-kept" 15 APPEND, "append.values" []
        "Does not pool the unfinished last block again.";
    AppendNoRollBack "append-no-roll-back" 15 APPEND, "append.values" []
        "Ignores a roll-back: keeps the keys it should drop, and skips those in their places.";
    AppendLocalKeys "append-local-keys" 9 APPEND, "append.values" []
        "Counts the scales of a piece from 0.";
    AppendPieceCount "append-piece-count" 7 APPEND, "append.values" [44]
        "Divides by the keys the piece adds to a block.";
    AppendEmptyPiece "append-empty-piece" 8 APPEND, "append.runs" [54]
        "Panics on an empty piece.";

    HisaWindowCache "hisa-window-cache" 15 HISA, "hisa.rows" [96]
        "Keeps windows between calls and knows them by their number alone.";
    HisaBlockCache "hisa-block-cache" 15 HISA, "hisa.split" [96]
        "Keeps the chosen blocks between calls of equal sizes.";
    HisaPoolCache "hisa-pool-cache" 15 HISA, "hisa.negate" []
        "Pools keys once and keeps the blocks for all calls of equal sizes.";
    HisaNeighbourBlocks "hisa-neighbour-blocks" 9 HISA, "hisa.count" [24]
        "Maps slots by the blocks of the row before.";
    HisaRowZeroWindow "hisa-row-zero-window" 9 HISA, "hisa.count" []
        "Uses the window of row 0 for every row.";
    HisaLocalRow "hisa-local-row" 9 HISA, "hisa.order" [61]
        "Numbers rows within batches of two in the token stage.";
    HisaUnsorted "hisa-unsorted" 2 HISA, "hisa.nest" [15]
        "Returns the right ids in ascending order.";
    HisaPooledScales "hisa-pooled-scales" 9 HISA, "hisa.selection" []
        "Scores tokens with the scales of the pooled keys.";
    HisaShortcut "hisa-shortcut" 6 HISA, "hisa.order" [41]
        "Returns the first K keys of a window that has room in the chosen blocks.";

    DsaInclusive "dsa-inclusive" 9 DSA, "dsa.mask" []
        "Takes ke for the last key of the window.";
    DsaFromZero "dsa-from-zero" 9 DSA, "dsa.mask" [59]
        "Scores the first ke - ks columns, wherever the window starts.";
    DsaAbsolute "dsa-absolute" 9 DSA, "dsa.range" [59]
        "Returns absolute keys.";
    DsaU16Row "dsa-u16-row" 10 DSA, "dsa.mask" [67]
        "Wraps row * N at 16 bits.";
    DsaStaleRow "dsa-stale-row" 15 DSA, "dsa.mask" [45]
        "Writes no scores for an empty row.";
    DsaBf16 "dsa-bf16" 14 DSA, "dsa.scores" []
        "Rounds scores to bf16.";

    SparseCut "sparse-cut" 6 SPARSE, "block_sparse.selection" []
        "Cuts the ids to K.";
    SparseFloor "sparse-floor" 6 SPARSE, "block_sparse.shape" []
        "Keeps floor(K/B) blocks.";
    SparseBlockTopk "sparse-block-topk" 6 SPARSE, "block_sparse.shape" []
        "Keeps block_topk blocks.";
    SparseWholeBlocks "sparse-whole-blocks" 9 SPARSE, "block_sparse.range" []
        "Returns all keys of a block that the window cuts.";
    SparseHoles "sparse-holes" 6 SPARSE, "block_sparse.tail" []
        "Leaves -1 where a key of a block is outside the window.";
}
