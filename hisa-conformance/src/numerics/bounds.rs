//! What the scores of one problem may be, computed row by row when a check asks.

use super::{Numerics, Quotients, Scores};
use crate::op::Op;
use crate::problem::Problem;
use crate::truth::Truth;
use hisa_ref::E4M3;
use hisa_ref::bound::range::{KeyBox, score_of_box};
use hisa_ref::bound::{self, CodeRange, Dots, HeadSum, Range, pool};
use hisa_ref::scoring::scalar;
use std::sync::OnceLock;

/// One score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// The exact one (SPEC S.1).
    pub exact: f32,
    /// Bound of the distance from it; infinite where there is none. For a model, the bound that
    /// its class has.
    pub error: f64,
    /// What the backend may write.
    pub range: Range,
}

/// Ranges of all scores of a problem under declared numerics.
#[derive(Debug)]
pub struct Bounds<'a> {
    problem: &'a Problem,
    truth: &'a Truth,
    numerics: Numerics,
    arithmetic: Option<(Dots, HeadSum)>,
    tokens: Vec<OnceLock<Vec<Score>>>,
    pooled: OnceLock<Vec<pool::Block>>,
}

impl<'a> Bounds<'a> {
    /// Nothing is computed yet.
    #[must_use]
    pub fn new(problem: &'a Problem, truth: &'a Truth, numerics: Numerics) -> Self {
        Self {
            problem,
            truth,
            numerics,
            arithmetic: numerics.scores.arithmetic(problem.h()),
            tokens: (0..problem.m()).map(|_| OnceLock::new()).collect(),
            pooled: OnceLock::new(),
        }
    }

    /// The problem.
    #[must_use]
    pub const fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// The declaration.
    #[must_use]
    pub const fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// Scores of a row with the keys of its window, the first at its start.
    pub fn tokens(&self, row: usize) -> &[Score] {
        self.tokens[row].get_or_init(|| {
            let window = self.problem.inputs.windows.rows()[row];
            let tensors = &self.problem.inputs.tensors;
            let known = self.truth.of(Op::Dsa).ok();
            let known = known.and_then(|made| Some(made.f32("flat_scores")?.row(row)));
            let query = self.row(row);
            let scores = window.keys().map(|key| {
                let codes = tensors.k.row(key);
                let exact = known.and_then(|scores| scores.get(key).copied());
                let scale = tensors.k_scale[key];
                self.point(&query, codes.as_slice().unwrap_or(&[]), scale, exact)
            });
            scores.collect()
        })
    }

    /// Scores of a row with the true pooled blocks `blocks`, as an isolated run sees them.
    /// Empty where the truth has no pooled keys.
    #[must_use]
    pub fn blocks(&self, row: usize, blocks: std::ops::Range<usize>) -> Vec<Score> {
        let chain = self.truth.chain();
        let (Some(codes), Some(scales)) = (chain.codes("pooled_k"), chain.f32("pooled_scale"))
        else {
            return Vec::new();
        };
        let known = chain.f32("block_scores").map(|scores| scores.row(row));
        let query = self.row(row);
        let scores = blocks.map(|block| {
            let exact = known.and_then(|scores| scores.get(block).copied());
            self.point(&query, codes.row(block), scales.body()[block], exact)
        });
        scores.collect()
    }

    /// What a row may score with the backend's own pooled blocks `blocks`, in a pipeline.
    #[must_use]
    pub fn chained_blocks(&self, row: usize, blocks: std::ops::Range<usize>) -> Vec<Range> {
        if self.numerics.block_pool == Quotients::Exact {
            let scores = self.blocks(row, blocks);
            return scores.into_iter().map(|score| score.range).collect();
        }
        let pooled = self.pooled();
        blocks
            .map(|block| self.boxed(row, &pooled[block]))
            .collect()
    }

    /// What each pooled block may be, under [`Numerics::block_pool`].
    pub fn pooled(&self) -> &[pool::Block] {
        self.pooled.get_or_init(|| {
            let flush = self.numerics.block_pool == Quotients::F32 { flush: true };
            let (n, b, d) = (self.problem.n(), self.problem.b(), self.problem.d());
            let tensors = &self.problem.inputs.tensors;
            let codes = tensors.k.as_standard_layout();
            let scales = tensors.k_scale.as_standard_layout();
            let (codes, scales) = (
                codes.as_slice().unwrap_or(&[]),
                scales.as_slice().unwrap_or(&[]),
            );
            let blocks = (0..n).step_by(b).map(|first| {
                let last = n.min(first.saturating_add(b));
                let keys = &codes[first * d..last * d];
                pool::block(keys, &scales[first..last], d, flush)
            });
            blocks.collect()
        })
    }

    fn row(&self, row: usize) -> Query {
        let tensors = &self.problem.inputs.tensors;
        let codes = tensors.q.index_axis(ndarray::Axis(0), row);
        Query {
            codes: codes.iter().copied().collect(),
            weights: tensors.weights.row(row).to_vec(),
        }
    }

    fn point(&self, query: &Query, key: &[E4M3], scale: f32, exact: Option<f32>) -> Score {
        let (q, weights) = (query.codes.as_slice(), query.weights.as_slice());
        let exact = exact.unwrap_or_else(|| scalar::score(q, weights, key, scale));
        let Some((dots, sum)) = self.arithmetic else {
            return Score {
                exact,
                error: 0.0,
                range: Range::point(exact),
            };
        };
        let error = bound::error(q, weights, key, scale, (dots, &sum, exact));
        // NaN in means NaN out, whatever the arithmetic (SPEC S.7); but 0 * inf and inf - inf
        // depend on errors before them.
        let nan = |code: &E4M3| code.is_nan();
        let certain = error.is_none()
            && (scale.is_nan()
                || weights.iter().any(|weight| weight.is_nan())
                || q.iter().chain(key).any(nan));
        let range = match self.numerics.scores {
            _ if certain => Range::Nan,
            Scores::Model(model) => Range::point(model.score(q, weights, key, scale)),
            _ => error.map_or(Range::Anything, |error| Range::around(exact, exact, error)),
        };
        Score {
            exact,
            error: error.unwrap_or(f64::INFINITY),
            range,
        }
    }

    /// The score of a block of which only ranges are known.
    fn boxed(&self, row: usize, block: &pool::Block) -> Range {
        let query = self.row(row);
        let (q, weights) = (&query.codes, &query.weights);
        let nan = block.scale == Range::Nan
            || block.codes.contains(&CodeRange::Nan)
            || weights.iter().any(|weight| weight.is_nan())
            || q.iter().any(|code| code.is_nan());
        if nan {
            return Range::Nan;
        }
        let ends = block.codes.iter().map(|code| match *code {
            CodeRange::Between(low, high) => Some((low, high)),
            _ => None,
        });
        let (Range::Between(least, most), Some(ends)) = (block.scale, ends.collect()) else {
            return Range::Anything;
        };
        let ends: Vec<(E4M3, E4M3)> = ends;
        let (low, high): (Vec<E4M3>, Vec<E4M3>) = ends.into_iter().unzip();
        let same = low.iter().zip(&high).all(|(a, b)| a.units() == b.units());
        if same && least == most {
            return self.point(&query, &low, least, None).range;
        }
        let key = KeyBox {
            low: &low,
            high: &high,
            scale: (least, most),
        };
        let arithmetic = self.arithmetic.as_ref().map(|(dots, sum)| (*dots, sum));
        score_of_box(q, weights, &key, arithmetic)
    }
}

/// A query row: [H, D] codes and [H] weights.
struct Query {
    codes: Vec<E4M3>,
    weights: Vec<f32>,
}
