//! e4m3: all 256 codes, and encode at and around every rounding boundary (SPEC V.1, V.2).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_ref::E4M3;
use hisa_ref::Overflow::{self, NonSaturating, Saturating};

/// The value of a finite code from the definition of the format, without the table.
fn by_definition(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 0xF), f64::from(code & 7));
    let magnitude = if exponent == 0 {
        mantissa * 2f64.powi(-9)
    } else {
        (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7)
    };
    if code & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// SPEC V.1.
#[test]
fn br_76_all_256_codes_decode() {
    for bits in 0..=255u8 {
        let code = E4M3::from_bits(bits);
        assert_eq!(code.to_bits(), bits);
        if bits & 0x7F == 0x7F {
            assert!(code.is_nan());
            assert_eq!(code.to_f32().to_bits(), 0x7FC0_0000);
            assert_eq!(code.units(), 0);
            continue;
        }
        assert!(!code.is_nan());
        let value = by_definition(bits);
        assert_eq!(f64::from(code.to_f32()), value, "{bits:#04x}");
        assert_eq!(
            code.to_f32().is_sign_negative(),
            bits >= 0x80,
            "{bits:#04x}"
        );
        assert_eq!(f64::from(code.units()) / 512.0, value, "{bits:#04x}");
        for mode in [Saturating, NonSaturating] {
            assert_eq!(
                E4M3::encode(code.to_f32(), mode),
                code,
                "a code encodes to itself"
            );
        }
    }
    assert_eq!(E4M3::from_bits(0x7E).to_f32(), 448.0);
    assert_eq!(E4M3::from_bits(0x01).to_f32(), 2f32.powi(-9));
    assert_eq!(E4M3::default(), E4M3::ZERO);
}

/// Nearest code by search: ties to the even code, magnitude up to 464 only.
fn by_search(x: f32) -> u8 {
    let magnitude = f64::from(x.abs());
    let nearest = (0..0x7Fu8).min_by(|&a, &b| {
        let distance = |code: u8| (by_definition(code) - magnitude).abs();
        distance(a)
            .total_cmp(&distance(b))
            .then((a & 1).cmp(&(b & 1)))
    });
    nearest.unwrap() | if x.is_sign_negative() { 0x80 } else { 0 }
}

/// SPEC V.2.
#[test]
fn br_75_every_midpoint_and_its_neighbours() {
    let mut checked = 0;
    for code in 0..0x7Eu8 {
        let midpoint = ((by_definition(code) + by_definition(code + 1)) / 2.0) as f32;
        let bits = midpoint.to_bits();
        for x in [bits - 1, bits, bits + 1].map(f32::from_bits) {
            for x in [x, -x] {
                assert_eq!(E4M3::encode(x, Saturating).to_bits(), by_search(x), "{x:e}");
                assert_eq!(
                    E4M3::encode(x, NonSaturating).to_bits(),
                    by_search(x),
                    "{x:e}"
                );
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 126 * 3 * 2);
    // Through f16 this would come out as 1.0.
    assert_eq!(
        E4M3::encode(f32::from_bits(0x3F88_0001), Saturating).to_f32(),
        1.125
    );
}

/// SPEC V.2.
#[test]
fn a_stride_through_all_f32() {
    let mut bits = 0u32;
    while let Some(next) = bits.checked_add(65_521) {
        let x = f32::from_bits(bits);
        if x.abs() <= 464.0 {
            assert_eq!(E4M3::encode(x, Saturating).to_bits(), by_search(x), "{x:e}");
        }
        bits = next;
    }
}

/// SPEC V.2 and V.8.
#[test]
fn br_73_br_78_overflow_in_both_modes() {
    let table: [(f32, u8, u8); 10] = [
        (448.0, 0x7E, 0x7E),
        (464.0, 0x7E, 0x7E),
        (464.000_03, 0x7E, 0x7F),
        (465.0, 0x7E, 0x7F),
        (480.0, 0x7E, 0x7F),
        (1e30, 0x7E, 0x7F),
        (f32::MAX, 0x7E, 0x7F),
        (f32::INFINITY, 0x7E, 0x7F),
        (f32::from_bits(0x0000_0001), 0x00, 0x00),
        (0.0, 0x00, 0x00),
    ];
    for (x, saturated, not) in table {
        for (x, sign) in [(x, 0x00), (-x, 0x80)] {
            let code = |mode: Overflow| E4M3::encode(x, mode).to_bits();
            assert_eq!(code(Saturating), saturated | sign, "{x}");
            assert_eq!(code(NonSaturating), not | sign, "{x}");
        }
    }
    let negative_nan = f32::from_bits(0xFFC0_0000);
    assert_eq!(E4M3::encode(f32::NAN.abs(), Saturating).to_bits(), 0x7F);
    assert_eq!(E4M3::encode(negative_nan, Saturating).to_bits(), 0x7F);
    assert_eq!(E4M3::encode(f32::NAN.abs(), NonSaturating).to_bits(), 0x7F);
    assert_eq!(E4M3::encode(negative_nan, NonSaturating).to_bits(), 0xFF);
}

/// SPEC V.2 and V.6.
#[test]
fn f64_arguments_round_once() {
    // 17 is the midpoint of 16 and 18; the distance is far below f32 resolution.
    assert_eq!(E4M3::encode_f64(17.0 + 1e-12, Saturating).to_f32(), 18.0);
    assert_eq!(E4M3::encode_f64(17.0 - 1e-12, Saturating).to_f32(), 16.0);
    assert_eq!(E4M3::encode_f64(17.0, Saturating).to_f32(), 16.0);
    assert_eq!(
        E4M3::encode_f64(464.0 + 1e-9, NonSaturating).to_bits(),
        0x7F
    );
    assert_eq!(E4M3::encode_f64(-1e-300, Saturating).to_bits(), 0x80);
}
