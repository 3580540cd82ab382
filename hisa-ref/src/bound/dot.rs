//! Error bounds of one dot, in integers: units of 2^-18, the grid of all e4m3 products.

use crate::fp8::E4M3;
use crate::model::class::CHUNK;
use crate::model::{Chain, DotClass, Grouping, Operand, Unit};
use crate::scoring::scalar::{self, DOT_UNIT_EXPONENT};

/// How a port takes dots, as far as a bound needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dots {
    /// As the model of the class does, bit for bit.
    Class(DotClass),
    /// Products added in f32 in any order, fused or not: the products are exact either way.
    F32AnyOrder,
}

impl Dots {
    /// Upper bound of `|computed - exact|` in units of 2^-18, for two vectors of D codes.
    /// `None` if a code is NaN.
    #[must_use]
    pub fn error(self, q: &[E4M3], key: &[E4M3]) -> Option<u64> {
        match self {
            Self::Class(class) => error(class, q, key),
            Self::F32AnyOrder => any_order_error(q, key),
        }
    }

    /// A bound from magnitudes alone, in the same units: it never decreases where a code of `key`
    /// grows in magnitude, so the bound of the farthest codes holds for all nearer ones.
    #[must_use]
    pub fn apriori(self, q: &[E4M3], key: &[E4M3]) -> Option<u64> {
        match self {
            Self::Class(class) => apriori(class, q, key),
            Self::F32AnyOrder => any_order_error(q, key),
        }
    }
}

/// `(D - 1) * 2^-24 * sum |products|`, rounded up: it holds for every order of summation to
/// nearest (Jeannerod and Rump 2013).
fn any_order_error(q: &[E4M3], key: &[E4M3]) -> Option<u64> {
    let absolute = scalar::dot(q, key)?.absolute.unsigned_abs();
    let additions = q.len().min(key.len()).saturating_sub(1);
    // A sum below 2^24 units is on the grid of f32 whatever the order.
    if absolute < 1 << 24 {
        return Some(0);
    }
    Some(round_up(absolute as u128 * additions as u128, 24))
}

/// Upper bound of `|dot(class, q, key) - exact dot|` in units of 2^-18, from the data of the
/// element: see `docs/NUMERICS.md`. `None` if a code is NaN. `q` and `key` are D codes each.
#[must_use]
pub fn error(class: DotClass, q: &[E4M3], key: &[E4M3]) -> Option<u64> {
    let exact = scalar::dot(q, key)?;
    Some(match class.unit() {
        Some(unit) => error_of_unit(&unit, q, key),
        None => f32_rounding(exact.value.unsigned_abs()),
    })
}

fn error_of_unit(unit: &Unit, q: &[E4M3], key: &[E4M3]) -> u64 {
    let (mut register, mut chain) = (Partial::default(), Partial::default());
    for step in 0..unit.steps(q.len().min(key.len())) {
        if unit.starts_chain(step) {
            register.add(chain);
            chain = Partial::default();
        }
        chain.step(unit, step, q, key);
    }
    register.add(chain);
    register.error
}

/// What is known of a partial sum, in units of 2^-18.
#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    /// The real sum.
    exact: i64,
    /// At least the distance of the computed sum from it.
    error: u64,
    /// At least the magnitude of the computed sum.
    reach: u64,
}

impl Partial {
    /// Takes one fused step.
    fn step(&mut self, unit: &Unit, step: usize, q: &[E4M3], key: &[E4M3]) {
        // Looked at twice; a group has at most CHUNK products.
        let mut group = [Product::default(); CHUNK];
        let mut count = 0;
        for (place, product) in group.iter_mut().zip(products(unit, step, q, key)) {
            *place = product;
            count += 1;
        }
        let group = &group[..count];
        let Some(largest) = group.iter().map(|product| product.exponent).max() else {
            return; // only the accumulator, which fits the result by itself
        };
        // The accumulator's exponent is at most that of its bound.
        let held = self
            .reach
            .checked_ilog2()
            .map(|top| top as i32 + DOT_UNIT_EXPONENT);
        let top = held.map_or(largest, |held| held.max(largest));
        let lost = grid_loss(top - unit.fraction_bits);
        // A product is a multiple of 2^(exponent-6): on the grid from this exponent on.
        let exact_from = top - (unit.fraction_bits - 6);
        for product in group {
            self.exact += product.value;
            if product.exponent < exact_from {
                self.error += product.value.unsigned_abs().min(lost);
            }
        }
        // The accumulator loses bits only where a product has the largest exponent.
        self.error += self.reach.min(grid_loss(largest - unit.fraction_bits));
        let sizes = group.iter().map(|product| product.value.unsigned_abs());
        self.reach = (self.reach + sizes.sum::<u64>()).min(self.size());
        self.error += final_cut(self.reach, unit, largest);
    }

