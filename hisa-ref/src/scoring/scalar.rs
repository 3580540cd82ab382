//! The scoring rule as SPEC S states it: exact integers throughout, rounded once.

use crate::exact::{ExactSum, Extended, ExtendedSum, F32_UNIT_EXPONENT, NAN, decompose};
use crate::fp8::{E4M3, UNIT_EXPONENT};

/// Dots count units of 2^-18.
pub const DOT_UNIT_EXPONENT: i32 = 2 * UNIT_EXPONENT;

/// One dot and the size of what went into it, in units of 2^-18.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dot {
    /// `sum_d q[d] * key[d]`, exactly.
    pub value: i64,
    /// `sum_d |q[d] * key[d]|`, exactly: error bounds of other arithmetics need it.
    pub absolute: i64,
}

/// `sum_d q[d] * key[d]`, or `None` if a code is NaN. Both slices hold D codes, D at most
/// [`HEAD_DIM_MAX`](crate::params::HEAD_DIM_MAX): what only one of them holds is not looked at.
#[must_use]
pub fn dot(q: &[E4M3], key: &[E4M3]) -> Option<Dot> {
    let mut sum = Dot {
        value: 0,
        absolute: 0,
    };
    for (&a, &b) in q.iter().zip(key) {
        if a.is_nan() || b.is_nan() {
            return None;
        }
        let product = i64::from(a.units()) * i64::from(b.units());
        sum.value += product;
        sum.absolute += product.abs();
    }
    Some(sum)
}

/// Score of one query row `q` `[H,D]` with `weights` `[H]` against one key `[D]` and its scale.
///
/// NaN (always 0x7FC00000) where a code is NaN or where IEEE 754 makes one of an infinite or NaN
/// weight or scale. Shapes are the caller's duty: [`Queries`](crate::Queries) and
/// [`Keys`](crate::Keys) check them.
///
/// # Panics
/// For D = 0.
#[must_use]
pub fn score(q: &[E4M3], weights: &[f32], key: &[E4M3], scale: f32) -> f32 {
    let mut sum = ExtendedSum::new(0);
    for (head, &weight) in q.chunks_exact(key.len()).zip(weights) {
        match dot(head, key) {
            Some(dot) => sum.add_product(dot.value.max(0), weight),
            None => sum.poison(),
        }
    }
    scaled(sum.total(), scale)
}

/// The score of heads whose dots are known, as pairs of a dot in units of 2^-18 and a weight.
#[must_use]
pub fn score_of_dots(heads: &[(i64, f32)], scale: f32) -> f32 {
    let mut sum = ExtendedSum::new(0);
    for &(dot, weight) in heads {
        sum.add_product(dot.max(0), weight);
    }
    scaled(sum.total(), scale)
}

/// `scale * sum`, rounded once.
fn scaled(sum: Extended, scale: f32) -> f32 {
    match sum {
        Extended::NaN => NAN,
        _ if scale.is_nan() => NAN,
        Extended::Finite(sum) if scale.is_finite() => {
            let (mantissa, exponent) = decompose(scale);
            sum.scaled_to_f32(mantissa, exponent + F32_UNIT_EXPONENT + DOT_UNIT_EXPONENT)
        }
        Extended::Finite(sum) if sum.is_zero() => NAN,
        Extended::Finite(sum) => infinity(sum.is_negative() != (scale < 0.0)),
        Extended::Infinite(_) if scale == 0.0 => NAN,
        Extended::Infinite(negative) => infinity(negative != (scale < 0.0)),
    }
}

fn infinity(negative: bool) -> f32 {
    if negative {
        f32::NEG_INFINITY
    } else {
        f32::INFINITY
    }
}

/// `sum_h |weights[h]| * max(0, dot_h) * |scale|`, rounded upward: what error bounds of head sums
/// are relative to. Infinite where any input is not finite. Shapes as in [`score`].
///
/// # Panics
/// For D = 0.
#[must_use]
pub fn magnitude(q: &[E4M3], weights: &[f32], key: &[E4M3], scale: f32) -> f64 {
    let mut sum = ExactSum::ZERO;
    for (head, &weight) in q.chunks_exact(key.len()).zip(weights) {
        let Some(dot) = dot(head, key).filter(|_| weight.is_finite()) else {
            return f64::INFINITY;
        };
        let (mantissa, exponent) = decompose(weight.abs());
        let shift = (exponent - F32_UNIT_EXPONENT) as u32;
        sum.add_shifted(i128::from(dot.value.max(0)) * i128::from(mantissa), shift);
    }
    if !scale.is_finite() {
        return f64::INFINITY;
    }
    let (mantissa, exponent) = decompose(scale.abs());
    let sum = sum.magnitude_up(F32_UNIT_EXPONENT + DOT_UNIT_EXPONENT + exponent);
    let product = sum * f64::from(mantissa);
    // One more rounding, upward: the product of two f64 numbers is at most half an ulp off.
    if product == 0.0 {
        0.0
    } else {
        product.next_up()
    }
}
