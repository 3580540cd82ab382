//! What a case's tensors hold: a kind of value for each tensor, and named combinations.
//!
//! A kind is chosen per tensor, so that any of them can meet; a *preset* is a combination that
//! is worth a name. Two kinds carry a [`Program`]: `s=prog:PROGRAM` writes `k_scale` value by
//! value (key n has value n), `k=blocks:PROGRAM` writes the block scores (block b has value b,
//! all keys of a block are equal), exact through queries of kind `basis`, scales of kind `own`
//! and weights of kind `first`.

mod blocks;
mod codes;
mod floats;
mod kinds;
mod presets;

pub use blocks::{BLOCK_SCORE_MAX, BLOCK_SCORE_MIN, BLOCKS_DIM_MIN, is_block_score};
pub use kinds::{CodeKind, RowKind, ScaleKind, WeightKind};
pub use presets::{PRESETS, Preset, preset};

use super::programmed::Program;
use super::stream::Lane;
use codes::CodeRows;
use hisa_ref::E4M3;

/// What the codes of `q` or `k` are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Codes {
    /// Drawn from the seed.
    Kind(CodeKind),
    /// Keys whose block scores against `basis` queries are the program's values.
    Blocks(Program),
}

/// What `k_scale` is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scales {
    /// Drawn from the seed.
    Kind(ScaleKind),
    /// The program's values.
    Program(Program),
}

/// What every tensor of a case holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Values {
    /// Codes of `q`.
    pub q: CodeKind,
    /// Codes of `k`.
    pub k: Codes,
    /// `k_scale`.
    pub s: Scales,
    /// `weights`.
    pub w: WeightKind,
    /// Rows for `quantize`.
    pub x: RowKind,
}

impl Values {
    /// The name of the preset with exactly these kinds, if there is one.
    #[must_use]
    pub fn preset_name(&self) -> Option<&'static str> {
        let Codes::Kind(k) = self.k else { return None };
        let Scales::Kind(s) = self.s else { return None };
        let kinds = (self.q, k, s, self.w, self.x);
        PRESETS
            .iter()
            .find(|preset| preset.kinds == kinds)
            .map(|preset| preset.name)
    }

    /// Token scores written by a program: e0 queries and keys, weight 1, or -1 if `negative`.
    #[must_use]
    pub const fn scores(program: Program, negative: bool) -> Self {
        Self {
            q: CodeKind::E0,
            k: Codes::Kind(CodeKind::E0),
            s: Scales::Program(program),
            w: if negative {
                WeightKind::Minus
            } else {
                WeightKind::First
            },
            x: RowKind::Normal,
        }
    }

    /// Block scores written by a program; every value must satisfy [`is_block_score`].
    #[must_use]
    pub const fn blocks(program: Program) -> Self {
        Self {
            q: CodeKind::Basis,
            k: Codes::Blocks(program),
            s: Scales::Kind(ScaleKind::Own),
            w: WeightKind::First,
            x: RowKind::Normal,
        }
    }
}

/// Fills `q`, row-major `[M,H,D]`.
pub(crate) fn fill_q(values: &Values, seed: u64, (h, d): (usize, usize), out: &mut [E4M3]) {
    let filler = CodeRows {
        seed,
        lane: Lane::Q,
        block_size: 1,
        rows: 1 << 48,
    };
    for (index, row) in out.chunks_exact_mut(d).enumerate() {
        filler.fill(values.q, (index / h) << 16 | (index % h), row);
    }
}

/// Fills `k`, row-major `[N,D]`, and `k_scale` `[N]`.
pub(crate) fn fill_k(
    values: &Values,
    seed: u64,
    block_size: usize,
    (k, d): (&mut [E4M3], usize),
    k_scale: &mut [f32],
) {
    let n = k_scale.len();
    let block_size = block_size.max(1);
    let filler = CodeRows {
        seed,
        lane: Lane::K,
        block_size,
        rows: n,
    };
    let scores = match &values.k {
        Codes::Blocks(program) => program.bits(seed, n.div_ceil(block_size)),
        Codes::Kind(_) => Vec::new(),
    };
    for (row, (out, scale)) in k.chunks_exact_mut(d).zip(k_scale.iter_mut()).enumerate() {
        let own = match values.k {
            Codes::Kind(kind) => filler.fill(kind, row, out),
            Codes::Blocks(_) => blocks::block_key(scores[row / block_size], out),
        };
        if let Scales::Kind(kind) = values.s {
            *scale = floats::scale(kind, seed, row, block_size, own);
        }
    }
    if let Scales::Program(program) = &values.s {
        for (scale, bits) in k_scale.iter_mut().zip(program.bits(seed, n)) {
            *scale = f32::from_bits(bits);
        }
    }
}

/// Fills `weights`, row-major `[M,H]`.
pub(crate) fn fill_weights(values: &Values, seed: u64, h: usize, out: &mut [f32]) {
    for (row, weights) in out.chunks_exact_mut(h).enumerate() {
        floats::weights(values.w, seed, row, weights);
    }
}

/// Fills `x`, row-major `[rows,D]`.
pub(crate) fn fill_x(values: &Values, seed: u64, d: usize, out: &mut [f32]) {
    for (row, x) in out.chunks_exact_mut(d).enumerate() {
        floats::row(values.x, seed, row, x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_block_share_what_their_kind_shares() {
        let mut k = [E4M3::ZERO; 4];
        let mut scales = [0.0; 2];
        fill_k(
            &preset("pooltie").unwrap().values(),
            1,
            2,
            (&mut k, 2),
            &mut scales,
        );
        assert_eq!(scales[0], scales[1]);
        assert_eq!(k[0].to_f32(), 448.0);
    }
}