    /// Adds another in f32, to nearest even.
    fn add(&mut self, other: Self) {
        let rounds = self.reach != 0 && other.reach != 0;
        self.exact += other.exact;
        self.error += other.error;
        let reach = (self.reach + other.reach).min(self.size());
        let rounding = if rounds { f32_rounding(reach) } else { 0 };
        self.error += rounding;
        self.reach = reach + rounding;
    }

    fn size(&self) -> u64 {
        self.exact.unsigned_abs() + self.error
    }
}

/// Most that cutting a multiple of 2^-18 toward zero to multiples of `2^grid` can take from it.
const fn grid_loss(grid: i32) -> u64 {
    let bits = grid - DOT_UNIT_EXPONENT;
    if bits <= 0 { 0 } else { (1 << bits) - 1 }
}

/// Most that the closing cut of a step can lose: the sum has a magnitude of at most `reach` and
/// lies on a grid no finer than that of the exponent `largest`.
const fn final_cut(reach: u64, unit: &Unit, largest: i32) -> u64 {
    let Some(top) = reach.checked_ilog2() else {
        return 0;
    };
    let kept = top as i32 + DOT_UNIT_EXPONENT - unit.kept_bits;
    let grid = largest - unit.fraction_bits;
    if kept <= grid {
        return 0;
    }
    let finest = 1 + grid_loss(grid);
    (1 + grid_loss(kept)).saturating_sub(finest)
}

/// Most that rounding to f32 moves a multiple of the unit of at most `magnitude` units.
const fn f32_rounding(magnitude: u64) -> u64 {
    match magnitude.checked_ilog2() {
        Some(top) if top >= 24 => 1 << (top - 24),
        _ => 0,
    }
}

/// A product that is not zero: its value in units of 2^-18 and its exponent in the unit.
#[derive(Debug, Clone, Copy, Default)]
struct Product {
    value: i64,
    exponent: i32,
}

fn products<'a>(
    unit: &Unit,
    step: usize,
    q: &'a [E4M3],
    key: &'a [E4M3],
) -> impl Iterator<Item = Product> + use<'a> {
    let operand = unit.operand;
    let pairs = unit.pairs(step, q, key);
    let all = pairs.map(move |(a, b)| Product {
        value: i64::from(a.units()) * i64::from(b.units()),
        exponent: operand.product(a, b).exponent,
    });
    all.filter(|product| product.value != 0)
}

/// `ceil(value / 2^bits)`.
const fn round_up(value: u128, bits: u32) -> u64 {
    (value.div_ceil(1 << bits)) as u64
}

/// The a-priori constants of a class, in units of 2^-25.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constant {
    /// Terms that may lose something, times the grid.
    pub lost: u64,
    /// Final cuts of the steps, and f32 roundings.
    pub cuts: u64,
}

impl Constant {
    /// C as a number: `|computed - exact| <= C * sum |products|` where no factor of a nonzero
    /// product is subnormal, or where the class converts to f16.
    #[must_use]
    pub fn value(self) -> f64 {
        (self.lost + self.cuts) as f64 * 2f64.powi(-25)
    }
}

