//! What an element may hold that a declared arithmetic computed.

use super::heads::Head;
use super::{Dots, HeadSum};
use crate::fp8::E4M3;
use crate::scoring::scalar;

/// The f32 a port may write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Only NaN: an input is NaN, and every arithmetic passes it on.
    Nan,
    /// Every number from the first to the second, not NaN.
    Between(f32, f32),
    /// Any bits: an operation may overflow, and then nothing is known.
    Anything,
}

/// The code a port may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeRange {
    /// Only NaN.
    Nan,
    /// Every code whose value is between those of the two.
    Between(E4M3, E4M3),
    /// Any code.
    Anything,
}

impl Range {
    /// One value; NaN stands for itself.
    #[must_use]
    pub const fn point(value: f32) -> Self {
        if value.is_nan() {
            Self::Nan
        } else {
            Self::Between(value, value)
        }
    }

    /// Every f32 at most `error` from one of the numbers `low` to `high`.
    #[must_use]
    pub fn around(low: f32, high: f32, error: f64) -> Self {
        if !error.is_finite() || !low.is_finite() || !high.is_finite() {
            return Self::Anything;
        }
        if error == 0.0 {
            return Self::Between(low, high);
        }
        let low = (f64::from(low) - error).next_down();
        let high = (f64::from(high) + error).next_up();
        Self::Between(least_f32(low), -least_f32(-high))
    }

    /// Whether a port may write `value`.
    #[must_use]
    pub fn contains(self, value: f32) -> bool {
        match self {
            Self::Nan => value.is_nan(),
            Self::Between(low, high) => low <= value && value <= high,
            Self::Anything => true,
        }
    }
}

impl CodeRange {
    /// One code; NaN stands for itself.
    #[must_use]
    pub const fn point(code: E4M3) -> Self {
        if code.is_nan() {
            Self::Nan
        } else {
            Self::Between(code, code)
        }
    }

    /// Whether a port may write `code`. Both zeros are one value.
    #[must_use]
    pub fn contains(self, code: E4M3) -> bool {
        match self {
            Self::Nan => code.is_nan(),
            Self::Between(low, high) => {
                !code.is_nan() && low.units() <= code.units() && code.units() <= high.units()
            }
            Self::Anything => true,
        }
    }
}

/// The least f32 that is not below `bound`.
pub(super) fn least_f32(bound: f64) -> f32 {
    let nearest = bound as f32;
    if f64::from(nearest) < bound {
        nearest.next_up()
    } else {
        nearest
    }
}

/// A key of which only ranges are known, as pooling in f32 leaves it.
#[derive(Debug, Clone, Copy)]
pub struct KeyBox<'a> {
    /// `[D]`, the least code of each dimension, by value; no NaN.
    pub low: &'a [E4M3],
    /// `[D]`, the largest.
    pub high: &'a [E4M3],
    /// Least and largest scale, both finite and at least 0.
    pub scale: (f32, f32),
}

/// Every score a port may give a query row and some key of the box; see `docs/NUMERICS.md`.
///
/// `q` is `[H, D]`, `weights` is `[H]`. [`Range::Anything`] where a weight is not finite, where q
/// holds a NaN code, and where an operation may overflow. Without an arithmetic the port's scores
/// are exact, and only its key is not known.
#[must_use]
pub fn score_of_box(
    q: &[E4M3],
    weights: &[f32],
    key: &KeyBox<'_>,
    arithmetic: Option<(Dots, &HeadSum)>,
) -> Range {
    let (least, most) = key.scale;
    // With a flush a subnormal scale may become zero; no pooled scale is as small as that.
    let flushed = arithmetic.is_some_and(|(_, sum)| sum.flush) && least.is_subnormal();
    if flushed || !most.is_finite() || weights.iter().any(|w| !w.is_finite()) {
        return Range::Anything;
    }
    let farthest: Vec<E4M3> = (key.low.iter().zip(key.high))
        .map(|(&low, &high)| {
            let larger = low.units().unsigned_abs() > high.units().unsigned_abs();
            if larger { low } else { high }
        })
        .collect();
    let rows = q.chunks_exact(key.low.len().max(1));
    let mut heads = Vec::with_capacity(weights.len());
    // Ends of the real sum over the heads, as (dot, weight).
    let (mut lows, mut highs) = (heads_of(weights), heads_of(weights));
    for ((row, &weight), at) in rows.zip(weights).zip(0..) {
        let error = match arithmetic {
            Some((dots, _)) => dots.apriori(row, &farthest),
            None => scalar::dot(row, &farthest).map(|_| 0),
        };
        let Some(error) = error else {
            return Range::Anything;
        };
        let (low, high) = dot_of_box(row, key);
        let (bottom, top) = if weight < 0.0 {
            (high, low)
        } else {
            (low, high)
        };
        (lows[at].0, highs[at].0) = (bottom, top);
        heads.push(Head {
            weight,
            dot: high,
            error,
        });
    }
    let ends = [
        (&lows, least),
        (&lows, most),
        (&highs, least),
        (&highs, most),
    ]
    .map(|(heads, scale)| scalar::score_of_dots(heads, scale));
    let [mut low, mut high] = [ends[0]; 2];
    for end in ends {
        low = if end < low { end } else { low };
        high = if end > high { end } else { high };
    }
    let largest = if low.abs() > high.abs() { low } else { high };
    let error = arithmetic.map_or(0.0, |(_, sum)| sum.error(&heads, most, largest));
    Range::around(low, high, error)
}

fn heads_of(weights: &[f32]) -> Vec<(i64, f32)> {
    weights.iter().map(|&weight| (0, weight)).collect()
}

/// Least and largest dot of a query row with the keys of the box, in units of 2^-18.
fn dot_of_box(q: &[E4M3], key: &KeyBox<'_>) -> (i64, i64) {
    let mut ends = (0, 0);
    for ((&q, &low), &high) in q.iter().zip(key.low).zip(key.high) {
        let product = |code: E4M3| i64::from(q.units()) * i64::from(code.units());
        let (a, b) = (product(low), product(high));
        ends.0 += a.min(b);
        ends.1 += a.max(b);
    }
    ends
}

/// The distance of `exact` from the farthest number of the range, rounded upward: the bound that
/// reports name. Infinite where the range has no ends.
#[must_use]
pub fn reach(range: Range, exact: f32) -> f64 {
    let Range::Between(low, high) = range else {
        return f64::INFINITY;
    };
    let exact = f64::from(exact);
    let (below, above) = (
        (exact - f64::from(low)).abs(),
        (f64::from(high) - exact).abs(),
    );
    let farther = if below > above { below } else { above };
    if farther == 0.0 {
        0.0
    } else {
        farther.next_up()
    }
}
