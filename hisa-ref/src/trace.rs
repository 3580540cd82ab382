//! Every intermediate of a run, under the tensor names of dumps, ports and fixtures.

use crate::fp8::E4M3;
use ndarray::{Array1, Array2};

/// All intermediates of the `hisa` indexer.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// `[Nb,D]` codes of the pooled keys.
    pub pooled_k: Array2<E4M3>,
    /// `[Nb]` scales of the pooled keys.
    pub pooled_scale: Array1<f32>,
    /// `[M,Nb]` block scores, `-inf` outside the block window.
    pub block_scores: Array2<f32>,
    /// `[M,Nb]` the masked block scores.
    pub block_mask: Array2<f32>,
    /// `[M,m]` chosen blocks, ascending, then -1.
    pub block_ids: Array2<i32>,
    /// `[M,S]` token scores, `-inf` in slots without a visible key.
    pub token_scores: Array2<f32>,
    /// `[M,K]` chosen slots, then -1.
    pub slots: Array2<i32>,
    /// `[M,K]` positions within the window, then -1.
    pub indices: Array2<i32>,
}

/// All intermediates of the flat `dsa` indexer.
#[derive(Debug, Clone, PartialEq)]
pub struct DsaTrace {
    /// `[M,N]` scores, `-inf` outside the window.
    pub flat_scores: Array2<f32>,
    /// `[M,K]` chosen slots, where slot = key - ks, then -1.
    pub slots: Array2<i32>,
    /// `[M,K]` positions within the window, then -1; equal to `slots`.
    pub indices: Array2<i32>,
}

/// All intermediates of the `block_sparse` baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSparseTrace {
    /// `[Nb,D]` codes of the pooled keys.
    pub pooled_k: Array2<E4M3>,
    /// `[Nb]` scales of the pooled keys.
    pub pooled_scale: Array1<f32>,
    /// `[M,Nb]` block scores, `-inf` outside the block window.
    pub block_scores: Array2<f32>,
    /// `[M,Nb]` the masked block scores.
    pub block_mask: Array2<f32>,
    /// `[M,m]` chosen blocks, ascending, then -1; m = ceil(K/B).
    pub block_ids: Array2<i32>,
    /// `[M,m*B]` every visible key of those blocks minus ks, ascending, then -1.
    pub indices: Array2<i32>,
}
