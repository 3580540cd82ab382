//! Stage 1, `quantize`.

use super::encode::encode;
use super::fault::Fault;
use super::launch::{Launch, store};
use crate::backend::{Failure, Job, Outputs};
use hisa_ref::E4M3;
use hisa_ref::exact::NAN;
use hisa_ref::stages::quantize::{AMAX_MIN, ScaleFormat, next_power_of_two};

pub(super) fn run(launch: &Launch, job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let x = job.f32("x")?;
    let d = x.columns();
    let mut first = None;
    for row in 0..x.rows() {
        let values = x.row(row);
        let f32_scale = scale(launch, values);
        let scale = match job.quantize.format {
            ScaleFormat::F32 => f32_scale,
            ScaleFormat::Ue8m0 => power_of_two(launch, f32_scale),
        };
        let divisor = match launch.fault {
            Fault::QuantizeOldScale => f32_scale,
            Fault::QuantizeFirstScale => *first.get_or_insert(scale),
            _ => scale,
        };
        store(out.f32("scale")?, row as isize, scale);
        let codes = out.codes("codes")?;
        for (lane, &value) in values.iter().enumerate() {
            let quotient = match launch.fault {
                Fault::QuantizeF32Quotient => f64::from(value / divisor),
                Fault::QuantizeReciprocal => f64::from(value * (1.0 / divisor)),
                _ => f64::from(value) / f64::from(divisor),
            };
            let code = if scale.is_nan() && !launch.is(Fault::QuantizeNanToMax) {
                E4M3::NAN
            } else {
                encode(launch, quotient, lane, job.quantize.overflow)
            };
            store(codes, (row * d + lane) as isize, code);
        }
    }
    Ok(())
}

/// `amax / 448`, NaN where a value is.
fn scale(launch: &Launch, values: &[f32]) -> f32 {
    let mut amax = if launch.is(Fault::QuantizeNoFloor) {
        0.0
    } else {
        AMAX_MIN
    };
    let seen = if launch.is(Fault::QuantizeDimTail) {
        values.len() / 16 * 16
    } else {
        values.len()
    };
    for &value in &values[..seen] {
        if value.is_nan() && !launch.is(Fault::QuantizeNanInMax) {
            return NAN;
        }
        if value.abs() > amax {
            amax = value.abs();
        }
    }
    if launch.is(Fault::QuantizeInverse448) {
        amax * (1.0 / 448.0)
    } else {
        amax / 448.0
    }
}

fn power_of_two(launch: &Launch, scale: f32) -> f32 {
    if scale.is_nan() {
        return scale;
    }
    match launch.fault {
        Fault::QuantizeLog2 if scale.is_finite() => scale.log2().ceil().exp2(),
        Fault::QuantizeFloorScale if scale.is_normal() => {
            f32::from_bits(scale.to_bits() & 0x7F80_0000)
        }
        _ => next_power_of_two(scale),
    }
}
