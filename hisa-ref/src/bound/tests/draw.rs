//! Random heads, factors and ports: sums in random trees and in the declared orders.

use super::super::heads::Head;
use super::random::Random;
use crate::model::{Arithmetic, Epilogue, HeadOrder, Relu, ScalePlace};
use crate::scoring::scalar::DOT_UNIT_EXPONENT;

/// How weights and scale are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Factors {
    /// A few binades around 1: what kernels see.
    Usual,
    /// Just above powers of two, where a rounding is largest next to its result.
    NearPowers,
    /// Subnormal results here and there.
    Tiny,
    /// Subnormal weights under a large scale.
    TinyWeights,
    /// The whole range, infinite intermediate results included.
    Any,
}

pub(super) const FACTORS: [Factors; 4] = [
    Factors::Usual,
    Factors::Tiny,
    Factors::TinyWeights,
    Factors::Any,
];

impl Random {
    fn float(&mut self, lowest: usize, highest: usize) -> f32 {
        let field = (lowest + self.below(highest - lowest + 1)) as u32;
        f32::from_bits(self.bits() & 0x807F_FFFF | field << 23)
    }

    fn near_power(&mut self) -> f32 {
        f32::from_bits(0x3F80_0000 | self.bits() & 0x3FFF)
    }

    pub(super) fn weight(&mut self, factors: Factors) -> f32 {
        match factors {
            Factors::Usual => self.float(124, 127),
            Factors::NearPowers => self.near_power(),
            Factors::Tiny => self.float(0, 20),
            Factors::TinyWeights => self.float(0, 2),
            Factors::Any => self.float(0, 254),
        }
    }

    pub(super) fn scale(&mut self, factors: Factors) -> f32 {
        match factors {
            Factors::Usual => self.float(118, 130),
            Factors::NearPowers => self.near_power(),
            Factors::Tiny => self.float(90, 127),
            Factors::TinyWeights => self.float(127, 240),
            Factors::Any => self.float(0, 254),
        }
        .abs()
    }

    /// A head whose port's dot is off by up to `error` units, and that dot.
    pub(super) fn head(&mut self, factors: Factors, exact_dots: bool) -> (Head, f32) {
        // At most 24 bits, so that the port's dot is an f32 by itself.
        let port = match factors {
            Factors::NearPowers => i64::from(1 << 23 | self.bits() & 0x3FFF),
            _ => i64::from(self.bits() as i32 >> (8 + self.below(20))),
        };
        let error = if exact_dots {
            0
        } else {
            u64::from(self.bits() >> (8 + self.below(24)))
        };
        let off = match self.below(3) {
            0 => error as i64,
            1 => -(error as i64),
            _ => self.below(error as usize + 1) as i64,
        };
        let head = Head {
            weight: self.weight(factors),
            dot: port + off,
            error,
        };
        (head, port as f32 * 2f32.powi(DOT_UNIT_EXPONENT))
    }

    /// A head sum in a random tree: products are rounded, or fused into the addition they enter.
    pub(super) fn tree_sum(&mut self, arithmetic: Arithmetic, terms: Vec<(f32, f32)>) -> f32 {
        let plain = Arithmetic {
            fused: false,
            ..arithmetic
        };
        // A leaf is a product still to be taken, a node a sum.
        let mut nodes: Vec<Result<(f32, f32), f32>> = terms.into_iter().map(Ok).collect();
        let settle = |node| match node {
            Ok((a, b)) => plain.mul(a, b),
            Err(sum) => sum,
        };
        while nodes.len() > 1 {
            let at = self.below(nodes.len());
            let first = nodes.swap_remove(at);
            let at = self.below(nodes.len());
            let second = settle(nodes[at]);
            nodes[at] = Err(match first {
                Ok((a, b)) if self.bits() & 1 == 0 => arithmetic.mul_then_add(a, b, second),
                other => plain.add(settle(other), second),
            });
        }
        nodes.first().map_or(0.0, |&node| settle(node))
    }

    /// A score in a random order, with the scale in a random place.
    pub(super) fn port_score(
        &mut self,
        flush: bool,
        dots: &[f32],
        weights: &[f32],
        scale: f32,
    ) -> f32 {
        let arithmetic = Arithmetic {
            fused: self.bits() & 1 == 0,
            flush,
        };
        let place = [ScalePlace::InsideRelu, ScalePlace::Outside][self.below(2)];
        let order = match self.below(4) {
            0 => HeadOrder::Sequential,
            1 => HeadOrder::DeepGemmSm90,
            _ => {
                let inside = place == ScalePlace::InsideRelu;
                let terms = dots.iter().zip(weights).map(|(&dot, &weight)| {
                    let dot = if inside {
                        arithmetic.mul(dot, scale)
                    } else {
                        dot
                    };
                    (if dot > 0.0 { dot } else { 0.0 }, weight)
                });
                let sum = self.tree_sum(arithmetic, terms.collect());
                return if inside {
                    sum
                } else {
                    arithmetic.mul(sum, scale)
                };
            }
        };
        let epilogue = Epilogue {
            order,
            arithmetic,
            scale: place,
            relu: Relu::KeepsNan,
        };
        epilogue.score(dots, weights, scale)
    }
}
