//! Rows as 16-bit limbs, the operands of the fast dots (SPEC S).
//!
//! e4m3 values are integers of up to 18 bits in units of 2^-9. A *row* is the D values of one key,
//! or of one head of one query. It is split as
//!
//! ```text
//! x = 2^shift * main + rest
//! ```
//!
//! where `main` is `x / 2^shift` truncated toward zero and `rest` is what truncation drops. The
//! shift is the smallest one for which every `|main_d|` fits `i16` and the norm of `main` stays
//! below `2^limit`, with `limit` [`KEY_LIMIT`] for keys and [`QUERY_LIMIT`] for query heads.
//!
//! # No overflow
//!
//! For a key `y` and a query head `x` in such form, let `u` be any limb of `x` and `v` any limb of
//! `y`. Whatever subset of the D products an `i32` has collected, Cauchy and Schwarz bound it:
//!
//! ```text
//! |sum_(d in S) u_d v_d| <= |u|_2 |v|_2 < 2^QUERY_LIMIT * 2^KEY_LIMIT = 2^31
//! ```
//!
//! so no partial sum of any order, and no pair of adjacent products, leaves the type. The bound
//! needs the norms of single rows only, so it is established once per row:
//!
//! - `main`: truncation shrinks each entry to at most `|x_d| / 2^shift`, and the shift is chosen
//!   from the exact `|x|_2^2` such that `|x|_2 / 2^shift < 2^limit`.
//! - `rest`: its exact norm is compared with the same limit. `|rest_d| < 2^shift`, which puts it
//!   below the limit for every D up to some hundreds; a longer row that fails is [`Limbs::Wide`]
//!   and takes the scalar definition.
//!
//! # Why `rest` is nearly always empty
//!
//! A value has four significant bits. It loses some under a shift only if its magnitude is below
//! `2^(shift+3)` units, far below the norm that forced the shift.

use crate::fp8::E4M3;

/// Norms of both limbs of a key stay below 2^17.
pub(super) const KEY_LIMIT: u32 = 17;
/// Norms of both limbs of a query head stay below 2^14.
pub(super) const QUERY_LIMIT: u32 = 14;
const _: () = assert!(
    KEY_LIMIT + QUERY_LIMIT == 31,
    "the product of the norms must fit i32"
);

/// How a row came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limbs {
    /// A code is NaN.
    NaN,
    /// `rest` is too long for the overflow bound.
    Wide,
    /// `x = 2^shift * main`, plus `rest` where `has_rest`.
    Fit { shift: u32, has_rest: bool },
}

/// One row at a time, decoded and split; a reusable buffer.
#[derive(Debug, Default, Clone)]
pub(super) struct RowSplitter {
    /// The row in units of 2^-9, padded with a zero to an even length.
    units: Vec<i32>,
    /// `main`, two consecutive `i16` per word.
    main: Vec<i32>,
}

impl RowSplitter {
    /// Splits one row of D codes. Inlined into a SIMD context, whose instructions it then uses.
    #[inline(always)]
    pub(super) fn split(&mut self, codes: &[E4M3], limit: u32) -> Limbs {
        let pairs = codes.len().div_ceil(2);
        self.units.resize(2 * pairs, 0);
        self.main.resize(pairs, 0);
        if let Some(last) = self.units.last_mut() {
            *last = 0;
        }
        let facts = decode(codes, &mut self.units);
        if facts.nan {
            return Limbs::NaN;
        }
        let shift = facts.shift(limit);
        let words = self.main.iter_mut().zip(self.units.as_chunks::<2>().0);
        if shift == 0 {
            words.for_each(|(word, &[a, b])| *word = pair(a, b));
            return Limbs::Fit {
                shift,
                has_rest: false,
            };
        }
        words.for_each(|(word, &[a, b])| *word = pair(truncate(a, shift), truncate(b, shift)));
        let has_rest = facts.bits & ((1 << shift) - 1) != 0;
        if has_rest && !fits(self.rest_square(shift), limit) {
            return Limbs::Wide;
        }
        Limbs::Fit { shift, has_rest }
    }

    /// `main` of the last row, ceil(D/2) words.
    #[inline(always)]
    pub(super) fn main(&self) -> &[i32] {
        &self.main
    }

    /// Words of `rest` that are not zero, ascending by position, under the shift of the last row.
    #[inline(always)]
    pub(super) fn rest(&self, shift: u32) -> impl Iterator<Item = (usize, i32)> {
        let words = self.units.as_chunks::<2>().0.iter();
        let words = words.map(move |&[a, b]| pair(drop_main(a, shift), drop_main(b, shift)));
        words.enumerate().filter(|&(_, word)| word != 0)
    }

    /// `|rest|_2^2`, exactly.
    #[inline(always)]
    fn rest_square(&self, shift: u32) -> u64 {
        let square = |&x: &i32| u64::from(drop_main(x, shift).unsigned_abs()).pow(2);
        self.units.iter().map(square).sum()
    }
}

/// What decides the shift of a row.
struct Facts {
    /// All magnitudes, in units, or-ed together.
    bits: u32,
    /// `|x|_2^2` in units squared; at most 2^16 * 2^36.
    square: u64,
    nan: bool,
}

impl Facts {
    /// The smallest shift that meets both conditions of the module.
    #[inline(always)]
    fn shift(&self, limit: u32) -> u32 {
        // The highest bit of the largest magnitude is the highest bit of all of them together.
        let range = (u32::BITS - self.bits.leading_zeros()).saturating_sub(15);
        let square_bits = u64::BITS - self.square.leading_zeros();
        range.max(square_bits.saturating_sub(2 * limit).div_ceil(2))
    }
}

/// A norm below `2^limit`, given its square.
#[inline(always)]
fn fits(square: u64, limit: u32) -> bool {
    square < 1 << (2 * limit)
}

/// Units of every code into the front of `units`, by arithmetic: a table would not vectorise.
#[inline(always)]
fn decode(codes: &[E4M3], units: &mut [i32]) -> Facts {
    let mut facts = Facts {
        bits: 0,
        square: 0,
        nan: false,
    };
    for (unit, code) in units.iter_mut().zip(codes) {
        let code = u32::from(code.to_bits());
        let (exponent, mantissa) = ((code >> 3) & 15, code & 7);
        let normal = u32::from(exponent != 0);
        let magnitude = (mantissa | normal << 3) << (exponent - normal);
        let sign = -((code >> 7) as i32);
        *unit = (magnitude as i32 ^ sign) - sign;
        facts.nan |= code & 0x7F == 0x7F;
        facts.bits |= magnitude;
        facts.square += u64::from(magnitude) * u64::from(magnitude);
    }
    facts
}

/// `x / 2^shift` toward zero.
#[inline(always)]
fn truncate(x: i32, shift: u32) -> i32 {
    (x + ((x >> 31) & ((1 << shift) - 1))) >> shift
}

/// `x` minus its truncation: the sign of `x`, a magnitude below `2^shift`.
#[inline(always)]
fn drop_main(x: i32, shift: u32) -> i32 {
    x - (truncate(x, shift) << shift)
}

/// Two values of `i16` range in one word.
#[inline(always)]
fn pair(first: i32, second: i32) -> i32 {
    (first & 0xFFFF) | second << 16
}
