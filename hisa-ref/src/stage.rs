//! The table of stages: one name each, in the order data flows.

/// A stage of the indexer. Its name is the same in files, kernels, fixtures, benches, commands
/// and SPEC headings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// f32 or bf16 rows to e4m3 codes and a scale per row.
    Quantize,
    /// Mean of each key block, quantised again.
    BlockPool,
    /// Score of each query row against each pooled block of its window.
    BlockScores,
    /// `-inf` outside the block window, `+inf` at its two ends.
    BlockMask,
    /// The blocks to keep.
    BlockTopk,
    /// Score of each query row against every key of its kept blocks.
    TokenScores,
    /// The tokens to keep, as slots.
    TokenTopk,
    /// Slots to positions within the window.
    IndexMap,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Self; 8] = [
        Self::Quantize,
        Self::BlockPool,
        Self::BlockScores,
        Self::BlockMask,
        Self::BlockTopk,
        Self::TokenScores,
        Self::TokenTopk,
        Self::IndexMap,
    ];

    /// The one name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quantize => "quantize",
            Self::BlockPool => "block_pool",
            Self::BlockScores => "block_scores",
            Self::BlockMask => "block_mask",
            Self::BlockTopk => "block_topk",
            Self::TokenScores => "token_scores",
            Self::TokenTopk => "token_topk",
            Self::IndexMap => "index_map",
        }
    }

    /// Number of the stage's section in docs/SPEC.md.
    #[must_use]
    pub const fn section(self) -> usize {
        self as usize + 1
    }

    /// Names of the tensors the stage reads, in SPEC's order; windows are `ks` and `ke`.
    #[must_use]
    pub const fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::Quantize => &["x"],
            Self::BlockPool => &["k", "k_scale"],
            Self::BlockScores => &["q", "pooled_k", "pooled_scale", "weights", "ks", "ke"],
            Self::BlockMask => &["block_scores", "ks", "ke"],
            Self::BlockTopk => &["block_mask", "ks", "ke"],
            Self::TokenScores => &["q", "k", "k_scale", "weights", "block_ids", "ks", "ke"],
            Self::TokenTopk => &["token_scores", "block_ids", "ks", "ke"],
            Self::IndexMap => &["slots", "block_ids", "ks", "ke"],
        }
    }

    /// Names of the tensors the stage writes.
    #[must_use]
    pub const fn outputs(self) -> &'static [&'static str] {
        match self {
            Self::Quantize => &["codes", "scale"],
            Self::BlockPool => &["pooled_k", "pooled_scale"],
            Self::BlockScores => &["block_scores"],
            Self::BlockMask => &["block_mask"],
            Self::BlockTopk => &["block_ids"],
            Self::TokenScores => &["token_scores"],
            Self::TokenTopk => &["slots"],
            Self::IndexMap => &["indices"],
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Stage {
    type Err = crate::error::ParamError;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|stage| stage.name() == word)
            .ok_or_else(|| crate::error::ParamError::Word {
                name: "stage",
                value: word.to_owned(),
                allowed: "quantize, block_pool, block_scores, block_mask, block_topk, \
                          token_scores, token_topk, index_map",
            })
    }
}
