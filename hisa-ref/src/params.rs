//! Parameters of an indexer run, and every limit of the crate with its reason.

use crate::error::{ParamError, Result};

/// Largest number of query rows, keys, slots or kept tokens: all of them travel as `i32`.
pub const INDEX_MAX: usize = i32::MAX as usize;
/// Largest head dimension D: a dot then stays below 2^52 units of 2^-18, exact in f64.
pub const HEAD_DIM_MAX: usize = 1 << 16;
/// Largest number of heads H: a head sum then stays inside the fixed-point accumulator.
pub const HEADS_MAX: usize = 1 << 16;

/// What `block_topk` rounds a block score to before it ranks (SPEC 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rank {
    /// To bf16, half to even: what upstream does, and the default.
    #[default]
    Bf16,
    /// Not at all.
    F32,
}

impl std::str::FromStr for Rank {
    type Err = ParamError;
    fn from_str(word: &str) -> std::result::Result<Self, ParamError> {
        match word {
            "bf16" => Ok(Self::Bf16),
            "f32" => Ok(Self::F32),
            _ => Err(ParamError::Word {
                name: "rank",
                value: word.to_owned(),
                allowed: "bf16, f32",
            }),
        }
    }
}

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

/// Whether caller-supplied tensors may hold NaN, infinities and negative scales (SPEC V.7).
///
/// It loosens value checks only. Windows, block ids, shapes and parameters are always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strictness {
    /// The first NaN code, non-finite or negative scale, or non-finite weight is an error.
    #[default]
    Strict,
    /// Every bit pattern is accepted and follows IEEE 754 in the extended reals.
    Permissive,
}

/// Block size, blocks kept and tokens kept of one run; valid once constructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HisaParams {
    block_size: usize,
    block_topk: usize,
    topk_tokens: usize,
    rank: Rank,
}

impl HisaParams {
    /// B = 128, m = 64, K = 2048, ranked as bf16: the DeepSeek-V3.2 profile.
    pub const DEEPSEEK_V32: Self = Self {
        block_size: 128,
        block_topk: 64,
        topk_tokens: 2048,
        rank: Rank::Bf16,
    };

    /// `block_size` is B, `block_topk` is m, `topk_tokens` is K; ranked as bf16.
    ///
    /// # Errors
    /// [`ParamError::Zero`] for a zero, [`ParamError::TooLarge`] where B, K or m*B exceeds
    /// [`INDEX_MAX`]. `m*B < K` is allowed and pads: see [`Self::padding_columns`].
    pub fn new(block_size: usize, block_topk: usize, topk_tokens: usize) -> Result<Self> {
        check_size("block_size", block_size)?;
        check_size("block_topk", block_topk)?;
        check_size("topk_tokens", topk_tokens)?;
        slots_per_row(block_size, block_topk)?;
        Ok(Self {
            block_size,
            block_topk,
            topk_tokens,
            rank: Rank::default(),
        })
    }

    /// The same parameters with another ranking type.
    #[must_use]
    pub const fn with_rank(mut self, rank: Rank) -> Self {
        self.rank = rank;
        self
    }

    /// B, keys per pool block.
    #[must_use]
    pub const fn block_size(&self) -> usize {
        self.block_size
    }

    /// m, blocks kept per row.
    #[must_use]
    pub const fn block_topk(&self) -> usize {
        self.block_topk
    }

    /// K, tokens kept per row.
    #[must_use]
    pub const fn topk_tokens(&self) -> usize {
        self.topk_tokens
    }

    /// What block scores are rounded to before ranking.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// S = m*B, token slots per row.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.block_size * self.block_topk
    }

    /// Columns of `indices` that can never be filled because `m*B < K`; 0 where the paper's
    /// feasibility condition holds. Callers may want to warn about any other number.
    #[must_use]
    pub const fn padding_columns(&self) -> usize {
        self.topk_tokens.saturating_sub(self.slots())
    }
}

/// `name` is neither 0 nor above [`INDEX_MAX`].
///
/// # Errors
/// [`ParamError::Zero`] or [`ParamError::TooLarge`].
pub fn check_size(name: &'static str, value: usize) -> Result<()> {
    if value == 0 {
        return Err(ParamError::Zero { name }.into());
    }
    check_limit(name, value, INDEX_MAX, "ids travel as int32")
}

