//! The pooled cache that grows with the sequence: same bytes as pooling once (SPEC 9.5).

use crate::error::{ParamError, Result, ShapeError};
use crate::fp8::E4M3;
use crate::input::Keys;
use crate::params::{HEAD_DIM_MAX, INDEX_MAX, Strictness, check_limit, check_size};
use crate::stages::block_pool::{self, Pooled};
use crate::stages::matrix;
use ndarray::{Array1, ArrayView2};

/// Raw keys with their pooled blocks, kept in step under append, overwrite and roll-back.
///
/// Only blocks that a change touches are pooled again, among them the unfinished tail block. The
/// raw keys are held because a roll-back into the middle of a block needs them.
#[derive(Debug, Clone, PartialEq)]
pub struct PooledCache {
    block_size: usize,
    head_dim: usize,
    codes: Vec<E4M3>,
    scales: Vec<f32>,
    pooled_codes: Vec<E4M3>,
    pooled_scales: Vec<f32>,
}

impl PooledCache {
    /// An empty cache for keys of `head_dim` codes, pooled in blocks of `block_size`.
    ///
    /// # Errors
    /// [`ParamError::Zero`] or [`ParamError::TooLarge`].
    pub fn new(block_size: usize, head_dim: usize) -> Result<Self> {
        check_size("block_size", block_size)?;
        check_size("D", head_dim)?;
        check_limit("D", head_dim, HEAD_DIM_MAX, "a dot must stay exact in f64")?;
        Ok(Self {
            block_size,
            head_dim,
            codes: Vec::new(),
            scales: Vec::new(),
            pooled_codes: Vec::new(),
            pooled_scales: Vec::new(),
        })
    }

    /// Number of keys held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.scales.len()
    }

    /// True where no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scales.is_empty()
    }

    /// Appends keys; the tail block is pooled again.
    ///
    /// # Errors
    /// [`ShapeError`] for another head dimension, [`ParamError::TooLarge`] past int32. Nothing
    /// has changed then.
    pub fn append(&mut self, keys: &Keys<'_>) -> Result<()> {
        self.write(self.len(), keys)
    }

    /// Writes keys at `position` and onward, over held ones and past the end, and pools again
    /// every block it touches.
    ///
    /// # Errors
    /// [`ParamError::CachePosition`] for a position past the end; as [`Self::append`]. Nothing
    /// has changed then.
    pub fn write(&mut self, position: usize, keys: &Keys<'_>) -> Result<()> {
        let (len, d) = (self.len(), self.head_dim);
        if position > len {
            return Err(ParamError::CachePosition {
                what: "write position",
                position,
                len,
            }
            .into());
        }
        if keys.head_dim() != d {
            let got = [keys.len(), keys.head_dim()];
            return Err(ShapeError::new("k", &got, format!("[.., D] = [.., {d}]")).into());
        }
        let end = position.saturating_add(keys.len());
        check_limit("N", end, INDEX_MAX, "ids travel as int32")?;
        if end > len {
            self.codes.resize(end * d, E4M3::ZERO);
            self.scales.resize(end, 0.0);
        }
        self.codes[position * d..end * d].copy_from_slice(keys.codes());
        self.scales[position..end].copy_from_slice(keys.scales());
        self.pool_again(position, end)
    }

    /// Rolls back to the first `len` keys; the block that becomes the tail is pooled again.
    ///
    /// # Errors
    /// [`ParamError::CachePosition`] where fewer keys are held. Nothing has changed then.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            let (what, position, len) = ("roll-back length", len, self.len());
            return Err(ParamError::CachePosition {
                what,
                position,
                len,
            }
            .into());
        }
        self.codes.truncate(len * self.head_dim);
        self.scales.truncate(len);
        self.pool_again(len, len)
    }

    /// The pooled blocks, as [`block_pool::run`] gives for all held keys.
    #[must_use]
    pub fn pooled(&self) -> Pooled {
        let codes = matrix(
            self.pooled_scales.len(),
            self.head_dim,
            self.pooled_codes.clone(),
        );
        Pooled {
            codes,
            scales: Array1::from_vec(self.pooled_scales.clone()),
        }
    }

    /// Pools the blocks of keys `[first, end)` again, and drops blocks past the last key. An
    /// empty range refreshes the block that `first` has cut short.
    fn pool_again(&mut self, first: usize, end: usize) -> Result<()> {
        let (b, d, len) = (self.block_size, self.head_dim, self.len());
        let first_block = first / b;
        let last_key = end.div_ceil(b).saturating_mul(b).min(len);
        let first_key = (first_block * b).min(last_key);
        let view = ArrayView2::from_shape(
            (last_key - first_key, d),
            &self.codes[first_key * d..last_key * d],
        );
        let codes = view.unwrap_or_else(|_| unreachable!("a whole number of keys"));
        let scales = Array1::from(self.scales[first_key..last_key].to_vec());
        let keys = Keys::new(codes, scales.view(), Strictness::Permissive)?;
        let pooled = block_pool::run(&keys, b)?;
        let blocks = crate::params::block_count(len, b);
        self.pooled_codes.resize(blocks * d, E4M3::ZERO);
        self.pooled_scales.resize(blocks, 0.0);
        let target = first_block..first_block + pooled.scales.len();
        self.pooled_scales[target.clone()].copy_from_slice(&pooled.scales.to_vec());
        let flat = pooled.codes.into_raw_vec_and_offset().0;
        self.pooled_codes[target.start * d..target.end * d].copy_from_slice(&flat);
        Ok(())
    }
}
