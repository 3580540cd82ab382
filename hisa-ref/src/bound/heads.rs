//! What f32 arithmetic over the heads adds to the errors of the dots, for any order of summation.

use super::up::{add, from_integer, mul};
use crate::scoring::scalar::DOT_UNIT_EXPONENT;

/// Unit roundoff of f32.
const ROUNDOFF: i32 = -24;
/// Spacing of subnormal f32: a product that underflows is off by half of it.
const SUBNORMAL: i32 = -149;
/// Least normal f32: what a flush to zero can take.
const NORMAL: i32 = -126;
/// Largest finite bf16.
const BF16_MAX: f64 = 3.389_531_389_251_535_5e38;

/// One head of a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    /// Weight, finite.
    pub weight: f32,
    /// The exact dot in units of 2^-18.
    pub dot: i64,
    /// Bound of the distance of the port's dot from it, in units of 2^-18.
    pub error: u64,
}

/// The type a port's score is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Output {
    /// As it was computed.
    F32,
    /// Rounded to nearest bf16.
    Bf16,
}

/// How a port goes from dots to a score, as far as a bound needs to know.
///
/// Covered: f32 operations to nearest; additions in any tree; products fused into an addition or
/// not; the scale on every dot, on partial sums or on the whole sum. Weight and scale are not
/// multiplied with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeadSum {
    /// Roundings that a term can meet on its way to the score.
    pub roundings: usize,
    /// Subnormal inputs and results may be flushed to zero.
    pub flush: bool,
    /// What the score is stored as.
    pub output: Output,
}

impl HeadSum {
    /// Any order over H heads: a term is rounded as a product, as a multiple of the scale, and in
    /// at most H - 1 additions.
    #[must_use]
    pub const fn any_order(heads: usize) -> Self {
        Self {
            roundings: if heads == 0 { 1 } else { heads + 1 },
            flush: false,
            output: Output::F32,
        }
    }

    /// With so many further multiplications on every path, for a kernel that applies a factor in
    /// parts. The factors are at most 1 in magnitude.
    #[must_use]
    pub const fn with_multiplications(mut self, count: usize) -> Self {
        self.roundings += count;
        self
    }

    /// With subnormals flushed to zero, or not.
    #[must_use]
    pub const fn with_flush(mut self) -> Self {
        self.flush = true;
        self
    }

    /// With the score rounded to bf16.
    #[must_use]
    pub const fn with_bf16_output(mut self) -> Self {
        self.output = Output::Bf16;
        self
    }

    /// Upper bound of `|port - score|`, where `score` is the exact score rounded once to f32 and
    /// `scale` is finite and not negative. Infinite where an operation may overflow.
    #[must_use]
    pub fn error(&self, heads: &[Head], scale: f32, score: f32) -> f64 {
        if score.is_infinite() {
            return f64::INFINITY;
        }
        let with_score = add(self.error_of_sum(heads, scale), half_spacing(score));
        match self.output {
            Output::F32 => with_score,
            Output::Bf16 => bf16_output(f64::from(score.abs()), with_score),
        }
    }

    /// Upper bound of the distance of the port's f32 result from the real number
    /// `scale * sum w * relu(dot)`, before a rounding of either. Infinite where an operation may
    /// overflow.
    #[must_use]
    pub fn error_of_sum(&self, heads: &[Head], scale: f32) -> f64 {
        let Some(gamma) = gamma(self.roundings) else {
            return f64::INFINITY;
        };
        let sums = Sums::of(heads, scale, self.flush);
        let scale = f64::from(scale);
        let slack = mul(add(1.0, gamma), self.slack(&sums, heads.len(), scale));
        let slack = add(slack, mul(scale, sums.flushed));
        if !self.stays_finite(&sums, scale, gamma, slack) {
            return f64::INFINITY;
        }
        let relative = mul(gamma, sums.computed);
        add(mul(scale, add(sums.dot_error, relative)), slack)
    }

