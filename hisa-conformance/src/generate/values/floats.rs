//! How `k_scale`, `weights` and the rows for `quantize` are drawn.
//!
//! As in [`super::codes`], each kind is one function from a row's stream; see there for how to
//! read the comments.

use super::kinds::{RowKind, ScaleKind, WeightKind};
use crate::generate::stream::{Lane, Stream};
use hisa_ref::E4M3;

const INFINITY: u32 = 0x7F80_0000;
const LARGEST: u32 = 0x7F7F_FFFF;
const SMALLEST_NORMAL: u32 = 0x0080_0000;
const SIGN: u32 = 0x8000_0000;
/// 1e-10, the floor of pooled scales.
const SCALE_FLOOR: u32 = 0x2EDB_E6FF;
/// 1e-4, the floor of amax in `quantize`.
const AMAX_FLOOR: u32 = 0x38D1_B717;

/// The scale of key `row`; `own` is what its codes call for.
pub(super) fn scale(kind: ScaleKind, seed: u64, row: usize, block_size: usize, own: f32) -> f32 {
    let stream = &mut Stream::new(seed, Lane::Scale, row as u64);
    // Lane `Scale` from the top down is the lane of what a block's scales share.
    let block = || Stream::new(seed, Lane::Scale, u64::MAX - (row / block_size) as u64);
    let bits = match kind {
        ScaleKind::Own => return own,
        ScaleKind::One => return 1.0,
        ScaleKind::Zero => return 0.0,
        ScaleKind::Pow2 => (stream.below(16) + 115) << 23,
        ScaleKind::Random => return stream.float(-10, 12),
        ScaleKind::Block => return block().float(-10, 12),
        ScaleKind::Tiny => tiny(stream),
        ScaleKind::Huge => huge(stream),
        ScaleKind::Wide => return stream.float(-126, 254),
        ScaleKind::Zeros if stream.one_in(2) => stream.pick(&[0, SIGN]),
        ScaleKind::Zeros => return stream.float(-10, 12),
        ScaleKind::Floor => floor(&mut block()),
        ScaleKind::Ulp => 0x3F80_0000 + stream.below(4),
        ScaleKind::Special if stream.one_in(2) => stream.pick(&SPECIAL),
        ScaleKind::Special => return stream.float(-10, 12),
    };
    f32::from_bits(bits)
}

const SPECIAL: [u32; 8] = [
    0x7FC0_0000,
    0xFFC0_0001,
    0x7F80_0001,
    INFINITY,
    INFINITY | SIGN,
    0xBF80_0000,
    SIGN,
    0x7FFF_FFFF,
];

/// below(4): one of five landmarks, any subnormal, or twice a normal below 2^-124.
fn tiny(stream: &mut Stream) -> u32 {
    match stream.below(4) {
        0 => stream.pick(&[1, 2, 0x007F_FFFF, SMALLEST_NORMAL, SMALLEST_NORMAL + 1]),
        1 => stream.draw_u32() >> 9,
        _ => SMALLEST_NORMAL + (stream.draw_u32() >> 8),
    }
}

/// below(4): one of three landmarks, or three times any f32 from 2^120 up.
fn huge(stream: &mut Stream) -> u32 {
    match stream.below(4) {
        0 => stream.pick(&[LARGEST, 0x7F00_0000, 0x7EFF_FFFF]),
        _ => stream.float(120, 8).to_bits(),
    }
}

/// below(4): twice within two units of 1e-10, then 2^-40 or below, then zero.
fn floor(stream: &mut Stream) -> u32 {
    match stream.below(4) {
        0 | 1 => SCALE_FLOOR - 2 + stream.below(5),
        2 => stream.float(-126, 87).to_bits(),
        _ => 0,
    }
}

/// Fills the weights of query `row`, one per head.
pub(super) fn weights(kind: WeightKind, seed: u64, row: usize, out: &mut [f32]) {
    let stream = &mut Stream::new(seed, Lane::Weight, row as u64);
    match kind {
        WeightKind::One => out.fill(1.0),
        WeightKind::First => first(out, 1.0),
        WeightKind::Minus => first(out, -1.0),
        WeightKind::Normal => each(stream, out, Stream::bell),
        WeightKind::Positive => each(stream, out, |stream| stream.bell().abs()),
        WeightKind::Cancel => cancel(stream, out),
        WeightKind::Tiny => each(stream, out, |stream| signed(stream, tiny)),
        WeightKind::Huge => each(stream, out, |stream| signed(stream, huge)),
        WeightKind::Zero => each(stream, out, |stream| match stream.below(4) {
            0 => 0.0,
            1 => -0.0,
            _ => stream.bell(),
        }),
        WeightKind::Wide => each(stream, out, |stream| {
            signed(stream, |stream| stream.float(-126, 254).to_bits())
        }),
        WeightKind::Bf16 => each(stream, out, |stream| {
            signed(stream, |stream| 0x3F80_0000 + (stream.below(8) << 14))
        }),
        WeightKind::Special => each(stream, out, |stream| match stream.below(2) {
            0 => f32::from_bits(stream.pick(&SPECIAL_WEIGHTS)),
            _ => stream.bell(),
        }),
    }
}

