//! Stage 1, `quantize`: f32 rows to e4m3 codes with one scale per row (SPEC 1).
//!
//! bf16 rows are converted to f32 first, which is exact.

use crate::error::{ParamError, Result};
use crate::exact::NAN;
use crate::fp8::{E4M3, E4M3_MAX, Overflow};
use crate::input::{first_value, standard};
use crate::params::{Strictness, filled};
use crate::rows::for_each_row;
use crate::stages::matrix;
use ndarray::{Array1, Array2, ArrayD, ArrayView2, ArrayViewD, IxDyn};

/// Lower clamp of `amax`, the f32 nearest to 1e-4.
pub const AMAX_MIN: f32 = f32::from_bits(0x38D1_B717);

/// How the scale is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaleFormat {
    /// `amax / 448` rounded to f32.
    F32,
    /// The next power of two at or above that, clamped to [2^-127, 2^127].
    Ue8m0,
}

/// Choices of a quantisation. All are named by the caller; none has a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuantizeOptions {
    /// How the scale is written.
    pub format: ScaleFormat,
    /// What codes beyond 448 become.
    pub overflow: Overflow,
    /// Whether NaN and infinities are refused.
    pub strictness: Strictness,
}

/// Codes and scales of quantised rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized {
    /// `[rows, D]` codes.
    pub codes: Array2<E4M3>,
    /// `[rows]` scales: `x` is about `code * scale`.
    pub scale: Array1<f32>,
}

/// Codes and scales of a tensor quantised over custom dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantizedDims {
    /// Codes, in the shape of the argument.
    pub codes: ArrayD<E4M3>,
    /// One scale per combination of kept dimensions, in axis order.
    pub scale: ArrayD<f32>,
}

/// Quantises rows: `x` is `[rows, D]`.
///
/// # Errors
/// In strict mode the first NaN or infinity of `x`, row-major (SPEC 1.5).
pub fn run(x: ArrayView2<'_, f32>, options: QuantizeOptions) -> Result<Quantized> {
    rows(x, options, fast_scale)
}

/// [`run`] as SPEC 1 words it.
///
/// # Errors
/// As [`run`].
pub fn scalar(x: ArrayView2<'_, f32>, options: QuantizeOptions) -> Result<Quantized> {
    rows(x, options, scalar_scale)
}

/// Quantises over custom dimensions: those in `dims` are kept, all others share one scale
/// (SPEC 1.6). `dims` may be empty: then one scale serves the whole tensor.
///
/// # Errors
/// [`ParamError::Dims`] for a repeated or absent dimension; in strict mode as [`run`].
pub fn run_dims(
    x: ArrayViewD<'_, f32>,
    dims: &[usize],
    options: QuantizeOptions,
) -> Result<QuantizedDims> {
    let ndim = x.ndim();
    for (position, &dim) in dims.iter().enumerate() {
        if dim >= ndim || dims[..position].contains(&dim) {
            return Err(ParamError::Dims {
                position,
                dim,
                ndim,
            }
            .into());
        }
    }
    let x = standard("x", x)?;
    let values = x
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    check_strict(values, x.shape(), options)?;
    let (kept, reduced): (Vec<usize>, Vec<usize>) = (0..ndim).partition(|dim| dims.contains(dim));
    let axes = [kept.as_slice(), &reduced].concat();
    let shape_of = |axes: &[usize]| axes.iter().map(|&axis| x.shape()[axis]).collect::<Vec<_>>();
    let (kept_shape, grouped_shape) = (shape_of(&kept), shape_of(&axes));
    let groups = kept_shape.iter().product();
    let len = shape_of(&reduced).iter().product();
    let grouped = x.view().permuted_axes(IxDyn(&axes));
    let grouped = standard("x", grouped)?
        .into_owned()
        .into_raw_vec_and_offset()
        .0;
    let flat = run(matrix(groups, len, grouped).view(), options)?;
    let mut codes = reshaped(flat.codes.into_raw_vec_and_offset().0, &grouped_shape);
    let mut back = vec![0; ndim];
    for (position, &axis) in axes.iter().enumerate() {
        back[axis] = position;
    }
    codes = codes
        .permuted_axes(IxDyn(&back))
        .as_standard_layout()
        .into_owned();
    let scale = reshaped(flat.scale.into_raw_vec_and_offset().0, &kept_shape);
    Ok(QuantizedDims { codes, scale })
}

