//! Reports whose trigger is a whole list: one case for every size in it.

use super::{Generated, commented};
use crate::case::{Case, Patch, Target};
use crate::generate::values::{
    CodeKind, Codes, PRESETS, RowKind, ScaleKind, Scales, Values, WeightKind, preset,
};
use hisa_ref::{E4M3, Window};

pub(super) fn cases() -> Vec<Generated> {
    let mut cases = Vec::new();
    kept_tokens(&mut cases);
    tails(&mut cases);
    odd_rows(&mut cases);
    query_tiles(&mut cases);
    dims_and_heads(&mut cases);
    block_sizes(&mut cases);
    cases.push(decode());
    cases.push(overflow());
    cases.push(midpoints());
    cases.push(power_of_two_scales());
    cases.push(next_powers_of_two());
    cases
}

/// `m` rows that see all of `n` keys, with realistic values.
pub(super) fn dense(m: usize, n: usize) -> Case {
    let window = Window {
        ks: 0,
        ke: n as i32,
    };
    let mut case = Case::with_rows(vec![window; m], n);
    case.d = 16;
    case.values = values_of("real");
    case
}

/// The values of a preset; of the first one if there is none of that name.
pub(super) fn values_of(name: &str) -> Values {
    preset(name).unwrap_or(&PRESETS[0]).values()
}

fn kept_tokens(cases: &mut Vec<Generated>) {
    for topk in [1, 51, 64, 2047, 2048, 2051, 4096] {
        let mut case = dense(2, 4200);
        (case.h, case.block_size, case.block_topk, case.topk_tokens) = (2, 64, 66, topk);
        cases.push(commented(
            case,
            &[40],
            format!("K = {topk} of 4200 keys; results nest"),
        ));
    }
}

fn tails(cases: &mut Vec<Generated>) {
    for b in [2, 3, 8, 16] {
        for tail in 0..b {
            let mut case = dense(2, 2 * b + tail);
            (case.block_size, case.block_topk, case.topk_tokens) = (b, 3, 3 * b);
            cases.push(commented(
                case,
                &[44],
                format!("blocks of {b}, {tail} in the last"),
            ));
        }
    }
}

fn odd_rows(cases: &mut Vec<Generated>) {
    for m in [1, 3] {
        let mut case = dense(m, 14);
        (case.block_size, case.block_topk, case.topk_tokens) = (3, 4, 5);
        cases.push(commented(
            case,
            &[48],
            format!("{m} rows of 5 blocks and 12 slots"),
        ));
    }
}

fn query_tiles(cases: &mut Vec<Generated>) {
    for (h, rows) in [(32, [1, 2, 3, 5].as_slice()), (48, &[3]), (256, &[2])] {
        for &m in rows {
            let mut case = dense(m, 9);
            case.h = h;
            cases.push(commented(case, &[49], format!("{m} rows of {h} heads")));
        }
    }
    for b in [1, 3, 7] {
        let mut case = dense(2, 3 * b + 1);
        (case.block_size, case.topk_tokens) = (b, 2 * b);
        cases.push(commented(case, &[49, 104], format!("blocks of {b}")));
    }
}

fn dims_and_heads(cases: &mut Vec<Generated>) {
    for d in [1, 3, 16, 24, 32, 64, 96, 128, 256] {
        for h in [1, 2, 3, 8, 16, 31, 32, 33, 64, 128] {
            let mut case = dense(2, 9);
            (case.d, case.h, case.seed) = (d, h, (d * 1000 + h) as u64);
            cases.push(commented(case, &[100, 101], format!("D = {d}, H = {h}")));
        }
    }
    for added in [0, 1] {
        let mut case = dense(2, 9);
        case.h = 3 + added;
        let last = Patch {
            target: Target::W,
            index: [None, Some(3), None],
            bits: 0,
        };
        case.patches.extend((added == 1).then_some(last));
        let comment = format!("{added} heads of weight zero added: the ids stay");
        cases.push(commented(case, &[101], comment));
    }
}

fn block_sizes(cases: &mut Vec<Generated>) {
    for b in [2, 5, 48, 100, 192] {
        let mut case = dense(2, 4 * b + b / 2);
        (case.block_size, case.block_topk, case.topk_tokens) = (b, 3, 2 * b);
        cases.push(commented(case, &[104], format!("blocks of {b}")));
    }
}