/// The constants of a class for D products.
///
/// For a chain of n steps `(D-1) * 2^-F + n * 2^-KEEP`: all but one term of the first step can
/// lose, and in every further one as many as it has products. A class that adds chunks of 32 has
/// this per chunk, and one f32 rounding of 2^-24 less than it has chunks.
#[must_use]
pub const fn constant(class: DotClass, head_dim: usize) -> Constant {
    let Some(unit) = class.unit() else {
        return Constant { lost: 0, cuts: 2 };
    };
    let length = match unit.chain {
        Chain::Whole => head_dim,
        Chain::PerChunk if head_dim < CHUNK => head_dim,
        Chain::PerChunk => CHUNK,
    };
    let steps = match unit.grouping {
        Grouping::Contiguous => length.div_ceil(unit.group),
        Grouping::PairsModFour => 2,
    };
    let roundings = match unit.chain {
        Chain::Whole => 0,
        Chain::PerChunk => head_dim.div_ceil(CHUNK).saturating_sub(1),
    };
    Constant {
        lost: (length.saturating_sub(1) as u64) << (25 - unit.fraction_bits),
        cuts: ((steps as u64) << (25 - unit.kept_bits)) + 2 * roundings as u64,
    }
}

/// The a-priori bound in units of 2^-18, from sums of magnitudes alone; never below 0, `None` if
/// a code is NaN. [`error`] is tighter; this one is what a table can state.
///
/// The grid of a step is set by the larger of the largest product exponent and the accumulator.
/// With a subnormal factor `2^exponent` may exceed the product itself, up to eightfold, so it is
/// taken as it is.
#[must_use]
pub fn apriori(class: DotClass, q: &[E4M3], key: &[E4M3]) -> Option<u64> {
    let absolute = scalar::dot(q, key)?.absolute.unsigned_abs();
    let constant = constant(class, q.len().min(key.len()));
    let Some(unit) = class.unit() else {
        return Some(round_up(absolute as u128 * constant.cuts as u128, 25));
    };
    let length = match unit.chain {
        Chain::Whole => q.len().max(1),
        Chain::PerChunk => CHUNK,
    };
    let chunks = q.chunks(length).zip(key.chunks(length));
    let grids: u64 = chunks.map(|(q, key)| grid_size(unit.operand, q, key)).sum();
    let total = grids as u128 * constant.lost as u128 + absolute as u128 * constant.cuts as u128;
    Some(round_up(total, 25))
}

/// `max(2^largest exponent, sum |products|)` over nonzero products, in units of 2^-18.
fn grid_size(operand: Operand, q: &[E4M3], key: &[E4M3]) -> u64 {
    let sizes = magnitudes(operand, q, key);
    sizes.largest.max(sizes.absolute)
}

/// What the certificate and the a-priori bound look at, in units of 2^-18.
#[derive(Debug, Clone, Copy, Default)]
struct Magnitudes {
    /// Sum of magnitudes.
    absolute: u64,
    /// 2^exponent of the largest exponent, which may be above the product itself.
    largest: u64,
    /// All magnitudes or-ed together: its trailing zeros divide every product.
    bits: u64,
}

fn magnitudes(operand: Operand, q: &[E4M3], key: &[E4M3]) -> Magnitudes {
    let mut all = Magnitudes::default();
    for (&a, &b) in q.iter().zip(key) {
        let size = (i64::from(a.units()) * i64::from(b.units())).unsigned_abs();
        if size != 0 {
            let exponent = operand.product(a, b).exponent - DOT_UNIT_EXPONENT;
            all.largest = all.largest.max(1 << exponent);
            all.absolute += size;
            all.bits |= size;
        }
    }
    all
}

/// True if the class is sure to give the exact dot, bit for bit, in any order of the chunks.
///
/// If `2^g` divides every product, the sum of magnitudes is below `2^(g+KEEP+1)` and every product
/// exponent at most `g + F`, then all terms and partial sums are multiples of `2^g`, no grid is
/// coarser than that, and no sum has more bits than a result keeps. False says nothing, and a NaN
/// code gives false.
#[must_use]
pub fn is_exact(class: DotClass, q: &[E4M3], key: &[E4M3]) -> bool {
    if q.iter().chain(key).any(|code| code.is_nan()) {
        return false;
    }
    let (operand, fraction_bits, kept_bits) = match class.unit() {
        Some(unit) => (unit.operand, unit.fraction_bits, unit.kept_bits),
        None => (Operand::F16, 25, 23),
    };
    let all = magnitudes(operand, q, key);
    if all.bits == 0 {
        return true;
    }
    let g = all.bits.trailing_zeros() as i32;
    all.absolute >> (g + kept_bits + 1) == 0 && all.largest >> (g + fraction_bits + 1) == 0
}
