//! Sizes of a call, and what the kernels take.

use crate::error::{Error, Result};
use hisa_ref::params::{INDEX_MAX, block_count, check_size, slots_per_row};

/// Most heads: a row's queries and weights stay in the shared memory of one multiprocessor.
pub const HEADS_MAX: usize = 128;
/// Most dimensions of a head, for the same reason.
pub const HEAD_DIM_MAX: usize = 256;
/// Most tokens kept per row: they are sorted in shared memory.
pub const TOPK_TOKENS_MAX: usize = 8192;

/// Query rows, keys, heads and dimensions of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// M, query rows.
    pub rows: usize,
    /// N, keys.
    pub keys: usize,
    /// H, heads.
    pub heads: usize,
    /// D, dimensions of a head.
    pub head_dim: usize,
}

impl Sizes {
    /// That the kernels take these sizes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] above a limit, [`Error::Input`] for zero heads or dimensions.
    pub fn check(&self) -> Result<()> {
        check_rows_and_keys(self.rows, self.keys)?;
        at_most("H", self.heads, HEADS_MAX)?;
        at_most("D", self.head_dim, HEAD_DIM_MAX)?;
        check_size("H", self.heads)?;
        Ok(check_size("D", self.head_dim)?)
    }

    /// Codes of all queries, M*H*D; `usize::MAX` where the product is larger.
    #[must_use]
    pub const fn query_codes(&self) -> usize {
        self.weights().saturating_mul(self.head_dim)
    }

    /// Weights, M*H; `usize::MAX` where the product is larger.
    #[must_use]
    pub const fn weights(&self) -> usize {
        self.rows.saturating_mul(self.heads)
    }

    /// Codes of all keys, N*D; `usize::MAX` where the product is larger.
    #[must_use]
    pub const fn key_codes(&self) -> usize {
        self.keys.saturating_mul(self.head_dim)
    }

    /// Nb, blocks of `b` keys.
    ///
    /// # Panics
    /// For blocks of 0 keys.
    #[must_use]
    pub const fn blocks(&self, b: usize) -> usize {
        block_count(self.keys, b)
    }
}

/// Blocks of B keys and their slots: what every stage between pooling and mapping shares. Neither
/// number is 0, and m*B fits int32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocks {
    size: usize,
    kept: usize,
}

impl Blocks {
    /// Checked sizes.
    ///
    /// # Errors
    /// [`Error::Input`] for a zero or for slots past int32.
    pub fn new(size: usize, kept: usize) -> Result<Self> {
        check_size("block_size", size)?;
        check_size("block_topk", kept)?;
        slots_per_row(size, kept)?;
        Ok(Self { size, kept })
    }

    /// B, keys of a block.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// m, block columns of a row.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.kept
    }

    /// S, slots of a row.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.size * self.kept
    }
}

/// That `value` does not exceed `limit`.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) const fn at_most(name: &'static str, value: usize, limit: usize) -> Result<()> {
    if value > limit {
        return Err(Error::Unsupported { name, value, limit });
    }
    Ok(())
}

/// That kernels take so many rows and keys.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn check_rows_and_keys(rows: usize, keys: usize) -> Result<()> {
    at_most("M", rows, INDEX_MAX)?;
    at_most("N", keys, INDEX_MAX)
}

/// That kernels keep so many tokens of a row.
///
/// # Errors
/// [`Error::Input`] for none, [`Error::Unsupported`] above the limit.
pub(crate) fn check_topk(topk: usize) -> Result<()> {
    at_most("topk_tokens", topk, TOPK_TOKENS_MAX)?;
    Ok(check_size("topk_tokens", topk)?)
}

/// Elements of a tensor with that many rows and columns.
///
/// # Errors
/// [`Error::Unsupported`] where no memory could hold so many bytes; `value` is then `usize::MAX`
/// for every number past it.
pub(crate) fn elements(tensor: &'static str, rows: usize, columns: usize) -> Result<usize> {
    let value = rows.saturating_mul(columns);
    at_most(tensor, value, isize::MAX as usize)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        rows: 262_145,
        keys: 16_777_217,
        heads: 64,
        head_dim: 128,
    };

    #[test]
    fn products_do_not_wrap_at_32_bits() {
        assert_eq!(SIZES.query_codes(), 2_147_491_840);
        assert_eq!(SIZES.key_codes(), 2_147_483_776);
        assert_eq!(SIZES.blocks(128), 131_073);
    }

    #[test]
    fn products_past_64_bits_are_refused_by_name() {
        let huge = Sizes {
            rows: usize::MAX,
            keys: usize::MAX,
            ..SIZES
        };
        let saturated = [huge.query_codes(), huge.weights(), huge.key_codes()];
        assert_eq!(saturated, [usize::MAX; 3]);
        assert_eq!(elements("x", INDEX_MAX, INDEX_MAX), Ok(INDEX_MAX.pow(2)));
        for (rows, columns) in [(usize::MAX, 2), (1 << 32, 1 << 31), (1 << 33, 1 << 33)] {
            let refused = elements("x", rows, columns);
            let named = matches!(refused, Err(Error::Unsupported { name: "x", .. }));
            assert!(named, "{rows} {columns}: {refused:?}");
        }
    }

    #[test]
    fn limits_are_named() {
        let wide = Sizes {
            heads: 129,
            ..SIZES
        };
        let error = wide.check().unwrap_err().to_string();
        assert_eq!(error, "unsupported: H is 129; the kernels take at most 128");
        let empty = Sizes {
            head_dim: 0,
            ..SIZES
        };
        assert!(matches!(empty.check(), Err(Error::Input(_))));
        assert!(SIZES.check().is_ok());
        assert!(Blocks::new(1 << 16, 1 << 15).is_err());
    }
}
