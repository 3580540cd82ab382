//! Arrays on their way into the staging memory, and matrices on their way out of it.

use super::Host;
use crate::arena::{Arena, Place, Plain};
use crate::error::Result;
use crate::shape::Sizes;
use crate::stages::{Input, KeySlices, QuerySlices, WindowSlices};
use hisa_ref::{Keys, Queries, Windows};
use ndarray::{Array2, ArrayView2};

impl Host {
    pub(super) fn start(&mut self, bytes: usize, tensors: usize) -> Result<()> {
        self.arena.start(&self.device, bytes, tensors)
    }

    pub(super) fn put_matrix<T: Plain>(&mut self, matrix: ArrayView2<'_, T>) -> Result<Place<T>> {
        let owned = matrix.as_standard_layout();
        self.arena.put(owned.as_slice().unwrap_or_default())
    }

    pub(super) fn put_windows(&mut self, windows: &Windows) -> Result<StagedWindows> {
        let rows = windows.rows();
        let ks: Vec<i32> = rows.iter().map(|window| window.ks).collect();
        let ke: Vec<i32> = rows.iter().map(|window| window.ke).collect();
        Ok(StagedWindows {
            ks: self.arena.put(&ks)?,
            ke: self.arena.put(&ke)?,
        })
    }

    pub(super) fn put_keys(&mut self, keys: &Keys<'_>) -> Result<StagedKeys> {
        Ok(StagedKeys {
            codes: self.arena.put(keys.codes())?.cast(),
            scales: self.arena.put(keys.scales())?,
        })
    }

    pub(super) fn put_input(
        &mut self,
        queries: &Queries<'_>,
        keys: &Keys<'_>,
        windows: &Windows,
    ) -> Result<StagedInput> {
        Ok(StagedInput {
            q: self.arena.put(queries.codes())?.cast(),
            weights: self.arena.put(queries.weights())?,
            keys: self.put_keys(keys)?,
            windows: self.put_windows(windows)?,
        })
    }

    pub(super) fn matrix<T: Plain>(
        &self,
        place: Place<T>,
        shape: (usize, usize),
    ) -> Result<Array2<T>> {
        let values = self.arena.get(place)?.to_vec();
        Ok(Array2::from_shape_vec(shape, values)
            .unwrap_or_else(|_| unreachable!("rows * columns elements were reserved")))
    }
}

/// M, N, H, D of a call.
pub(super) fn sizes(queries: &Queries<'_>, keys: usize) -> Sizes {
    Sizes {
        rows: queries.len(),
        keys,
        heads: queries.heads(),
        head_dim: queries.head_dim(),
    }
}

/// Bytes of the tensors of an input with `keys` keys.
pub(super) const fn bytes(sizes: &Sizes, keys: usize) -> usize {
    let queries = sizes.query_codes() + 4 * sizes.weights() + 8 * sizes.rows;
    queries + keys * (sizes.head_dim + 4)
}

/// Windows on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct StagedWindows {
    ks: Place<i32>,
    ke: Place<i32>,
}

impl StagedWindows {
    pub(super) fn slices(self, arena: &Arena) -> WindowSlices<'_> {
        WindowSlices {
            ks: arena.read(self.ks),
            ke: arena.read(self.ke),
        }
    }
}

/// Keys on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct StagedKeys {
    codes: Place<u8>,
    scales: Place<f32>,
}

impl StagedKeys {
    pub(super) fn slices(self, arena: &Arena) -> KeySlices<'_> {
        KeySlices {
            codes: arena.read(self.codes),
            scales: arena.read(self.scales),
        }
    }
}

/// An input on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct StagedInput {
    q: Place<u8>,
    weights: Place<f32>,
    keys: StagedKeys,
    windows: StagedWindows,
}

impl StagedInput {
    pub(super) fn slices(self, arena: &Arena) -> Input<'_> {
        Input {
            queries: QuerySlices {
                q: arena.read(self.q),
                weights: arena.read(self.weights),
            },
            keys: self.keys.slices(arena),
            windows: self.windows.slices(arena),
        }
    }
}
