//! Bounds against the models and against sums in random trees: never violated, and close.

mod boxes;
mod draw;
mod pooling;
mod random;
mod sums;

use super::dot::{apriori, constant, error, is_exact};
use super::*;
use crate::model::{self, DotClass};
use crate::params::HEAD_DIM_MAX;
use random::{Kind, Random};

const KINDS: [Kind; 6] = [
    Kind::Wide,
    Kind::Narrow,
    Kind::Cancelling,
    Kind::Subnormal,
    Kind::JustBelowTheGrid,
    Kind::FewBinades,
];

/// `|computed - exact|` in units of 2^-18, a multiple of 2^-18 on both sides.
fn distance(class: DotClass, q: &[E4M3], key: &[E4M3]) -> u64 {
    let computed = f64::from(model::dot(class, q, key)) * 2f64.powi(18);
    assert_eq!(
        computed,
        computed.trunc(),
        "{class} leaves the grid of the products"
    );
    (computed as i64).abs_diff(scalar::dot(q, key).unwrap().value)
}

/// The largest ratios of distance and bound over the cases with D = 128: of the element's bound,
/// and of the a-priori one. Every case is checked, those of other D too.
fn tightest(class: DotClass, cases: usize) -> [f64; 2] {
    let mut random = Random::new(0x5EED + class as u64);
    let mut tightest = [0.0; 2];
    for case in 0..cases {
        let kind = KINDS[case % KINDS.len()];
        let d = if case % 4 == 0 {
            1 + random.below(300)
        } else {
            128
        };
        let (q, key) = random.vectors(kind, d, class);
        let actual = distance(class, &q, &key);
        let bounds = [error, apriori].map(|bound| bound(class, &q, &key).unwrap());
        for (bound, tightest) in bounds.into_iter().zip(&mut tightest) {
            assert!(
                actual <= bound,
                "{class} {kind:?}: {actual} > {bound}: {q:?} {key:?}"
            );
            let ratio = actual as f64 / bound as f64;
            if bound > 0 && d == 128 && ratio > *tightest {
                *tightest = ratio;
            }
        }
    }
    tightest
}

/// The floors are what this test measured, cut to two digits: a bound that becomes looser fails.
#[test]
fn dot_bounds_hold_and_are_tight() {
    for (class, element, table) in [
        (DotClass::Exact, 1.0, 0.99),
        (DotClass::HopperQgmma, 0.97, 0.93),
        (DotClass::HopperQgmmaUnchained, 1.0, 0.94),
        (DotClass::AdaQmma, 0.94, 0.91),
        (DotClass::BlackwellF25, 0.89, 0.87),
        (DotClass::HmmaEmulated, 0.73, 0.67),
        (DotClass::HopperHgmmaF16, 0.8, 0.78),
        (DotClass::AmpereHmmaF16, 0.8, 0.78),
    ] {
        let tightest = tightest(class, 6_000);
        println!("{class}: tightest {tightest:.4?}");
        assert!(tightest[0] >= element, "{class}: tightest {tightest:?}");
        assert!(tightest[1] >= table, "{class}: tightest {tightest:?}");
    }
}

/// T13: the error is 1.503 % of the sum of magnitudes, which is 1.503 / 1.599 of the
/// a-priori bound.
#[test]
fn hopper_reaches_its_constant() {
    let (mut q, mut key) = ([E4M3::from_bits(0x26); 128], [E4M3::from_bits(0x21); 128]);
    (q[0], key[0]) = (E4M3::from_bits(0x58), E4M3::from_bits(0x58));
    let class = DotClass::HopperQgmma;
    let (actual, bound) = (distance(class, &q, &key), error(class, &q, &key).unwrap());
    // 127 products of 126 * 2^-12 are lost, out of 256 + 127 * 126 * 2^-12.
    assert_eq!(actual, (127 * 126) << 6);
    let absolute = scalar::dot(&q, &key).unwrap().absolute as u64;
    assert!(actual * 100_000 >= absolute * 1_503);
    assert!(actual * 1_599 >= apriori(class, &q, &key).unwrap() * 1_503);
    println!(
        "T13: {:.4} of the bound of the element",
        actual as f64 / bound as f64
    );
    assert!(actual * 100 >= bound * 94);
}

