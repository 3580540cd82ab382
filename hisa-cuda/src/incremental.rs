//! The pooled cache that grows with the sequence, on the GPU (SPEC 9.5).
//!
//! The caller who keeps keys in a cache of his own calls [`update`]; [`PooledCache`] is the whole
//! of it. Both pool only the blocks that a change touches.

use crate::device::{Device, allocated};
use crate::error::{Error, Result};
use crate::kernel::Unit;
use crate::shape::{HEAD_DIM_MAX, at_most};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::{KeySlices, block_pool};
use cudarc::driver::{CudaSlice, CudaStream};
use hisa_ref::error::ParamError;
use hisa_ref::params::{INDEX_MAX, block_count, check_size};
use std::sync::Arc;

/// Pools again what changed when keys from `changed` on were written or the end moved to
/// `args.len`; `args.first_block` is set by it.
///
/// # Errors
/// As [`block_pool::launch`].
pub fn update(
    device: &Device,
    stream: &CudaStream,
    changed: usize,
    mut args: block_pool::Args<'_>,
) -> Result<()> {
    args.first_block = changed / args.block_size.max(1);
    block_pool::launch(device, stream, &args)
}

/// Raw keys and their pooled blocks in device memory, kept in step under append, overwrite and
/// roll-back. Memory is taken once, for `capacity` keys, on one stream; all that is done with the
/// cache goes to that stream.
#[derive(Debug)]
pub struct PooledCache {
    stream: Arc<CudaStream>,
    block_size: usize,
    head_dim: usize,
    capacity: usize,
    len: usize,
    codes: CudaSlice<u8>,
    scales: CudaSlice<f32>,
    pooled_k: CudaSlice<u8>,
    pooled_scale: CudaSlice<f32>,
}

impl PooledCache {
    /// An empty cache on `stream`.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Input`] for sizes, [`Error::OutOfMemory`].
    pub fn new(
        device: &Device,
        stream: &Arc<CudaStream>,
        (block_size, head_dim): (usize, usize),
        capacity: usize,
    ) -> Result<Self> {
        let blocks = checked_blocks((block_size, head_dim), capacity)?;
        device.load(&[Unit::BlockPool])?;
        Ok(Self {
            block_size,
            head_dim,
            capacity,
            len: 0,
            codes: zeros(stream, capacity * head_dim)?,
            scales: zeros(stream, capacity)?,
            pooled_k: zeros(stream, blocks * head_dim)?,
            pooled_scale: zeros(stream, blocks)?,
            stream: Arc::clone(stream),
        })
    }

    /// Empties the cache and gives its memory other sizes; `false`, and nothing has changed,
    /// where it is too small for them.
    ///
    /// # Errors
    /// As [`Self::new`], for sizes.
    pub fn renew(
        &mut self,
        (block_size, head_dim): (usize, usize),
        capacity: usize,
    ) -> Result<bool> {
        let blocks = checked_blocks((block_size, head_dim), capacity)?;
        let fits = self.codes.len() >= capacity * head_dim
            && self.scales.len() >= capacity
            && self.pooled_k.len() >= blocks * head_dim
            && self.pooled_scale.len() >= blocks;
        if fits {
            (self.block_size, self.head_dim) = (block_size, head_dim);
            (self.capacity, self.len) = (capacity, 0);
        }
        Ok(fits)
    }

    /// The stream of the cache.
    #[must_use]
    pub const fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Number of keys held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True where no key is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `count` keys; the tail block is pooled again.
    ///
    /// # Errors
    /// [`Error::Unsupported`] past the capacity, [`Error::Length`], [`Error::Stream`] for keys of
    /// another stream; nothing has changed then.
    pub fn append(&mut self, device: &Device, keys: KeySlices<'_>, count: usize) -> Result<()> {
        self.write(device, self.len, (keys, count))
    }

