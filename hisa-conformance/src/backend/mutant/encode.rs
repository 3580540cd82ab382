//! Roundings to few bits, and the encoder of `quantize`.

use super::fault::Fault;
use super::launch::Launch;
use hisa_ref::{E4M3, Overflow};

/// Spacing of the numbers with `bits` significant bits around `x`, never below that of the least
/// exponent.
fn spacing(x: f64, bits: i32, least_exponent: i32) -> f64 {
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).clamp(least_exponent, 1000);
    2f64.powi(exponent + 1 - bits)
}

/// `x` in half precision.
pub(super) fn half(x: f64) -> f64 {
    if !x.is_finite() {
        return x;
    }
    let step = spacing(x, 11, -14);
    let rounded = (x / step).round_ties_even() * step;
    if rounded.abs() > 65504.0 {
        f64::INFINITY.copysign(x)
    } else {
        rounded
    }
}

/// `quotient` as a code; every NaN is 0x7F.
pub(super) fn encode(launch: &Launch, quotient: f64, lane: usize, overflow: Overflow) -> E4M3 {
    if quotient.is_nan() {
        return if launch.is(Fault::QuantizeNanToMax) {
            E4M3::from_bits(0xFE)
        } else {
            E4M3::NAN
        };
    }
    let step = spacing(quotient, 4, -6);
    let steps = (quotient / step).abs();
    let signed = |steps: f64| (steps * step).copysign(quotient);
    let finite = quotient.is_finite();
    let value = match launch.fault {
        Fault::QuantizeTruncate if finite => signed(steps.floor()),
        Fault::QuantizeHalfUp if finite => signed((steps + 0.5).floor()),
        Fault::QuantizeViaF16 => half(quotient),
        _ => quotient,
    };
    let (saturating, other) = (Overflow::Saturating, Overflow::NonSaturating);
    let overflow = match launch.fault {
        Fault::QuantizeOverflowSwapped if overflow == saturating => other,
        Fault::QuantizeOverflowSwapped => saturating,
        Fault::QuantizeLaneOverflow if lane % 4 == 3 => saturating,
        _ => overflow,
    };
    let code = E4M3::encode_f64(value, overflow);
    if launch.is(Fault::QuantizeFlush) && code.to_bits() & 0x78 == 0 {
        E4M3::from_bits(code.to_bits() & 0x80)
    } else {
        code
    }
}
