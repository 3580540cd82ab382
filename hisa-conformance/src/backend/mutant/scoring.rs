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
    let terms = (first..heads).map(|head| {
        let dot = dot(fault, &q[head * d..(head + 1) * d], &key[..d]);
        (relu(fault, dot, scale), weight(fault, weights[head]))
    });
    let scale = match fault {
        Fault::BlocksNoScale => 1.0,
        Fault::TokensScaleInRelu => scale.abs(),
        _ => scale,
    };
    let score = match fault {
        Fault::BlocksF32Heads => plain(terms, scale, |sum| sum),
        Fault::BlocksBf16Sum => plain(terms, scale, round_to_bf16),
        Fault::BlocksReluOfSum => {
            let sum = total(terms, 1.0);
            (if sum < 0.0 { 0.0 } else { sum }) * scale
        }
        Fault::TokensRoundedSum => total(terms, 1.0) * scale,
        _ => total(terms, scale),
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
        | BlocksBf16Sum | BlocksHopper | BlocksNoScale | BlocksHeadTail | BlocksHeadTile
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
    let swizzle = if fault == Fault::BlocksSwizzle && d != 128 && d % 32 == 0 {
        16
    } else {
        0
    };
    let (mut sum, mut nan) = (0i64, false);
    for at in 0..d {
        let (a, b) = (q[at], key[at ^ swizzle]);
        let product = units(fault, a) * units(fault, b);
        nan |= a.is_nan() || b.is_nan();
        sum += product;
    }
    match fault {
        // A NaN counts as 480 there, and as 0 units here.
        Fault::TokensDecode480 | Fault::TokensNanSkipped => sum as f64,
        _ if nan => f64::NAN,
        Fault::TokensF16Dots => half(sum as f64 * UNIT) / UNIT,
        _ => sum as f64,
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

/// `scale * sum`, rounded once, of clamped dots in units of 2^-18 and their weights. The sign of
/// a zero is that of an accumulator that starts with its first term.
fn total(mut terms: impl Iterator<Item = (f64, f32)> + Clone, scale: f32) -> f32 {
    let again = terms.clone();
    let Some((dot, weight)) = terms.next() else {
        return 0.0;
    };
    let mut sum = dot * f64::from(weight);
    let (mut size, mut count) = (sum.abs(), 1.0);
    for (dot, weight) in terms {
        let product = dot * f64::from(weight);
        (sum, size, count) = (sum + product, size + product.abs(), count + 1.0);
    }
    let scale64 = f64::from(scale) * UNIT;
    let value = sum * scale64;
    if value.is_nan() {
        return exact_total(again, scale);
    }
    if !size.is_finite() {
        return value as f32;
    }
    // The error of the sum and of the product, with room to spare.
    let error = size * scale64.abs() * ((count + 8.0) * 1.2e-16);
    if (value - error) as f32 == (value + error) as f32 {
        return value as f32;
    }
    exact_total(again, scale)
}

/// The same by an exact sum: where f64 does not decide, and where an infinite scale needs the
/// sign of the sum.
fn exact_total(terms: impl Iterator<Item = (f64, f32)>, scale: f32) -> f32 {
    let mut sum = ExactSum::ZERO;
    for (dot, weight) in terms {
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
fn plain(terms: impl Iterator<Item = (f64, f32)>, scale: f32, store: impl Fn(f32) -> f32) -> f32 {
    let mut sum = 0.0f32;
    for (dot, weight) in terms {
        sum = store(sum + (dot * UNIT) as f32 * weight);
    }
    sum * scale
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
