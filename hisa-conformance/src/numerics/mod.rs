//! What arithmetic a backend declares, and what follows from it.
//!
//! ```text
//! Numerics -> bounds: what each score, scale and code may be -> acceptance: which ids may appear
//! ```
//!
//! A declaration is a line of text ([`text`]). Proofs are in `docs/NUMERICS.md`; no tolerance is
//! written down anywhere.

pub mod acceptance;
mod bounds;
pub mod text;

pub use bounds::{Bounds, Score};
pub use text::NumericsError;

use hisa_ref::E4M3;
use hisa_ref::bound::{Dots, HeadSum};
use hisa_ref::model::{self, DotClass, Epilogue};
use serde::{Deserialize, Serialize};

/// What a backend says about its arithmetic, stage by stage. The default is the specification's
/// own: every value the real result, rounded once (SPEC V.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Numerics {
    /// Codes of `quantize` (SPEC 1.4).
    pub quantize: Quotients,
    /// Means, scales and codes of `block_pool` (SPEC 2.2 to 2.4), in pipelines too.
    pub block_pool: Quotients,
    /// Scores of blocks and tokens (SPEC S.1).
    pub scores: Scores,
}

/// How means and quotients are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Quotients {
    /// The real result, rounded once.
    #[default]
    Exact,
    /// In f32: products rounded or fused, added in any order, IEEE divisions.
    F32 {
        /// Subnormal inputs and results of every operation may become zero.
        flush: bool,
    },
}

/// How scores are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scores {
    /// The real result, rounded once: judged by equality.
    #[default]
    Exact,
    /// Within a proven bound of it (SPEC 10.17).
    Bounded(BoundedScores),
    /// A model, bit for bit.
    Model(ModelScores),
}

/// Dots as a class takes them, then f32 operations over the heads in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoundedScores {
    /// How dots are taken.
    pub dots: Dots,
    /// Subnormal inputs and results of every operation may become zero.
    pub flush: bool,
    /// Scores are rounded to bf16 in the end.
    pub bf16: bool,
    /// Multiplications by factors of at most 1 beyond those of the rule, on any path.
    pub multiplications: usize,
}

/// Every operation known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelScores {
    /// The class of dots.
    pub class: DotClass,
    /// What makes a score of them.
    pub epilogue: Epilogue,
}

impl BoundedScores {
    /// Dots as `dots` says, f32 operations as IEEE wants them.
    #[must_use]
    pub const fn of(dots: Dots) -> Self {
        Self {
            dots,
            flush: false,
            bf16: false,
            multiplications: 0,
        }
    }
}

impl ModelScores {
    /// The score of a query row `q` `[H, D]` and a key.
    #[must_use]
    pub fn score(&self, q: &[E4M3], weights: &[f32], key: &[E4M3], scale: f32) -> f32 {
        let rows = q.chunks_exact(key.len().max(1));
        let dots: Vec<f32> = rows.map(|row| model::dot(self.class, row, key)).collect();
        self.epilogue.score(&dots, weights, scale)
    }
}

impl Scores {
    /// What the bounds of `hisa_ref::bound` need to know for rows of `heads` heads; none for
    /// exact scores.
    #[must_use]
    pub const fn arithmetic(&self, heads: usize) -> Option<(Dots, HeadSum)> {
        match self {
            Self::Exact => None,
            Self::Bounded(bounded) => {
                let mut sum =
                    HeadSum::any_order(heads).with_multiplications(bounded.multiplications);
                if bounded.flush {
                    sum = sum.with_flush();
                }
                if bounded.bf16 {
                    sum = sum.with_bf16_output();
                }
                Some((bounded.dots, sum))
            }
            Self::Model(model) => {
                let mut sum = HeadSum::any_order(heads);
                sum.roundings = model.epilogue.roundings(heads);
                if model.epilogue.arithmetic.flush {
                    sum = sum.with_flush();
                }
                Some((Dots::Class(model.class), sum))
            }
        }
    }
}

impl Numerics {
    /// The specification's, apart from these scores.
    #[must_use]
    pub const fn of_scores(scores: Scores) -> Self {
        Self {
            quantize: Quotients::Exact,
            block_pool: Quotients::Exact,
            scores,
        }
    }

    /// Whether scores are the real results, rounded once.
    #[must_use]
    pub const fn exact_scores(&self) -> bool {
        matches!(self.scores, Scores::Exact)
    }

    /// Whether a pipeline chooses exactly the ids of the specification.
    #[must_use]
    pub const fn exact_selection(&self) -> bool {
        self.exact_scores() && matches!(self.block_pool, Quotients::Exact)
    }
}
