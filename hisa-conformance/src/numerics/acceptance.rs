//! Which ids may and which must appear in a row of a whole indexer (SPEC 10.17).
//!
//! The ranges of scores become ranges of rank keys, these become sets of blocks that must, may and
//! may not be chosen, and these, with the ranges of token scores, sets of tokens. A backend's
//! choices stay unknown; that its scores lie in their ranges is all that is used. The proof that
//! the sets are sound, and that the number of ids is exact, is in `docs/NUMERICS.md`.

use super::Bounds;
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::bound::Range;
use hisa_ref::order::rank_key;
use hisa_ref::{Rank, Window};

/// A competitor: the places it may take, as numbers of which larger ones come first. Rank key
/// (V.5), and among equal keys the lower id, make one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Last place.
    low: u64,
    /// First place.
    high: u64,
}

impl Span {
    fn new(range: Range, id: usize, rounded: impl Fn(f32) -> f32) -> Self {
        let (low, high) = match range {
            Range::Nan => (0, 0),
            Range::Between(low, high) => (rank_key(rounded(low)), rank_key(rounded(high))),
            Range::Anything => (0, u32::MAX),
        };
        let place = |key: u32| u64::from(key) << 32 | u64::from(!(id as u32));
        Self {
            low: place(low),
            high: place(high),
        }
    }

    /// Whether it comes before the other whatever the backend computed.
    #[must_use]
    pub const fn certainly_beats(self, other: Self) -> bool {
        self.low > other.high
    }
}

/// Counts of others that certainly, or possibly, come before one.
struct Field {
    lows: Vec<u64>,
    highs: Vec<u64>,
}

impl Field {
    fn new(certain: impl Iterator<Item = Span>, possible: impl Iterator<Item = Span>) -> Self {
        let (mut lows, mut highs): (Vec<u64>, Vec<u64>) = (
            certain.map(|span| span.low).collect(),
            possible.map(|span| span.high).collect(),
        );
        lows.sort_unstable();
        highs.sort_unstable();
        Self { lows, highs }
    }

    /// Certain competitors that certainly come before `span`.
    fn certainly_before(&self, span: Span) -> usize {
        self.lows.len() - self.lows.partition_point(|&low| low <= span.high)
    }

    /// Possible competitors that may come before `span`, itself left out.
    fn possibly_before(&self, span: Span) -> usize {
        let before = self.highs.len() - self.highs.partition_point(|&high| high <= span.low);
        before - usize::from(span.high > span.low)
    }

    /// The last place among the first `count` certain competitors that is taken for certain.
    fn last_certain(&self, count: usize) -> Option<u64> {
        let at = self.lows.len().checked_sub(count)?;
        self.lows.get(at).copied()
    }
}

/// Whether something is sure to be chosen, and whether it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// It is chosen whatever the backend computed.
    pub must: bool,
    /// The declared arithmetic allows that it is chosen.
    pub may: bool,
}

impl Membership {
    const CERTAIN: Self = Self {
        must: true,
        may: true,
    };
}

/// A token of the window.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    /// Places it may take among the candidates.
    pub span: Span,
    /// Its block.
    pub block: Membership,
    /// Itself, in the row.
    pub member: Membership,
}

/// What a row may hold.
#[derive(Debug)]
pub struct Accepted {
    /// The window.
    pub window: Window,
    /// B; for the flat indexer the whole window is one block.
    block_size: usize,
    /// First block of the block window.
    first_block: usize,
    /// By block of the block window.
    pub blocks: Vec<Membership>,
    /// By token of the window.
    pub tokens: Vec<Token>,
    /// The last place that K certain candidates leave; none where there are fewer.
    pub kth_certain: Option<usize>,
}

/// Blocks a row may choose (SPEC 5.3), by block of its block window.
#[must_use]
pub fn blocks(bounds: &Bounds<'_>, row: usize, block_topk: usize) -> Vec<Membership> {
    let problem = bounds.problem();
    let window = problem.inputs.windows.rows()[row].blocks(problem.b());
    let count = window.len();
    if count <= block_topk {
        return vec![Membership::CERTAIN; count];
    }
    // The last block, then the first (SPEC 5.4); at least three blocks if there is room for more.
    let ends = if block_topk == 1 { 1 } else { 2 };
    let free = block_topk - ends;
    let middle = window.start + 1..window.end - 1;
    let rank = problem.inputs.params.rank();
    let rounded = |score: f32| match rank {
        Rank::Bf16 => round_to_bf16(score),
        Rank::F32 => score,
    };
    let ranges = match free {
        0 => vec![Range::Anything; middle.len()],
        _ => bounds.chained_blocks(row, middle.clone()),
    };
    let spans: Vec<Span> = (middle.zip(ranges))
        .map(|(block, range)| Span::new(range, block, rounded))
        .collect();
    let field = Field::new(spans.iter().copied(), spans.iter().copied());
    let first = Membership {
        must: ends == 2,
        may: ends == 2,
    };
    let middle = spans.iter().map(|&span| Membership {
        must: field.possibly_before(span) < free,
        may: field.certainly_before(span) < free,
    });
    let ends = [first].into_iter().chain(middle);
    ends.chain([Membership::CERTAIN]).collect()
}

/// What a row of `hisa` may hold.
#[must_use]
pub fn hisa(bounds: &Bounds<'_>, row: usize) -> Accepted {
    let params = &bounds.problem().inputs.params;
    let blocks = blocks(bounds, row, params.block_topk());
    accepted(bounds, row, params.block_size(), blocks)
}

