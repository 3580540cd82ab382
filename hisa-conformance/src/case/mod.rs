//! A case: sizes, parameters, windows, kinds of values and a seed, in one line.
//!
//! [`Case`] is plain data. Its [`address`] prints and parses back to the same case, and
//! the tensors it stands for come from the case alone, byte for byte the same on every machine
//! and in every later version. A case may describe something no run accepts, such as offsets
//! that decrease: [`Case::inputs`] then returns the reference's typed error.

pub mod address;
mod error;
mod parse;
mod patch;
mod tensors;
mod windows;

pub use error::{AddressError, AddressProblem, CaseError};
pub use patch::{Patch, Target};
pub use tensors::{Inputs, Tensors, digest_rows};
pub use windows::{Shard, WindowSource, WindowSpec};

use crate::generate::values::{BLOCKS_DIM_MIN, Codes, PRESETS, Values, is_block_score};
use hisa_ref::error::ParamError;
use hisa_ref::params::{HEAD_DIM_MAX, HEADS_MAX, block_count};
use hisa_ref::{HisaParams, Rank, Window, Windows};

/// Most query rows of a case.
pub const ROWS_MAX: usize = 1 << 22;
/// Most query rows a context-parallel group shares.
pub const GROUP_ROWS_MAX: usize = 1 << 26;
/// Most keys of a case.
pub const KEYS_MAX: usize = 1 << 28;
/// Most elements of `q` or of `k`; their codes are one byte each.
pub const CODES_MAX: usize = 1 << 32;
/// Most elements of a result: rows times the largest of Nb, m*B and K.
pub const RESULTS_MAX: usize = 1 << 32;
/// Most patches of a case.
pub const PATCHES_MAX: usize = 4096;

/// Everything that determines an indexer's input. Sizes are in elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Case {
    /// M, query rows.
    pub m: usize,
    /// N, keys.
    pub n: usize,
    /// H, heads.
    pub h: usize,
    /// D, dimensions of a head.
    pub d: usize,
    /// B, keys of a pool block.
    pub block_size: usize,
    /// m, blocks kept per row.
    pub block_topk: usize,
    /// K, tokens kept per row.
    pub topk_tokens: usize,
    /// What block scores are rounded to before ranking.
    pub rank: Rank,
    /// The keys each row sees.
    pub windows: WindowSpec,
    /// What the tensors hold.
    pub values: Values,
    /// Single elements that differ from what `values` says, applied in order.
    pub patches: Vec<Patch>,
    /// Seed of everything random.
    pub seed: u64,
}

impl Case {
    /// A case with these windows over `n` keys, to be changed from there: H = 1, D = 8, B = 4,
    /// m = 2, K = 4, normal values, seed 0.
    #[must_use]
    pub fn with_rows(rows: Vec<Window>, n: usize) -> Self {
        Self::with_windows(rows.len(), n, WindowSource::Rows(rows).into())
    }

    /// As [`Self::with_rows`], for causal sequences; `cu` holds their offsets, 0 first.
    #[must_use]
    pub fn with_cu(cu: &[i64]) -> Self {
        let tokens = cu.last().copied().unwrap_or(0).unsigned_abs() as usize;
        Self::with_windows(tokens, tokens, WindowSource::Causal(cu.to_vec()).into())
    }

    /// As [`Self::with_rows`], for any windows; `m` rows and `n` keys.
    #[must_use]
    pub fn with_windows(m: usize, n: usize, windows: WindowSpec) -> Self {
        Self {
            m,
            n,
            h: 1,
            d: 8,
            block_size: 4,
            block_topk: 2,
            topk_tokens: 4,
            rank: Rank::Bf16,
            windows,
            values: PRESETS[0].values(),
            patches: Vec::new(),
            seed: 0,
        }
    }

