//! Head sums of random shapes against the bound of any order.

use super::super::heads::Head;
use super::super::*;
use super::draw::{FACTORS, Factors};
use super::random::{Kind, Random};
use crate::bf16::round_to_bf16;
use crate::exact::{ExactSum, F32_UNIT_EXPONENT, decompose};
use crate::model::{self, Arithmetic, DotClass, Epilogue, HeadOrder, Relu, ScalePlace};
use crate::scoring::scalar::DOT_UNIT_EXPONENT;

/// The exact score, rounded once.
fn exact_score(heads: &[Head], scale: f32) -> f32 {
    let mut sum = ExactSum::ZERO;
    for head in heads {
        let (mantissa, exponent) = decompose(head.weight);
        let product = i128::from(mantissa) * i128::from(Ord::max(head.dot, 0));
        sum.add_shifted(product, (exponent - F32_UNIT_EXPONENT) as u32);
    }
    let (mantissa, exponent) = decompose(scale);
    sum.scaled_to_f32(mantissa, exponent + F32_UNIT_EXPONENT + DOT_UNIT_EXPONENT)
}

/// One random case: the ratio of distance and bound, if the bound is finite and not 0.
fn case(random: &mut Random, factors: Factors, exact_dots: bool, sum: fn(usize) -> HeadSum) -> f64 {
    let count = [1, 2, 3, 5, 8, 16, 64][random.below(7)];
    let (heads, dots): (Vec<_>, Vec<_>) =
        (0..count).map(|_| random.head(factors, exact_dots)).unzip();
    let scale = random.scale(factors);
    let weights: Vec<f32> = heads.iter().map(|head| head.weight).collect();
    let sum = sum(count);
    let score = exact_score(&heads, scale);
    let error = sum.error(&heads, scale, score);
    assert!(error >= 0.0);
    let mut port = random.port_score(sum.flush, &dots, &weights, scale);
    if sum.output == Output::Bf16 {
        port = round_to_bf16(port);
    }
    if error == f64::INFINITY {
        return 0.0;
    }
    let distance = (f64::from(port) - f64::from(score)).abs();
    assert!(
        distance <= error,
        "{distance:e} > {error:e}, {factors:?}, port {port:e}, scale {scale:e}, {heads:?} {dots:?}"
    );
    let narrow = matches!(factors, Factors::Usual | Factors::NearPowers);
    if narrow && sum.output == Output::F32 {
        let (distance, error) = (
            distance_of_sum(&heads, scale, port),
            sum.error_of_sum(&heads, scale),
        );
        assert!(
            distance <= error,
            "{distance:e} > {error:e} of {scale:e}, {heads:?} {dots:?}"
        );
        return distance / error;
    }
    distance / error
}

/// Distance of a port's result from the real number, for factors of moderate exponents.
fn distance_of_sum(heads: &[Head], scale: f32, port: f32) -> f64 {
    const UNIT: i32 = -200;
    let (factor, scale_exponent) = decompose(scale);
    let mut sum = ExactSum::ZERO;
    for head in heads {
        let (mantissa, exponent) = decompose(head.weight);
        let product = i128::from(mantissa) * i128::from(Ord::max(head.dot, 0));
        let exponent = exponent + scale_exponent + DOT_UNIT_EXPONENT;
        sum.add_shifted(product * i128::from(factor), (exponent - UNIT) as u32);
    }
    let (mantissa, exponent) = decompose(port);
    sum.add_shifted(-i128::from(mantissa), (exponent - UNIT) as u32);
    sum.magnitude_up(UNIT)
}

/// Every combination of factors, dots and declarations.
fn tightest(exact_dots: bool, factors: &[Factors], sum: fn(usize) -> HeadSum) -> f64 {
    let mut random = Random::new(11);
    let mut tightest = 0.0;
    for index in 0..6_000 {
        let ratio = case(&mut random, factors[index % factors.len()], exact_dots, sum);
        if ratio > tightest {
            tightest = ratio;
        }
    }
    tightest
}

/// The floors are what this test measured, cut to two digits. With exact dots and factors just
/// above powers of two nearly every rounding is as large as it can be.
#[test]
fn head_sums_stay_inside_the_bound() {
    let usual = &[Factors::Usual, Factors::NearPowers];
    let any_order = HeadSum::any_order;
    let bf16 = |heads| HeadSum::any_order(heads).with_bf16_output();
    let flush = |heads| HeadSum::any_order(heads).with_flush();
    for (what, exact_dots, factors, sum, floor) in [
        (
            "exact dots",
            true,
            &usual[..],
            any_order as fn(usize) -> HeadSum,
            0.98,
        ),
        ("dots with errors", false, usual, any_order, 0.99),
        ("bf16 output", true, usual, bf16, 0.99),
        ("all factors", false, &FACTORS, any_order, 0.99),
        ("flush", true, &FACTORS, flush, 0.85),
        ("flush, dots with errors", false, &FACTORS, flush, 0.99),
        ("exact dots, all factors", true, &FACTORS, any_order, 0.75),
        ("bf16 output, all factors", false, &FACTORS, bf16, 0.99),
    ] {
        let tightest = tightest(exact_dots, factors, sum);
        println!("head sums, {what}: tightest {tightest:.4}");
        assert!(tightest >= floor, "{what}: tightest {tightest}");
    }
}

