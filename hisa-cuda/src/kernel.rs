//! The kernels: source files, entries, and the instruction that proves an entry's arithmetic.

/// A source file of kernels: one stage or indexer each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// `quantize.cu`
    Quantize,
    /// `block_pool.cu`
    BlockPool,
    /// `block_scores.cu`
    BlockScores,
    /// `block_mask.cu`
    BlockMask,
    /// `block_topk.cu`
    BlockTopk,
    /// `token_scores.cu`
    TokenScores,
    /// `token_topk.cu`
    TokenTopk,
    /// `index_map.cu`
    IndexMap,
    /// `dsa.cu`
    Dsa,
    /// `block_sparse.cu`
    BlockSparse,
}

impl Unit {
    /// All units, in the order data flows.
    pub const ALL: [Self; 10] = [
        Self::Quantize,
        Self::BlockPool,
        Self::BlockScores,
        Self::BlockMask,
        Self::BlockTopk,
        Self::TokenScores,
        Self::TokenTopk,
        Self::IndexMap,
        Self::Dsa,
        Self::BlockSparse,
    ];

    /// The file name.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Quantize => "quantize.cu",
            Self::BlockPool => "block_pool.cu",
            Self::BlockScores => "block_scores.cu",
            Self::BlockMask => "block_mask.cu",
            Self::BlockTopk => "block_topk.cu",
            Self::TokenScores => "token_scores.cu",
            Self::TokenTopk => "token_topk.cu",
            Self::IndexMap => "index_map.cu",
            Self::Dsa => "dsa.cu",
            Self::BlockSparse => "block_sparse.cu",
        }
    }
}
