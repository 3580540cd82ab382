//! Stage 2, `block_pool`: the mean of each block of B keys, quantised again (SPEC 2).
//!
//! Blocks are flat: B consecutive keys, blind to where sequences start and end.

use crate::error::Result;
use crate::exact::{Extended, ExtendedSum, F32_UNIT_EXPONENT, NAN};
use crate::fp8::{E4M3, E4M3_MAX, Overflow, UNIT_EXPONENT};
use crate::input::Keys;
use crate::params::{Strictness, block_count, check_size, filled};
use crate::rows::for_each_row;
use crate::stages::matrix;
use crate::stages::quantize::quotient_code;
use ndarray::{Array1, Array2};

/// Lower clamp of a pooled scale, the f32 nearest to 1e-10.
pub const SCALE_MIN: f32 = f32::from_bits(0x2EDB_E6FF);

/// Bits kept below the least f32 subnormal, so that dividing by a count loses nothing that
/// decides a rounding.
const DIVISION_BITS: u32 = 64;

/// Pooled keys and their scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooled {
    /// `[Nb,D]` codes, `pooled_k`.
    pub codes: Array2<E4M3>,
    /// `[Nb]` scales, `pooled_scale`.
    pub scales: Array1<f32>,
}

impl Pooled {
    /// The pooled blocks as keys of `block_scores`, which takes them permissively.
    ///
    /// # Errors
    /// None for a value this crate made; [`crate::error::ShapeError`] where a caller changed it.
    pub fn as_keys(&self) -> Result<Keys<'_>> {
        Keys::new(
            self.codes.view(),
            self.scales.view(),
            Strictness::Permissive,
        )
    }
}

/// Pools `keys` in blocks of `block_size`; the last block holds what is left.
///
/// # Errors
/// [`crate::error::ParamError`] for a B of 0 or past int32, or where the result does not fit.
pub fn run(keys: &Keys<'_>, block_size: usize) -> Result<Pooled> {
    blocks(keys, block_size, pool_block)
}

/// [`run`] as SPEC 2 words it.
///
/// # Errors
/// As [`run`].
pub fn scalar(keys: &Keys<'_>, block_size: usize) -> Result<Pooled> {
    blocks(keys, block_size, |_, codes, scales, means| {
        let d = means.len();
        for (column, mean) in means.iter_mut().enumerate() {
            *mean = exact_mean(codes, scales, d, column);
        }
    })
}

type MeansRule = fn(&mut Sums, &[E4M3], &[f32], &mut [f32]);

fn blocks(keys: &Keys<'_>, block_size: usize, means_rule: MeansRule) -> Result<Pooled> {
    check_size("block_size", block_size)?;
    let d = keys.head_dim();
    let count = block_count(keys.len(), block_size);
    let mut codes = filled("pooled_k", count, d, E4M3::ZERO)?;
    let mut scales = filled("pooled_scale", count, 1, NAN)?;
    let mut means = filled("means", count, d, 0.0f32)?;
    let steps = keys.codes().len() / count.max(1);
    for_each_row(&mut means, d, steps, Sums::default, |sums, block, out| {
        let first = block * block_size;
        let last = keys.len().min(first + block_size);
        means_rule(
            sums,
            &keys.codes()[first * d..last * d],
            &keys.scales()[first..last],
            out,
        );
    });
    for (block, scale) in scales.iter_mut().enumerate() {
        let row = block * d..(block + 1) * d;
        *scale = requantize(&means[row.clone()], &mut codes[row]);
    }
    Ok(Pooled {
        codes: matrix(count, d, codes),
        scales: Array1::from_vec(scales),
    })
}

