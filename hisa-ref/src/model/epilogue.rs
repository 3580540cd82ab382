//! From dots to a score in f32, operation by operation, in orders that kernels use.
//!
//! Nothing here calls a fused multiply-add of the machine: it is computed from f64 exactly, so
//! that the bits do not depend on where the code runs.

use super::tensor_core::DEVICE_NAN;

/// The f32 operations of a kernel: rounded to nearest even, NaN always [`DEVICE_NAN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Arithmetic {
    /// `sum + w * x` is one operation, as nvcc compiles it by default.
    pub fused: bool,
    /// Subnormal inputs and results of every operation become zeros of their sign (`-ftz=true`).
    /// A result is judged after its rounding.
    pub flush: bool,
}

/// Where the scale of the key multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalePlace {
    /// Every dot, before the ReLU.
    InsideRelu,
    /// The sum; in [`HeadOrder::DeepGemmSm90`] the four partial sums.
    Outside,
}

/// In which order heads are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadOrder {
    /// One running sum from +0, heads ascending.
    Sequential,
    /// DeepGEMM's `sm_90` scoring kernel: thread t of four keeps two running sums from +0, over
    /// the heads `8j + 2t` and `8j + 2t + 1` for ascending j, adds the two and applies the scale;
    /// then `(t0 + t1) + (t2 + t3)`, the butterfly over lanes xor 1 and xor 2.
    DeepGemmSm90,
}

/// What the ReLU makes of NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relu {
    /// It stays NaN, as the specification wants (SPEC S.7).
    KeepsNan,
    /// It becomes +0: `fmaxf(x, 0)`.
    Fmax,
}

/// How a kernel turns the dots of a row into a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// Order of the head sum.
    pub order: HeadOrder,
    /// Its f32 operations.
    pub arithmetic: Arithmetic,
    /// Where the scale of the key goes.
    pub scale: ScalePlace,
    /// What the ReLU makes of NaN.
    pub relu: Relu,
}

impl Arithmetic {
    fn settle(self, x: f32) -> f32 {
        if x.is_nan() {
            DEVICE_NAN
        } else {
            self.flushed(x)
        }
    }

    fn flushed(self, x: f32) -> f32 {
        if self.flush && x.is_subnormal() {
            x * 0.0
        } else {
            x
        }
    }

    /// `a + b`.
    #[must_use]
    pub fn add(self, a: f32, b: f32) -> f32 {
        self.settle(self.flushed(a) + self.flushed(b))
    }

    /// `a * b`.
    #[must_use]
    pub fn mul(self, a: f32, b: f32) -> f32 {
        self.settle(self.flushed(a) * self.flushed(b))
    }

    /// `a * b + c`, with one rounding where fused, with two where not.
    #[must_use]
    pub fn mul_then_add(self, a: f32, b: f32, c: f32) -> f32 {
        if self.fused {
            self.settle(fma(self.flushed(a), self.flushed(b), self.flushed(c)))
        } else {
            self.add(self.mul(a, b), c)
        }
    }
}

/// `a * b + c`, rounded once: nearest, ties to even.
///
/// The product of two f32 is exact in f64. Its sum with `c` is rounded to odd there: where the
/// f64 sum is inexact (its error is exact, by Knuth's two-sum) and its last bit even, it moves
/// one step towards the error. Rounding to odd keeps at least two bits more than f32 has, so the
/// second rounding decides as one rounding of the real number would (Boldo and Melquiond 2008).
#[must_use]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    if !sum.is_finite() {
        return if sum.is_nan() { DEVICE_NAN } else { sum as f32 };
    }
    let back = sum - product;
    let error = (product - (sum - back)) + (c - back);
    let odd = if error == 0.0 || sum.to_bits() & 1 == 1 {
        sum
    } else if error > 0.0 {
        sum.next_up()
    } else {
        sum.next_down()
    };
    odd as f32
}

impl Epilogue {
    /// The score of `[H]` dots with `[H]` weights and the scale of the key.
    #[must_use]
    pub fn score(&self, dots: &[f32], weights: &[f32], scale: f32) -> f32 {
        let heads = || dots.iter().copied().zip(weights.iter().copied());
        let add = |a, b| self.arithmetic.add(a, b);
        match self.order {
            HeadOrder::Sequential => self.scaled(self.running_sum(heads(), scale), scale),
            HeadOrder::DeepGemmSm90 => {
                let lane = |lane: usize| self.running_sum(heads().skip(lane).step_by(8), scale);
                let thread = |t: usize| self.scaled(add(lane(2 * t), lane(2 * t + 1)), scale);
                add(add(thread(0), thread(1)), add(thread(2), thread(3)))
            }
        }
    }

    /// Roundings that a term meets on its way into the score of H heads, at most.
    ///
    /// A term is rounded as a product (or in the fused operation that contains it), in every
    /// addition behind it, and where the scale multiplies; adding to +0 rounds nothing.
    #[must_use]
    pub const fn roundings(&self, heads: usize) -> usize {
        match self.order {
            HeadOrder::Sequential => heads + 1,
            HeadOrder::DeepGemmSm90 => heads.div_ceil(8) + 4,
        }
    }

    fn running_sum(&self, heads: impl Iterator<Item = (f32, f32)>, scale: f32) -> f32 {
        heads.fold(0.0, |sum, (dot, weight)| {
            let dot = match self.scale {
                ScalePlace::InsideRelu => self.arithmetic.mul(dot, scale),
                ScalePlace::Outside => dot,
            };
            self.arithmetic.mul_then_add(self.relu(dot), weight, sum)
        })
    }

    fn scaled(&self, sum: f32, scale: f32) -> f32 {
        match self.scale {
            ScalePlace::InsideRelu => sum,
            ScalePlace::Outside => self.arithmetic.mul(sum, scale),
        }
    }

    fn relu(&self, x: f32) -> f32 {
        if x > 0.0 || (x.is_nan() && self.relu == Relu::KeepsNan) {
            x
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests;
