//! Matrix units as integer functions: one fused step, and the chains kernels build of it.
//!
//! A step adds G exact products and an accumulator `c`. Every term is cut toward zero to a common
//! grid, the integer sum is exact, and it is cut toward zero once more to the bits a result has.

use super::class::{CHUNK, Chain, DotClass, Grouping, Operand, Unit};
use crate::exact::{NAN, decompose};
use crate::fp8::E4M3;
use crate::scoring::scalar::{self, DOT_UNIT_EXPONENT};

/// The NaN of NVIDIA's matrix units.
pub const DEVICE_NAN: f32 = f32::from_bits(0x7FFF_FFFF);

/// A term of a step: `significand * 2^(exponent - fraction_bits)`.
///
/// The exponent of a product is the sum of its operands' exponents, also where the product of the
/// significands carries to 2 or beyond.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub(crate) significand: i64,
    pub(crate) exponent: i32,
    fraction_bits: i32,
}

/// A code as a matrix unit reads it: `significand * 2^(exponent - fraction bits)`.
#[derive(Debug, Clone, Copy)]
struct Decoded {
    significand: i32,
    exponent: i32,
}

/// Every code, by its bits. NaN codes hold nothing of use.
static AS_E4M3: [Decoded; 256] = decoded(Operand::E4M3);
static AS_F16: [Decoded; 256] = decoded(Operand::F16);

const fn decoded(operand: Operand) -> [Decoded; 256] {
    let zero = Decoded {
        significand: 0,
        exponent: 0,
    };
    let (mut all, mut bits) = ([zero; 256], 0);
    while bits < 256 {
        all[bits] = operand.decode(E4M3::from_bits(bits as u8));
        bits += 1;
    }
    all
}

impl Operand {
    const fn fraction_bits(self) -> i32 {
        match self {
            Self::E4M3 => 3,
            Self::F16 => 10,
        }
    }

    const fn decode(self, code: E4M3) -> Decoded {
        let bits = code.to_bits();
        match self {
            Self::E4M3 => {
                let (field, fraction) = ((bits >> 3 & 15) as i32, (bits & 7) as i32);
                let normal = field != 0;
                let magnitude = if normal { fraction + 8 } else { fraction };
                Decoded {
                    significand: if bits >= 0x80 { -magnitude } else { magnitude },
                    exponent: if normal { field - 7 } else { -6 },
                }
            }
            Self::F16 => {
                let units = code.units() as i64;
                let Some(top) = units.unsigned_abs().checked_ilog2() else {
                    return Decoded {
                        significand: 0,
                        exponent: 0,
                    };
                };
                // A multiple of 2^(top-3), so ten bits below the top lose nothing.
                Decoded {
                    significand: ((units << 10) / (1 << top)) as i32,
                    exponent: top as i32 - 9,
                }
            }
        }
    }

    /// The exact product of two codes that are not NaN.
    pub(crate) fn product(self, a: E4M3, b: E4M3) -> Term {
        let table = match self {
            Self::E4M3 => &AS_E4M3,
            Self::F16 => &AS_F16,
        };
        let (a, b) = (
            table[usize::from(a.to_bits())],
            table[usize::from(b.to_bits())],
        );
        Term {
            significand: i64::from(a.significand * b.significand),
            exponent: a.exponent + b.exponent,
            fraction_bits: 2 * self.fraction_bits(),
        }
    }
}

impl Unit {
    /// Steps of a dot over D products, the last chunk filled up with zeros.
    #[must_use]
    pub const fn steps(&self, head_dim: usize) -> usize {
        match self.grouping {
            Grouping::Contiguous => head_dim.div_ceil(self.group),
            Grouping::PairsModFour => head_dim.div_ceil(CHUNK) * 2,
        }
    }

    /// Whether step number `step` starts from +0.
    #[must_use]
    pub const fn starts_chain(&self, step: usize) -> bool {
        match self.chain {
            Chain::Whole => step == 0,
            Chain::PerChunk => (step * self.group).is_multiple_of(CHUNK),
        }
    }

    /// The pairs that step number `step` takes of two vectors of D codes.
    pub(crate) fn pairs<'a>(
        &self,
        step: usize,
        q: &'a [E4M3],
        key: &'a [E4M3],
    ) -> impl Iterator<Item = (E4M3, E4M3)> + Clone + use<'a> {
        let (start, length, half) = match self.grouping {
            Grouping::Contiguous => (step * self.group, self.group, None),
            Grouping::PairsModFour => (step / 2 * CHUNK, CHUNK, Some(step % 2)),
        };
        let head_dim = q.len().min(key.len());
        let range = start.min(head_dim)..(start + length).min(head_dim);
        let pairs = q[range.clone()].iter().zip(&key[range]).enumerate();
        pairs
            .filter(move |&(k, _)| half.is_none_or(|half| k / 2 % 2 == half))
            .map(|(_, (&a, &b))| (a, b))
    }
}

