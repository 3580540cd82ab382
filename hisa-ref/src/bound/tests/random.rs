//! Random vectors that are hard on a numerics class, and sums in random trees.

use crate::fp8::E4M3;
use crate::model::DotClass;

#[derive(Debug, Clone)]
pub(super) struct Random(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Every finite code.
    Wide,
    /// Four binades.
    Narrow,
    /// Large products that cancel, small ones that then matter.
    Cancelling,
    /// Many subnormal codes next to large ones.
    Subnormal,
    /// One large product and many just below its grid, all of one sign: what T13 does.
    JustBelowTheGrid,
    /// One large product, and others within few binades of what its grid loses.
    FewBinades,
    /// 0, 0.5, 1, 1.5, 2 with signs.
    Halves,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.bits() as usize % end
    }

    fn code(&mut self, low: u8, high: u8) -> E4M3 {
        let magnitude = low + self.below(usize::from(high - low) + 1) as u8;
        E4M3::from_bits(magnitude | (self.bits() & 0x80) as u8)
    }

    fn pair(&mut self, low: u8, high: u8) -> (E4M3, E4M3) {
        (self.code(low, high), self.code(low, high))
    }

    /// A normal code, or half of the time a zero, of this exponent.
    fn of_exponent(&mut self, exponent: i32) -> u8 {
        let field = (exponent + 7).clamp(0, 15) as u8;
        Ord::min(field << 3 | self.below(8) as u8, 0x7E)
    }

    /// Two vectors of `d` codes.
    pub(super) fn vectors(
        &mut self,
        kind: Kind,
        d: usize,
        class: DotClass,
    ) -> (Vec<E4M3>, Vec<E4M3>) {
        match kind {
            Kind::JustBelowTheGrid => return self.just_below(d, class),
            Kind::FewBinades => return self.few_binades(d, class),
            Kind::Cancelling => return self.cancelling(d),
            _ => {}
        }
        (0..d)
            .map(|_| match kind {
                Kind::Narrow => self.pair(0x28, 0x47),
                Kind::Subnormal => match self.below(3) {
                    0 => (self.code(0x00, 0x07), self.code(0x60, 0x7E)),
                    1 => (self.code(0x00, 0x0F), self.code(0x00, 0x47)),
                    _ => self.pair(0x00, 0x30),
                },
                Kind::Halves => {
                    let half = |random: &mut Self| {
                        let magnitude = [0x00, 0x30, 0x38, 0x3C, 0x40][random.below(5)];
                        random.code(magnitude, magnitude)
                    };
                    (half(self), half(self))
                }
                _ => self.pair(0x00, 0x7E),
            })
            .unzip()
    }

    fn fraction_bits(class: DotClass) -> i32 {
        class.unit().map_or(24, |unit| unit.fraction_bits)
    }

    /// 2^top once, everything else 126/128 of 2^(top-F): 14 * 9 = 126.
    fn just_below(&mut self, d: usize, class: DotClass) -> (Vec<E4M3>, Vec<E4M3>) {
        let fraction_bits = Self::fraction_bits(class);
        // Small products of exponent top - F - 1 >= -12, from factors of at least 2^-6.
        let lowest = fraction_bits - 11;
        let top = lowest + self.below((17 - lowest) as usize) as i32;
        let small = top - fraction_bits - 1;
        let (ea, eb) = (small.div_euclid(2), small - small.div_euclid(2));
        let code =
            |exponent: i32, fraction: i32| E4M3::from_bits(((exponent + 7) << 3 | fraction) as u8);
        let (mut q, mut key) = (vec![code(ea, 6); d], vec![code(eb, 1); d]);
        let step = if self.bits() & 1 == 0 { d } else { 32 };
        for at in (0..d).step_by(step) {
            (q[at], key[at]) = (code(top / 2, 0), code(top - top / 2, 0));
        }
        (q, key)
    }

    /// One product of exponent 16, the others from the edge of its grid upward.
    fn few_binades(&mut self, d: usize, class: DotClass) -> (Vec<E4M3>, Vec<E4M3>) {
        let edge = 16 - Self::fraction_bits(class);
        let sign = self.bits();
        let pairs = (0..d).map(|_| {
            let exponent = edge - 3 + self.below(10) as i32;
            let ea = exponent / 2 + self.below(3) as i32 - 1;
            let (a, b) = (self.of_exponent(ea), self.of_exponent(exponent - ea));
            let flip = if sign & 3 == 0 {
                (self.bits() & 0x80) as u8
            } else {
                0
            };
            (E4M3::from_bits(a ^ flip), E4M3::from_bits(b))
        });
        let (mut q, mut key): (Vec<_>, Vec<_>) = pairs.unzip();
        let at = if sign & 4 == 0 { 0 } else { self.below(d) };
        (q[at], key[at]) = (E4M3::from_bits(0x78), E4M3::from_bits(0x78));
        (q, key)
    }

    fn cancelling(&mut self, d: usize) -> (Vec<E4M3>, Vec<E4M3>) {
        let (mut q, mut key): (Vec<_>, Vec<_>) = (0..d).map(|_| self.pair(0x08, 0x38)).unzip();
        for _ in 0..self.below(4) {
            let (at, to) = (self.below(d), self.below(d));
            (q[at], key[at]) = self.pair(0x60, 0x7E);
            (q[to], key[to]) = (E4M3::from_bits(q[at].to_bits() ^ 0x80), key[at]);
        }
        (q, key)
    }

    /// The sum in f32 along a random tree: two random terms are replaced by their sum.
    pub(super) fn tree(&mut self, mut terms: Vec<f32>) -> f32 {
        while terms.len() > 1 {
            let at = self.below(terms.len());
            let a = terms.swap_remove(at);
            let at = self.below(terms.len());
            terms[at] += a;
        }
        terms.first().copied().unwrap_or(0.0)
    }
}
