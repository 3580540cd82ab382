//! Codes of a quotient that is rounded to f32 before it is encoded.

use super::range::CodeRange;
use crate::fp8::{E4M3, Overflow};
use crate::stages::quantize::quotient_code;

/// The codes a port may give `x / scale`, where both are given and the division is IEEE's, in f32
/// or in anything more exact.
///
/// Scales need no range: `max |x|` is exact in every arithmetic, and one IEEE division is the
/// rounding of SPEC 1.2.
#[must_use]
pub fn code(x: f32, scale: f32, overflow: Overflow) -> CodeRange {
    quotients(x / scale, x, scale, overflow)
}

fn quotients(rounded: f32, x: f32, scale: f32, overflow: Overflow) -> CodeRange {
    let exact = quotient_code(x, scale, overflow);
    if exact.is_nan() || !rounded.is_finite() {
        return CodeRange::point(exact);
    }
    between(exact, E4M3::encode(rounded, overflow))
}

/// The range with these two ends, in either order.
pub(super) fn between(a: E4M3, b: E4M3) -> CodeRange {
    if a.units() <= b.units() {
        CodeRange::Between(a, b)
    } else {
        CodeRange::Between(b, a)
    }
}
