//! The eight stages, in order, each with what its kernel is given.
//!
//! Every `launch` checks sizes and lengths, puts one kernel on the stream and returns: it neither
//! allocates device memory nor waits, except that the first use of a stage on a device compiles and
//! loads its kernels. [`crate::Device::load`] does that beforehand, as it has to for a stream that
//! is being captured. Tensors of another stream are refused ([`crate::slice`], "Streams"). What
//! depends on values is the caller's to check, as the types of `hisa_ref` do; kernels read and
//! write inside the given tensors whatever they hold.
//!
//! Arguments own the slices of their outputs, which nobody else may use meanwhile, so `launch`
//! takes them by shared reference and the same arguments may be launched again. What
//! [`crate::DeviceSliceMut::read`] gives of an output is for what follows on the same stream.

pub mod block_mask;
pub mod block_pool;
pub mod block_scores;
pub mod block_topk;
pub mod index_map;
pub mod quantize;
pub mod token_scores;
pub mod token_topk;

#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::shape::{Sizes, elements};
use crate::slice::{Address, DeviceSlice};

/// `ks` and `ke` of every row (SPEC W).
#[derive(Debug, Clone, Copy)]
pub struct WindowSlices<'a> {
    /// First key of each row.
    pub ks: DeviceSlice<'a, i32>,
    /// One past the last.
    pub ke: DeviceSlice<'a, i32>,
}

impl<'a> WindowSlices<'a> {
    /// The windows from row `start` on.
    #[must_use]
    pub const fn from_row(self, start: usize) -> Self {
        Self {
            ks: self.ks.tail(start),
            ke: self.ke.tail(start),
        }
    }

    /// Both addresses, where there are `rows` rows.
    ///
    /// # Errors
    /// [`crate::Error::Length`].
    pub(crate) fn holding(&self, rows: usize) -> Result<(Address, Address)> {
        Ok((self.ks.holding("ks", rows)?, self.ke.holding("ke", rows)?))
    }
}

/// How scores are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scoring {
    /// The real result, rounded once: the bits of `hisa_ref`.
    Exact,
    /// f16 tensor cores and an f32 head sum, as [`crate::numerics`] says bit for bit.
    TensorCores,
}

/// What a scorer reads besides the keys.
#[derive(Debug, Clone, Copy)]
pub struct QuerySlices<'a> {
    /// `[M, H, D]` codes.
    pub q: DeviceSlice<'a, u8>,
    /// `[M, H]`.
    pub weights: DeviceSlice<'a, f32>,
}

impl QuerySlices<'_> {
    /// The queries from row `start` on.
    #[must_use]
    pub const fn from_row(self, start: usize, heads: usize, head_dim: usize) -> Self {
        Self {
            q: self.q.tail(start * heads * head_dim),
            weights: self.weights.tail(start * heads),
        }
    }

    pub(crate) fn holding(&self, sizes: &Sizes) -> Result<(Address, Address)> {
        let q = self.q.holding("q", sizes.query_codes())?;
        Ok((q, self.weights.holding("weights", sizes.weights())?))
    }
}

/// Keys, raw or pooled.
#[derive(Debug, Clone, Copy)]
pub struct KeySlices<'a> {
    /// `[N, D]` codes.
    pub codes: DeviceSlice<'a, u8>,
    /// `[N]`.
    pub scales: DeviceSlice<'a, f32>,
}

impl KeySlices<'_> {
    pub(crate) fn holding(
        &self,
        (codes, scales): (&'static str, &'static str),
        len: usize,
        head_dim: usize,
    ) -> Result<(Address, Address)> {
        let needed = elements(codes, len, head_dim)?;
        let codes = self.codes.holding(codes, needed)?;
        Ok((codes, self.scales.holding(scales, len)?))
    }
}

/// What an indexer reads.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Codes and weights of the rows.
    pub queries: QuerySlices<'a>,
    /// `[N, D]` keys.
    pub keys: KeySlices<'a>,
    /// Windows.
    pub windows: WindowSlices<'a>,
}

impl Input<'_> {
    /// The input from row `start` on; the keys stay what they are.
    #[must_use]
    pub const fn from_row(self, start: usize, sizes: &Sizes) -> Self {
        Self {
            queries: self.queries.from_row(start, sizes.heads, sizes.head_dim),
            keys: self.keys,
            windows: self.windows.from_row(start),
        }
    }
}
