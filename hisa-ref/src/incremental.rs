//! The pooled cache that grows with the sequence: same bytes as pooling once (SPEC 9.5).

use crate::error::{ParamError, Result, ShapeError};
use crate::fp8::E4M3;
use crate::input::Keys;
use crate::params::{HEAD_DIM_MAX, INDEX_MAX, Strictness, block_count, check_limit, check_size};
use crate::stages::block_pool::{self, Pooled};
use crate::stages::matrix;
use ndarray::{Array1, ArrayView1, ArrayView2};

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
        // Whole blocks around the written keys, as they will be; the cache changes only after
        // nothing can fail any more.
        let (first, last) = self.block_bounds(position, end, len.max(end));
        let mut codes = self.codes[first * d..last.min(len) * d].to_vec();
        let mut scales = self.scales[first..last.min(len)].to_vec();
        codes.resize((last - first) * d, E4M3::ZERO);
        scales.resize(last - first, 0.0);
        codes[(position - first) * d..(end - first) * d].copy_from_slice(keys.codes());
        scales[position - first..end - first].copy_from_slice(keys.scales());
        let pooled = self.pool(&codes, &scales)?;
        self.codes.resize(len.max(end) * d, E4M3::ZERO);
        self.scales.resize(len.max(end), 0.0);
        self.codes[first * d..last * d].copy_from_slice(&codes);
        self.scales[first..last].copy_from_slice(&scales);
        self.place(first, pooled);
        Ok(())
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
        let (first, d) = (len - len % self.block_size, self.head_dim);
        let pooled = self.pool(&self.codes[first * d..len * d], &self.scales[first..len])?;
        self.codes.truncate(len * d);
        self.scales.truncate(len);
        self.place(first, pooled);
        Ok(())
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

    /// The keys of all blocks that `[start, end)` touches, of `len` keys in all.
    fn block_bounds(&self, start: usize, end: usize, len: usize) -> (usize, usize) {
        let b = self.block_size;
        let last = end.div_ceil(b).saturating_mul(b).min(len);
        (start - start % b, last)
    }

    /// Pools keys that start at a block bound.
    fn pool(&self, codes: &[E4M3], scales: &[f32]) -> Result<Pooled> {
        let view = ArrayView2::from_shape((scales.len(), self.head_dim), codes);
        let codes = view.unwrap_or_else(|_| unreachable!("a whole number of keys"));
        let keys = Keys::new(codes, ArrayView1::from(scales), Strictness::Permissive)?;
        block_pool::run(&keys, self.block_size)
    }

    /// Puts blocks in place from key `first` on, and makes the pooled part as long as the keys are.
    fn place(&mut self, first: usize, pooled: Pooled) {
        let d = self.head_dim;
        let blocks = block_count(self.len(), self.block_size);
        self.pooled_codes.resize(blocks * d, E4M3::ZERO);
        self.pooled_scales.resize(blocks, 0.0);
        let start = first / self.block_size;
        let end = start + pooled.scales.len();
        for (slot, scale) in self.pooled_scales[start..end].iter_mut().zip(pooled.scales) {
            *slot = scale;
        }
        for (slot, code) in self.pooled_codes[start * d..end * d]
            .iter_mut()
            .zip(pooled.codes)
        {
            *slot = code;
        }
    }
}