    /// Nb = ceil(N/B), the number of pool blocks; 0 for B = 0.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        if self.block_size == 0 {
            0
        } else {
            block_count(self.n, self.block_size)
        }
    }

    /// Block size, blocks kept and tokens kept.
    ///
    /// # Errors
    /// As [`HisaParams::new`].
    pub fn params(&self) -> hisa_ref::Result<HisaParams> {
        let params = HisaParams::new(self.block_size, self.block_topk, self.topk_tokens)?;
        Ok(params.with_rank(self.rank))
    }

    /// One window per row, over `n` keys.
    ///
    /// # Errors
    /// What the constructors of [`Windows`] refuse.
    pub fn windows(&self) -> hisa_ref::Result<Windows> {
        self.windows.resolve(self.m, self.n)
    }

    /// The same case with its windows written row by row, so that rows can be dropped and
    /// windows moved one at a time.
    ///
    /// # Errors
    /// As [`Self::windows`].
    pub fn to_rows(&self) -> hisa_ref::Result<Self> {
        let rows = self.windows()?.rows().to_vec();
        Ok(Self {
            windows: WindowSource::Rows(rows).into(),
            ..self.clone()
        })
    }

    /// Removes patches that point outside the tensors, as cutting sizes leaves them.
    pub fn drop_stray_patches(&mut self) {
        let shapes = self.shapes();
        self.patches
            .retain(|patch| patch.fits(shapes[patch.target as usize]));
    }

    /// The shape of each tensor a [`Target`] names, with 0 for the axes it does not have.
    pub(crate) const fn shapes(&self) -> [[usize; 3]; 5] {
        let (m, n, h, d) = (self.m, self.n, self.h, self.d);
        [[m, h, d], [n, d, 0], [n, 0, 0], [m, h, 0], [n, d, 0]]
    }

    /// Sizes within the caps, patches within the tensors, programs that can be carried out.
    ///
    /// Everything that allocates calls it first, so that no address can ask for more memory than
    /// the caps of this module allow.
    ///
    /// # Errors
    /// [`CaseError`] naming the size, patch or program value.
    pub fn check(&self) -> Result<(), CaseError> {
        self.check_sizes()?;
        let shapes = self.shapes();
        for patch in &self.patches {
            if !patch.fits(shapes[patch.target as usize]) {
                return Err(CaseError::Patch { patch: *patch });
            }
        }
        let Codes::Blocks(program) = &self.values.k else {
            return Ok(());
        };
        if self.d < BLOCKS_DIM_MIN {
            return Err(CaseError::BlocksDim { d: self.d });
        }
        for (low, high) in program.ranges(self.blocks()) {
            let inside = |bits: u64| u32::try_from(bits).is_ok_and(is_block_score);
            if !inside(low) || !inside(high) || (low == 0) != (high == 0) {
                return Err(CaseError::BlockScore { low, high });
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), CaseError> {
        for (name, value) in [("H", self.h), ("D", self.d)] {
            if value == 0 {
                return Err(hisa_ref::Error::from(ParamError::Zero { name }).into());
            }
        }
        let columns = [
            self.blocks() as u128,
            self.block_size as u128 * self.block_topk as u128,
            self.topk_tokens as u128,
        ];
        let widest = columns.into_iter().max().unwrap_or(0);
        let (m, n, h, d) = (
            self.m as u128,
            self.n as u128,
            self.h as u128,
            self.d as u128,
        );
        let ranks = self.windows.shard.map_or(1, |shard| shard.ranks as u128);
        limit("M", m, ROWS_MAX)?;
        limit("M*ranks", m.saturating_mul(ranks), GROUP_ROWS_MAX)?;
        limit("N", n, KEYS_MAX)?;
        limit("H", h, HEADS_MAX)?;
        limit("D", d, HEAD_DIM_MAX)?;
        limit("M*H*D", m * h * d, CODES_MAX)?;
        limit("N*D", n * d, CODES_MAX)?;
        limit("M*max(Nb, m*B, K)", m.saturating_mul(widest), RESULTS_MAX)?;
        limit("patches", self.patches.len() as u128, PATCHES_MAX)
    }
}

fn limit(name: &'static str, value: u128, limit: usize) -> Result<(), CaseError> {
    if value > limit as u128 {
        return Err(CaseError::TooLarge { name, value, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