/// One fused step: the products of `pairs`, at most [`Unit::group`] of them, added to `c`.
///
/// Zero products take no part. A NaN code or a NaN in `c` gives [`DEVICE_NAN`], an infinite `c`
/// is returned as it is. A sum of zero is `+0.0`.
///
/// # Panics
/// For more than 32 pairs that are not zero.
#[must_use]
pub fn step(unit: &Unit, pairs: impl Iterator<Item = (E4M3, E4M3)> + Clone, c: f32) -> f32 {
    if c.is_nan() || pairs.clone().any(|(a, b)| a.is_nan() || b.is_nan()) {
        return DEVICE_NAN;
    }
    if c.is_infinite() {
        return c;
    }
    let (significand, exponent) = decompose(c);
    let c = Term {
        significand: i64::from(significand),
        exponent: exponent + 23,
        fraction_bits: 23,
    };
    let products = pairs.map(|(a, b)| unit.operand.product(a, b));
    let mut terms = Terms::new();
    for term in products.chain([c]).filter(|term| term.significand != 0) {
        terms.push(term);
    }
    let terms = terms.held();
    let Some(top) = terms.iter().map(|term| term.exponent).max() else {
        return 0.0;
    };
    let grid = top - unit.fraction_bits;
    let sum = terms.iter().map(|term| term.cut_to(grid)).sum();
    cut_to_f32(sum, grid, unit.kept_bits)
}

/// The terms of a step, looked at twice: a group and the accumulator.
struct Terms {
    all: [Term; CHUNK + 1],
    count: usize,
}

impl Terms {
    const fn new() -> Self {
        let none = Term {
            significand: 0,
            exponent: 0,
            fraction_bits: 0,
        };
        Self {
            all: [none; CHUNK + 1],
            count: 0,
        }
    }

    /// A group has at most [`CHUNK`] products.
    fn push(&mut self, term: Term) {
        self.all[self.count] = term;
        self.count += 1;
    }

    fn held(&self) -> &[Term] {
        &self.all[..self.count]
    }
}

impl Term {
    /// The term in units of `2^grid`, cut toward zero.
    fn cut_to(self, grid: i32) -> i64 {
        let shift = self.exponent - self.fraction_bits - grid;
        if shift >= 0 {
            // At most F - 6 places: the exponent is not above that of the grid.
            return self.significand << shift;
        }
        let magnitude = self.significand.unsigned_abs();
        let kept = magnitude.checked_shr(shift.unsigned_abs()).unwrap_or(0) as i64;
        kept * self.significand.signum()
    }
}

/// `sum * 2^grid` cut toward zero to `kept_bits` fraction bits, below 2^-126 to that many bits
/// below 2^-126. Past the range of f32 it is infinite.
fn cut_to_f32(sum: i64, grid: i32, kept_bits: i32) -> f32 {
    let magnitude = sum.unsigned_abs();
    let Some(top) = magnitude.checked_ilog2() else {
        return 0.0;
    };
    let lowest = (top as i32 - kept_bits).max(-126 - kept_bits - grid);
    let dropped = lowest.clamp(0, 63);
    let cut = magnitude >> dropped << dropped;
    if cut == 0 {
        return 0.0;
    }
    // At most 24 bits are left, so both conversions are exact or overflow.
    let value = (cut as f64 * 2f64.powi(grid)) as f32;
    if sum < 0 { -value } else { value }
}

/// The dot of `q` and `key`, D codes each, as the class computes it: steps in order of k, the
/// last chunk filled up with zeros.
///
/// A NaN code gives [`DEVICE_NAN`]; for [`DotClass::Exact`] it gives the NaN of SPEC V.7,
/// 0x7FC00000. D is at most [`crate::params::HEAD_DIM_MAX`]. A dot of zero is `+0.0`.
///
/// ```
/// use hisa_ref::{E4M3, model::{DotClass, dot}};
///
/// // 16 * 16 + 0.125 * 0.125: the second product is 12 binades below the first.
/// let q = [0x58, 0x20].map(E4M3::from_bits);
/// assert_eq!(dot(DotClass::Exact, &q, &q), 256.015625);
/// assert_eq!(dot(DotClass::HopperQgmma, &q, &q), 256.0);
/// ```
#[must_use]
pub fn dot(class: DotClass, q: &[E4M3], key: &[E4M3]) -> f32 {
    match class.unit() {
        Some(unit) => dot_of_unit(&unit, q, key),
        None => exact_dot(q, key),
    }
}

fn exact_dot(q: &[E4M3], key: &[E4M3]) -> f32 {
    let Some(exact) = scalar::dot(q, key) else {
        return NAN;
    };
    // The conversion is the one rounding; a multiple of 2^-18 is never subnormal.
    exact.value as f32 * 2f32.powi(DOT_UNIT_EXPONENT)
}

/// [`dot`] on any matrix unit, also one that no class names.
#[must_use]
pub fn dot_of_unit(unit: &Unit, q: &[E4M3], key: &[E4M3]) -> f32 {
    // With one chain over all of D the register stays +0 until the end.
    let (mut register, mut chain) = (0.0, 0.0);
    for number in 0..unit.steps(q.len().min(key.len())) {
        if unit.starts_chain(number) {
            register += chain;
            chain = 0.0;
        }
        chain = step(unit, unit.pairs(number, q, key), chain);
    }
    let dot: f32 = register + chain;
    if dot.is_nan() { DEVICE_NAN } else { dot }
}

#[cfg(test)]
mod tests;