    /// Writes `count` keys at `position` and onward, over held ones and past the end, and pools
    /// again from the first block it touches.
    ///
    /// # Errors
    /// [`Error::Input`] for a position past the end; as [`Self::append`].
    pub fn write(
        &mut self,
        device: &Device,
        position: usize,
        (keys, count): (KeySlices<'_>, usize),
    ) -> Result<()> {
        self.at_end_or_before("write position", position)?;
        let end = position.saturating_add(count);
        at_most("keys of the cache", end, self.capacity)?;
        let (stream, d) = (&*self.stream, self.head_dim);
        keys.codes.holding("k", count * d)?.on(stream)?;
        keys.scales.holding("k_scale", count)?.on(stream)?;
        let mut rest = DeviceSliceMut::of(&mut self.codes, stream);
        let mut codes = rest.tail(position * d).first(count * d);
        codes.copy_from(stream, keys.codes)?;
        let mut rest = DeviceSliceMut::of(&mut self.scales, stream);
        let mut scales = rest.tail(position).first(count);
        scales.copy_from(stream, keys.scales)?;
        self.len = self.len.max(end);
        self.pool(device, position)
    }

    /// Rolls back to the first `len` keys; the block that becomes the tail is pooled again.
    ///
    /// # Errors
    /// [`Error::Input`] where fewer keys are held; nothing has changed then.
    pub fn truncate(&mut self, device: &Device, len: usize) -> Result<()> {
        self.at_end_or_before("roll-back length", len)?;
        self.len = len;
        self.pool(device, len)
    }

    /// The raw keys, [`Self::len`] of them.
    #[must_use]
    pub fn keys(&self) -> KeySlices<'_> {
        KeySlices {
            codes: DeviceSlice::of(&self.codes, &self.stream).first(self.len * self.head_dim),
            scales: DeviceSlice::of(&self.scales, &self.stream).first(self.len),
        }
    }

    /// The pooled blocks of all held keys, and no more.
    #[must_use]
    pub fn pooled(&self) -> KeySlices<'_> {
        let blocks = block_count(self.len, self.block_size);
        KeySlices {
            codes: DeviceSlice::of(&self.pooled_k, &self.stream).first(blocks * self.head_dim),
            scales: DeviceSlice::of(&self.pooled_scale, &self.stream).first(blocks),
        }
    }

    fn at_end_or_before(&self, what: &'static str, position: usize) -> Result<()> {
        if position <= self.len {
            return Ok(());
        }
        Err(Error::Input(
            ParamError::CachePosition {
                what,
                position,
                len: self.len,
            }
            .into(),
        ))
    }

    fn pool(&mut self, device: &Device, changed: usize) -> Result<()> {
        let stream = &*self.stream;
        let args = block_pool::Args {
            keys: KeySlices {
                codes: DeviceSlice::of(&self.codes, stream),
                scales: DeviceSlice::of(&self.scales, stream),
            },
            len: self.len,
            head_dim: self.head_dim,
            block_size: self.block_size,
            first_block: 0,
            pooled_k: DeviceSliceMut::of(&mut self.pooled_k, stream),
            pooled_scale: DeviceSliceMut::of(&mut self.pooled_scale, stream),
        };
        update(device, stream, changed, args)
    }
}

/// Nb of a full cache.
fn checked_blocks((block_size, head_dim): (usize, usize), capacity: usize) -> Result<usize> {
    check_size("block_size", block_size)?;
    check_size("D", head_dim)?;
    at_most("D", head_dim, HEAD_DIM_MAX)?;
    at_most("N", capacity, INDEX_MAX)?;
    Ok(block_count(capacity, block_size))
}

/// Device memory for `len` elements; one where there are none, because the driver gives no
/// address for nothing.
fn zeros<T>(stream: &Arc<CudaStream>, len: usize) -> Result<CudaSlice<T>>
where
    T: cudarc::driver::DeviceRepr + cudarc::driver::ValidAsZeroBits,
{
    let bytes = len * size_of::<T>();
    allocated("the pooled cache", bytes, stream.alloc_zeros(len.max(1)))
}
