//! How many cases a run takes: every count in one place.

/// How much work a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Effort {
    /// Under a minute on two cores: what `hisa run` does.
    #[default]
    Quick,
    /// 100,000 random cases, some minutes on two cores: what CI does.
    Standard,
}

impl Effort {
    /// The word of reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
        }
    }

    /// Random cases.
    #[must_use]
    pub const fn ragged_cases(self) -> u64 {
        match self {
            Self::Quick => 10_000,
            Self::Standard => 100_000,
        }
    }

    /// Of the exhaustive cases, every how many-th is run.
    #[must_use]
    pub const fn exhaustive_stride(self) -> u64 {
        match self {
            Self::Quick => 7,
            Self::Standard => 1,
        }
    }

    /// Cases at the sizes of DeepSeek-V3.2.
    #[must_use]
    pub const fn deepseek_cases(self) -> u64 {
        match self {
            Self::Quick => 8,
            Self::Standard => 24,
        }
    }
}

/// Seed of a run that names none.
pub const DEFAULT_SEED: u64 = 0x4849_5341;
/// Findings kept with their details; all are counted.
pub const FINDINGS_MAX: usize = 20;
