//! Just beyond what a kernel's tiles, counters and buffers hold: 32 lanes, a byte, 1024 threads,
//! 16 bits.

use super::sweeps::{dense, row_patch, values_of};
use super::{Generated, commented};
use crate::case::{Case, Shard, WindowSource};

pub(super) fn cases() -> Vec<Generated> {
    let mut cases = Vec::new();
    sequences(&mut cases);
    positions(&mut cases);
    shards(&mut cases);
    rows(&mut cases);
    block_tails(&mut cases);
    dims(&mut cases);
    columns(&mut cases);
    keys(&mut cases);
    huge_rows(&mut cases);
    cases
}

/// More sequences than a warp has lanes, a byte counts, or two of either.
fn sequences(cases: &mut Vec<Generated>) {
    for sequences in [33i64, 65, 129, 257] {
        let cu: Vec<i64> = (0..=sequences).map(|at| at + at / 2).collect();
        let mut case = Case::with_cu(&cu);
        (case.h, case.d, case.values) = (1, 8, values_of("real"));
        cases.push(commented(case, &[], format!("{sequences} sequences")));
    }
}

/// First positions and strides beyond a byte and beyond 16 bits.
fn positions(cases: &mut Vec<Generated>) {
    for (stride, first) in [(1, 256), (1, 65_536), (64, 65_536), (6, 100), (9, 0)] {
        let (first, keys) = (first as u32, first as usize / stride + 3);
        let source = WindowSource::Strided {
            q: vec![0, 4],
            k: Some(vec![0, keys.min(1100) as i64]),
            stride,
            first_positions: vec![first],
        };
        let mut case = Case::with_windows(4, keys.min(1100), source.into());
        (case.h, case.d, case.values) = (1, 8, values_of("real"));
        let comment = format!("stride {stride}, first query at position {first}");
        cases.push(commented(case, &[], comment));
    }
}

/// Numbers of ranks that are no powers of two, and many.
fn shards(cases: &mut Vec<Generated>) {
    for (rank, ranks) in [(3, 5), (4, 5), (5, 6), (7, 8), (16, 17)] {
        let tokens = 4 * ranks;
        let mut case = Case::with_cu(&[0, 7, tokens as i64]);
        case.windows.shard = Some(Shard { rank, ranks });
        (case.m, case.values) = (4, values_of("real"));
        cases.push(commented(case, &[], format!("rank {rank} of {ranks}")));
    }
}

fn rows(cases: &mut Vec<Generated>) {
    for m in [33, 65, 129, 257, 1025] {
        let mut case = dense(m, 9);
        (case.h, case.d) = (1, 8);
        cases.push(commented(case, &[], format!("{m} rows")));
    }
}

/// Last blocks of 33 keys and the like, and blocks of more keys than a byte counts.
fn block_tails(cases: &mut Vec<Generated>) {
    for (b, tail) in [
        (64, 33),
        (128, 33),
        (128, 65),
        (256, 129),
        (257, 256),
        (512, 257),
    ] {
        let mut case = dense(2, 2 * b + tail);
        (case.block_size, case.block_topk, case.topk_tokens) = (b, 3, b + 1);
        cases.push(commented(
            case,
            &[],
            format!("blocks of {b}, {tail} in the last"),
        ));
    }
}

fn dims(cases: &mut Vec<Generated>) {
    for (d, h) in [
        (192, 2),
        (257, 1),
        (384, 2),
        (512, 1),
        (576, 3),
        (16, 129),
        (16, 257),
    ] {
        let mut case = dense(2, 9);
        (case.d, case.h) = (d, h);
        cases.push(commented(case, &[], format!("D = {d}, H = {h}")));
    }
}

/// More blocks, kept blocks and kept tokens than threads of a thread block.
fn columns(cases: &mut Vec<Generated>) {
    for (n, m, topk) in [(300, 257, 33), (1100, 40, 40), (1100, 1060, 1025)] {
        for preset in ["real", "ties"] {
            let mut case = dense(2, n);
            (case.block_size, case.block_topk, case.topk_tokens) = (1, m, topk);
            (case.h, case.d, case.values) = (1, 8, values_of(preset));
            let comment = format!("m = {m} of {n} blocks, K = {topk}, {preset}");
            cases.push(commented(case, &[], comment));
        }
    }
}

/// Ids, slots and counts of equal scores beyond 15 and 16 bits.
fn keys(cases: &mut Vec<Generated>) {
    for (n, preset) in [(33_000, "real"), (65_700, "real"), (65_700, "allzero")] {
        let mut case = dense(1, n);
        (case.block_size, case.block_topk) = (128, n.div_ceil(128));
        (case.topk_tokens, case.h, case.d) = (512, 1, 8);
        case.values = values_of(preset);
        cases.push(commented(case, &[], format!("{n} keys, {preset}")));
    }
}

/// Rows for `quantize` at both ends of the f32 range, in all four ways to run it.
fn huge_rows(cases: &mut Vec<Generated>) {
    const BITS: [u32; 8] = [
        0x7F7F_FFFF,
        0xFF7F_FFFF,
        0x7B12_4925,
        0x7E80_0000,
        0x8000_0001,
        0x807F_FFFF,
        0x0080_0000,
        0x8000_0000,
    ];
    for seed in 0..4 {
        let mut case = dense(1, BITS.len());
        (case.values, case.seed) = (values_of("zeros"), seed);
        for (row, _) in BITS.iter().enumerate() {
            let put = |(d, &bits)| row_patch(row, d, bits);
            case.patches.extend(BITS[row..].iter().enumerate().map(put));
        }
        cases.push(commented(
            case,
            &[],
            "rows from the largest f32 to subnormals of either sign",
        ));
    }
}
