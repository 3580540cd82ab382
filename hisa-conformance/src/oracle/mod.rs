//! A second implementation of the indexer: slow, plain and independent of the reference.
//!
//! Nothing here is shared with `hisa-ref`, and no decision is taken in floating point. A finite
//! f32 is an integer count of `2^-149`, an e4m3 value a count of `2^-9`; sums and products of
//! such counts are integers too, and one rounding makes the f32 of the result. NaN, infinities
//! and negative scales follow IEEE in the extended reals, and every computed NaN is 0x7FC00000
//! or code 0x7F.
//!
//! The oracle judges no input: shapes, windows, ids and parameters are taken to be valid (`d`,
//! `h` and every parameter at least 1), and what it does with others is not specified.
//!
//! `M`, `N`, `H`, `D` are query rows, keys, heads and head dimension, `B` is the block size,
//! `Nb = ceil(N / B)`, `m` is `block_topk` and `K` is `topk_tokens`.

pub mod e4m3;
pub mod order;
pub mod round;

mod block_pool;
mod indexers;
mod quantize;
mod real;
mod scores;
mod selection;
mod small;
mod windows;

#[cfg(test)]
mod bug_reports;

pub use block_pool::block_pool;
pub use indexers::{BlockSparseTrace, DsaTrace, OracleTrace, block_sparse, dsa, hisa};
pub use quantize::{ScaleFormat, power_of_two_at_least, quantize, quantize_dims};
pub use scores::{block_scores, flat_scores, token_scores};
pub use selection::{block_mask, block_topk, index_map, token_topk};
pub use windows::{
    NO_SEQUENCE, window_blocks, window_keys, windows_from_cu_seqlens, windows_from_offsets,
    windows_with_stride, windows_zigzag, zigzag_rows,
};

/// Rows of a case as plain numbers; tensors are row-major.
#[derive(Clone, Debug)]
pub struct OracleInput {
    /// Query rows.
    pub m: usize,
    /// Keys.
    pub n: usize,
    /// Heads.
    pub h: usize,
    /// Elements of a query or key vector.
    pub d: usize,
    /// e4m3 codes of the queries, `[M, H, D]`.
    pub q: Vec<u8>,
    /// e4m3 codes of the keys, `[N, D]`.
    pub k: Vec<u8>,
    /// Scale of each key, `[N]`.
    pub k_scale: Vec<f32>,
    /// Head weights, `[M, H]`.
    pub weights: Vec<f32>,
    /// Window `(ks, ke)` of each row in absolute keys, `[M]`; empty if and only if `ks >= ke`.
    pub windows: Vec<(i32, i32)>,
}

/// Parameters of an indexer.
#[derive(Clone, Copy, Debug)]
pub struct OracleParams {
    /// Keys in a block, `B`.
    pub block_size: usize,
    /// Blocks selected for a row, `m`.
    pub block_topk: usize,
    /// Tokens selected for a row, `K`.
    pub topk_tokens: usize,
    /// Whether blocks are ranked by their bf16 score rather than the f32 one.
    pub rank_bf16: bool,
}

impl OracleParams {
    /// Token slots of a row, `m * B`.
    fn slots(&self) -> usize {
        self.block_topk * self.block_size
    }

    /// Key in a slot of a row, given the row-major `block_ids` `[M, m]`; `None` if the slot's
    /// block is -1. The key may lie beyond `N`.
    fn slot_key(&self, row: usize, slot: usize, block_ids: &[i32]) -> Option<usize> {
        let block = block_ids[row * self.block_topk + slot / self.block_size];
        let block = usize::try_from(block).ok()?;
        Some(block * self.block_size + slot % self.block_size)
    }
}
