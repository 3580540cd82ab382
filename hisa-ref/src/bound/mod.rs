//! How far a declared arithmetic may be from the exact score: proven, per element.
//!
//! [`dot`] bounds the dots of every numerics class in integers, [`heads`] what f32 arithmetic adds
//! on the way to a score, and [`score`] puts the two together. [`pool`] and [`quantize`] say which
//! scales and codes f32 arithmetic may give. Proofs are in `docs/NUMERICS.md`.

pub mod dot;
pub mod heads;
pub mod pool;
pub mod quantize;
pub mod range;
mod up;

pub use dot::Dots;
pub use heads::{HeadSum, Output};
pub use range::{CodeRange, Range};

use crate::fp8::E4M3;
use crate::scoring::scalar;
use heads::Head;

/// The exact score of a query row and a key, and how far a port may be from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounded {
    /// The score of SPEC S.1: rounded once to f32.
    pub score: f32,
    /// Upper bound of `|port - score|`, the rounding of `score` itself included. Infinite where
    /// the arithmetic may overflow on the way.
    pub error: f64,
}

/// Bounds a port that takes dots as `dots` says and sums heads as `sum` says.
///
/// `q` is one query row, `[H, D]` codes; `weights` is `[H]`; `key` is `[D]` codes with their
/// `scale`, at least 0. `None` where the bound does not speak: for a NaN code, for a weight or
/// scale that is not finite, and for a scale below zero, for which a scale inside the ReLU is
/// another function.
///
/// ```
/// use hisa_ref::{E4M3, bound::{self, Dots, HeadSum}, model::DotClass};
///
/// let q = [0x58, 0x20].map(E4M3::from_bits);
/// let hopper = Dots::Class(DotClass::HopperQgmma);
/// let bounded = bound::score(&q, &[1.0], &q, 2.0, hopper, &HeadSum::any_order(1)).unwrap();
/// assert_eq!(bounded.score, 512.03125);
/// // `wgmma` loses the second product: 512.0 is off by 0.03125.
/// assert!((0.03125..0.032).contains(&bounded.error));
/// ```
#[must_use]
pub fn score(
    q: &[E4M3],
    weights: &[f32],
    key: &[E4M3],
    scale: f32,
    dots: Dots,
    sum: &HeadSum,
) -> Option<Bounded> {
    let score = scalar::score(q, weights, key, scale);
    let error = error(q, weights, key, scale, (dots, sum, score))?;
    Some(Bounded { score, error })
}

/// The bound of [`score`], for a caller who knows the exact score; the last argument is how dots
/// are taken, how heads are summed, and that score.
#[must_use]
pub fn error(
    q: &[E4M3],
    weights: &[f32],
    key: &[E4M3],
    scale: f32,
    (dots, sum, score): (Dots, &HeadSum, f32),
) -> Option<f64> {
    let usable = scale.is_finite() && scale >= 0.0 && weights.iter().all(|w| w.is_finite());
    if !usable || key.is_empty() {
        return None;
    }
    let rows = q.chunks_exact(key.len()).zip(weights);
    let heads = rows.map(|(row, &weight)| {
        Some(Head {
            weight,
            dot: scalar::dot(row, key)?.value,
            error: dots.error(row, key)?,
        })
    });
    let heads: Vec<Head> = heads.collect::<Option<_>>()?;
    Some(sum.error(&heads, scale, score))
}

#[cfg(test)]
mod tests;
