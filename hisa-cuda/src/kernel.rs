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

    /// The kernels in the file.
    #[must_use]
    pub const fn entries(self) -> &'static [Entry] {
        match self {
            Self::Quantize => QUANTIZE,
            Self::BlockPool => BLOCK_POOL,
            Self::BlockScores => BLOCK_SCORES,
            Self::BlockMask => BLOCK_MASK,
            Self::BlockTopk => BLOCK_TOPK,
            Self::TokenScores => TOKEN_SCORES,
            Self::TokenTopk => TOKEN_TOPK,
            Self::IndexMap => INDEX_MAP,
            Self::Dsa => DSA,
            Self::BlockSparse => BLOCK_SPARSE,
        }
    }
}

const QUANTIZE: &[Entry] = &[
    Entry::without_mma("quantize_f32"),
    Entry::without_mma("quantize_bf16"),
];
const BLOCK_POOL: &[Entry] = &[Entry::without_mma("block_pool")];
const BLOCK_SCORES: &[Entry] = &[
    Entry::f16("block_scores_mma"),
    Entry::f64("block_scores_exact"),
];
const BLOCK_MASK: &[Entry] = &[Entry::without_mma("block_mask")];
const BLOCK_TOPK: &[Entry] = &[Entry::without_mma("block_topk")];
const TOKEN_SCORES: &[Entry] = &[
    Entry::f16("token_scores_mma"),
    Entry::f64("token_scores_exact"),
];
const TOKEN_TOPK: &[Entry] = &[Entry::without_mma("token_topk")];
const INDEX_MAP: &[Entry] = &[Entry::without_mma("index_map")];
const DSA: &[Entry] = &[
    Entry::f16("flat_scores_mma"),
    Entry::f64("flat_scores_exact"),
    Entry::without_mma("flat_topk"),
];
const BLOCK_SPARSE: &[Entry] = &[Entry::without_mma("block_sparse_indices")];

/// A kernel, and the matrix instructions that its machine code has: these and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name of the function.
    pub name: &'static str,
    /// How the matrix instructions begin that it uses, as a disassembler shows them: the proof of
    /// its numerics class.
    pub opcodes: &'static [&'static str],
}

impl Entry {
    const fn without_mma(name: &'static str) -> Self {
        Self { name, opcodes: &[] }
    }

    /// f16 products, f32 sums.
    const fn f16(name: &'static str) -> Self {
        let opcodes = &["HMMA.16816.F32"];
        Self { name, opcodes }
    }

    /// f64 products and sums.
    const fn f64(name: &'static str) -> Self {
        let opcodes = &["DMMA"];
        Self { name, opcodes }
    }
}
