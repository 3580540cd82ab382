//! What a backend is asked about: arrays by value, from an address or from a file.

use crate::backend::limits::Extents;
use crate::case::{Case, CaseError, Inputs, Tensors, WindowSpec};
use crate::op::Op;
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::{Overflow, Strictness, Windows};
use ndarray::{Array2, Axis};

/// A case as arrays. Everything a backend sees comes from here, so that a problem that was saved
/// by value judges a backend exactly as the address it came from does.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Parameters, windows and tensors.
    pub inputs: Inputs,
    /// Rows for `quantize`.
    pub x: Option<Array2<f32>>,
    /// Where the windows came from; `None` where they are given row by row.
    pub spec: Option<WindowSpec>,
    /// How `quantize` is run.
    pub quantize: QuantizeOptions,
    /// Keys present after each piece of `append`, the last one N; a piece below the one before it
    /// rolls the cache back first. What the pieces hold is for [`steps`] to say.
    pub pieces: Vec<usize>,
}

impl Problem {
    /// Builds the arrays of `case`.
    ///
    /// # Errors
    /// As [`Case::inputs`].
    pub fn new(case: &Case) -> Result<Self, CaseError> {
        Ok(Self {
            inputs: case.inputs()?,
            x: Some(case.x()?),
            spec: case
                .windows
                .source
                .query_offsets()
                .is_some()
                .then(|| case.windows.clone()),
            quantize: quantize_options(case.seed),
            pieces: pieces(case.seed, case.n),
        })
    }

    /// A copy for a related run of an indexer or of a stage after `quantize`: without `x`, which
    /// is larger than all the rest.
    #[must_use]
    pub fn related(&self) -> Self {
        Self {
            inputs: self.inputs.clone(),
            x: None,
            spec: None,
            quantize: self.quantize,
            pieces: self.pieces.clone(),
        }
    }

    /// The same keys with some of the rows, in the order given, as [`Self::related`].
    #[must_use]
    pub fn with_rows(&self, rows: &[usize]) -> Self {
        let Tensors {
            q,
            k,
            k_scale,
            weights,
        } = &self.inputs.tensors;
        let all = &self.inputs.windows;
        let windows = rows.iter().map(|&row| all.rows()[row]).collect();
        let windows = Windows::new(windows, all.n())
            .unwrap_or_else(|_| unreachable!("windows of {} were valid before", all.len()));
        Self {
            inputs: Inputs {
                params: self.inputs.params,
                windows,
                tensors: Tensors {
                    q: q.select(Axis(0), rows),
                    k: k.clone(),
                    k_scale: k_scale.clone(),
                    weights: weights.select(Axis(0), rows),
                },
                strictness: self.inputs.strictness,
            },
            x: None,
            spec: None,
            quantize: self.quantize,
            pieces: self.pieces.clone(),
        }
    }

    /// M, query rows.
    #[must_use]
    pub fn m(&self) -> usize {
        self.inputs.tensors.q.dim().0
    }

    /// N, keys.
    #[must_use]
    pub fn n(&self) -> usize {
        self.inputs.tensors.k.nrows()
    }

    /// H, heads.
    #[must_use]
    pub fn h(&self) -> usize {
        self.inputs.tensors.q.dim().1
    }

    /// D, dimensions of a head.
    #[must_use]
    pub fn d(&self) -> usize {
        self.inputs.tensors.q.dim().2
    }

    /// B, keys of a block.
    #[must_use]
    pub fn b(&self) -> usize {
        self.inputs.params.block_size()
    }

    /// Every size a backend may limit.
    #[must_use]
    pub fn extents(&self) -> Extents {
        Extents {
            heads: self.h(),
            dims: self.d(),
            block_size: self.b(),
            rows: self.m(),
            keys: self.n(),
            topk: self.inputs.params.topk_tokens(),
            blocks: self.inputs.params.block_topk(),
        }
    }

