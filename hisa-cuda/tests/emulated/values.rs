//! Small inputs from a seed: windows, codes, scores, with special values in some of them.

use hisa_ref::{E4M3, Keys, Queries, Strictness, Windows};
use ndarray::{Array1, Array2, Array3};

/// What values look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taste {
    /// Finite and of moderate size.
    Plain,
    /// A handful of different values.
    Ties,
    /// Any bits, NaN and infinities among them.
    Wild,
    /// Sums on the middle between two f32, or a hair beside it.
    Edge,
}

/// All tastes.
pub(crate) const TASTES: [Taste; 4] = [Taste::Plain, Taste::Ties, Taste::Wild, Taste::Edge];

/// A stream of choices.
#[derive(Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03);
        draw.bits();
        draw
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// In `0..limit`; 0 for a limit of 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.bits() % (limit as u64).max(1)) as usize
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// In `[-limit, limit)`, with all bits of the fraction in use.
    pub(crate) fn real(&mut self, limit: f32) -> f32 {
        ((self.bits() & 0xFF_FFFF) as f32 / 8_388_608.0 - 1.0) * limit
    }

    pub(crate) fn special(&mut self) -> f32 {
        let bits = self.pick(&[
            0x7FC0_0000,
            0xFFC0_0001,
            0x7F80_0001,
            0x7F80_0000,
            0xFF80_0000,
            0x0000_0000,
            0x8000_0000,
            0x0000_0001,
            0x807F_FFFF,
            0x7F7F_FFFF,
            0xFF7F_8000,
            0x3F80_8000,
        ]);
        f32::from_bits(bits)
    }

    pub(crate) fn number(&mut self, taste: Taste) -> f32 {
        match taste {
            Taste::Plain => self.real(4.0),
            Taste::Ties => self.pick(&[0.0, -0.0, 1.0, 1.0, -1.0, 2.0, 1.003_906_3]),
            Taste::Edge => {
                let exponent = self.pick(&[0, 0, 1, 24, -24, -24, -25, -48, -70]);
                let power = 2f32.powi(exponent);
                self.pick(&[power, -power])
            }
            Taste::Wild if self.once_in(8) => self.special(),
            Taste::Wild => f32::from_bits(self.bits() as u32),
        }
    }

    /// Like [`Self::number`], not negative unless wild.
    pub(crate) fn scale(&mut self, taste: Taste) -> f32 {
        match taste {
            Taste::Plain => self.real(0.5) + 0.5,
            Taste::Ties => self.pick(&[1.0, 0.5, 0.0]),
            Taste::Edge => {
                let exponent = self.pick(&[0, 0, 0, -23, -24, -60, -127, -130]);
                self.pick(&[1.0, 3.0, 1.25]) * 2f32.powi(exponent)
            }
            Taste::Wild => self.number(taste),
        }
    }

    pub(crate) fn code(&mut self, taste: Taste) -> E4M3 {
        let bits = match taste {
            Taste::Ties | Taste::Edge => self.pick(&[0x38, 0x38, 0xB8, 0x00, 0x80, 0x40]),
            Taste::Wild if self.once_in(400) => self.pick(&[0x7F, 0xFF]),
            Taste::Plain | Taste::Wild => self.bits() as u8,
        };
        E4M3::from_bits(if taste != Taste::Wild && bits & 0x7F == 0x7F {
            0x3C
        } else {
            bits
        })
    }

    /// A window over `n` keys, of any kind there is.
    pub(crate) fn window(&mut self, n: usize, b: usize) -> (i32, i32) {
        let any = self.below(n + 1);
        let other = self.below(n + 1);
        let (ks, ke) = match self.below(10) {
            0 => (0, n),
            1 => (any, any),
            2 => (any.max(other), any.min(other)),
            3 => (i32::MAX as usize, 0),
            4 => (any, (any + 1).min(n)),
            5 => (any / b * b, n),
            6 => (any.min(n), (any + b).min(n)),
            _ => (any.min(other), any.max(other)),
        };
        (ks as i32, ke as i32)
    }

    /// Distinct block ids in any order, with -1 between and behind them.
    pub(crate) fn block_ids(&mut self, columns: usize, blocks: usize) -> Vec<i32> {
        let mut all: Vec<i32> = (0..blocks as i32).collect();
        let mut ids = Vec::new();
        for _ in 0..columns {
            let none = all.is_empty() || self.once_in(5);
            let at = self.below(all.len());
            ids.push(if none { -1 } else { all.swap_remove(at) });
        }
        if self.once_in(2) {
            // As block_topk writes them: unsigned, -1 is the largest.
            ids.sort_unstable_by_key(|&id| id as u32);
        }
        ids
    }
}

