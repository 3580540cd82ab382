//! Scores of keys of which only ranges are known: every key of the box scores within the range.

use super::random::{Kind, Random};
use crate::bound::range::{KeyBox, score_of_box};
use crate::bound::{self, Dots, HeadSum, Range};
use crate::fp8::E4M3;
use crate::model::{self, DotClass};

/// Codes in the order of their values.
fn by_value() -> Vec<E4M3> {
    let all = (0..=255).map(E4M3::from_bits);
    let mut codes: Vec<E4M3> = all
        .filter(|code| !code.is_nan() && code.to_bits() != 0x80)
        .collect();
    codes.sort_by_key(|code| code.units());
    codes
}

#[test]
fn every_key_of_a_box_scores_within_its_range() {
    let (order, mut random) = (by_value(), Random::new(5));
    let arithmetics: Vec<Dots> = (DotClass::ALL.into_iter().map(Dots::Class))
        .chain([Dots::F32AnyOrder])
        .collect();
    let mut finite = 0;
    for case in 0..2_000 {
        let dots = arithmetics[case % arithmetics.len()];
        let (heads, d) = (1 + random.below(3), [3, 32, 40, 128][random.below(4)]);
        let kind = [Kind::Wide, Kind::Narrow, Kind::Cancelling][random.below(3)];
        let (q, _) = random.vectors(kind, heads * d, DotClass::Exact);
        let weights: Vec<f32> = (0..heads)
            .map(|_| f32::from_bits(random.bits() & 0x80FF_FFFF | 0x3F00_0000))
            .collect();
        let (mut low, mut high, mut key) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..d {
            let at = random.below(order.len());
            // Most codes are decided, as in pooling.
            let width = if random.below(4) == 0 {
                1 + random.below(4)
            } else {
                0
            };
            let top = (at + width).min(order.len() - 1);
            low.push(order[at]);
            high.push(order[top]);
            key.push(order[at + random.below(top - at + 1)]);
        }
        let least = f32::from_bits(0x3A00_0000 + random.bits() % 1000);
        let most = f32::from_bits(least.to_bits() + random.bits() % 1000);
        let scale = f32::from_bits(
            least.to_bits() + random.bits() % (most.to_bits() - least.to_bits() + 1),
        );
        let sum = HeadSum::any_order(heads);
        let bounds = KeyBox {
            low: &low,
            high: &high,
            scale: (least, most),
        };
        let range = score_of_box(&q, &weights, &bounds, Some((dots, &sum)));
        let inner = bound::score(&q, &weights, &key, scale, dots, &sum).unwrap();
        let Range::Between(from, to) = range else {
            panic!("{range:?}");
        };
        finite += 1;
        // All that the key itself may score lies in the range of its box.
        let Range::Between(a, b) = Range::around(inner.score, inner.score, inner.error) else {
            panic!("{inner:?}");
        };
        assert!(
            from <= a.next_up() && b.next_down() <= to,
            "{dots:?} {range:?} {inner:?}"
        );
        // Without an arithmetic the exact score itself.
        let exact = score_of_box(&q, &weights, &bounds, None);
        assert!(exact.contains(inner.score), "{exact:?} {inner:?}");
    }
    assert_eq!(finite, 2_000);
}

/// 16 * 16 - 0.125 * 0.125 with both vectors negated: Hopper loses the negative term, so its 256 is
/// above every exact dot of the box, and only the error at the farther code, -16, covers it.
#[test]
fn the_error_is_that_of_the_farther_code() {
    let codes = |bits: [u8; 2]| bits.map(E4M3::from_bits);
    let (q, low, high) = (
        codes([0xD8, 0x20]),
        codes([0xD8, 0xA0]),
        codes([0x00, 0xA0]),
    );
    let key = KeyBox {
        low: &low,
        high: &high,
        scale: (1.0, 1.0),
    };
    let port = model::dot(DotClass::HopperQgmma, &q, &low);
    assert_eq!(port, 256.0);
    let arithmetic = (Dots::Class(DotClass::HopperQgmma), &HeadSum::any_order(1));
    assert!(score_of_box(&q, &[1.0], &key, Some(arithmetic)).contains(port));
    assert!(!score_of_box(&q, &[1.0], &key, None).contains(port));
}
