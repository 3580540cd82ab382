//! Random and hand-made tensors for the tests.

use crate::fp8::{E4M3, Overflow};
use crate::input::{Keys, Queries};
use crate::params::Strictness;
use ndarray::{Array1, Array2, Array3};

/// SplitMix64: enough randomness for cases that have to be the same on every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1 << 24) as f32
    }

    /// Roughly normal: twelve uniform numbers.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.word() as usize % from.len()]
    }
}

/// How the codes of a row come about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Codes {
    Normal,
    /// Normal, the largest magnitude scaled to 448.
    Amax,
    /// The same with the power of two that is nearest above.
    PowerOfTwo,
    HeavyTail,
    Uniform,
    Zero,
    /// Every value 448 or -448.
    Extreme,
    /// One large value, the others down to the least subnormal: every one a rest.
    Lonely,
    /// Uniform over all codes, NaN among them.
    Any,
    /// Another kind per row.
    Mixed,
}

pub(super) const KINDS: [Codes; 10] = [
    Codes::Normal,
    Codes::Amax,
    Codes::PowerOfTwo,
    Codes::HeavyTail,
    Codes::Uniform,
    Codes::Zero,
    Codes::Extreme,
    Codes::Lonely,
    Codes::Any,
    Codes::Mixed,
];

pub(super) fn encode(x: f32) -> E4M3 {
    E4M3::encode(x, Overflow::Saturating)
}

pub(super) fn fill(random: &mut Random, kind: Codes, row: &mut [E4M3]) {
    match kind {
        Codes::Normal => row.fill_with(|| encode(random.normal())),
        Codes::Amax | Codes::PowerOfTwo => {
            let values: Vec<f32> = row.iter().map(|_| random.normal()).collect();
            let amax = values
                .iter()
                .fold(1e-4, |a: f32, v| if v.abs() > a { v.abs() } else { a });
            let exact = amax / 448.0;
            let scale = if matches!(kind, Codes::Amax) {
                exact
            } else {
                exact.log2().ceil().exp2()
            };
            row.iter_mut()
                .zip(values)
                .for_each(|(code, v)| *code = encode(v / scale));
        }
        Codes::HeavyTail => row.fill_with(|| {
            let size = (random.normal() * 3.0).exp();
            encode(size * random.normal())
        }),
        Codes::Uniform => row.fill_with(|| {
            loop {
                let code = E4M3::from_bits(random.word() as u8);
                if !code.is_nan() {
                    break code;
                }
            }
        }),
        Codes::Zero => row.fill_with(|| E4M3::from_bits(random.pick(&[0x00, 0x80]))),
        Codes::Extreme => row.fill_with(|| E4M3::from_bits(random.pick(&[0x7E, 0xFE]))),
        Codes::Lonely => {
            row.fill_with(|| E4M3::from_bits(random.word() as u8 & 0x9F));
            let at = random.word() as usize % row.len();
            row[at] = E4M3::from_bits(0x7E);
        }
        Codes::Any => row.fill_with(|| E4M3::from_bits(random.word() as u8)),
        Codes::Mixed => {
            let kind = KINDS[random.word() as usize % 8];
            fill(random, kind, row);
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Factors {
    Plain,
    /// Weights in pairs that cancel, powers of two as scales: many sums of zero and exact ties.
    Cancelling,
    /// Subnormal, huge and zero.
    Extreme,
    /// NaN, infinities and negative scales among others.
    Special,
}

pub(super) const FACTORS: [Factors; 4] = [
    Factors::Plain,
    Factors::Cancelling,
    Factors::Extreme,
    Factors::Special,
];

const SPECIAL: [f32; 8] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    f32::MAX,
    f32::MIN_POSITIVE,
];

fn factor(random: &mut Random, kind: Factors, one_in: usize) -> f32 {
    match kind {
        Factors::Plain => random.normal(),
        Factors::Cancelling => random.pick(&[1.0, -1.0, 0.5, -0.5, 0.25]),
        Factors::Extreme => {
            let tiny = f32::from_bits(random.word() as u32 & 0x007F_FFFF);
            random.pick(&[tiny, -tiny, f32::MAX, 3e38, 1e-38, 0.0, -0.0, 1.0])
        }
        Factors::Special if (random.word() as usize).is_multiple_of(one_in) => {
            random.pick(&SPECIAL)
        }
        Factors::Special => random.normal(),
    }
}

/// The tensors of one case.
pub(super) struct Case {
    q: Array3<E4M3>,
    weights: Array2<f32>,
    k: Array2<E4M3>,
    scales: Array1<f32>,
}

impl Case {
    pub(super) fn queries(&self) -> Queries<'_> {
        Queries::new(self.q.view(), self.weights.view(), Strictness::Permissive).unwrap()
    }

    pub(super) fn keys(&self) -> Keys<'_> {
        Keys::new(self.k.view(), self.scales.view(), Strictness::Permissive).unwrap()
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) keys: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
}

pub(super) fn case(seed: u64, shape: Shape, q: Codes, k: Codes, factors: Factors) -> Case {
    let Shape {
        rows: m,
        keys: n,
        heads: h,
        head_dim: d,
    } = shape;
    let mut random = Random(seed);
    let mut codes = vec![E4M3::ZERO; (m * h + n) * d];
    let (q_codes, k_codes) = codes.split_at_mut(m * h * d);
    q_codes
        .chunks_exact_mut(d)
        .for_each(|row| fill(&mut random, q, row));
    k_codes
        .chunks_exact_mut(d)
        .for_each(|row| fill(&mut random, k, row));
    let weights: Vec<f32> = (0..m * h)
        .map(|_| factor(&mut random, factors, 4 * h))
        .collect();
    let scales: Vec<f32> = (0..n).map(|_| factor(&mut random, factors, 4)).collect();
    make(shape, q_codes, k_codes, weights, scales)
}

pub(super) fn make(
    shape: Shape,
    q: &[E4M3],
    k: &[E4M3],
    weights: Vec<f32>,
    scales: Vec<f32>,
) -> Case {
    let Shape {
        rows: m,
        keys: n,
        heads: h,
        head_dim: d,
    } = shape;
    Case {
        q: Array3::from_shape_vec((m, h, d), q.to_vec()).unwrap(),
        weights: Array2::from_shape_vec((m, h), weights).unwrap(),
        k: Array2::from_shape_vec((n, d), k.to_vec()).unwrap(),
        scales: Array1::from_vec(scales),
    }
}
