//! Pooling and quantising in real f32 operations.

use super::{Rule, digest, sum_of_products};
use hisa_ref::fp8::E4M3_MAX;
use hisa_ref::stages::block_pool::SCALE_MIN;
use hisa_ref::stages::quantize::{AMAX_MIN, QuantizeOptions, ScaleFormat};
use hisa_ref::{E4M3, Overflow};

impl Rule {
    fn flushed(self, x: f32) -> f32 {
        if self.flush && x.is_subnormal() {
            x * 0.0
        } else {
            x
        }
    }

    fn divided(self, a: f32, b: f32) -> f32 {
        self.flushed(self.flushed(a) / self.flushed(b))
    }

    fn encoded(self, x: f32, scale: f32, overflow: Overflow) -> E4M3 {
        let quotient = self.divided(x, scale);
        if quotient.is_nan() {
            E4M3::NAN
        } else {
            E4M3::encode(quotient, overflow)
        }
    }

    /// One block: `codes` is `[n, D]`, `pooled` is `[D]`. Gives the scale.
    pub(super) fn pool(self, codes: &[E4M3], scales: &[f32], pooled: &mut [E4M3]) -> f32 {
        let d = pooled.len();
        let seed = digest(codes);
        let arithmetic = self.arithmetic(seed >> 8 & 1 == 0);
        let means = (0..d).map(|column| {
            let keys = codes[column..].iter().step_by(d).zip(scales);
            let terms: Vec<(f32, f32)> =
                keys.map(|(code, &scale)| (code.to_f32(), scale)).collect();
            let sum = sum_of_products(&terms, arithmetic, seed);
            self.divided(sum, scales.len() as f32)
        });
        let means: Vec<f32> = means.collect();
        if means.iter().any(|mean| mean.is_nan()) {
            pooled.fill(E4M3::NAN);
            return f32::NAN;
        }
        let scale = self.divided(largest(&means, 0.0), E4M3_MAX);
        let scale = if scale > SCALE_MIN { scale } else { SCALE_MIN };
        for (code, &mean) in pooled.iter_mut().zip(&means) {
            *code = self.encoded(mean, scale, Overflow::Saturating);
        }
        scale
    }

    /// One row. Gives the scale.
    pub(super) fn quantize(self, x: &[f32], options: QuantizeOptions, codes: &mut [E4M3]) -> f32 {
        if x.iter().any(|x| x.is_nan()) {
            codes.fill(E4M3::NAN);
            return f32::NAN;
        }
        let scale = self.divided(largest(x, AMAX_MIN), E4M3_MAX);
        let scale = match options.format {
            ScaleFormat::F32 => scale,
            ScaleFormat::Ue8m0 => power_above(scale),
        };
        for (code, &x) in codes.iter_mut().zip(x) {
            *code = self.encoded(x, scale, options.overflow);
        }
        scale
    }
}

/// The largest magnitude, at least `least`.
fn largest(values: &[f32], least: f32) -> f32 {
    let magnitudes = values.iter().map(|value| value.abs());
    magnitudes.fold(least, |most, value| if value > most { value } else { most })
}

/// The least power of two that is not below a normal number or infinity; at most 2^127.
fn power_above(scale: f32) -> f32 {
    let bits = scale.to_bits();
    let exponent = (bits >> 23) + u32::from(bits & 0x7F_FFFF != 0);
    f32::from_bits(exponent.min(254) << 23)
}
