//! Pooling in f32, operation by operation and in random trees, against the ranges.

use super::random::Random;
use crate::bound::{CodeRange, Range, pool, quantize};
use crate::fp8::{E4M3, E4M3_MAX, Overflow};
use crate::input::Keys;
use crate::model::Arithmetic;
use crate::params::Strictness;
use crate::stages::block_pool::{self, SCALE_MIN};
use ndarray::{ArrayView1, ArrayView2};

/// How scales are drawn.
#[derive(Debug, Clone, Copy)]
enum Scales {
    /// A few binades around 1.
    Usual,
    /// Powers of two: many sums are exact.
    Powers,
    /// Subnormal ones, and means below the floor.
    Tiny,
    /// Around the floor of 1e-10.
    Floor,
    /// Up to the largest f32.
    Huge,
}

fn scale(random: &mut Random, kind: Scales) -> f32 {
    let (low, high) = match kind {
        Scales::Usual => (120, 126),
        Scales::Powers => (124, 127),
        Scales::Tiny => (0, 30),
        Scales::Floor => (84, 102),
        Scales::Huge => (238, 254),
    };
    let field = (low + random.below(high - low + 1)) as u32;
    let fraction = match kind {
        Scales::Powers => 0,
        _ => random.bits() & 0x7F_FFFF,
    };
    f32::from_bits(field << 23 | fraction)
}

/// Scale and codes as a port computes them.
fn port(
    random: &mut Random,
    (codes, scales): (&[E4M3], &[f32]),
    d: usize,
    arithmetic: Arithmetic,
) -> (f32, Vec<E4M3>) {
    let flushed = |x: f32| arithmetic.mul(x, 1.0);
    let divided = |a: f32, b: f32| flushed(flushed(a) / flushed(b));
    let means: Vec<f32> = (0..d)
        .map(|column| {
            let keys = codes[column..].iter().step_by(d).zip(scales);
            let terms = keys.map(|(code, &scale)| (code.to_f32(), scale)).collect();
            divided(random.tree_sum(arithmetic, terms), scales.len() as f32)
        })
        .collect();
    let largest = means.iter().fold(
        0.0,
        |most: f32, mean| {
            if mean.abs() > most { mean.abs() } else { most }
        },
    );
    let quotient = divided(largest, E4M3_MAX);
    let scale = if quotient > SCALE_MIN {
        quotient
    } else {
        SCALE_MIN
    };
    let code = |&mean: &f32| E4M3::encode(divided(mean, scale), Overflow::Saturating);
    (scale, means.iter().map(code).collect())
}

fn exact(codes: &[E4M3], scales: &[f32], d: usize) -> (f32, Vec<E4M3>) {
    let codes = ArrayView2::from_shape((scales.len(), d), codes).unwrap();
    let keys = Keys::new(codes, ArrayView1::from(scales), Strictness::Permissive).unwrap();
    let pooled = block_pool::scalar(&keys, scales.len()).unwrap();
    (pooled.scales[0], pooled.codes.into_iter().collect())
}

fn draw(random: &mut Random, kind: Scales) -> (Vec<E4M3>, Vec<f32>, usize) {
    let (d, count) = (
        1 + random.below(6),
        [1, 2, 3, 4, 7, 16, 33, 128][random.below(8)],
    );
    let cancelling = random.bits() & 1 == 0;
    let codes = (0..count * d).map(|_| {
        let sign = if cancelling { random.bits() & 0x80 } else { 0 };
        E4M3::from_bits((random.below(0x7F) as u32 | sign) as u8)
    });
    let codes = codes.collect();
    let scales = (0..count).map(|_| scale(random, kind)).collect();
    (codes, scales, d)
}

/// Every port within the ranges, and the exact block too; the largest share of a scale's range
/// that an error takes, and the largest part of codes that are not decided.
fn tightest(kind: Scales, flush: bool, cases: usize) -> (f64, f64, usize) {
    let mut random = Random::new(77 + kind as u64);
    let (mut share, mut codes_seen, mut open, mut finite) = (0.0, 0, 0, 0);
    for _ in 0..cases {
        let (codes, scales, d) = draw(&mut random, kind);
        let block = pool::block(&codes, &scales, d, flush);
        let arithmetic = Arithmetic {
            fused: random.bits() & 1 == 0,
            flush,
        };
        let (true_scale, true_codes) = exact(&codes, &scales, d);
        let (made_scale, made_codes) = port(&mut random, (&codes, &scales), d, arithmetic);
        for (scale, codes) in [(true_scale, &true_codes), (made_scale, &made_codes)] {
            assert!(block.scale.contains(scale), "{kind:?} {scale:e} {block:?}");
            for (code, range) in codes.iter().zip(&block.codes) {
                assert!(range.contains(*code), "{kind:?} {code:?} {block:?}");
            }
        }
        let Range::Between(low, high) = block.scale else {
            continue;
        };
        finite += 1;
        for range in &block.codes {
            codes_seen += 1;
            open += usize::from(matches!(range, CodeRange::Between(a, b) if a != b));
        }
        let (error, end) = if made_scale > true_scale {
            (made_scale - true_scale, high - true_scale)
        } else {
            (true_scale - made_scale, true_scale - low)
        };
        let taken = if end > 0.0 { error / end } else { 0.0 };
        share = if f64::from(taken) > share {
            f64::from(taken)
        } else {
            share
        };
    }
    (share, open as f64 / codes_seen as f64, finite)
}