/// Section 5 of the note, in units of 2^-25; 131 * 2^-13 is the constant of Hopper.
#[test]
fn constants_at_128() {
    let total = |class| {
        let constant = constant(class, 128);
        constant.lost + constant.cuts
    };
    assert_eq!(total(DotClass::HopperQgmma), 131 << 12);
    assert_eq!(total(DotClass::HopperQgmma), 4 * 134_144);
    assert_eq!(total(DotClass::AdaQmma), 4 * 138_240);
    assert_eq!(total(DotClass::HopperQgmmaUnchained), 4 * 32_768 + 6);
    assert_eq!(total(DotClass::BlackwellF25), 143);
    assert_eq!(total(DotClass::HmmaEmulated), 45);
    assert_eq!(total(DotClass::HopperHgmmaF16), 159);
    assert_eq!(total(DotClass::AmpereHmmaF16), 318);
    assert_eq!(total(DotClass::Exact), 2);
    assert_eq!(constant(DotClass::HopperQgmma, 128).value(), 131.0 / 8192.0);
}

#[test]
fn the_certificate_is_never_wrong() {
    for class in DotClass::ALL {
        let mut random = Random::new(99 + class as u64);
        let mut certified = 0;
        for case in 0..6_000 {
            let kind = [
                Kind::Halves,
                Kind::Narrow,
                Kind::FewBinades,
                Kind::Subnormal,
            ][case % 4];
            let d = [3, 16, 40, 128][case / 4 % 4];
            let (q, key) = random.vectors(kind, d, class);
            if is_exact(class, &q, &key) {
                certified += 1;
                assert_eq!(distance(class, &q, &key), 0, "{class} {q:?} {key:?}");
            }
        }
        assert!(certified > 1_000, "{class}: only {certified}");
    }
}

/// The largest D and the largest products, of one sign and of alternating signs.
#[test]
fn the_longest_vectors_stay_in_range() {
    let largest = E4M3::from_bits(0x7E);
    let key = vec![largest; HEAD_DIM_MAX];
    let mut alternating = key.clone();
    alternating
        .iter_mut()
        .step_by(2)
        .for_each(|code| *code = E4M3::from_bits(0xFE));
    for class in DotClass::ALL {
        for q in [&key, &alternating] {
            let actual = distance(class, q, &key);
            assert!(actual <= error(class, q, &key).unwrap(), "{class}");
            assert!(actual <= apriori(class, q, &key).unwrap(), "{class}");
            assert!(Dots::F32AnyOrder.error(q, &key).is_some());
        }
        assert!(is_exact(class, &key[..128], &key[..128]), "{class}: T18");
    }
}

#[test]
fn nan_codes_have_no_bound() {
    let (one, nan) = ([E4M3::from_bits(0x38); 2], [E4M3::ZERO, E4M3::NAN]);
    for class in DotClass::ALL {
        assert_eq!(error(class, &one, &nan), None);
        assert_eq!(apriori(class, &nan, &one), None);
        assert!(!is_exact(class, &one, &nan));
        assert!(is_exact(class, &[], &[]));
        assert_eq!(error(class, &[], &[]), Some(0));
        let sum = HeadSum::any_order(1);
        assert_eq!(
            score(&one, &[1.0], &nan, 1.0, Dots::Class(class), &sum),
            None
        );
    }
    let sum = HeadSum::any_order(1);
    for (weight, scale) in [
        (f32::NAN, 1.0),
        (f32::INFINITY, 1.0),
        (1.0, -1.0),
        (1.0, f32::NAN),
    ] {
        assert_eq!(
            score(&one, &[weight], &one, scale, Dots::F32AnyOrder, &sum),
            None
        );
    }
}

#[test]
fn f32_dots_in_any_order_are_bounded() {
    let mut random = Random::new(4);
    let mut tightest = 0.0;
    for case in 0..5_000 {
        let kind = KINDS[case % KINDS.len()];
        let (q, key) = random.vectors(kind, 2 + random.clone().below(200), DotClass::Exact);
        let products = q
            .iter()
            .zip(&key)
            .map(|(a, b)| a.to_f32() * b.to_f32())
            .collect();
        let computed = random.tree(products);
        let units = (f64::from(computed) * 2f64.powi(18)) as i64;
        let actual = units.abs_diff(scalar::dot(&q, &key).unwrap().value);
        let bound = Dots::F32AnyOrder.error(&q, &key).unwrap();
        assert!(actual <= bound, "{actual} > {bound}: {q:?} {key:?}");
        let ratio = actual as f64 / bound as f64;
        if bound > 0 && ratio > tightest {
            tightest = ratio;
        }
    }
    println!("f32 in any order: tightest {tightest:.4}");
    assert!(tightest > 0.98, "{tightest}");
}
