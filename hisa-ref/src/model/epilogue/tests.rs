//! The exact fused multiply-add against wide integers, and orders worked by hand.

use super::*;
use crate::exact::{ExactSum, decompose};

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// Any sign and fraction, sparse ones often, with an exponent field in the range.
    fn float(&mut self, lowest: u32, highest: u32) -> f32 {
        let field = lowest + self.bits() % (highest - lowest + 1);
        let fraction = match self.bits() % 4 {
            0 => 1 << (self.bits() % 23),
            1 => 0x7F_FFFF << (self.bits() % 23),
            _ => self.bits(),
        };
        f32::from_bits(self.bits() & 0x8000_0000 | field << 23 | fraction & 0x7F_FFFF)
    }
}

/// `a * b + c` in integers; the exponents of both terms are within 380 of each other.
fn fma_in_integers(a: f32, b: f32, c: f32) -> f32 {
    let ((ma, ea), (mb, eb), (mc, ec)) = (decompose(a), decompose(b), decompose(c));
    let unit = Ord::min(ea + eb, ec);
    let mut sum = ExactSum::ZERO;
    sum.add_shifted(i128::from(ma) * i128::from(mb), (ea + eb - unit) as u32);
    sum.add_shifted(i128::from(mc), (ec - unit) as u32);
    sum.scaled_to_f32(1, unit)
}

#[test]
fn fma_rounds_once() {
    let mut random = Random(7);
    let mut twice = 0;
    for _ in 0..200_000 {
        let (low, high) = [(100, 150), (0, 3), (60, 68), (250, 254)][random.bits() as usize % 4];
        let a = random.float(low, high);
        let b = random.float(100, 130);
        // Near cancellation and far apart alike.
        let c = match random.bits() % 3 {
            0 => -(a * b),
            1 => a * random.float(100, 127),
            _ => random.float(90, 160),
        };
        if !(a * b).is_finite() || !c.is_finite() {
            continue;
        }
        let (got, want) = (fma(a, b, c), fma_in_integers(a, b, c));
        assert!(got == want, "{a:e} * {b:e} + {c:e}: {got:e} for {want:e}");
        twice += u32::from(got != (f64::from(a) * f64::from(b) + f64::from(c)) as f32);
    }
    assert!(
        twice > 100,
        "only {twice} cases where rounding to f64 first goes wrong"
    );
}

#[test]
fn fma_of_specials() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    assert_eq!(fma(inf, 1.0, 1.0), inf);
    assert_eq!(fma(f32::MAX, 2.0, 0.0), inf);
    assert_eq!(fma(f32::MAX, -2.0, 0.0), -inf);
    assert_eq!(
        fma(f32::MAX, 2.0, -f32::MAX),
        f32::MAX,
        "no overflow in between"
    );
    for (a, b, c) in [
        (inf, 0.0, 1.0),
        (inf, 1.0, -inf),
        (nan, 1.0, 1.0),
        (1.0, 1.0, nan),
    ] {
        assert_eq!(fma(a, b, c).to_bits(), DEVICE_NAN.to_bits());
    }
    assert_eq!(fma(-0.0, 1.0, -0.0).to_bits(), 0x8000_0000);
    assert_eq!(fma(1.0, 1.0, -1.0).to_bits(), 0);
    // 2^-149 * 0.5 is half of the least subnormal: a tie to zero; any more and it rounds up.
    let least = f32::from_bits(1);
    assert_eq!(fma(least, 0.5, 0.0), 0.0);
    assert_eq!(
        fma(least, 0.5, least),
        2.0 * least,
        "1.5 units: tie to even"
    );
    assert_eq!(fma(least, 0.5 + f32::EPSILON, 0.0), least);
}

const PLAIN: Epilogue = Epilogue {
    order: HeadOrder::Sequential,
    arithmetic: Arithmetic {
        fused: false,
        flush: false,
    },
    scale: ScalePlace::Outside,
    relu: Relu::KeepsNan,
};

