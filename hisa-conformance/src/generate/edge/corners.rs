//! Corners nobody has reported yet: every residue, both sides of every limit, every preset.

use super::sweeps::{dense, values_of};
use super::{Generated, commented};
use crate::case::{Case, Shard, WindowSource};
use crate::generate::programmed::Program;
use crate::generate::values::{PRESETS, Values};
use hisa_ref::{Rank, Window};

pub(super) fn cases() -> Vec<Generated> {
    let mut cases = Vec::new();
    every_window(&mut cases);
    kept_blocks(&mut cases);
    kept_tokens(&mut cases);
    limits(&mut cases);
    presets(&mut cases);
    sequences(&mut cases);
    strides(&mut cases);
    shards(&mut cases);
    programs(&mut cases);
    cases
}

/// All windows of up to 3B + 1 keys at once: starts and ends in every residue of B.
fn every_window(cases: &mut Vec<Generated>) {
    for b in 1..=5usize {
        for tail in [0, 1] {
            let n = (3 * b + tail) as i32;
            let pairs = (0..=n).flat_map(|ks| (ks..=n).map(move |ke| Window { ks, ke }));
            let mut case = Case::with_rows(pairs.collect(), n as usize);
            (case.block_size, case.topk_tokens, case.values) = (b, b + 1, values_of("real"));
            let comment = format!("every window over {n} keys in blocks of {b}");
            cases.push(commented(case, &[], comment));
        }
    }
}

/// m around Nb, and around 1 and 2, where the forced blocks take every place.
fn kept_blocks(cases: &mut Vec<Generated>) {
    for n in [20usize, 21, 4, 1] {
        let blocks = n.div_ceil(4);
        let mut kept = vec![1, 2, 3, blocks - 1, blocks, blocks + 1, 2 * blocks + 3];
        kept.sort_unstable();
        kept.dedup();
        for block_topk in kept.into_iter().filter(|&m| m > 0) {
            for preset in ["real", "ties"] {
                let mut case = dense(2, n);
                (case.block_topk, case.topk_tokens) = (block_topk, 6);
                case.values = values_of(preset);
                let comment = format!("m = {block_topk} of {blocks} blocks, {preset}");
                cases.push(commented(case, &[], comment));
            }
        }
    }
}

/// K around the window, around m*B, and 1.
fn kept_tokens(cases: &mut Vec<Generated>) {
    for topk_tokens in [1, 2, 7, 8, 9, 12, 13, 14, 16, 100] {
        for preset in ["real", "plateau"] {
            let mut case = dense(1, 16);
            case.windows = WindowSource::Rows(vec![Window { ks: 2, ke: 15 }]).into();
            (case.topk_tokens, case.values) = (topk_tokens, values_of(preset));
            let comment = format!("K = {topk_tokens} of 13 keys and 8 slots, {preset}");
            cases.push(commented(case, &[], comment));
        }
    }
}

/// Parameters far larger than the input, and windows of extreme numbers.
fn limits(cases: &mut Vec<Generated>) {
    for (b, m, topk) in [
        (1 << 20, 1, 8),
        (1, 1 << 16, 8),
        (64, 64, 1),
        (4, 2, 1 << 16),
    ] {
        let mut case = dense(2, 7);
        (case.block_size, case.block_topk, case.topk_tokens) = (b, m, topk);
        let comment = format!("B = {b}, m = {m}, K = {topk} over 7 keys");
        cases.push(commented(case, &[], comment));
    }
    let extremes = [
        (i32::MAX, 0),
        (i32::MAX, i32::MAX),
        (0, i32::MIN),
        (i32::MIN, i32::MIN),
        (-1, -1),
        (5, 5),
        (7, 3),
        (0, 5),
        (i32::MAX, i32::MIN),
        (100, 100),
    ];
    let rows = extremes.map(|(ks, ke)| Window { ks, ke }).to_vec();
    let mut case = Case::with_rows(rows, 5);
    case.values = values_of("real");
    cases.push(commented(
        case,
        &[],
        "empty rows of extreme numbers around one ordinary row",
    ));
}

/// Every preset over dense rows with a tail, and over a mix of windows; once ranked by f32.
fn presets(cases: &mut Vec<Generated>) {
    for (index, preset) in PRESETS.iter().enumerate() {
        let mixed = [(0, 45), (3, 30), (4, 8), (44, 45), (9, 9), (17, 43)];
        let mixed = mixed.map(|(ks, ke)| Window { ks, ke }).to_vec();
        for (b, rank, rows) in [
            (4, Rank::Bf16, vec![Window { ks: 0, ke: 45 }; 3]),
            (8, Rank::F32, mixed.clone()),
            (3, Rank::Bf16, mixed),
        ] {
            let mut case = Case::with_rows(rows, 45);
            (case.h, case.d, case.block_size) = (3, 16, b);
            (case.block_topk, case.topk_tokens) = (4, 10);
            (case.rank, case.values, case.seed) = (rank, preset.values(), index as u64);
            cases.push(commented(case, &[], preset.about));
        }
    }
}