    /// Nb, pooled blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        hisa_ref::params::block_count(self.n(), self.b())
    }

    /// Blocks `block_sparse` keeps: ceil(K/B).
    #[must_use]
    pub fn sparse_blocks(&self) -> usize {
        self.inputs.params.topk_tokens().div_ceil(self.b())
    }

    /// The shape the tensor `name` has when `op` writes it; `None` where `op` does not.
    #[must_use]
    pub fn output_shape(&self, op: Op, name: &str) -> Option<Vec<usize>> {
        let params = &self.inputs.params;
        let m = self.m();
        Some(match (op, name) {
            (Op::Windows, "ks" | "ke") => vec![m],
            (_, "codes") => self.x.as_ref().map(|x| vec![x.nrows(), x.ncols()])?,
            (_, "scale") => vec![self.x.as_ref()?.nrows()],
            (_, "pooled_k") => vec![self.blocks(), self.d()],
            (_, "pooled_scale") => vec![self.blocks()],
            (_, "block_scores" | "block_mask") => vec![m, self.blocks()],
            (Op::BlockSparse, "block_ids") => vec![m, self.sparse_blocks()],
            (Op::BlockSparse, "indices") => vec![m, self.sparse_blocks() * self.b()],
            (_, "block_ids") => vec![m, params.block_topk()],
            (_, "token_scores") => vec![m, params.slots()],
            (_, "flat_scores") => vec![m, self.n()],
            (_, "slots" | "indices") => vec![m, params.topk_tokens()],
            _ => return None,
        })
    }
}

/// Two long pieces and a roll-back between them, or single keys after a long piece and two
/// roll-backs in a row, as in decoding with drafts that are turned down.
fn pieces(seed: u64, n: usize) -> Vec<usize> {
    let first = seed as usize % (n + 1);
    let (half, quarter) = (first / 2, first / 4);
    let ends = if seed & 4 == 0 {
        vec![first, n, half, n]
    } else {
        let (two, three) = (first + 2, first + 3);
        vec![first, first + 1, two, three, half, half + 1, quarter, n]
    };
    ends.into_iter().map(|end| end.min(n)).collect()
}

/// What a piece of `append` does: roll back to `from` keys, then append keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Keys held before it.
    pub from: usize,
    /// The keys it appends, by their number among all N.
    pub keys: Vec<usize>,
}

/// The pieces of `append`, ending at `pieces`. A place that a later roll-back gives up holds
/// another key until then, the one as far from the end as the place is from the start: what is
/// kept of it shows.
#[must_use]
pub fn steps(pieces: &[usize], n: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut held = 0;
    for (at, &end) in pieces.iter().enumerate() {
        let kept = pieces[at..].iter().copied().min().unwrap_or(end);
        let from = held.min(end);
        let key = |place| if place < kept { place } else { n - 1 - place };
        let keys = (from..end.min(n)).map(key).collect();
        steps.push(Step { from, keys });
        held = end;
    }
    steps
}

/// One combination of scale format and overflow per case, by its seed, so that all come up.
fn quantize_options(seed: u64) -> QuantizeOptions {
    QuantizeOptions {
        format: if seed & 1 == 0 {
            ScaleFormat::F32
        } else {
            ScaleFormat::Ue8m0
        },
        overflow: if seed & 2 == 0 {
            Overflow::Saturating
        } else {
            Overflow::NonSaturating
        },
        strictness: Strictness::Permissive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_given_up_hold_other_keys_first() {
        let step = |from, keys: &[usize]| Step {
            from,
            keys: keys.to_vec(),
        };
        let told = steps(&[3, 6, 1, 6], 6);
        let (first, second) = (step(0, &[0, 4, 3]), step(3, &[2, 1, 0]));
        let (third, last) = (step(1, &[]), step(1, &[1, 2, 3, 4, 5]));
        assert_eq!(told, [first, second, third, last]);
        assert_eq!(steps(&[2, 4], 4), [step(0, &[0, 1]), step(2, &[2, 3])]);
        assert_eq!(steps(&[0], 0), [step(0, &[])]);
    }
}
