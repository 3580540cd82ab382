//! Owned random inputs shared by the integration tests.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use hisa_ref::{E4M3, IndexerInput, Keys, Queries, Strictness, Window, Windows};
use ndarray::{Array1, Array2, Array3};

/// SplitMix64, the tests' own source of numbers.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// What the codes, scales and weights look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Moderate codes, scales around 0.01.
    Plain,
    /// Every finite code, scales over many binades.
    AllFinite,
    /// Codes from a handful, scales equal: ties everywhere.
    Ties,
    /// Every bit pattern anywhere; permissive only.
    Special,
}

pub const KINDS: [Kind; 4] = [Kind::Plain, Kind::AllFinite, Kind::Ties, Kind::Special];

/// An owned case.
#[derive(Debug, Clone)]
pub struct Case {
    pub q: Array3<E4M3>,
    pub k: Array2<E4M3>,
    pub k_scale: Array1<f32>,
    pub weights: Array2<f32>,
    pub windows: Windows,
    pub strictness: Strictness,
}

impl Case {
    pub fn new(seed: u64, m: usize, n: usize, h: usize, d: usize, kind: Kind) -> Self {
        let mut r = Numbers(seed);
        let q = Array3::from_shape_simple_fn((m, h, d), || code(&mut r, kind));
        let k = Array2::from_shape_simple_fn((n, d), || code(&mut r, kind));
        let k_scale = Array1::from_shape_simple_fn(n, || scale(&mut r, kind));
        let weights = Array2::from_shape_simple_fn((m, h), || weight(&mut r, kind));
        let rows = (0..m).map(|_| window(&mut r, n)).collect();
        let windows = Windows::new(rows, n).unwrap();
        let strictness = match kind {
            Kind::Special => Strictness::Permissive,
            _ => Strictness::Strict,
        };
        Self {
            q,
            k,
            k_scale,
            weights,
            windows,
            strictness,
        }
    }

    pub fn input(&self) -> IndexerInput<'_> {
        IndexerInput::new(
            self.q.view(),
            self.k.view(),
            self.k_scale.view(),
            self.weights.view(),
            self.windows.clone(),
            self.strictness,
        )
        .unwrap()
    }

    pub fn queries(&self) -> Queries<'_> {
        Queries::new(self.q.view(), self.weights.view(), self.strictness).unwrap()
    }

    pub fn keys(&self) -> Keys<'_> {
        Keys::new(self.k.view(), self.k_scale.view(), self.strictness).unwrap()
    }
}

fn code(r: &mut Numbers, kind: Kind) -> E4M3 {
    let bits = r.next() as u8;
    E4M3::from_bits(match kind {
        Kind::Plain => (bits & 0x80) | (0x20 + (bits & 0x1F)),
        Kind::AllFinite if bits & 0x7F == 0x7F => bits & 0xF8,
        Kind::AllFinite => bits,
        Kind::Ties => [0x00, 0x80, 0x38, 0xB8, 0x40, 0x30][usize::from(bits) % 6],
        // NaN codes stay rare, or every score would be NaN.
        Kind::Special if bits & 0x7F == 0x7F && r.below(8) > 0 => bits & 0xF8,
        Kind::Special => bits,
    })
}

fn scale(r: &mut Numbers, kind: Kind) -> f32 {
    match kind {
        Kind::Plain => 0.01 * (1.5 + r.unit()),
        Kind::AllFinite => (1.5 + r.unit()) * 2f32.powi(r.below(60) as i32 - 40),
        Kind::Ties => [0.5, 0.5, 1.0, 0.0][r.below(4)],
        Kind::Special => special(r),
    }
}

fn weight(r: &mut Numbers, kind: Kind) -> f32 {
    match kind {
        Kind::Plain => r.unit(),
        Kind::AllFinite => r.unit() * 2f32.powi(r.below(200) as i32 - 100),
        Kind::Ties => [1.0, 1.0, -1.0, 0.0, -0.0][r.below(5)],
        Kind::Special => special(r),
    }
}

fn special(r: &mut Numbers) -> f32 {
    match r.below(24) {
        0 => f32::INFINITY,
        1 => f32::NEG_INFINITY,
        2 => f32::from_bits(0x7FC0_0001),
        3 => -0.0,
        4 => f32::MAX,
        5 => -f32::MAX,
        6 => f32::from_bits(1),
        7 => -f32::from_bits(0x007F_FFFF),
        _ => r.unit(),
    }
}

fn window(r: &mut Numbers, n: usize) -> Window {
    match r.below(8) {
        0 => Window::PADDING,
        1 => {
            let at = r.below(n + 1) as i32;
            Window { ks: at, ke: at }
        }
        2 if n > 0 => Window {
            ks: 0,
            ke: n as i32,
        },
        _ => {
            let (a, b) = (r.below(n + 1) as i32, r.below(n + 1) as i32);
            Window {
                ks: a.min(b),
                ke: a.max(b),
            }
        }
    }
}

/// Bits of f32 values: what "equal" means in these tests.
pub fn bits(values: &Array2<f32>) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// FNV-1a 64, to pin outputs.
pub fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}