/// Empty sequences at the start, in the middle, at the end, twice over; queries without keys and
/// keys without queries.
fn sequences(cases: &mut Vec<Generated>) {
    let packed: [&[i64]; 8] = [
        &[0],
        &[0, 0],
        &[0, 0, 0, 1, 2, 5],
        &[0, 4, 4, 4, 7, 9],
        &[0, 1, 2, 3, 4],
        &[0, 5, 5, 6],
        &[0, 9, 9],
        &[0, 3, 3, 8, 8, 8, 11],
    ];
    for cu in packed {
        let mut case = Case::with_cu(cu);
        case.values = values_of("real");
        cases.push(commented(case, &[], "packed sequences, some empty"));
    }
    let separate: [(&[i64], &[i64]); 8] = [
        (&[0, 3], &[0, 10]),
        (&[0, 10], &[0, 3]),
        (&[0, 0, 4], &[0, 6, 9]),
        (&[0, 4, 8], &[0, 0, 5]),
        (&[0, 2, 2, 4, 6], &[0, 5, 9, 9, 13]),
        (&[0, 1, 2, 3], &[0, 7, 8, 20]),
        (&[0, 0], &[0, 5]),
        (&[0, 5], &[0, 0]),
    ];
    for (q, k) in separate {
        let (m, n) = (q[q.len() - 1] as usize, k[k.len() - 1] as usize);
        let source = WindowSource::Separate {
            q: q.to_vec(),
            k: k.to_vec(),
        };
        let mut case = Case::with_windows(m, n, source.into());
        case.values = values_of("real");
        cases.push(commented(
            case,
            &[],
            "queries and keys with their own offsets",
        ));
    }
}

fn strides(cases: &mut Vec<Generated>) {
    for stride in [1, 2, 4, 7] {
        for positions in [vec![], vec![0, 9, 3]] {
            let q = vec![0, 5, 5, 13];
            let n = 5 / stride + 8 / stride;
            let source = WindowSource::Strided {
                q,
                k: None,
                stride,
                first_positions: positions,
            };
            let mut case = Case::with_windows(13, n, source.into());
            (case.block_size, case.values) = (2, values_of("real"));
            cases.push(commented(
                case,
                &[],
                format!("one key for {stride} positions"),
            ));
        }
    }
    let source = WindowSource::Strided {
        q: vec![0, 3, 8],
        k: Some(vec![0, 6, 7]),
        stride: 2,
        first_positions: vec![8, 0],
    };
    let mut case = Case::with_windows(8, 7, source.into());
    case.values = values_of("real");
    cases.push(commented(
        case,
        &[],
        "keys given beside a stride, more and fewer than it implies",
    ));
}

fn shards(cases: &mut Vec<Generated>) {
    for ranks in [1, 2, 3] {
        for rank in 0..ranks {
            let mut case = Case::with_cu(&[0, 5, 5, 12]);
            case.windows.shard = Some(Shard { rank, ranks });
            case.windows.padding_rows = rank;
            case.m = 12 / ranks + rank;
            case.values = values_of("real");
            let comment = format!("rank {rank} of {ranks}, {rank} padding rows");
            cases.push(commented(case, &[], comment));
        }
    }
}

/// Rows of scores at the places where selectors split their keys.
fn programs(cases: &mut Vec<Generated>) {
    let token_rows = [
        ("00000000+1x64", "subnormals in order"),
        ("007fffe0+1x64", "across the smallest normal"),
        ("3f7fffe0+1x64", "across 1.0, where the exponent changes"),
        ("7f7fffc0+1x64", "up to the largest f32"),
        ("7f7ffff0+1x17.00000000", "the largest, infinity, and zeros"),
        ("3f800000+100x64p", "differences in the second byte only"),
        ("3f800000+10000x64p", "differences in the upper half only"),
        ("3f800000+1r8x64p", "every value eight times"),
        ("3f800000", "one value throughout"),
        ("00000001u7f7fffffx64", "any positive value"),
    ];
    for (text, comment) in token_rows {
        for negative in [false, true] {
            let Ok(program) = Program::parse(text) else {
                continue;
            };
            let mut case = dense(1, 64);
            (case.block_size, case.block_topk, case.topk_tokens) = (8, 8, 20);
            case.values = Values::scores(program, negative);
            let sign = if negative { ", negated" } else { "" };
            cases.push(commented(
                case,
                &[],
                format!("token scores: {comment}{sign}"),
            ));
        }
    }
    let block_rows = [
        ("3f800000+8000x32p", "half units of bf16 apart"),
        ("3f807ffe+1x32p", "around a midpoint of bf16"),
        (
            "3f817ffe+1x32p",
            "around a midpoint of bf16 with odd neighbours below",
        ),
        ("3f800000x32", "all equal"),
        ("00000000x32", "all zero"),
        ("31800000u4be00000x32", "any value that can be programmed"),
    ];
    for (text, comment) in block_rows {
        for rank in [Rank::Bf16, Rank::F32] {
            let Ok(program) = Program::parse(text) else {
                continue;
            };
            let mut case = dense(2, 95);
            (case.block_size, case.block_topk, case.topk_tokens) = (3, 9, 20);
            (case.values, case.rank) = (Values::blocks(program), rank);
            cases.push(commented(case, &[], format!("block scores: {comment}")));
        }
    }
}