/// The limits are what this test measured, shares cut and parts rounded up to two digits: ranges
/// that become wider fail.
#[test]
fn pooled_blocks_of_random_ports_are_within_their_ranges() {
    for (kind, least_share, most_open, flushed_open) in [
        (Scales::Usual, 1.0, 0.0029, 0.0029),
        (Scales::Powers, 0.011, 0.000_072, 0.000_072),
        // The floor is the scale of every such block.
        (Scales::Tiny, 0.0, 0.0, 0.017),
        (Scales::Floor, 1.0, 0.0013, 0.0013),
        (Scales::Huge, 1.0, 0.0061, 0.0061),
    ] {
        for (flush, most_open) in [(false, most_open), (true, flushed_open)] {
            let (share, open, finite) = tightest(kind, flush, 4_000);
            println!("{kind:?} flush {flush}: share {share:.4}, open codes {open:.6}, {finite}");
            assert!(finite > 1_000 && share >= least_share && share <= 1.0);
            assert!(open <= most_open, "{kind:?} {open}");
        }
    }
}

#[test]
fn nan_infinity_and_overflow() {
    let one = E4M3::from_bits(0x38);
    let nan = pool::block(&[one, E4M3::NAN], &[1.0], 2, false);
    assert_eq!((nan.scale, nan.codes[0]), (Range::Nan, CodeRange::Nan));
    let zero_times_infinity = pool::block(&[one, E4M3::ZERO], &[f32::INFINITY], 2, false);
    assert_eq!(zero_times_infinity.scale, Range::Nan);
    let opposite = pool::block(&[one, one], &[f32::INFINITY, f32::NEG_INFINITY], 1, false);
    assert_eq!(opposite.scale, Range::Nan);
    let infinite = pool::block(&[one, one], &[f32::INFINITY, 1.0], 1, false);
    assert_eq!(infinite.scale, Range::Between(f32::INFINITY, f32::INFINITY));
    assert_eq!(infinite.codes, [CodeRange::Nan]);
    let overflow = pool::block(&[one, one], &[f32::MAX, f32::MAX], 1, false);
    assert_eq!(
        (overflow.scale, overflow.codes[0]),
        (Range::Anything, CodeRange::Anything)
    );
    // The largest f32 itself is within the range, and halves of it add up to it.
    let largest = pool::block(&[one], &[f32::MAX], 1, false);
    assert_ne!(largest.scale, Range::Anything);
}

#[test]
fn exact_sums_leave_one_scale_and_one_code() {
    let codes = [0x38, 0x40, 0x44, 0xC8].map(E4M3::from_bits);
    let block = pool::block(&codes, &[0.25, 0.5], 2, true);
    let (scale, exact) = exact(&codes, &[0.25, 0.5], 2);
    assert_eq!(block.scale, Range::Between(scale, scale));
    let points: Vec<_> = exact.into_iter().map(CodeRange::point).collect();
    assert_eq!(block.codes, points);
}

/// BR-85: an f32 quotient of 17 lies on the tie that the real one is above.
#[test]
fn a_tie_leaves_two_codes_and_nothing_else_does() {
    let codes = [0x58, 0x7E, 0x59, 0x7E].map(E4M3::from_bits);
    let scales = [f32::from_bits(0x3C75_C28F); 2];
    let block = pool::block(&codes, &scales, 2, false);
    let range = |low, high| CodeRange::Between(E4M3::from_bits(low), E4M3::from_bits(high));
    assert_eq!(block.codes, [range(0x58, 0x59), range(0x7E, 0x7E)]);
    // SPEC 1.4's example: the f32 quotient rounds onto the tie of 1.3125.
    let scale = f32::from_bits(0x3992_4925);
    let code = |bits| quantize::code(f32::from_bits(bits), scale, Overflow::Saturating);
    assert_eq!(code(0x39C0_0001), range(0x3A, 0x3B));
    assert_eq!(code(0x3E00_0000), range(0x7E, 0x7E));
    assert_eq!(code(f32::NAN.to_bits()), CodeRange::Nan);
    let infinite = quantize::code(f32::INFINITY, 2f32.powi(127), Overflow::Saturating);
    assert_eq!(infinite, range(0x7E, 0x7E));
}