/// Sizes of one case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) h: usize,
    pub(crate) d: usize,
    pub(crate) b: usize,
}

impl Shape {
    pub(crate) fn blocks(&self) -> usize {
        self.n.div_ceil(self.b)
    }
}

/// Windows of `m` rows as the kernels and as the reference take them.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) ks: Vec<i32>,
    pub(crate) ke: Vec<i32>,
    pub(crate) windows: Windows,
}

impl Rows {
    pub(crate) fn draw(draw: &mut Draw, m: usize, n: usize, b: usize) -> Self {
        let (ks, ke): (Vec<_>, Vec<_>) = (0..m).map(|_| draw.window(n, b)).unzip();
        let windows = Windows::from_rows(&ks, &ke, n).unwrap();
        Self { ks, ke, windows }
    }
}

/// Queries, keys and windows.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) shape: Shape,
    pub(crate) rows: Rows,
    pub(crate) q: Array3<E4M3>,
    pub(crate) weights: Array2<f32>,
    pub(crate) k: Array2<E4M3>,
    pub(crate) k_scale: Array1<f32>,
}

impl Input {
    pub(crate) fn draw(draw: &mut Draw, shape: Shape, taste: Taste) -> Self {
        let Shape { m, n, h, d, b } = shape;
        Self {
            shape,
            rows: Rows::draw(draw, m, n, b),
            q: Array3::from_shape_simple_fn((m, h, d), || draw.code(taste)),
            weights: Array2::from_shape_simple_fn((m, h), || draw.number(taste)),
            k: Array2::from_shape_simple_fn((n, d), || draw.code(taste)),
            k_scale: Array1::from_shape_simple_fn(n, || draw.scale(taste)),
        }
    }

    pub(crate) fn queries(&self) -> Queries<'_> {
        Queries::new(self.q.view(), self.weights.view(), Strictness::Permissive).unwrap()
    }

    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys::new(self.k.view(), self.k_scale.view(), Strictness::Permissive).unwrap()
    }
}

/// The bytes of codes.
pub(crate) fn codes<'a>(codes: impl IntoIterator<Item = &'a E4M3>) -> Vec<u8> {
    codes.into_iter().map(|code| code.to_bits()).collect()
}

/// What tells how a result differs from the one expected; nothing where it does not.
pub(crate) fn differs<T: Copy + PartialEq + std::fmt::Debug>(
    what: &str,
    case: &dyn std::fmt::Debug,
    columns: usize,
    got: &[T],
    expected: &[T],
) -> Result<(), String> {
    if got.len() != expected.len() {
        return Err(format!(
            "{what}: {} values for {}",
            got.len(),
            expected.len()
        ));
    }
    let Some(at) = (0..got.len()).find(|&at| got[at] != expected[at]) else {
        return Ok(());
    };
    let (row, column) = (at / columns, at % columns);
    Err(format!(
        "{what}: row {row}, column {column} is {:x?} and should be {:x?}; {case:?}",
        got[at], expected[at]
    ))
}

/// Bits, so that NaN and the zeros can be told apart.
pub(crate) fn bits<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u32> {
    values.into_iter().map(|value| value.to_bits()).collect()
}
