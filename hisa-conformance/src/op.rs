//! What a backend can be asked to do: a stage, an indexer, or one of the two jobs around them.

use hisa_ref::Stage;

/// A job of a backend, and the subject of a check. Its name is the same in reports, commands and
/// the port protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Sequence offsets to one window per row (SPEC W).
    Windows,
    /// One stage, fed with the true outputs of the stages before it.
    Stage(Stage),
    /// Pooling of keys that arrive in pieces (SPEC 9.5).
    Append,
    /// The whole `hisa` indexer (SPEC 9.1).
    Hisa,
    /// The flat indexer (SPEC 9.2).
    Dsa,
    /// The baseline that keeps whole blocks (SPEC 9.3).
    BlockSparse,
}

impl Op {
    /// Every job, in the order data flows.
    pub const ALL: [Self; 13] = [
        Self::Windows,
        Self::Stage(Stage::Quantize),
        Self::Stage(Stage::BlockPool),
        Self::Stage(Stage::BlockScores),
        Self::Stage(Stage::BlockMask),
        Self::Stage(Stage::BlockTopk),
        Self::Stage(Stage::TokenScores),
        Self::Stage(Stage::TokenTopk),
        Self::Stage(Stage::IndexMap),
        Self::Append,
        Self::Hisa,
        Self::Dsa,
        Self::BlockSparse,
    ];

    /// The one name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::Stage(stage) => stage.name(),
            Self::Append => "append",
            Self::Hisa => "hisa",
            Self::Dsa => "dsa",
            Self::BlockSparse => "block_sparse",
        }
    }

    /// What it does, in one sentence.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Windows => "Sequence offsets to one window of keys per query row.",
            Self::Stage(Stage::Quantize) => "f32 rows to e4m3 codes and one scale per row.",
            Self::Stage(Stage::BlockPool) => "Keys to one mean key per block.",
            Self::Stage(Stage::BlockScores) => "The score of every block for every row.",
            Self::Stage(Stage::BlockMask) => "Infinities outside and at the ends of windows.",
            Self::Stage(Stage::BlockTopk) => "The best blocks of every row.",
            Self::Stage(Stage::TokenScores) => "The scores of the keys of the kept blocks.",
            Self::Stage(Stage::TokenTopk) => "The best slots of every row.",
            Self::Stage(Stage::IndexMap) => "Slots to ids relative to the row's window.",
            Self::Append => "Pooling of keys that arrive in pieces.",
            Self::Hisa => "The whole indexer: best blocks, then their best tokens.",
            Self::Dsa => "The flat indexer: the best tokens of the whole window.",
            Self::BlockSparse => "The baseline that keeps whole blocks.",
        }
    }

    /// The job of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Windows => 0,
            Self::Stage(stage) => 1 + stage as usize,
            Self::Append => 9,
            Self::Hisa => 10,
            Self::Dsa => 11,
            Self::BlockSparse => 12,
        }
    }

    /// Whether it is a whole indexer, run end to end on the caller's tensors.
    #[must_use]
    pub const fn is_indexer(self) -> bool {
        matches!(self, Self::Hisa | Self::Dsa | Self::BlockSparse)
    }

    /// Names of the tensors it reads, besides the windows' description for [`Self::Windows`].
    #[must_use]
    pub const fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::Windows => &[],
            Self::Stage(stage) => stage.inputs(),
            Self::Append => &["k", "k_scale"],
            Self::Hisa | Self::Dsa | Self::BlockSparse => {
                &["q", "k", "k_scale", "weights", "ks", "ke"]
            }
        }
    }

    /// Names of the tensors it writes.
    #[must_use]
    pub const fn outputs(self) -> &'static [&'static str] {
        match self {
            Self::Windows => &["ks", "ke"],
            Self::Stage(stage) => stage.outputs(),
            Self::Append => &["pooled_k", "pooled_scale"],
            Self::Hisa => &["indices"],
            Self::Dsa => &["flat_scores", "indices"],
            Self::BlockSparse => &["block_ids", "indices"],
        }
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_positions_agree_with_the_list() {
        for (index, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op.index(), index, "{op}");
            assert_eq!(Op::from_name(op.name()), Some(op));
        }
        for stage in Stage::ALL {
            assert!(Op::ALL.contains(&Op::Stage(stage)), "{stage}");
        }
    }
}