/// Codes and scale of one block's means (SPEC 2.3, 2.4).
fn requantize(means: &[f32], codes: &mut [E4M3]) -> f32 {
    let mut amax = 0.0f32;
    for &mean in means {
        if mean.is_nan() {
            codes.fill(E4M3::NAN);
            return NAN;
        }
        if mean.abs() > amax {
            amax = mean.abs();
        }
    }
    let quotient = amax / E4M3_MAX;
    let scale = if quotient > SCALE_MIN {
        quotient
    } else {
        SCALE_MIN
    };
    for (code, &mean) in codes.iter_mut().zip(means) {
        *code = quotient_code(mean, scale, Overflow::Saturating);
    }
    scale
}

/// `RN32(sum_i code[i,column] * scale[i] / count)` in the extended reals (SPEC 2.2).
fn exact_mean(codes: &[E4M3], scales: &[f32], d: usize, column: usize) -> f32 {
    let mut sum = ExtendedSum::new(DIVISION_BITS);
    for (key, &scale) in codes.chunks_exact(d).zip(scales) {
        if key[column].is_nan() {
            sum.poison();
        } else {
            sum.add_product(i64::from(key[column].units()), scale);
        }
    }
    match sum.total() {
        Extended::NaN => NAN,
        Extended::Infinite(negative) => {
            if negative {
                f32::NEG_INFINITY
            } else {
                f32::INFINITY
            }
        }
        Extended::Finite(sum) => {
            let unit = F32_UNIT_EXPONENT + UNIT_EXPONENT - DIVISION_BITS as i32;
            sum.divided_to_f32(scales.len() as u32, unit)
        }
    }
}

/// Reusable sums of one block, per column.
#[derive(Default)]
struct Sums {
    signed: Vec<f64>,
    absolute: Vec<f64>,
}

/// Means of one block by f64 sums, each proven or handed to [`exact_mean`].
fn pool_block(sums: &mut Sums, codes: &[E4M3], scales: &[f32], means: &mut [f32]) {
    let d = means.len();
    if scales.iter().any(|scale| scale.is_nan()) || codes.iter().any(|code| code.is_nan()) {
        // Some mean is NaN, and one NaN mean makes the block NaN whatever the others are.
        means.fill(NAN);
        return;
    }
    sums.accumulate(codes, scales, d);
    for (column, mean) in means.iter_mut().enumerate() {
        let (sum, absolute) = (sums.signed[column], sums.absolute[column]);
        let decided = decided_mean(sum, absolute, scales.len() as f64);
        *mean = decided.unwrap_or_else(|| exact_mean(codes, scales, d, column));
    }
}

/// A little more than the unit roundoff u = 2^-53 of f64: u (1 + 2^-20).
const ULP_UP: f64 = f64::EPSILON * 0.500_000_5;

/// The mean of `count` terms in units of 2^-9, from their f64 sum and absolute sum, where both
/// ends of its error interval round to one f32.
///
/// Every product `code * scale` has at most 4 + 24 significant bits and is exact in f64. n terms in
/// any order err by at most (n-1) u S/(1-(n-1)u), S the absolute sum, itself known to the same
/// relative error. As n is below 2^31, (n-1)u is below 2^-22, and (n+1) u (1 + 2^-20) times the
/// computed S covers both. The division, the error itself and the two ends add less than 7u of
/// S/n, as the mean is no larger. Infinite terms make the ends NaN, which decides nothing.
fn decided_mean(sum: f64, absolute: f64, count: f64) -> Option<f32> {
    let divisor = count * 512.0;
    let mean = sum / divisor;
    let error = absolute / divisor * ((count + 8.0) * ULP_UP);
    let (low, high) = ((mean - error) as f32, (mean + error) as f32);
    // Adding zero makes the -0.0 of an underflow +0.0.
    (low == high).then_some(low + 0.0)
}