/// A declared order has its own, smaller count of roundings.
#[test]
fn declared_orders_stay_inside_their_bound() {
    let mut random = Random::new(12);
    for index in 0..4_000 {
        let factors = FACTORS[index % 4];
        let count = 1 + random.below(70);
        let (heads, dots): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| random.head(factors, index % 3 == 0))
            .unzip();
        let weights: Vec<f32> = heads.iter().map(|head| head.weight).collect();
        let scale = random.scale(factors);
        let epilogue = Epilogue {
            order: [HeadOrder::Sequential, HeadOrder::DeepGemmSm90][index / 4 % 2],
            arithmetic: Arithmetic {
                fused: index / 8 % 2 == 0,
                flush: index / 16 % 2 == 0,
            },
            scale: [ScalePlace::InsideRelu, ScalePlace::Outside][index / 32 % 2],
            relu: Relu::KeepsNan,
        };
        let sum = HeadSum {
            roundings: epilogue.roundings(count),
            flush: epilogue.arithmetic.flush,
            output: Output::F32,
        };
        let score = exact_score(&heads, scale);
        let port = epilogue.score(&dots, &weights, scale);
        let distance = (f64::from(port) - f64::from(score)).abs();
        let error = sum.error(&heads, scale, score);
        let inside = error == f64::INFINITY || distance <= error;
        assert!(
            inside,
            "{epilogue:?}: {distance:e} > {error:e}, scale {scale:e}, {heads:?}"
        );
    }
}

/// From codes to scores: the model of every class, any epilogue, against the composed bound.
#[test]
fn scores_of_every_class_stay_inside() {
    let kinds = [
        Kind::Wide,
        Kind::Narrow,
        Kind::Cancelling,
        Kind::JustBelowTheGrid,
    ];
    for class in DotClass::ALL {
        let mut random = Random::new(13 + class as u64);
        let mut tightest = 0.0;
        for index in 0..1_000 {
            let heads = [1, 2, 4, 9][random.below(4)];
            let (mut q, mut key) = (Vec::new(), Vec::new());
            for _ in 0..heads {
                let (row, last) = random.vectors(kinds[index % 4], 64, class);
                q.extend(row);
                key = last;
            }
            let weights: Vec<f32> = (0..heads).map(|_| random.weight(Factors::Usual)).collect();
            let scale = random.scale(Factors::Usual);
            let sum = HeadSum::any_order(heads);
            let bounded = score(&q, &weights, &key, scale, Dots::Class(class), &sum).unwrap();
            assert_eq!(bounded.score, scalar::score(&q, &weights, &key, scale));
            let rows = q.chunks_exact(64);
            let dots: Vec<f32> = rows.map(|row| model::dot(class, row, &key)).collect();
            let port = random.port_score(false, &dots, &weights, scale);
            let distance = (f64::from(port) - f64::from(bounded.score)).abs();
            assert!(
                distance <= bounded.error,
                "{class}: {distance:e} > {:e}",
                bounded.error
            );
            let ratio = distance / bounded.error;
            if ratio > tightest {
                tightest = ratio;
            }
        }
        println!("scores, {class}: tightest {tightest:.4}");
    }
}

#[test]
fn overflow_on_the_way_has_no_bound() {
    let head = |weight, dot| Head {
        weight,
        dot,
        error: 0,
    };
    let sum = HeadSum::any_order(2);
    let one = 1 << 18;
    // 2^127 + 2^127 - 2^127 may pass through 2^128.
    let heads = [2f32.powi(127), 2f32.powi(127), -(2f32.powi(127))].map(|w| head(w, one));
    assert_eq!(sum.error(&heads, 1.0, 2f32.powi(127)), f64::INFINITY);
    // Fine after the scale, not before it.
    assert_eq!(sum.error(&heads, 0.25, 2f32.powi(125)), f64::INFINITY);
    // Three roundings and that of the score, 2^-24 each.
    let error = sum.error(&heads[..1], 0.25, 2f32.powi(125));
    assert!((2f64.powi(103)..1.001 * 2f64.powi(103)).contains(&error));
    // The largest finite score, one rounding for the product and one for the scale.
    let heads = [head(f32::MAX, one / 2)];
    assert!(HeadSum::any_order(1).error(&heads, 1.0, f32::MAX / 2.0) < 2f64.powi(105));
    let huge = HeadSum {
        roundings: 1 << 24,
        ..sum
    };
    assert_eq!(huge.error(&heads, 1.0, f32::MAX / 2.0), f64::INFINITY);
    // No head and no weight: only the rounding of the score, which is exact here.
    assert!(HeadSum::any_order(0).error(&[], 1.0, 0.0) <= 2f64.powi(-149));
}

/// The slack of the note, `sum (|w| + 1) * 2^-149`, holds with the scale inside the ReLU. Outside,
/// what underflowed is multiplied by the scale.
#[test]
fn underflow_before_a_large_scale_is_covered() {
    let weight = f32::from_bits(1);
    let heads = [Head {
        weight,
        dot: 1 << 16,
        error: 0,
    }]; // a dot of 1/4
    let scale = 2f32.powi(100);
    let score = exact_score(&heads, scale);
    assert_eq!(score, 2f32.powi(-51));
    let port = (0.25 * weight) * scale;
    assert_eq!(port, 0.0);
    let error = HeadSum::any_order(1).error(&heads, scale, score);
    assert!(error >= f64::from(score) && error < 2f64.powi(-47));
    let note = (f64::from(weight) + 1.0) * 2f64.powi(-149) + 3.0 * 2f64.powi(-24) * 2f64.powi(-51);
    assert!(note < f64::from(score));
}
