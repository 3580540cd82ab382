//! Whole-tensor similarity, for reports only. No verdict rests on it: it hides a wrong row.

/// `2<x,y> / (|x|^2 + |y|^2)` in f64: 1 for equal tensors, 1 also for two zero tensors. NaN where
/// any value is. Tensors of different length give `None`.
#[must_use]
pub fn similarity(x: &[f32], y: &[f32]) -> Option<f64> {
    let sums = Sums::of(x, y)?;
    let energy = sums.xx + sums.yy;
    Some(if energy == 0.0 {
        1.0
    } else {
        2.0 * sums.xy / energy
    })
}

/// Root of `sum (x-y)^2 / sum y^2` in f64, y the reference: 0 for equal tensors. Tensors of
/// different length give `None`; a zero reference gives 0 or infinity.
#[must_use]
pub fn rms_error_ratio(x: &[f32], y: &[f32]) -> Option<f64> {
    let sums = Sums::of(x, y)?;
    Some(if sums.difference == 0.0 {
        0.0
    } else {
        (sums.difference / sums.yy).sqrt()
    })
}

#[derive(Default)]
struct Sums {
    xx: f64,
    xy: f64,
    yy: f64,
    difference: f64,
}

impl Sums {
    fn of(x: &[f32], y: &[f32]) -> Option<Self> {
        if x.len() != y.len() {
            return None;
        }
        let mut sums = Self::default();
        for (&x, &y) in x.iter().zip(y) {
            let (x, y) = (f64::from(x), f64::from(y));
            sums.xx += x * x;
            sums.xy += x * y;
            sums.yy += y * y;
            sums.difference += (x - y) * (x - y);
        }
        Some(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn equal_tensors_score_one_and_zero() {
        let x = [1.0, -2.0, 3.5];
        assert_relative_eq!(similarity(&x, &x).unwrap(), 1.0);
        assert_relative_eq!(rms_error_ratio(&x, &x).unwrap(), 0.0);
        assert_relative_eq!(similarity(&[0.0], &[-0.0]).unwrap(), 1.0);
    }

    #[test]
    fn known_values() {
        // 2*(1*2) / (1 + 4) and sqrt(1 / 4).
        assert_relative_eq!(similarity(&[1.0], &[2.0]).unwrap(), 0.8);
        assert_relative_eq!(rms_error_ratio(&[1.0], &[2.0]).unwrap(), 0.5);
        assert_relative_eq!(similarity(&[1.0, 0.0], &[0.0, 1.0]).unwrap(), 0.0);
    }

    #[test]
    fn lengths_and_nan() {
        assert_eq!(similarity(&[1.0], &[]), None);
        assert_eq!(rms_error_ratio(&[], &[1.0]), None);
        assert!(similarity(&[f32::NAN], &[1.0]).unwrap().is_nan());
        assert_eq!(rms_error_ratio(&[1.0], &[0.0]), Some(f64::INFINITY));
    }
}
