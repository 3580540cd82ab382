//! Blocks pooled in f32: what means, scales and codes may be, for any order of summation.

use super::heads::gamma;
use super::range::{CodeRange, Range, least_f32};
use super::up::{add, from_integer, mul};
use crate::fp8::{E4M3, E4M3_MAX, Overflow, UNIT_EXPONENT};
use crate::stages::block_pool::SCALE_MIN;

/// Most keys of a block that a bound speaks of: their number is exact in f32, and so is every
/// number of roundings.
const KEYS_MAX: usize = 1 << 23;

/// What one pooled block may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// `pooled_scale`.
    pub scale: Range,
    /// `[D]`, `pooled_k`.
    pub codes: Vec<CodeRange>,
}

/// What a port may make of a block that pools in f32: products of code and scale rounded or fused
/// into an addition, added in any order, divided by the count, `amax / 448`, the floor, and the
/// quotient, divisions being IEEE's. Anything more exact is covered too.
///
/// `codes` is `[n, D]` with D = `head_dim`, `scales` is `[n]`; n is at least 1. With `flush`
/// subnormal inputs and results of every operation may become zero. Proof in `docs/NUMERICS.md`.
#[must_use]
pub fn block(codes: &[E4M3], scales: &[f32], head_dim: usize, flush: bool) -> Block {
    let whole = |scale, code| Block {
        scale,
        codes: vec![code; head_dim],
    };
    let columns = (0..head_dim).map(|column| Terms {
        codes: &codes[column.min(codes.len())..],
        head_dim,
        scales,
    });
    let infinite = scales.iter().any(|scale| scale.is_infinite());
    let mut means = Vec::with_capacity(head_dim);
    for terms in columns {
        means.push(terms.mean(infinite, flush));
    }
    if means.contains(&Range::Nan) {
        return whole(Range::Nan, CodeRange::Nan);
    }
    let Some(ends) = ends(&means) else {
        return whole(Range::Anything, CodeRange::Anything);
    };
    let scale = scale_of(&ends);
    if scale.1.is_infinite() {
        // Infinite scales meet every dimension, so every mean is infinite (SPEC 2.7).
        return whole(Range::point(f32::INFINITY), CodeRange::Nan);
    }
    Block {
        scale: Range::Between(scale.0, scale.1),
        codes: ends.into_iter().map(|mean| code_of(mean, scale)).collect(),
    }
}

/// Ends of all means; none where one of them may be anything.
fn ends(means: &[Range]) -> Option<Vec<(f32, f32)>> {
    let ends = means.iter().map(|mean| match *mean {
        Range::Between(low, high) => Some((low, high)),
        _ => None,
    });
    ends.collect()
}

/// Ends of the scale: division and maximum never decrease when `amax` grows (SPEC 2.3).
fn scale_of(means: &[(f32, f32)]) -> (f32, f32) {
    let (mut least, mut most) = (0.0, 0.0);
    for &(low, high) in means {
        let (near, far) = magnitudes(low, high);
        least = if near > least { near } else { least };
        most = if far > most { far } else { most };
    }
    let scale = |amax: f32| {
        let quotient = amax / E4M3_MAX;
        if quotient > SCALE_MIN {
            quotient
        } else {
            SCALE_MIN
        }
    };
    (scale(least), scale(most))
}

/// Least and largest magnitude of the numbers from `low` to `high`.
fn magnitudes(low: f32, high: f32) -> (f32, f32) {
    let (a, b) = (low.abs(), high.abs());
    let (near, far) = if a < b { (a, b) } else { (b, a) };
    if low <= 0.0 && high >= 0.0 {
        (0.0, far)
    } else {
        (near, far)
    }
}

/// Codes of a mean by a scale above 0: quotients and encode are monotone, and the f32 quotient
/// may take a side of a tie that the real one does not (SPEC 2.4).
fn code_of(mean: (f32, f32), scale: (f32, f32)) -> CodeRange {
    let (low, high) = mean;
    let low_by = if low < 0.0 { scale.0 } else { scale.1 };
    let high_by = if high < 0.0 { scale.1 } else { scale.0 };
    let code = |mean: f32, by: f32| {
        let real = E4M3::encode_f64(f64::from(mean) / f64::from(by), Overflow::Saturating);
        let rounded = E4M3::encode(mean / by, Overflow::Saturating);
        if real.units() <= rounded.units() {
            (real, rounded)
        } else {
            (rounded, real)
        }
    };
    CodeRange::Between(code(low, low_by).0, code(high, high_by).1)
}

/// One dimension of a block.
struct Terms<'a> {
    codes: &'a [E4M3],
    head_dim: usize,
    scales: &'a [f32],
}