const SPECIAL_WEIGHTS: [u32; 6] = [
    0x7FC0_0000,
    0xFFC0_0001,
    INFINITY,
    INFINITY | SIGN,
    LARGEST,
    LARGEST | SIGN,
];

fn each(stream: &mut Stream, out: &mut [f32], draw: impl Fn(&mut Stream) -> f32) {
    for value in out {
        *value = draw(stream);
    }
}

/// A magnitude, then its sign: once in two negative.
fn signed(stream: &mut Stream, magnitude: impl Fn(&mut Stream) -> u32) -> f32 {
    let bits = magnitude(stream);
    f32::from_bits(bits | if stream.one_in(2) { SIGN } else { 0 })
}

fn first(out: &mut [f32], value: f32) {
    out.fill(0.0);
    if let Some(first) = out.first_mut() {
        *first = value;
    }
}

/// Bell-shaped values for the heads of even number; the next head has its negative, once in four
/// (drawn after the value) with one added to its bits.
fn cancel(stream: &mut Stream, out: &mut [f32]) {
    for pair in out.chunks_mut(2) {
        let value = stream.bell();
        let off = u32::from(stream.one_in(4));
        pair[0] = value;
        if let Some(second) = pair.get_mut(1) {
            *second = f32::from_bits((-value).to_bits() + off);
        }
    }
}

/// Fills row `row` of the rows for `quantize`.
pub(super) fn row(kind: RowKind, seed: u64, row: usize, out: &mut [f32]) {
    let stream = &mut Stream::new(seed, Lane::X, row as u64);
    match kind {
        RowKind::Normal => bells(stream, out, -4, 8),
        RowKind::Bf16 => {
            bells(stream, out, -4, 8);
            for value in out {
                *value = f32::from_bits(value.to_bits() & 0xFFFF_0000);
            }
        }
        RowKind::Heavy => each(stream, out, |stream| stream.bell() * power(stream, -40, 81)),
        RowKind::Boundary => boundary(stream, out),
        RowKind::Small => small(stream, out),
        RowKind::Zeros => zeros(stream, out),
        RowKind::Special => special(stream, out),
    }
}

/// 2^(low + below(count)).
fn power(stream: &mut Stream, low: i32, count: u32) -> f32 {
    f32::from_bits(((low + stream.below(count) as i32 + 127) as u32) << 23)
}

/// A power of two for the row, then bells times it.
fn bells(stream: &mut Stream, out: &mut [f32], low: i32, count: u32) {
    let gain = power(stream, low, count);
    each(stream, out, |stream| stream.bell() * gain);
}

/// The row's scale is `2^(below(16) - 12)` once in two, else a full mantissa of that range.
/// Element 0 is 448 scales in f64, rounded to f32. Any other element is the mean of codes
/// `below(126)` and the next one, times the scale in f64, rounded to f32, moved by
/// `below(3) - 1` units in the last place, then negated once in two.
fn boundary(stream: &mut Stream, out: &mut [f32]) {
    let exact = stream.one_in(2);
    let scale = f64::from(if exact {
        power(stream, -12, 16)
    } else {
        stream.float(-12, 16)
    });
    for (d, value) in out.iter_mut().enumerate() {
        if d == 0 {
            *value = (448.0 * scale) as f32;
            continue;
        }
        let code = stream.below(126) as u8;
        let [low, high] = [code, code + 1].map(|bits| f64::from(E4M3::from_bits(bits).to_f32()));
        let bits = (((low + high) / 2.0 * scale) as f32).to_bits() + stream.below(3) - 1;
        *value = f32::from_bits(bits | if stream.one_in(2) { SIGN } else { 0 });
    }
}

/// Element 0 is 1e-4 moved by `below(5) - 2` units in the last place, or once in four any
/// subnormal; the others are bells times 2^-16 with the magnitude cut off at element 0.
fn small(stream: &mut Stream, out: &mut [f32]) {
    let peak = match stream.below(4) {
        0 => stream.draw_u32() >> 9,
        _ => AMAX_FLOOR - 2 + stream.below(5),
    };
    for (d, value) in out.iter_mut().enumerate() {
        if d == 0 {
            *value = f32::from_bits(peak);
            continue;
        }
        let bits = (stream.bell() / 65_536.0).to_bits();
        *value = f32::from_bits((bits & SIGN) | (bits & !SIGN).min(peak));
    }
}