#[test]
fn orders_differ_as_worked_by_hand() {
    // Weights 2^24, 1, -2^24 on dots of 1 (the example of SPEC S.4): 2^24 + 1 is a tie that goes
    // to 2^24. DeepGEMM: heads 0 and 1 are two sums of thread 0 and meet first, head 2 is thread 1.
    let weights = [16_777_216.0, 1.0, -16_777_216.0];
    assert_eq!(PLAIN.score(&[1.0; 3], &weights, 1.0), 0.0);
    let deep = Epilogue {
        order: HeadOrder::DeepGemmSm90,
        ..PLAIN
    };
    assert_eq!(deep.score(&[1.0; 3], &weights, 1.0), 0.0);
    // Heads 0 and 8 share a running sum, head 1 joins after: the large ones cancel first.
    let mut nine = [0.0; 9];
    (nine[0], nine[1], nine[8]) = (16_777_216.0, 1.0, -16_777_216.0);
    assert_eq!(deep.score(&[1.0; 9], &nine, 3.0), 3.0);
    assert_eq!(PLAIN.score(&[1.0; 9], &nine, 3.0), 0.0);
    // Heads 2, 4, 6 belong to threads 1, 2, 3: (0 + t1) + (t2 + t3).
    let mut seven = [0.0; 7];
    (seven[2], seven[4], seven[6]) = (1.0, 16_777_216.0, -16_777_216.0);
    assert_eq!(deep.score(&[1.0; 7], &seven, 1.0), 1.0);
    (seven[2], seven[4], seven[6]) = (33_554_432.0, 1.0, -33_554_432.0);
    assert_eq!(deep.score(&[1.0; 7], &seven, 1.0), 0.0);
}

#[test]
fn fusion_and_scale_place_change_bits() {
    // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11; minus that, only the fused form
    // keeps 2^-24.
    let x = 1.0 + 2f32.powi(-12);
    let weights = [-(1.0 + 2f32.powi(-11)), x];
    assert_eq!(PLAIN.score(&[1.0, x], &weights, 1.0), 0.0);
    let fused = Arithmetic {
        fused: true,
        flush: false,
    };
    let fused = Epilogue {
        arithmetic: fused,
        ..PLAIN
    };
    assert_eq!(fused.score(&[1.0, x], &weights, 1.0), 2f32.powi(-24));
    // A negative scale: inside the ReLU it lets the negative dot through.
    let inside = Epilogue {
        scale: ScalePlace::InsideRelu,
        ..PLAIN
    };
    assert_eq!(inside.score(&[-3.0, 2.0], &[1.0; 2], -1.0), 3.0);
    assert_eq!(PLAIN.score(&[-3.0, 2.0], &[1.0; 2], -1.0), -2.0);
}

#[test]
fn nan_and_flush() {
    let nan = PLAIN.score(&[f32::NAN, 1.0], &[0.0, 1.0], 1.0);
    assert_eq!(nan.to_bits(), 0x7FFF_FFFF);
    let fmax = Epilogue {
        relu: Relu::Fmax,
        ..PLAIN
    };
    assert_eq!(fmax.score(&[f32::NAN, 1.0], &[0.0, 1.0], 1.0), 1.0);
    let flush = Arithmetic {
        fused: false,
        flush: true,
    };
    let flush = Epilogue {
        arithmetic: flush,
        ..PLAIN
    };
    let tiny = f32::MIN_POSITIVE;
    assert_eq!(PLAIN.score(&[0.5], &[tiny], 1.0), tiny / 2.0);
    assert_eq!(flush.score(&[0.5], &[tiny], 1.0), 0.0);
    assert_eq!(
        flush.score(&[4.0], &[tiny / 2.0], 1.0),
        0.0,
        "inputs are flushed too"
    );
    assert_eq!(PLAIN.score(&[], &[], 1.0).to_bits(), 0);
}

/// Counted by hand: per running sum a product and seven additions of eight heads, then the pair,
/// the scale and two lanes; one after another, a product, 63 additions and the scale.
#[test]
fn roundings_on_the_longest_path() {
    let deep = Epilogue {
        order: HeadOrder::DeepGemmSm90,
        ..PLAIN
    };
    assert_eq!(deep.roundings(64), 1 + 7 + 1 + 1 + 2);
    assert_eq!(deep.roundings(65), 1 + 8 + 1 + 1 + 2);
    assert_eq!(PLAIN.roundings(64), 1 + 63 + 1);
}
