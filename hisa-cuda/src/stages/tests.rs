//! What every launch refuses before it looks at a device.

use super::*;
use crate::error::Error;
use crate::shape::Blocks;
use crate::slice::DeviceSliceMut;
use hisa_ref::Overflow;
use hisa_ref::Rank;
use hisa_ref::params::INDEX_MAX;
use hisa_ref::stages::quantize::ScaleFormat;

const LEN: usize = 64;

fn read<T>() -> DeviceSlice<'static, T> {
    // SAFETY: the address is never followed.
    unsafe { DeviceSlice::from_raw(256, LEN) }
}

fn write<T>() -> DeviceSliceMut<'static, T> {
    // SAFETY: as above.
    unsafe { DeviceSliceMut::from_raw(256, LEN) }
}

fn windows() -> WindowSlices<'static> {
    WindowSlices {
        ks: read(),
        ke: read(),
    }
}

fn keys() -> KeySlices<'static> {
    KeySlices {
        codes: read(),
        scales: read(),
    }
}

fn queries() -> QuerySlices<'static> {
    QuerySlices {
        q: read(),
        weights: read(),
    }
}

fn sizes(rows: usize, keys: usize) -> Sizes {
    Sizes {
        rows,
        keys,
        heads: 4,
        head_dim: 4,
    }
}

fn quantize(rows: usize, head_dim: usize) -> Result<()> {
    let args = quantize::Args {
        x: quantize::RowSlice::F32(read()),
        rows,
        head_dim,
        format: ScaleFormat::F32,
        overflow: Overflow::Saturating,
        codes: write(),
        scale: write(),
    };
    quantize::arguments(&args).map(drop)
}

fn pool(len: usize, head_dim: usize) -> Result<()> {
    let args = block_pool::Args {
        keys: keys(),
        len,
        head_dim,
        block_size: 2,
        first_block: 0,
        pooled_k: write(),
        pooled_scale: write(),
    };
    block_pool::arguments(&args).map(drop)
}

fn block_scores(rows: usize, keys_: usize) -> Result<()> {
    let args = block_scores::Args {
        queries: queries(),
        pooled: keys(),
        windows: windows(),
        sizes: sizes(rows, keys_),
        block_size: 2,
        scoring: Scoring::Exact,
        scores: write(),
    };
    block_scores::arguments(&args).map(drop)
}

fn block_mask(rows: usize, keys: usize) -> Result<()> {
    let args = block_mask::Args {
        scores: write(),
        windows: windows(),
        rows,
        keys,
        block_size: 2,
    };
    block_mask::arguments(&args).map(drop)
}

fn block_topk(rows: usize, keys: usize) -> Result<()> {
    let args = block_topk::Args {
        masked: read(),
        windows: windows(),
        rows,
        keys,
        blocks: Blocks::new(2, 2)?,
        rank: Rank::Bf16,
        block_ids: write(),
    };
    block_topk::arguments(&args).map(drop)
}

fn token_scores(rows: usize, keys_: usize) -> Result<()> {
    let args = token_scores::Args {
        queries: queries(),
        keys: keys(),
        block_ids: read(),
        windows: windows(),
        sizes: sizes(rows, keys_),
        blocks: Blocks::new(2, 2)?,
        scoring: Scoring::Exact,
        scores: write(),
    };
    token_scores::arguments(&args).map(drop)
}

fn token_topk(rows: usize, keys: usize, topk: usize) -> Result<()> {
    let args = token_topk::Args {
        token_scores: read(),
        block_ids: read(),
        windows: windows(),
        rows,
        keys,
        blocks: Blocks::new(2, 2)?,
        topk,
        slots: write(),
    };
    token_topk::arguments(&args).map(drop)
}

fn index_map(rows: usize, keys: usize, topk: usize) -> Result<()> {
    let args = index_map::Args {
        slots: read(),
        block_ids: read(),
        windows: windows(),
        rows,
        keys,
        blocks: Blocks::new(2, 2)?,
        topk,
        indices: write(),
    };
    index_map::arguments(&args).map(drop)
}

/// A stage as a function of two of its sizes.
type Stage = fn(usize, usize) -> Result<()>;

/// Every stage, with the names of the two.
const STAGES: [(&str, Stage, [&str; 2]); 8] = [
    ("quantize", quantize, ["rows", "D"]),
    ("block_pool", pool, ["N", "D"]),
    ("block_scores", block_scores, ["M", "N"]),
    ("block_mask", block_mask, ["M", "N"]),
    ("block_topk", block_topk, ["M", "N"]),
    ("token_scores", token_scores, ["M", "N"]),
    (
        "token_topk",
        |rows, keys| token_topk(rows, keys, 4),
        ["M", "N"],
    ),
    (
        "index_map",
        |rows, keys| index_map(rows, keys, 4),
        ["M", "N"],
    ),
];

/// Sizes one past a limit, at which 32 bits wrap to something small, and at which products wrap.
const TOO_LARGE: [usize; 4] = [INDEX_MAX + 1, (1 << 32) + 1, 1 << 63, usize::MAX];

#[track_caller]
fn assert_unsupported(result: &Result<()>, expected: (&str, usize), what: &str) {
    match *result {
        Err(Error::Unsupported { name, value, .. }) => {
            assert_eq!((name, value), expected, "{what}");
        }
        ref other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn sizes_past_int32_are_refused_by_name_by_every_stage() {
    for (what, stage, [first, second]) in STAGES {
        assert_eq!(stage(4, 4), Ok(()), "{what}");
        for value in TOO_LARGE {
            assert_unsupported(&stage(value, 4), (first, value), what);
            assert_unsupported(&stage(4, value), (second, value), what);
        }
    }
}

#[test]
fn the_largest_sizes_are_measured_without_wrapping() {
    for (what, stage, names) in STAGES {
        let largest = if what == "block_pool" { 256 } else { INDEX_MAX };
        let refused = stage(INDEX_MAX, largest);
        let short = matches!(refused, Err(Error::Length { len: LEN, .. }));
        assert!(short, "{what} {names:?}: {refused:?}");
    }
}

#[test]
fn kept_tokens_past_their_limit_are_refused() {
    for value in TOO_LARGE {
        let expected = ("topk_tokens", value);
        assert_unsupported(&index_map(4, 4, value), expected, "index_map");
        assert_unsupported(&token_topk(4, 4, value), expected, "token_topk");
    }
    assert_unsupported(&token_topk(4, 4, 8193), ("topk_tokens", 8193), "token_topk");
    assert!(matches!(token_topk(4, 4, 0), Err(Error::Input(_))));
}
