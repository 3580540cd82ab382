//! What a run is asked to do: metadata of the file, overridden by the command line.

use super::error::{DumpError, shortened};
use hisa_ref::{HisaParams, Rank, Strictness};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Which of the three whole indexers runs (SPEC, whole indexers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Indexer {
    /// Blocks first, then tokens within them.
    #[default]
    Hisa,
    /// Every key of the window is scored: flat.
    Dsa,
    /// Every key of the best blocks is kept.
    BlockSparse,
}

impl FromStr for Indexer {
    type Err = hisa_ref::Error;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "hisa" => Ok(Self::Hisa),
            "dsa" => Ok(Self::Dsa),
            "block-sparse" | "block_sparse" => Ok(Self::BlockSparse),
            _ => Err(hisa_ref::error::ParamError::Word {
                name: "indexer",
                value: shortened(word, VALUE_SHOWN),
                allowed: Self::ALLOWED,
            }
            .into()),
        }
    }
}

impl fmt::Display for Indexer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hisa => "hisa",
            Self::Dsa => "dsa",
            Self::BlockSparse => "block-sparse",
        })
    }
}

impl Indexer {
    const ALLOWED: &'static str = "hisa, dsa, block-sparse";
}

/// How many characters of an unreadable value a message shows.
const VALUE_SHOWN: usize = 32;

/// What the command line said; `None` leaves the word to the file, and then to the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Which indexer; default [`Indexer::Hisa`].
    pub indexer: Option<Indexer>,
    /// B, keys per pool block; default 128.
    pub block_size: Option<usize>,
    /// m, blocks kept per row; default 64.
    pub block_topk: Option<usize>,
    /// K, tokens kept per row; default 2048.
    pub topk_tokens: Option<usize>,
    /// What block scores are rounded to before ranking; default bf16.
    pub rank: Option<Rank>,
    /// Whether NaN, infinities and negative scales are refused; default strict.
    pub strictness: Option<Strictness>,
}

/// What a run is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunParams {
    /// Which indexer.
    pub indexer: Indexer,
    /// Block size, blocks and tokens kept, rank.
    pub hisa: HisaParams,
    /// Which values are refused.
    pub strictness: Strictness,
}

impl Default for RunParams {
    /// [`HisaParams::DEEPSEEK_V32`], indexer `hisa`, strict.
    fn default() -> Self {
        Self {
            indexer: Indexer::Hisa,
            hisa: HisaParams::DEEPSEEK_V32,
            strictness: Strictness::Strict,
        }
    }
}

impl RunParams {
    /// From the metadata keys `indexer`, `block_size`, `block_topk`, `topk_tokens`, `rank` and
    /// `strict`, each overridden by `options` and defaulting to [`RunParams::default`]. Other
    /// keys are ignored: every framework adds its own. A value that is overridden is not read.
    ///
    /// # Errors
    /// [`DumpError::Param`] for a word or number that cannot be read, [`DumpError::Input`] for
    /// sizes no run can use.
    pub fn read(
        file: &Path,
        metadata: &BTreeMap<String, String>,
        options: &Options,
    ) -> Result<Self, DumpError> {
        let default = Self::default();
        let source = Source { file, metadata };
        let whole = |text: &str| text.parse().ok();
        let size = |name, option, default| {
            source.read(name, "whole numbers from 1", option, default, whole)
        };
        let block_size = size("block_size", options.block_size, default.hisa.block_size())?;
        let block_topk = size("block_topk", options.block_topk, default.hisa.block_topk())?;
        let topk = size(
            "topk_tokens",
            options.topk_tokens,
            default.hisa.topk_tokens(),
        )?;
        let word = |text: &str| text.parse().ok();
        let rank = source.read("rank", "bf16, f32", options.rank, default.hisa.rank(), word)?;
        let word = |text: &str| text.parse().ok();
        let allowed = Indexer::ALLOWED;
        let indexer = source.read("indexer", allowed, options.indexer, default.indexer, word)?;
        let option = options.strictness;
        let strictness = source.read(
            "strict",
            "true, false",
            option,
            default.strictness,
            strictness,
        )?;
        // What an indexer does not read must not refuse a run (SPEC 9.2, 9.3).
        let given = HisaParams::new(block_size, block_topk, topk);
        let hisa = match indexer {
            Indexer::Hisa => given,
            Indexer::BlockSparse => given.or_else(|_| HisaParams::new(block_size, 1, topk)),
            Indexer::Dsa => given.or_else(|_| HisaParams::new(1, 1, topk)),
        };
        let hisa = hisa?.with_rank(rank);
        Ok(Self {
            indexer,
            hisa,
            strictness,
        })
    }

    /// The metadata that [`Self::read`] turns back into these parameters.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let entry = |key: &str, value: String| (key.to_owned(), value);
        BTreeMap::from([
            entry("block_size", self.hisa.block_size().to_string()),
            entry("block_topk", self.hisa.block_topk().to_string()),
            entry("indexer", self.indexer.to_string()),
            entry("rank", self.hisa.rank().to_string()),
            entry(
                "strict",
                (self.strictness == Strictness::Strict).to_string(),
            ),
            entry("topk_tokens", self.hisa.topk_tokens().to_string()),
        ])
    }
}

fn strictness(text: &str) -> Option<Strictness> {
    match text {
        "true" => Some(Strictness::Strict),
        "false" => Some(Strictness::Permissive),
        _ => None,
    }
}

struct Source<'a> {
    file: &'a Path,
    metadata: &'a BTreeMap<String, String>,
}

impl Source<'_> {
    fn read<T>(
        &self,
        name: &'static str,
        allowed: &'static str,
        option: Option<T>,
        default: T,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, DumpError> {
        if let Some(value) = option {
            return Ok(value);
        }
        let Some(text) = self.metadata.get(name) else {
            return Ok(default);
        };
        parse(text).ok_or_else(|| DumpError::Param {
            file: self.file.to_owned(),
            name,
            value: shortened(text, VALUE_SHOWN),
            allowed,
        })
    }
}