/// Zeros of either sign; once in two, element `below(D)` is then a bell.
fn zeros(stream: &mut Stream, out: &mut [f32]) {
    each(
        stream,
        out,
        |stream| if stream.one_in(2) { -0.0 } else { 0.0 },
    );
    if stream.one_in(2) && !out.is_empty() {
        let at = stream.below(out.len() as u32) as usize;
        out[at] = stream.bell();
    }
}

/// A normal row; once in two, element `below(D)` is then NaN, an infinity or the largest f32.
fn special(stream: &mut Stream, out: &mut [f32]) {
    bells(stream, out, -4, 8);
    if stream.one_in(2) && !out.is_empty() {
        let at = stream.below(out.len() as u32) as usize;
        out[at] = f32::from_bits(stream.pick(&SPECIAL_WEIGHTS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales(kind: ScaleKind) -> Vec<f32> {
        (0..200).map(|row| scale(kind, 3, row, 4, 0.25)).collect()
    }

    #[test]
    fn only_special_scales_are_refused_in_strict_mode() {
        for &kind in ScaleKind::ALL {
            let strict = scales(kind).iter().all(|&s| s.is_finite() && s >= 0.0);
            assert_eq!(strict, kind != ScaleKind::Special, "{kind}");
        }
    }

    #[test]
    fn scales_are_what_their_kind_says() {
        assert!(scales(ScaleKind::Own).iter().all(|&s| s == 0.25));
        assert!(
            scales(ScaleKind::Pow2)
                .iter()
                .all(|s| s.to_bits().trailing_zeros() >= 23)
        );
        assert!(
            scales(ScaleKind::Block)
                .chunks(4)
                .all(|b| b.iter().all(|&s| s == b[0]))
        );
        let tiny = scales(ScaleKind::Tiny);
        assert!(tiny.iter().any(|s| s.is_subnormal()) && tiny.iter().any(|s| s.is_normal()));
        assert!(tiny.iter().all(|&s| s < 1e-36));
        assert!(scales(ScaleKind::Huge).contains(&f32::MAX));
        let zeros = scales(ScaleKind::Zeros);
        assert!(zeros.iter().any(|s| s.to_bits() == SIGN));
        assert!(zeros.iter().any(|s| s.to_bits() == 0));
        let floor = scales(ScaleKind::Floor);
        assert!(floor.contains(&1e-10) && floor.contains(&0.0));
        assert_eq!(f32::from_bits(AMAX_FLOOR), 1e-4);
    }

    #[test]
    fn only_special_weights_are_not_finite() {
        let mut out = [0.0; 33];
        for &kind in WeightKind::ALL {
            let mut finite = true;
            for row in 0..20 {
                weights(kind, 3, row, &mut out);
                finite &= out.iter().all(|w| w.is_finite());
            }
            assert_eq!(finite, kind != WeightKind::Special, "{kind}");
        }
    }

    #[test]
    fn weights_do_not_depend_on_the_number_of_heads() {
        let (mut long, mut short) = ([0.0f32; 16], [0.0f32; 5]);
        for &kind in WeightKind::ALL {
            weights(kind, 3, 1, &mut long);
            weights(kind, 3, 1, &mut short);
            assert_eq!(
                long[..5].iter().map(|w| w.to_bits()).collect::<Vec<_>>(),
                short.iter().map(|w| w.to_bits()).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn only_special_rows_are_not_finite() {
        let mut out = [0.0; 24];
        for &kind in RowKind::ALL {
            let mut finite = true;
            for index in 0..40 {
                row(kind, 3, index, &mut out);
                finite &= out.iter().all(|x| x.is_finite());
            }
            assert_eq!(finite, kind != RowKind::Special, "{kind}");
        }
    }

    #[test]
    fn boundary_rows_meet_exact_midpoints() {
        let mut out = [0.0; 64];
        let mut exact = 0;
        for index in 0..50 {
            row(RowKind::Boundary, 3, index, &mut out);
            let scale = f64::from(out[0]) / 448.0;
            for &x in &out[1..] {
                assert!(x.abs() < out[0]);
                let quotient = (f64::from(x) / scale).abs();
                let nearest = f64::from(super::super::codes::encode(quotient as f32).to_f32());
                let spacing = if quotient < 1.0 / 64.0 {
                    1.0 / 512.0
                } else {
                    (quotient.log2().floor() - 3.0).exp2()
                };
                exact += usize::from((quotient - nearest).abs() == spacing / 2.0);
            }
        }
        assert!(exact > 300, "{exact}");
    }

    #[test]
    fn small_rows_sit_on_the_floor() {
        let mut out = [0.0; 16];
        let mut peaks = Vec::new();
        for index in 0..100 {
            row(RowKind::Small, 3, index, &mut out);
            assert!(out.iter().all(|x| x.abs() <= out[0]));
            peaks.push(out[0]);
        }
        assert!(peaks.contains(&1e-4));
        assert!(peaks.iter().any(|&p| p < 1e-4 && p > 0.99e-4));
        assert!(peaks.iter().any(|p| p.is_subnormal()));
    }
}
