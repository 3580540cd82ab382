//! The score of a row against a key: three kernels in a port, hence the place it is taken at.

use super::encode::half;
use super::fault::Fault;
use super::launch::Launch;
use hisa_ref::E4M3;
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::exact::{ExactSum, NAN};
use hisa_ref::model::{DotClass, dot as device_dot};

/// Where a score is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    Blocks,
    Tokens,
    Flat,
}

/// Dots count units of 2^-18.
const UNIT: f64 = 1.0 / 262_144.0;

/// Score of the codes `[H,D]` and weights `[H]` of a row against one key.
pub(super) fn score(
    launch: &Launch,
    site: Site,
    (q, weights): (&[E4M3], &[f32]),
    key: &[E4M3],
    scale: f32,
) -> f32 {
    let d = launch.d;
    if key.len() < d || q.len() < launch.h * d {
        return NAN;
    }
    let fault = active(launch.fault, site);
    let heads = match fault {
        Fault::BlocksHeadTail => launch.h / 8 * 8,
        Fault::BlocksHeadTile => launch.h.min(32),
        _ => launch.h,
    };
    let first = usize::from(fault == Fault::BlocksRace && launch.number > 1).min(heads);
    let mut terms: Terms = Terms::default();
    for head in first..heads {
        let dot = dot(fault, &q[head * d..(head + 1) * d], &key[..d]);
        terms.push(relu(fault, dot, scale), weight(fault, weights[head]));
    }
    let scale = match fault {
        Fault::BlocksNoFloorScale => 1.0,
        Fault::TokensScaleInRelu => scale.abs(),
        _ => scale,
    };
    let score = match fault {
        Fault::BlocksF32Heads => terms.plain(scale, |sum| sum),
        Fault::BlocksBf16Sum => terms.plain(scale, round_to_bf16),
        Fault::BlocksReluOfSum => {
            let sum = terms.total(1.0);
            (if sum < 0.0 { 0.0 } else { sum }) * scale
        }
        Fault::TokensRoundedSum => terms.total(1.0) * scale,
        _ => terms.total(scale),
    };
    match fault {
        Fault::TokensBf16Scores | Fault::DsaBf16 => round_to_bf16(score),
        Fault::TokensNanToInf if score.is_nan() => f32::NEG_INFINITY,
        Fault::TokensFlush if score.is_subnormal() => 0.0,
        _ => score,
    }
}

/// The fault, where it sits in the kernel of this place.
fn active(fault: Fault, site: Site) -> Fault {
    use Fault::*;
    let at = match fault {
        BlocksNoRelu | BlocksReluOfSum | BlocksFmaxRelu | BlocksBf16Weights | BlocksF32Heads
        | BlocksBf16Sum | BlocksHopper | BlocksNoFloorScale | BlocksHeadTail | BlocksHeadTile
        | BlocksSwizzle | BlocksDimTail | BlocksRace => Site::Blocks,
        TokensScaleInRelu | TokensRoundedSum | TokensF16Dots | TokensBf16Scores
        | TokensDecode480 | TokensDecodeFlush | TokensNanSkipped | TokensNanToInf | TokensFlush => {
            Site::Tokens
        }
        DsaBf16 => Site::Flat,
        _ => return None,
    };
    if at == site { fault } else { None }
}

/// A dot in units of 2^-18; NaN where a code is.
fn dot(fault: Fault, q: &[E4M3], key: &[E4M3]) -> f64 {
    let d = match fault {
        Fault::BlocksDimTail => q.len() / 16 * 16,
        Fault::BlocksHopper => return f64::from(device_dot(DotClass::HopperQgmma, q, key)) / UNIT,
        _ => q.len(),
    };
    let mut sum = 0i64;
    for at in 0..d {
        let swizzled = at ^ 16;
        let other = if fault == Fault::BlocksSwizzle && d != 128 && swizzled < d {
            swizzled
        } else {
            at
        };
        let (a, b) = (q[at], key[other]);
        if a.is_nan() || b.is_nan() {
            match fault {
                Fault::TokensDecode480 => {}
                Fault::TokensNanSkipped => continue,
                _ => return f64::NAN,
            }
        }
        sum += units(fault, a) * units(fault, b);
    }
    if fault == Fault::TokensF16Dots {
        half(sum as f64 * UNIT) / UNIT
    } else {
        sum as f64
    }
}