/// What a row of `dsa` may hold: as if the window were one block.
#[must_use]
pub fn dsa(bounds: &Bounds<'_>, row: usize) -> Accepted {
    let window = bounds.problem().inputs.windows.rows()[row];
    let blocks = vec![Membership::CERTAIN; usize::from(!window.is_empty())];
    accepted(bounds, row, usize::MAX, blocks)
}

fn accepted(
    bounds: &Bounds<'_>,
    row: usize,
    block_size: usize,
    blocks: Vec<Membership>,
) -> Accepted {
    let problem = bounds.problem();
    let window = problem.inputs.windows.rows()[row];
    let k = problem.inputs.params.topk_tokens();
    let first_block = window.keys().start / block_size;
    let scores = window.keys().zip(bounds.tokens(row));
    let mut tokens: Vec<Token> = scores
        .map(|(key, score)| Token {
            span: Span::new(score.range, key, |score| score),
            block: blocks[key / block_size - first_block],
            member: Membership::CERTAIN,
        })
        .collect();
    let of = |kind: fn(&Token) -> bool| {
        let tokens = tokens.iter().filter(move |token| kind(token));
        tokens.map(|token| token.span)
    };
    let field = Field::new(of(|token| token.block.must), of(|token| token.block.may));
    for token in &mut tokens {
        token.member = Membership {
            must: token.block.must && field.possibly_before(token.span) < k,
            may: token.block.may && field.certainly_before(token.span) < k,
        };
    }
    let kth = field.last_certain(k);
    let kth_certain = kth.and_then(|low| tokens.iter().position(|token| token.span.low == low));
    Accepted {
        window,
        block_size,
        first_block,
        blocks,
        tokens,
        kth_certain,
    }
}

/// Why a row cannot come from the declared arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objection {
    /// The id at this column lies in a block that cannot be chosen.
    Block(usize),
    /// With the id at this column the row holds ids of more than m blocks.
    Blocks(usize),
    /// The id at this column is beaten by K others for certain.
    Beaten(usize),
    /// This token has to be there and is not.
    Missing(usize),
    /// This token was a candidate, comes before the id at the column for certain, and is not
    /// there.
    PassedOver(usize, usize),
    /// This token comes before the id at the column for certain, and stands behind it.
    Order(usize, usize),
}

impl Accepted {
    /// Index into [`Self::blocks`] of a token's block.
    fn block_of(&self, token: usize) -> usize {
        (self.window.keys().start + token) / self.block_size - self.first_block
    }

    /// Ids of the window with their columns; the others are another check's.
    fn inside<'a>(&self, ids: &'a [i32]) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        let len = self.tokens.len();
        let valid = ids.iter().enumerate().filter_map(|(column, &id)| {
            let id = usize::try_from(id).ok()?;
            Some((column, id))
        });
        valid.filter(move |&(_, id)| id < len)
    }

    /// The first thing wrong with the set of ids of a row that keeps `block_topk` blocks.
    #[must_use]
    pub fn objection(&self, ids: &[i32], block_topk: usize) -> Option<Objection> {
        let mut present = vec![false; self.tokens.len()];
        let mut touched = vec![false; self.blocks.len()];
        let mut distinct = 0;
        for (column, id) in self.inside(ids) {
            let block = self.block_of(id);
            distinct += usize::from(!touched[block]);
            (present[id], touched[block]) = (true, true);
            if !self.blocks[block].may {
                return Some(Objection::Block(column));
            }
            if distinct > block_topk {
                return Some(Objection::Blocks(column));
            }
            if !self.tokens[id].member.may {
                return Some(Objection::Beaten(column));
            }
        }
        let missing = |at: &usize| self.tokens[*at].member.must && !present[*at];
        if let Some(token) = (0..self.tokens.len()).find(missing) {
            return Some(Objection::Missing(token));
        }
        self.passed_over(ids, &present, &touched)
    }

    /// A block that a returned id lies in was chosen, so all its tokens were candidates.
    fn passed_over(&self, ids: &[i32], present: &[bool], touched: &[bool]) -> Option<Objection> {
        let weakest = self
            .inside(ids)
            .min_by_key(|&(_, id)| self.tokens[id].span.high)?;
        let absent = (0..self.tokens.len()).filter(|&at| !present[at]);
        let candidate = |at: &usize| {
            let block = self.block_of(*at);
            touched[block] || self.blocks[block].must
        };
        let best = absent
            .filter(candidate)
            .max_by_key(|&at| self.tokens[at].span.low)?;
        let (column, id) = weakest;
        self.tokens[best]
            .span
            .certainly_beats(self.tokens[id].span)
            .then_some(Objection::PassedOver(best, column))
    }

    /// The first id that another one behind it certainly comes before.
    #[must_use]
    pub fn disorder(&self, ids: &[i32]) -> Option<Objection> {
        let row: Vec<(usize, usize)> = self.inside(ids).collect();
        // The best of all behind each place.
        let mut behind: Option<usize> = None;
        let mut found = None;
        for &(column, id) in row.iter().rev() {
            let span = self.tokens[id].span;
            if let Some(best) = behind.filter(|&at| self.tokens[at].span.certainly_beats(span)) {
                found = Some(Objection::Order(best, column));
            }
            let better = behind.is_none_or(|at| span.low > self.tokens[at].span.low);
            behind = if better { Some(id) } else { behind };
        }
        found
    }
}

#[cfg(test)]
mod tests;