impl Sums {
    fn accumulate(&mut self, codes: &[E4M3], scales: &[f32], d: usize) {
        for sums in [&mut self.signed, &mut self.absolute] {
            sums.clear();
            sums.resize(d, 0.0);
        }
        for (key, &scale) in codes.chunks_exact(d).zip(scales) {
            let scale = f64::from(scale);
            let columns = self.signed.iter_mut().zip(&mut self.absolute);
            for (&code, (signed, absolute)) in key.iter().zip(columns) {
                let product = f64::from(code.units()) * scale;
                *signed += product;
                *absolute += product.abs();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// `mean` of one f32 value as [`decided_mean`] takes it, `away` units of 2^-53 from it.
    fn sum_of(mean: f64, away: f64, count: f64) -> f64 {
        (mean + away * (f64::EPSILON / 2.0)) * count * 512.0
    }

    #[test]
    fn the_interval_decides_down_to_its_width() {
        assert_eq!(decided_mean(3.0 * 512.0, 3.0 * 512.0, 1.0), Some(3.0));
        assert_eq!(decided_mean(-6.0 * 512.0, 6.0 * 512.0, 4.0), Some(-1.5));
        // Below the midpoint 1 + 2^-24, with two terms: the error is 10 units for a mean near 1.
        let midpoint = 1.0 + 2f64.powi(-24);
        for (away, decided) in [(-14.0, Some(1.0)), (-6.0, None), (6.0, None), (0.0, None)] {
            let sum = sum_of(midpoint, away, 2.0);
            assert_eq!(decided_mean(sum, sum, 2.0), decided, "{away}");
        }
        let sum = sum_of(midpoint, 14.0, 2.0);
        assert_eq!(decided_mean(sum, sum, 2.0), Some(1.0 + f32::EPSILON));
        // The width grows with the terms and with their absolute sum.
        let sum = sum_of(midpoint, -14.0, 16.0);
        assert_eq!(decided_mean(sum, sum, 16.0), None);
        let sum = sum_of(midpoint, -14.0, 2.0);
        assert_eq!(decided_mean(sum, 4.0 * sum, 2.0), None);
    }

    /// SPEC V.4 and 2.7.
    #[test]
    fn zeros_are_positive_and_infinities_decide_nothing() {
        let zero = decided_mean(-1e-60, 1e-60, 1.0).map(f32::to_bits);
        assert_eq!(zero, Some(0));
        assert_eq!(decided_mean(f64::INFINITY, f64::INFINITY, 2.0), None);
        assert_eq!(decided_mean(f64::NAN, f64::INFINITY, 2.0), None);
    }

    /// Codes cannot show an error of a mean, so means are compared here. Each mean is a midpoint of
    /// f32 plus or minus 2^-80; around it terms cancel exactly, but not in f64. SPEC 2.2 and 2.4.
    #[test]
    fn means_beside_midpoints_equal_the_definition() {
        let (one, minus) = (E4M3::from_bits(0x38), E4M3::from_bits(0xB8));
        let (mut state, mut decided) = (1, 0);
        for round in 0..4000 {
            let count = [8, 64, 256][round % 3];
            let size = 2f32.powi(-((next(&mut state) % 40) as i32));
            let dust = |state: &mut u64| size * (1.0 + (next(state) >> 41) as f32 * f32::EPSILON);
            let tiny = 2f32.powi(-80);
            let sign = if round % 2 == 0 { one } else { minus };
            let mut keys = vec![(one, 1.0), (one, 2f32.powi(-24)), (sign, tiny), (one, 0.0)];
            while keys.len() < count {
                let scale = dust(&mut state);
                keys.extend([(one, scale), (minus, scale)]);
            }
            for last in (1..count).rev() {
                keys.swap(last, next(&mut state) as usize % (last + 1));
            }
            let (codes, scales): (Vec<E4M3>, Vec<f32>) = keys.into_iter().unzip();
            let mut mean = [0.0];
            pool_block(&mut Sums::default(), &codes, &scales, &mut mean);
            let expected = exact_mean(&codes, &scales, 1, 0);
            assert_eq!(mean[0].to_bits(), expected.to_bits(), "round {round}");
            decided += usize::from(expected * count as f32 > 1.0);
        }
        assert_eq!(decided, 2000, "the tiny term decides");
    }
}