/// `value` is at most `limit`.
pub(crate) fn check_limit(
    name: &'static str,
    value: usize,
    limit: usize,
    reason: &'static str,
) -> Result<()> {
    if value > limit {
        let (value, limit) = (value as u128, limit as u128);
        return Err(ParamError::TooLarge {
            name,
            value,
            limit,
            reason,
        }
        .into());
    }
    Ok(())
}

/// S = m*B.
///
/// # Errors
/// [`ParamError::TooLarge`] where it exceeds [`INDEX_MAX`].
pub fn slots_per_row(block_size: usize, block_topk: usize) -> Result<usize> {
    let slots = block_size as u128 * block_topk as u128;
    if slots > INDEX_MAX as u128 {
        return Err(ParamError::TooLarge {
            name: "block_topk * block_size",
            value: slots,
            limit: INDEX_MAX as u128,
            reason: "slots travel as int32",
        }
        .into());
    }
    Ok(slots as usize)
}

/// Nb = ceil(N/B), written so that it cannot overflow.
///
/// # Panics
/// For a block size of 0.
#[must_use]
pub const fn block_count(keys: usize, block_size: usize) -> usize {
    keys / block_size + (!keys.is_multiple_of(block_size)) as usize
}

/// A vector of `rows * columns` copies of `fill`.
///
/// # Errors
/// [`ParamError::Allocation`] where the product overflows or the allocator refuses it.
pub(crate) fn filled<T: Clone>(
    what: &'static str,
    rows: usize,
    columns: usize,
    fill: T,
) -> Result<Vec<T>> {
    let refuse = || ParamError::Allocation {
        what,
        shape: vec![rows, columns],
    };
    let len = rows.checked_mul(columns).ok_or_else(refuse)?;
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| refuse())?;
    out.resize(len, fill);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn zero_parameters_are_refused_by_name() {
        for (b, m, k, name) in [
            (0, 1, 1, "block_size"),
            (1, 0, 1, "block_topk"),
            (1, 1, 0, "topk_tokens"),
        ] {
            assert_eq!(
                HisaParams::new(b, m, k),
                Err(ParamError::Zero { name }.into())
            );
        }
    }

    #[test]
    fn slots_are_limited_to_int32() {
        assert!(HisaParams::new(1 << 16, (1 << 15) - 1, 1).is_ok());
        let error = HisaParams::new(1 << 16, 1 << 15, 1).unwrap_err();
        assert!(matches!(
            error,
            Error::Param(ParamError::TooLarge { value, limit: 0x7fff_ffff, .. })
                if value == 1 << 31
        ));
        assert!(HisaParams::new(INDEX_MAX, 1, INDEX_MAX).is_ok());
        assert!(HisaParams::new(INDEX_MAX + 1, 1, 1).is_err());
        assert!(HisaParams::new(1, 1, INDEX_MAX + 1).is_err());
    }

    #[test]
    fn padding_is_what_the_blocks_cannot_fill() {
        assert_eq!(HisaParams::new(4, 2, 8).unwrap().padding_columns(), 0);
        assert_eq!(HisaParams::new(4, 2, 11).unwrap().padding_columns(), 3);
        assert_eq!(HisaParams::DEEPSEEK_V32.slots(), 8192);
    }

    #[test]
    fn block_count_does_not_overflow() {
        assert_eq!(block_count(0, 4), 0);
        assert_eq!(block_count(1, 4), 1);
        assert_eq!(block_count(4, 4), 1);
        assert_eq!(block_count(5, 4), 2);
        assert_eq!(block_count(i32::MAX as usize, 128), 1 << 24);
        assert_eq!(block_count(usize::MAX, 2), 1 << (usize::BITS - 1));
    }

    #[test]
    fn impossible_allocations_are_errors() {
        assert!(filled("x", usize::MAX, 2, 0u8).is_err());
        assert!(filled("x", usize::MAX / 2, 2, 0u8).is_err());
        assert_eq!(filled("x", 2, 3, 7u8).unwrap(), vec![7; 6]);
    }

    #[test]
    fn rank_words() {
        assert_eq!("bf16".parse(), Ok(Rank::Bf16));
        assert_eq!("f32".parse(), Ok(Rank::F32));
        assert!("f16".parse::<Rank>().is_err());
        assert_eq!(format!("{}{}", Rank::Bf16, Rank::F32), "bf16f32");
    }
}