/// A code in units of 2^-9.
fn units(fault: Fault, code: E4M3) -> i64 {
    let bits = code.to_bits();
    match fault {
        Fault::TokensDecode480 if code.is_nan() => {
            if bits >> 7 == 1 {
                -480 * 512
            } else {
                480 * 512
            }
        }
        Fault::TokensDecodeFlush if bits & 0x78 == 0 => 0,
        _ => i64::from(code.units()),
    }
}

fn relu(fault: Fault, dot: f64, scale: f32) -> f64 {
    let dot = if fault == Fault::TokensScaleInRelu && scale < 0.0 {
        -dot
    } else {
        dot
    };
    match fault {
        Fault::BlocksNoRelu | Fault::BlocksReluOfSum => dot,
        Fault::BlocksFmaxRelu if dot.is_nan() => 0.0,
        _ if dot <= 0.0 => 0.0,
        _ => dot,
    }
}

fn weight(fault: Fault, weight: f32) -> f32 {
    if fault == Fault::BlocksBf16Weights {
        round_to_bf16(weight)
    } else {
        weight
    }
}

/// Clamped dots, in units of 2^-18, with their weights.
#[derive(Debug, Default)]
struct Terms {
    pairs: Vec<(f64, f32)>,
}

impl Terms {
    fn push(&mut self, dot: f64, weight: f32) {
        self.pairs.push((dot, weight));
    }

    /// `scale * sum`, rounded once. The sign of a zero is that of the first-term accumulator.
    fn total(&self, scale: f32) -> f32 {
        let mut products = self
            .pairs
            .iter()
            .map(|&(dot, weight)| dot * f64::from(weight));
        let Some(first) = products.next() else {
            return 0.0;
        };
        let (mut sum, mut size) = (first, first.abs());
        for product in products {
            (sum, size) = (sum + product, size + product.abs());
        }
        let scale64 = f64::from(scale) * UNIT;
        let value = sum * scale64;
        if value.is_nan() {
            return self.special(scale);
        }
        if !size.is_finite() {
            return value as f32;
        }
        let error = size * scale64.abs() * ((self.pairs.len() as f64 + 8.0) * 1.2e-16);
        if (value - error) as f32 == (value + error) as f32 {
            return value as f32;
        }
        self.special(scale)
    }

    /// The same by exact sums: where f64 does not decide, and where an infinite scale needs the
    /// sign of the sum.
    fn special(&self, scale: f32) -> f32 {
        let mut sum = ExactSum::ZERO;
        for &(dot, weight) in &self.pairs {
            if !dot.is_finite() || !weight.is_finite() {
                return NAN;
            }
            let (mantissa, exponent) = decompose(weight);
            sum.add_shifted(dot as i128 * i128::from(mantissa), (exponent + 149) as u32);
        }
        if scale.is_finite() {
            let (mantissa, exponent) = decompose(scale);
            return sum.scaled_to_f32(mantissa, exponent - 149 - 18);
        }
        if scale.is_nan() || sum.is_zero() {
            NAN
        } else if sum.is_negative() == (scale < 0.0) {
            f32::INFINITY
        } else {
            f32::NEG_INFINITY
        }
    }

    /// The sum in f32 from head 0 on, each step rounded once more by `store`.
    fn plain(&self, scale: f32, store: impl Fn(f32) -> f32) -> f32 {
        let mut sum = 0.0f32;
        for &(dot, weight) in &self.pairs {
            sum = store(sum + (dot * UNIT) as f32 * weight);
        }
        sum * scale
    }
}

/// A finite f32 as an integer and an exponent of two, at least -149.
fn decompose(x: f32) -> (i32, i32) {
    let bits = x.to_bits();
    let (field, fraction) = ((bits >> 23 & 0xFF) as i32, (bits & 0x7F_FFFF) as i32);
    let (magnitude, exponent) = if field == 0 {
        (fraction, -149)
    } else {
        (fraction | 0x80_0000, field - 150)
    };
    (if x < 0.0 { -magnitude } else { magnitude }, exponent)
}