/// No values but those of patches.
fn blank(m: usize, n: usize) -> Case {
    let mut case = dense(m, n);
    case.values = Values {
        q: CodeKind::E0,
        k: Codes::Kind(CodeKind::Zero),
        s: Scales::Kind(ScaleKind::One),
        w: WeightKind::First,
        x: RowKind::Zeros,
    };
    case
}

fn decode() -> Generated {
    let mut case = blank(1, 256);
    (case.block_size, case.block_topk, case.topk_tokens) = (16, 16, 256);
    case.patches.extend((0..256).map(|code| Patch {
        target: Target::K,
        index: [Some(code), Some(0), None],
        bits: code,
    }));
    commented(
        case,
        &[76],
        "key n holds code n: scores are the decoded values, or 0 below zero",
    )
}

pub(super) fn row_patch(row: usize, d: usize, bits: u32) -> Patch {
    Patch {
        target: Target::X,
        index: [Some(row as u32), Some(d as u32), None],
        bits,
    }
}

/// A row of scale 1. Nothing above 448 can occur in a row, because its scale follows amax; the
/// codes beyond are left to tests of `encode`.
fn overflow() -> Generated {
    let magnitudes = [
        0x43E0_0000,
        0x43DF_FFFF,
        0x43D8_0000,
        0x43D7_FFFF,
        0x43D8_0001,
    ];
    let mut case = blank(1, 1);
    for (d, bits) in magnitudes.into_iter().enumerate() {
        case.patches.push(row_patch(0, 2 * d, bits));
        case.patches
            .push(row_patch(0, 2 * d + 1, bits | 0x8000_0000));
    }
    commented(
        case,
        &[73],
        "448 and the last midpoint before it, one unit to either side",
    )
}

/// Three rows of scale 1: every midpoint of two neighbouring codes, one unit in the last place
/// below it, on it, and above it.
fn midpoints() -> Generated {
    let mut case = blank(1, 3);
    case.d = 128;
    for row in 0..3 {
        case.patches.push(row_patch(row, 0, 0x43E0_0000));
        for code in 0..126u8 {
            let [low, high] = [code, code + 1].map(|code| E4M3::from_bits(code).to_f32());
            let bits = ((low + high) / 2.0).to_bits() + row as u32 - 1;
            case.patches
                .push(row_patch(row, 1 + usize::from(code), bits));
        }
    }
    commented(
        case,
        &[75],
        "all 126 midpoints of e4m3, one unit below, on and above",
    )
}

/// The exact scale is 2^e in even rows, one unit in the last place more in odd ones, for e from
/// -20 to 5: the next power of two is due only in the odd rows.
fn power_of_two_scales() -> Generated {
    let mut case = blank(1, 52);
    for row in 0..52 {
        let biased = 127 + 8 + row as u32 / 2 - 20;
        case.patches.push(row_patch(
            row,
            0,
            biased << 23 | 0x60_0000 | (row as u32 & 1) << 1,
        ));
    }
    commented(case, &[82], "amax / 448 at and just above powers of two")
}

/// The same with an odd seed, for which `quantize` writes scales as powers of two.
fn next_powers_of_two() -> Generated {
    let mut generated = power_of_two_scales();
    generated.case.seed = 1;
    let comment = "amax / 448 at and just above powers of two, which the scale has to be";
    commented(generated.case, &[82], comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_of_two_rows_have_the_scales_they_promise() {
        let case = power_of_two_scales().case;
        let x = case.x().unwrap();
        for row in 0..52 {
            let scale = (f64::from(x[[row, 0]]) / 448.0) as f32;
            let exact = ((127 + row as u32 / 2 - 20) << 23) + (row as u32 & 1);
            assert_eq!(scale.to_bits(), exact, "row {row}");
        }
    }

    #[test]
    fn midpoint_rows_have_scale_one() {
        let x = midpoints().case.x().unwrap();
        for row in x.rows() {
            assert_eq!(
                row.iter()
                    .fold(0.0f32, |a, b| if b.abs() > a { b.abs() } else { a }),
                448.0
            );
        }
    }
}
