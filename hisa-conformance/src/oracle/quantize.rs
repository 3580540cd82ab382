//! Stage `quantize`: f32 rows to e4m3 codes and one scale per row.

use super::e4m3::{Overflow, encode_quotient};
use super::round::{INFINITY, LEAST, NAN, SIGN, is_nan, round_small};
use super::small::Parts;

/// Lower clamp of a row's largest magnitude: the f32 nearest to 1e-4.
const LEAST_AMAX: u32 = 0x38D1_B717;
/// f32 bits of `2^-127`, a subnormal.
const LEAST_POWER: u32 = 0x0040_0000;
/// Exponent field of `2^127`.
const LARGEST_FIELD: u32 = 254;

/// How a row's scale is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleFormat {
    /// The f32 nearest to `amax / 448`.
    Float32,
    /// That f32 rounded up to a power of two between `2^-127` and `2^127`.
    Ue8m0,
}

/// Quantizes the rows of `x` `[rows, d]`: codes `[rows, d]` and f32 scale bits `[rows]`, with
/// `x ~ code * scale`. A row with a NaN has a NaN scale and only NaN codes. `d` must not be 0.
/// SPEC 1.0 to 1.5.
pub fn quantize(
    x: &[f32],
    d: usize,
    overflow: Overflow,
    format: ScaleFormat,
) -> (Vec<u8>, Vec<u32>) {
    let mut codes = Vec::with_capacity(x.len());
    let mut scales = Vec::new();
    for row in x.chunks_exact(d) {
        let scale = row_scale(row, format);
        codes.extend(
            row.iter()
                .map(|x| encode_quotient(x.to_bits(), scale, overflow)),
        );
        scales.push(scale);
    }
    (codes, scales)
}

/// Quantizes a row-major tensor `x` of the given `shape` with one scale for each index over the
/// kept `dims`: codes in the layout of `x`, and f32 scale bits over the kept dimensions in the
/// order they have in `shape`. `dims` must be distinct and below `shape.len()`. SPEC 1.6.
pub fn quantize_dims(
    x: &[f32],
    shape: &[usize],
    dims: &[usize],
    overflow: Overflow,
    format: ScaleFormat,
) -> (Vec<u8>, Vec<u32>) {
    let kept_shape = shape
        .iter()
        .enumerate()
        .filter(|(dim, _)| dims.contains(dim));
    let mut groups = vec![Vec::new(); kept_shape.map(|(_, len)| len).product()];
    let group_of: Vec<usize> = (0..x.len())
        .map(|at| group_index(at, shape, dims))
        .collect();
    for (&x, &group) in x.iter().zip(&group_of) {
        groups[group].push(x);
    }
    let scales: Vec<u32> = groups
        .iter()
        .map(|group| row_scale(group, format))
        .collect();
    let code = |(x, &group): (&f32, &usize)| encode_quotient(x.to_bits(), scales[group], overflow);
    (x.iter().zip(&group_of).map(code).collect(), scales)
}

/// Row-major index over the kept dimensions of the element at flat position `at`.
fn group_index(mut at: usize, shape: &[usize], dims: &[usize]) -> usize {
    let (mut group, mut stride) = (0, 1);
    for (dim, &len) in shape.iter().enumerate().rev() {
        if dims.contains(&dim) {
            group += at % len * stride;
            stride *= len;
        }
        at /= len;
    }
    group
}

fn row_scale(row: &[f32], format: ScaleFormat) -> u32 {
    // Without their sign, bits that are not NaN are ordered like the values, and NaN is above.
    let amax = row
        .iter()
        .map(|x| x.to_bits() & !SIGN)
        .fold(LEAST_AMAX, std::cmp::max);
    let scale = over_448(amax);
    match format {
        ScaleFormat::Ue8m0 if !is_nan(scale) => power_of_two_at_least(scale),
        _ => scale,
    }
}

/// f32 bits of `amax / 448` for the bits of a value that is not negative.
pub(super) fn over_448(amax: u32) -> u32 {
    match Parts::of(amax) {
        None if is_nan(amax) => NAN,
        None => INFINITY,
        Some(Parts { significand, shift }) => {
            let exp = LEAST + i64::from(shift);
            round_small(false, significand.unsigned_abs().into(), 448, exp)
        }
    }
}

/// `2^ceil(log2 scale)` within `[2^-127, 2^127]`, for the f32 bits of a value that is not
/// negative and not NaN. SPEC 1.3.
pub fn power_of_two_at_least(scale: u32) -> u32 {
    if scale <= LEAST_POWER {
        return LEAST_POWER;
    }
    let (field, fraction) = (scale >> 23, scale & 0x7F_FFFF);
    (field + u32::from(fraction != 0)).min(LARGEST_FIELD) << 23
}