    /// Underflow, before the roundings that follow it: every multiplication and, with a flush,
    /// every addition is off by so much in absolute terms, times the factors still to come.
    fn slack(&self, sums: &Sums, heads: usize, scale: f64) -> f64 {
        let quantum = 2f64.powi(if self.flush { NORMAL } else { SUBNORMAL });
        let operations = if self.flush { 2 * heads } else { heads } as f64;
        let factor = if scale > 1.0 { scale } else { 1.0 };
        // In this order: scale on the dot, then a weight; product and additions, then perhaps the
        // scale; scale on partial sums; multiplications declared beyond that.
        let further = self.roundings.saturating_sub(heads + 1) as f64;
        let inside = sums.weights;
        let outside = mul(operations, factor);
        let rest = mul(heads as f64, 1.0 + further);
        mul(quantum, add(add(inside, outside), rest))
    }

    /// No operation of any covered order can leave f32.
    fn stays_finite(&self, sums: &Sums, scale: f64, gamma: f64, slack: f64) -> bool {
        let factor = if scale > 1.0 { scale } else { 1.0 };
        let sum = mul(factor, sums.computed);
        let scaled_dot = mul(scale, sums.largest_dot);
        let peak = if sum > scaled_dot { sum } else { scaled_dot };
        let peak = add(mul(peak, add(1.0, gamma)), slack);
        let limit = match self.output {
            Output::F32 => f64::from(f32::MAX),
            Output::Bf16 => BF16_MAX,
        };
        peak <= limit
    }
}

/// `n u / (1 - n u)`, rounded upward; none from 2^24 roundings on, where it means nothing.
pub(super) fn gamma(roundings: usize) -> Option<f64> {
    // n < 2^24: n u and 1 - n u are exact, the quotient is rounded once.
    let product = (roundings < 1 << 24).then(|| roundings as f64 * 2f64.powi(ROUNDOFF))?;
    Some((product / (1.0 - product)).next_up())
}

/// Sums over the heads, all rounded upward, without the scale.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// `sum |w|`.
    weights: f64,
    /// `sum |w| * |relu(port's dot) - relu(dot)|`.
    dot_error: f64,
    /// `sum |w| * relu(port's dot)`.
    computed: f64,
    /// The largest of the port's dots.
    largest_dot: f64,
    /// The part of `computed` whose weight, or the scale, a flush may zero.
    flushed: f64,
}

impl Sums {
    fn of(heads: &[Head], scale: f32, flush: bool) -> Self {
        let mut sums = Self::default();
        let unit = 2f64.powi(DOT_UNIT_EXPONENT);
        for head in heads {
            let weight = f64::from(head.weight.abs());
            // The ReLU passes a distance on, and only what of it lies above zero.
            let below = if head.dot < 0 {
                head.dot.unsigned_abs()
            } else {
                0
            };
            let error = head.error.saturating_sub(below);
            let positive = if head.dot > 0 {
                head.dot.unsigned_abs()
            } else {
                0
            };
            let error = mul(unit, from_integer(error));
            let dot = add(mul(unit, from_integer(positive)), error);
            let term = mul(weight, dot);
            sums.weights = add(sums.weights, weight);
            sums.dot_error = add(sums.dot_error, mul(weight, error));
            sums.computed = add(sums.computed, term);
            if dot > sums.largest_dot {
                sums.largest_dot = dot;
            }
            if flush && (head.weight.is_subnormal() || scale.is_subnormal()) {
                sums.flushed = add(sums.flushed, term);
            }
        }
        sums
    }
}

/// Half the distance to the next f32 away from zero: at least what the one rounding of an exact
/// score moved it. Exact in f64.
fn half_spacing(score: f32) -> f64 {
    let magnitude = score.abs();
    if magnitude == f32::MAX {
        return 2f64.powi(103); // the next number would be 2^128
    }
    (f64::from(magnitude.next_up()) - f64::from(magnitude)) / 2.0
}

/// `error` of an f32 score of at most `magnitude + error`, and its rounding to bf16: 2^-8 of it,
/// or half the spacing of subnormal bf16.
fn bf16_output(magnitude: f64, error: f64) -> f64 {
    let relative = mul(add(magnitude, error), 2f64.powi(-8));
    add(add(error, relative), 2f64.powi(-134))
}
