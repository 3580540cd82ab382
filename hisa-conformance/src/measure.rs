//! How far the scores of a backend are from the exact ones: histograms, merged over cases.

use crate::op::Op;
use hisa_ref::E4M3;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts by distance.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Values compared.
    pub values: u64,
    /// `ulps[0]` counts equal values, `ulps[i]` those `2^(i-1)` up to `2^i` ulps of f32 off.
    pub ulps: Vec<u64>,
    /// Largest distance in ulps.
    pub ulps_max: u64,
    /// `shares[i]` counts errors of at least `i/10` and less than `(i+1)/10` of the bound, the
    /// last entry those at or beyond it. Empty for a backend that is held to equality.
    pub shares: Vec<u64>,
    /// Largest error as a share of its bound; infinite where the bound is 0.
    #[serde(with = "crate::report::float")]
    pub share_max: f64,
    /// Values that no bound was known of, so that anything was accepted.
    #[serde(default)]
    pub unbounded: u64,
}

/// Parts of a bound that [`Histogram::shares`] tells apart.
pub const SHARES: usize = 10;

impl Histogram {
    /// Counts one value; `bound` is absent where equality is asked for.
    pub fn add(&mut self, expected: f32, got: f32, bound: Option<f64>) {
        self.values += 1;
        let ulps = ulps(expected, got);
        let bucket = (u64::BITS - ulps.leading_zeros()) as usize;
        bump(&mut self.ulps, bucket);
        self.ulps_max = self.ulps_max.max(ulps);
        let Some(bound) = bound.filter(|bound| bound.is_finite()) else {
            return;
        };
        let error = (f64::from(expected) - f64::from(got)).abs();
        let share = if error == 0.0 { 0.0 } else { error / bound };
        if share.is_nan() {
            return; // an infinite value where a finite one was expected, or the reverse
        }
        bump(
            &mut self.shares,
            ((share * SHARES as f64) as usize).min(SHARES),
        );
        if share > self.share_max {
            // A number in JSON, also where the bound is 0.
            self.share_max = share.min(f64::MAX);
        }
    }

    /// Counts one value that is held to a bound; an infinite one accepts anything, which is
    /// counted too.
    pub fn add_bounded(&mut self, expected: f32, got: f32, bound: f64) {
        self.add(expected, got, Some(bound));
        self.unbounded += u64::from(bound.is_infinite() && !expected.is_nan());
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        self.unbounded += other.unbounded;
        self.values += other.values;
        for (sum, part) in [
            (&mut self.ulps, &other.ulps),
            (&mut self.shares, &other.shares),
        ] {
            sum.resize(sum.len().max(part.len()), 0);
            sum.iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part);
        }
        self.ulps_max = self.ulps_max.max(other.ulps_max);
        if other.share_max > self.share_max {
            self.share_max = other.share_max;
        }
    }
}

fn bump(counts: &mut Vec<u64>, bucket: usize) {
    if counts.len() <= bucket {
        counts.resize(bucket + 1, 0);
    }
    counts[bucket] += 1;
}

/// Whether two values are one score: both zeros are, and so are all NaN (SPEC V.4, V.8).
#[must_use]
pub fn same_value(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

/// Whether two codes stand for one value: both zeros do, and so do all NaN (SPEC V.8).
#[must_use]
pub fn same_code(a: E4M3, b: E4M3) -> bool {
    same_value(a.to_f32(), b.to_f32())
}

/// Representable f32 between two values, both zeros being one; NaN are equal to each other and
/// further from everything else than any number.
#[must_use]
pub fn ulps(a: f32, b: f32) -> u64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0,
        (false, false) => ordinal(a).abs_diff(ordinal(b)),
        _ => u64::from(u32::MAX),
    }
}

const fn ordinal(value: f32) -> i64 {
    let bits = value.to_bits();
    let magnitude = (bits & 0x7FFF_FFFF) as i64;
    if bits >> 31 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

/// Histograms by tensor of a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measures(pub BTreeMap<String, Histogram>);

impl Measures {
    /// The histogram of a tensor of a job.
    pub fn of(&mut self, op: Op, tensor: &str) -> &mut Histogram {
        self.0.entry(format!("{op}.{tensor}")).or_default()
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        for (name, histogram) in &other.0 {
            self.0.entry(name.clone()).or_default().merge(histogram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_representable_values() {
        assert_eq!(ulps(1.0, 1.0f32.next_up()), 1);
        assert_eq!(ulps(-0.0, 0.0), 0);
        assert_eq!(ulps(-f32::from_bits(1), f32::from_bits(1)), 2);
        assert_eq!(ulps(f32::NAN, f32::from_bits(0x7FFF_FFFF)), 0);
        assert_eq!(ulps(f32::NAN, 1.0), u64::from(u32::MAX));
    }

    #[test]
    fn buckets_hold_powers_of_two_and_tenths_of_the_bound() {
        let mut histogram = Histogram::default();
        let one = 1.0f32;
        for (steps, bound) in [
            (0, None),
            (1, None),
            (2, None),
            (3, Some(1.0)),
            (4, Some(1e-9)),
        ] {
            histogram.add(one, f32::from_bits(one.to_bits() + steps), bound);
        }
        assert_eq!(histogram.ulps, [1, 1, 2, 1]);
        assert_eq!((histogram.values, histogram.ulps_max), (5, 4));
        assert_eq!(histogram.shares[0], 1);
        assert_eq!(histogram.shares[SHARES], 1);
        assert!(histogram.share_max > 100.0);
    }

    #[test]
    fn merged_histograms_count_everything() {
        let (mut a, mut b) = (Measures::default(), Measures::default());
        a.of(Op::Dsa, "flat_scores").add(1.0, 1.0, None);
        b.of(Op::Dsa, "flat_scores").add(1.0, 2.0, Some(4.0));
        a.merge(&b);
        let merged = &a.0["dsa.flat_scores"];
        assert_eq!((merged.values, merged.ulps_max), (2, 1 << 23));
        assert_eq!(merged.shares, [0, 0, 1]);
    }
}
