//! Published vectors, the bulk streams that ran on an H200, and a second way to compute a step.

mod vectors;

use super::*;
use crate::model::DotClass::*;

/// xorshift64*, the top byte of each draw.
struct Bytes(u64);

impl Bytes {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    fn next(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
    }
}

/// Every finite code.
fn wide(byte: u8) -> E4M3 {
    E4M3::from_bits(if byte & 0x7F == 0x7F {
        byte ^ 0x40
    } else {
        byte
    })
}

/// Four binades, both signs.
fn narrow(byte: u8) -> E4M3 {
    E4M3::from_bits((byte & 0x80) | (0x28 + (byte & 0x1F)))
}

/// 4,096 pairs of 128 codes, drawn a0, b0, a1, b1, ...
fn stream(shape: fn(u8) -> E4M3) -> Vec<[Vec<E4M3>; 2]> {
    let mut bytes = Bytes::new();
    let mut vector = |_| {
        let pairs: Vec<_> = (0..128)
            .map(|_| (shape(bytes.next()), shape(bytes.next())))
            .collect();
        let (a, b) = pairs.into_iter().unzip();
        [a, b]
    };
    (0..4096).map(&mut vector).collect()
}

/// FNV-1a over the little-endian bytes of all results.
fn hash(results: &[f32]) -> u64 {
    let bytes = results.iter().flat_map(|x| x.to_bits().to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

fn hash_of_unit(unit: &Unit, vectors: &[[Vec<E4M3>; 2]]) -> u64 {
    let results: Vec<f32> = vectors
        .iter()
        .map(|[a, b]| dot_of_unit(unit, a, b))
        .collect();
    hash(&results)
}

#[test]
fn bulk_streams_have_the_hashes_seen_on_hardware() {
    let first = |shape: fn(u8) -> E4M3| {
        let [a, b] = &stream(shape)[0];
        [a, b].map(|codes| [0, 1, 2, 3].map(|k| codes[k].to_bits()))
    };
    assert_eq!(
        first(wide),
        [[0x0D, 0xA8, 0x90, 0xD5], [0x54, 0x7D, 0x9D, 0x67]]
    );
    assert_eq!(
        first(narrow),
        [[0x35, 0xB0, 0xB8, 0xBD], [0x3C, 0x45, 0xC5, 0x2F]]
    );
    for (name, shape, rows) in [
        ("wide", wide as fn(u8) -> E4M3, &vectors::WIDE),
        ("narrow", narrow, &vectors::NARROW),
    ] {
        let stream = stream(shape);
        for &(class, want, first) in rows {
            let results: Vec<f32> = stream.iter().map(|[a, b]| dot(class, a, b)).collect();
            let got = [0, 1, 2].map(|i| results[i].to_bits());
            assert_eq!(got, first, "{name}, {class}: {got:#010x?}");
            assert_eq!(hash(&results), want, "{name}, {class}");
        }
    }
}

/// How often the note says that exact and Hopper differ.
#[test]
fn hopper_is_almost_never_exact() {
    for (shape, want) in [(wide as fn(u8) -> E4M3, 4095), (narrow, 2521)] {
        let differ = |[a, b]: &&[Vec<E4M3>; 2]| dot(Exact, a, b) != dot(HopperQgmma, a, b);
        assert_eq!(stream(shape).iter().filter(differ).count(), want);
    }
}

#[test]
fn vectors_of_the_note() {
    for vector in vectors::ALL {
        let (a, b) = vector.operands();
        for (class, want) in [Exact, HopperQgmma, AdaQmma, BlackwellF25, HmmaEmulated]
            .into_iter()
            .zip(vector.results)
        {
            let got = dot(class, &a, &b).to_bits();
            assert_eq!(got, want, "{}, {class}: {got:#010x}", vector.id);
            assert_eq!(dot(class, &b, &a).to_bits(), want, "{}, swapped", vector.id);
            let negated: Vec<_> = a
                .iter()
                .map(|x| E4M3::from_bits(x.to_bits() ^ 0x80))
                .collect();
            let sign = if want == 0 { 0 } else { 0x8000_0000 };
            assert_eq!(
                dot(class, &negated, &b).to_bits(),
                want ^ sign,
                "{}",
                vector.id
            );
        }
    }
}

/// T6 tells whether a subnormal keeps its exponent; the streams do not.
#[test]
fn subnormals_are_not_renormalised() {
    let (a, b) = vectors::ALL
        .iter()
        .find(|v| v.id == "T6")
        .unwrap()
        .operands();
    let unit = HopperQgmma.unit().unwrap();
    assert_eq!(dot_of_unit(&unit, &a, &b), 0.0);
    let operand = Operand::F16;
    assert_eq!(
        dot_of_unit(&Unit { operand, ..unit }, &a, &b).to_bits(),
        0x3980_0000
    );
}

/// Any other record fails on the streams: the tests above can tell.
#[test]
fn other_records_have_other_hashes() {
    let stream = stream(wide);
    for (class, want, _) in vectors::WIDE {
        let Some(unit) = class.unit() else { continue };
        assert_eq!(hash_of_unit(&unit, &stream), want);
        let fraction = |by| Unit {
            fraction_bits: unit.fraction_bits + by,
            ..unit
        };
        let chain = match unit.chain {
            Chain::Whole => Chain::PerChunk,
            Chain::PerChunk => Chain::Whole,
        };
        let grouping = match unit.grouping {
            Grouping::Contiguous => Grouping::PairsModFour,
            Grouping::PairsModFour => Grouping::Contiguous,
        };
        for wrong in [
            fraction(-1),
            fraction(1),
            Unit {
                kept_bits: unit.kept_bits - 1,
                ..unit
            },
            Unit { chain, ..unit },
            Unit {
                grouping,
                group: 16,
                ..unit
            },
            Unit {
                group: if unit.group == 16 { 32 } else { 16 },
                ..unit
            },
        ] {
            assert_ne!(hash_of_unit(&wrong, &stream), want, "{class}: {wrong:?}");
        }
    }
}

/// The step in values instead of significands: f64 holds every term and every cut exactly.
fn step_in_values(unit: &Unit, pairs: &[(E4M3, E4M3)], c: f32) -> f32 {
    let exponent = |code: E4M3| {
        let true_exponent = code.to_f32().abs().log2().floor() as i32;
        match unit.operand {
            Operand::E4M3 => Ord::max(true_exponent, -6),
            Operand::F16 => true_exponent,
        }
    };
    let mut terms: Vec<(f64, i32)> = pairs
        .iter()
        .filter(|(a, b)| a.units() != 0 && b.units() != 0)
        .map(|&(a, b)| {
            let product = f64::from(a.to_f32()) * f64::from(b.to_f32());
            (product, exponent(a) + exponent(b))
        })
        .collect();
    if c != 0.0 {
        terms.push((f64::from(c), c.abs().log2().floor() as i32));
    }
    let top = terms.iter().map(|term| term.1).max().unwrap_or(0);
    let grid = 2f64.powi(top - unit.fraction_bits);
    let sum: f64 = terms
        .iter()
        .map(|term| (term.0 / grid).trunc() * grid)
        .sum();
    if sum == 0.0 {
        return 0.0;
    }
    let last = 2f64.powi(sum.abs().log2().floor() as i32 - unit.kept_bits);
    ((sum / last).trunc() * last) as f32
}

#[test]
fn every_unit_agrees_with_the_step_in_values() {
    let mut bytes = Bytes::new();
    for unit in DotClass::ALL.into_iter().filter_map(DotClass::unit) {
        for round in 0..4000 {
            let shape = if round % 2 == 0 { wide } else { narrow };
            let pairs: Vec<_> = (0..unit.group)
                .map(|_| (shape(bytes.next()), shape(bytes.next())))
                .collect();
            let code = shape(bytes.next());
            let c = match round % 4 {
                0 => 0.0,
                1 => code.to_f32() * 1.000_123,
                2 => code.to_f32() * 300.7,
                _ => code.to_f32() / 777.7,
            };
            let got = step(&unit, pairs.iter().copied(), c);
            let want = step_in_values(&unit, &pairs, c);
            assert_eq!(got.to_bits(), want.to_bits(), "{unit:?} {pairs:?} {c:e}");
        }
    }
}

#[test]
fn specials_of_a_step() {
    let zeros = [(E4M3::ZERO, E4M3::from_bits(0x38)); 4];
    for unit in DotClass::ALL.into_iter().filter_map(DotClass::unit) {
        let after = |c: u32| step(&unit, zeros.into_iter(), f32::from_bits(c)).to_bits();
        assert_eq!(after(0x7F80_0000), 0x7F80_0000);
        assert_eq!(after(0xFF80_0000), 0xFF80_0000);
        assert_eq!(after(0x7FC0_0000), 0x7FFF_FFFF);
        assert_eq!(after(0x8000_0000), 0, "-0 becomes +0");
        let with_nan = zeros.into_iter().chain([(E4M3::ZERO, E4M3::NAN)]);
        assert_eq!(step(&unit, with_nan, f32::INFINITY).to_bits(), 0x7FFF_FFFF);
        let (least, largest) = match unit.kept_bits {
            13 => (0, 0x7F7F_FC00),
            _ => (1, 0x7F7F_FFFF),
        };
        assert_eq!(after(1), least, "least subnormal, {unit:?}");
        assert_eq!(after(0x7F7F_FFFF), largest, "largest finite, {unit:?}");
    }
}

#[test]
fn specials_of_a_dot() {
    let one = E4M3::from_bits(0x38);
    for class in DotClass::ALL {
        assert_eq!(dot(class, &[], &[]).to_bits(), 0, "{class}");
        let nan = if class == Exact { NAN } else { DEVICE_NAN };
        for d in [1, 31, 33, 128, 200] {
            let ones = vec![one; d];
            assert_eq!(dot(class, &ones, &ones), d as f32, "{class}, D = {d}");
            for at in [0, d / 2, d - 1] {
                let mut codes = ones.clone();
                codes[at] = E4M3::from_bits(0xFF);
                let got = dot(class, &codes, &vec![E4M3::ZERO; d]);
                assert_eq!(
                    got.to_bits(),
                    nan.to_bits(),
                    "{class}, D = {d}, NaN at {at}"
                );
            }
        }
        assert_eq!(DotClass::from_name(class.name()), Some(class));
    }
    assert_eq!(DotClass::from_name("turing"), None);
}

/// A D that is no multiple of the group equals the same vector filled up with zeros.
#[test]
fn short_chunks_are_filled_with_zeros() {
    for class in DotClass::ALL {
        for (i, [a, b]) in stream(wide).iter().take(300).enumerate() {
            let d = 1 + i % 127;
            let fill = |codes: &[E4M3]| {
                let mut codes = codes[..d].to_vec();
                codes.resize(d.next_multiple_of(32), E4M3::ZERO);
                codes
            };
            let (short, filled) = (dot(class, &a[..d], &b[..d]), dot(class, &fill(a), &fill(b)));
            assert_eq!(short.to_bits(), filled.to_bits(), "{class}, D = {d}");
        }
    }
}

/// The f16 classes have no published vectors: these are worked by hand.
#[test]
fn windows_of_the_f16_classes() {
    // 256 * 256 - 256 * 256 has exponent 16: the grid is 2^-9 for F = 25 and 2^-8 for F = 24, and
    // the third product is 2^-8, 2^-9 or 2^-10.
    for (third, hopper, ampere) in [(0x10, 8, 8), (0x08, 9, -1), (0x04, -1, -1)] {
        let q = [0x78, 0xF8, third].map(E4M3::from_bits);
        let key = [0x78, 0x78, 0x20].map(E4M3::from_bits);
        let value = |exponent: i32| {
            if exponent < 0 {
                0.0
            } else {
                2f32.powi(-exponent)
            }
        };
        assert_eq!(dot(HopperHgmmaF16, &q, &key), value(hopper), "{third:#x}");
        assert_eq!(dot(AmpereHmmaF16, &q, &key), value(ampere), "{third:#x}");
    }
    // T15 at k = 0, 1, 8 instead: a step of 8 no longer sees the two large products next to the
    // small one, a step of 16 does.
    let (mut q, mut key) = (vec![E4M3::ZERO; 16], vec![E4M3::ZERO; 16]);
    for (k, a, b) in [(0, 0x7E, 0x7E), (1, 0xFE, 0x7E), (8, 0x10, 0x10)] {
        (q[k], key[k]) = (E4M3::from_bits(a), E4M3::from_bits(b));
    }
    assert_eq!(dot(HopperHgmmaF16, &q, &key), 0.0);
    assert_eq!(dot(AmpereHmmaF16, &q, &key), 2f32.powi(-10));
}