/// Sums over the terms of one dimension.
#[derive(Default)]
struct Sums {
    /// The sum in f64.
    signed: f64,
    /// At least the sum of magnitudes.
    absolute: f64,
    /// The part of it that a flush of subnormal scales takes.
    flushed: f64,
    /// Exponent of the lowest set bit of any term; none without a term that is not zero.
    lowest: Option<i32>,
}

impl Terms<'_> {
    fn each(&self) -> impl Iterator<Item = (E4M3, f32)> {
        let codes = self.codes.iter().step_by(self.head_dim).copied();
        codes.zip(self.scales.iter().copied())
    }

    /// What the mean may be.
    fn mean(&self, infinite: bool, flush: bool) -> Range {
        if self.each().any(|(code, scale)| is_nan(code, scale)) {
            return Range::Nan;
        }
        let sums = self.sums();
        let count = self.scales.len();
        if count > KEYS_MAX {
            return Range::Anything;
        }
        if !infinite && sums.is_exact(flush) {
            return exact_quotient(sums.signed as f32, count, flush);
        }
        let radius = sums.radius(count, flush);
        if !sums.stays_finite(count, radius) {
            return Range::Anything;
        }
        if infinite {
            return self.infinite();
        }
        let center = sums.signed / count as f64;
        let low = (center - radius).next_down();
        let high = (center + radius).next_up();
        Range::Between(least_f32(low), -least_f32(-high))
    }

    /// The mean of terms some of which are infinite, while the others stay finite in any order.
    fn infinite(&self) -> Range {
        let total: f32 = (self.each())
            .filter(|(_, scale)| scale.is_infinite())
            .map(|(code, scale)| code.to_f32() * scale)
            .sum();
        Range::point(total)
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for (code, scale) in self.each().filter(|(_, scale)| scale.is_finite()) {
            // At most 4 + 24 significant bits above 2^-158: exact.
            let product = f64::from(code.units()) * 2f64.powi(UNIT_EXPONENT) * f64::from(scale);
            sums.signed += product;
            sums.absolute = add(sums.absolute, product.abs());
            if scale.is_subnormal() {
                sums.flushed = add(sums.flushed, product.abs());
            }
            if product != 0.0 {
                let low = lowest_bit(product);
                sums.lowest = Some(sums.lowest.map_or(low, |lowest| lowest.min(low)));
            }
        }
        sums
    }
}

/// A term that is NaN in every arithmetic (SPEC 2.6).
fn is_nan(code: E4M3, scale: f32) -> bool {
    code.is_nan() || scale.is_nan() || (scale.is_infinite() && code.units() == 0)
}

/// Exponent of the lowest set bit of a normal number.
const fn lowest_bit(value: f64) -> i32 {
    let bits = value.to_bits();
    let significand = bits & ((1 << 52) - 1) | 1 << 52;
    (bits >> 52 & 0x7FF) as i32 - 1075 + significand.trailing_zeros() as i32
}

/// An exact sum divided by the count.
fn exact_quotient(sum: f32, count: usize, flush: bool) -> Range {
    let mean = sum / count as f32;
    match (flush && mean.is_subnormal(), mean < 0.0) {
        (true, true) => Range::Between(mean, 0.0),
        (true, false) => Range::Between(0.0, mean),
        _ => Range::Between(mean, mean),
    }
}

impl Sums {
    /// At least the distance of a port's mean from the real one, beyond any f64 error here.
    fn radius(&self, count: usize, flush: bool) -> f64 {
        let n = from_integer(count as u64);
        // Dividing by a power of two rounds nothing but what underflows.
        let division = usize::from(!count.is_power_of_two());
        let Some(gamma) = gamma(count + division) else {
            return f64::INFINITY;
        };
        let magnitude = (self.absolute / n).next_up();
        let underflow = if flush {
            let flushed = (self.flushed / n).next_up();
            add(mul(3.0, 2f64.powi(-126)), flushed)
        } else {
            2f64.powi(-149)
        };
        let relative = add(gamma, mul(n, 2f64.powi(-52)));
        add(mul(relative, magnitude), mul(add(1.0, gamma), underflow))
    }

    /// No partial sum of any order can leave f32.
    fn stays_finite(&self, count: usize, radius: f64) -> bool {
        let n = from_integer(count as u64);
        add(self.absolute, mul(n, radius)) <= f64::from(f32::MAX)
    }

    /// Every partial sum of any order is an f32: a multiple of the lowest bit of all terms that
    /// has at most 24 bits above it.
    fn is_exact(&self, flush: bool) -> bool {
        let Some(lowest) = self.lowest else {
            return true;
        };
        let least = if flush { -126 } else { -149 };
        let finite = self.absolute <= f64::from(f32::MAX);
        finite && lowest >= least && self.absolute < 2f64.powi(lowest + 24)
    }
}