#[cfg(test)]
mod tests {
    use super::Overflow::{NonSaturating, Saturating};
    use super::ScaleFormat::{Float32, Ue8m0};
    use super::*;

    const INF: f32 = f32::INFINITY;

    /// SPEC 1.2.
    #[test]
    fn the_largest_value_becomes_448() {
        let (codes, scales) = quantize(&[448.0, -224.0, 1.0, 0.0, -0.0], 5, Saturating, Float32);
        assert_eq!(codes, [0x7E, 0xF6, 0x38, 0x00, 0x80]);
        assert_eq!(scales, [1f32.to_bits()]);
    }

    #[test]
    fn br_79_zero_rows_use_the_floor() {
        let (codes, scales) = quantize(&[0.0, 0.0, 1.0, 448.0], 2, Saturating, Float32);
        assert_eq!(codes, [0, 0, 0x38, 0x7E]);
        let floor = f32::from_bits(LEAST_AMAX) / 448.0;
        assert_eq!(scales, [floor.to_bits(), 1f32.to_bits()]);
        let (_, scales) = quantize(&[0.0, 0.0], 2, Saturating, Ue8m0);
        assert_eq!(scales, [2f32.powi(-22).to_bits()]);
    }

    #[test]
    fn br_21_a_nan_poisons_its_row_only() {
        for format in [Float32, Ue8m0] {
            for overflow in [Saturating, NonSaturating] {
                let x = [-f32::NAN, INF, 0.0, 448.0, 1.0, 448.0];
                let (codes, scales) = quantize(&x, 3, overflow, format);
                assert_eq!(codes, [0x7F, 0x7F, 0x7F, 0x7E, 0x38, 0x7E]);
                assert_eq!(scales, [NAN, 1f32.to_bits()]);
            }
        }
    }

    #[test]
    fn infinity_without_nan() {
        let x = [INF, -INF, 3.0, -3.0];
        let (codes, scales) = quantize(&x, 4, Saturating, Float32);
        assert_eq!(
            (codes, scales),
            (vec![0x7F, 0x7F, 0x00, 0x80], vec![INFINITY])
        );
        let largest = 2f32.powi(127).to_bits();
        let (codes, scales) = quantize(&x, 4, Saturating, Ue8m0);
        assert_eq!(
            (codes, scales),
            (vec![0x7E, 0xFE, 0x00, 0x80], vec![largest])
        );
        let (codes, _) = quantize(&x, 4, NonSaturating, Ue8m0);
        assert_eq!(codes, [0x7F, 0xFF, 0x00, 0x80]);
    }

    #[test]
    fn br_82_powers_of_two_come_from_the_bits() {
        for exponent in (-20..=-5).chain([4]) {
            let power = 2f32.powi(exponent).to_bits();
            assert_eq!(power_of_two_at_least(power), power);
            assert_eq!(
                power_of_two_at_least(power + 1),
                2f32.powi(exponent + 1).to_bits()
            );
            assert_eq!(power_of_two_at_least(power - 1), power);
        }
        assert_eq!(power_of_two_at_least(0), LEAST_POWER);
        assert_eq!(power_of_two_at_least(LEAST_POWER + 1), 0x0080_0000);
        assert_eq!(
            power_of_two_at_least(f32::MAX.to_bits()),
            2f32.powi(127).to_bits()
        );
        assert_eq!(power_of_two_at_least(INFINITY), 2f32.powi(127).to_bits());
    }

    #[test]
    fn rows_are_the_last_dimension() {
        let x: Vec<f32> = (0..24).map(|i| (i * i - 90) as f32).collect();
        let by_rows = quantize(&x, 4, Saturating, Float32);
        assert_eq!(
            quantize_dims(&x, &[2, 3, 4], &[1, 0], Saturating, Float32),
            by_rows
        );
    }

    #[test]
    fn kept_dimensions_group_the_rest() {
        let x = [448.0, 1.0, 2.0, 896.0, -2.0, 0.0];
        let (codes, scales) = quantize_dims(&x, &[3, 2], &[1], Saturating, Float32);
        assert_eq!(scales, [1f32, 2.0].map(f32::to_bits));
        assert_eq!(codes, [0x7E, 0x30, 0x40, 0x7E, 0xC0, 0x00]);
        let (_, whole) = quantize_dims(&x, &[3, 2], &[], Saturating, Float32);
        assert_eq!(whole, [2f32.to_bits()]);
    }
}