fn reshaped<T>(values: Vec<T>, shape: &[usize]) -> ArrayD<T> {
    ArrayD::from_shape_vec(IxDyn(shape), values)
        .unwrap_or_else(|_| unreachable!("a permutation keeps the number of elements"))
}

/// What strict mode refuses in `x` (SPEC 1.5).
///
/// # Errors
/// As [`run`].
pub fn check(x: ArrayView2<'_, f32>, options: QuantizeOptions) -> Result<()> {
    let x = standard("x", x)?;
    let values = x
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    check_strict(values, x.shape(), options)
}

fn check_strict(values: &[f32], shape: &[usize], options: QuantizeOptions) -> Result<()> {
    if options.strictness == Strictness::Permissive {
        return Ok(());
    }
    first_value(
        "x",
        values,
        shape,
        "x must be finite in strict mode",
        f32::is_finite,
    )
}

fn rows(
    x: ArrayView2<'_, f32>,
    options: QuantizeOptions,
    row_scale: fn(&[f32], ScaleFormat) -> f32,
) -> Result<Quantized> {
    let (count, d) = x.dim();
    let x = standard("x", x)?;
    let values = x
        .as_slice()
        .unwrap_or_else(|| unreachable!("standard layout"));
    check_strict(values, &[count, d], options)?;
    let mut codes = filled("codes", count, d, E4M3::ZERO)?;
    let mut scale = filled("scale", count, 1, NAN)?;
    for_each_row(
        &mut scale,
        1,
        d,
        || (),
        |(), row, slot| {
            slot[0] = row_scale(&values[row * d..(row + 1) * d], options.format);
        },
    );
    for_each_row(
        &mut codes,
        d,
        d,
        || (),
        |(), row, out| {
            for (code, &x) in out.iter_mut().zip(&values[row * d..(row + 1) * d]) {
                *code = quotient_code(x, scale[row], options.overflow);
            }
        },
    );
    Ok(Quantized {
        codes: matrix(count, d, codes),
        scale: Array1::from_vec(scale),
    })
}

/// `encode(x / scale)`, the real quotient rounded once; every NaN is 0x7F (SPEC 1.4).
pub(crate) fn quotient_code(x: f32, scale: f32, overflow: Overflow) -> E4M3 {
    let quotient = f64::from(x) / f64::from(scale);
    if quotient.is_nan() {
        E4M3::NAN
    } else {
        E4M3::encode_f64(quotient, overflow)
    }
}

/// Scale of a row as SPEC 1.2 and 1.3 word it.
fn scalar_scale(x: &[f32], format: ScaleFormat) -> f32 {
    let mut amax = AMAX_MIN;
    for &value in x {
        if value.is_nan() {
            return NAN;
        }
        if value.abs() > amax {
            amax = value.abs();
        }
    }
    let scale = amax / E4M3_MAX;
    match format {
        ScaleFormat::F32 => scale,
        ScaleFormat::Ue8m0 => next_power_of_two(scale),
    }
}

/// The same on bits: magnitudes order as integers, and NaN lies above infinity.
fn fast_scale(x: &[f32], format: ScaleFormat) -> f32 {
    let magnitude = |value: &f32| value.to_bits() & 0x7FFF_FFFF;
    let amax = x.iter().map(magnitude).fold(AMAX_MIN.to_bits(), u32::max);
    if amax > f32::INFINITY.to_bits() {
        return NAN;
    }
    let scale = f32::from_bits(amax) / E4M3_MAX;
    match format {
        ScaleFormat::F32 => scale,
        ScaleFormat::Ue8m0 => next_power_of_two(scale),
    }
}

/// `2^ceil(log2 x)` for positive `x`, read off the bits and clamped to [2^-127, 2^127]; a
/// float logarithm would be one step low just above a power of two (BR-82).
#[must_use]
pub fn next_power_of_two(x: f32) -> f32 {
    const LEAST: u32 = 0x0040_0000; // 2^-127, a subnormal
    let bits = x.to_bits();
    if bits <= LEAST {
        return f32::from_bits(LEAST);
    }
    let exponent = (bits >> 23) + u32::from(bits & 0x007F_FFFF != 0);
    match exponent {
        ..=254 => f32::from_bits(exponent << 23),
        _ => f32::from_bits(254 << 23),
    }
}
