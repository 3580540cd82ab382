//! `dsa`, the flat indexer: every key of the window, then the best of them (SPEC 9.2).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch, size, small};
use crate::scorer;
use crate::shape::{Sizes, check_rows_and_keys, check_topk, elements};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::token_topk::{shared_bytes, winners};
use crate::stages::{Input, Scoring, WindowSlices};
use crate::workspace::{Parts, bytes_of, rows_of_a_tile, total};
use cudarc::driver::CudaStream;

const TOPK_THREADS: u32 = 768;
/// Places for winners that the selection has at least, where there are as many keys. With places
/// to spare it reads the row fewer times. Six for each thread are sorted in registers.
const PLACES_MIN: usize = 4096;

/// Scores `[M, N]` of every row against every key of its window, `-inf` elsewhere.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn flat_scores(
    device: &Device,
    stream: &CudaStream,
    input: &Input<'_>,
    sizes: &Sizes,
    scoring: Scoring,
    scores: &mut DeviceSliceMut<'_, f32>,
) -> Result<()> {
    sizes.check()?;
    let (ks, ke) = input.windows.holding(sizes.rows)?;
    let (q, weights) = input.queries.holding(sizes)?;
    let names = ("k", "k_scale");
    let (k, k_scale) = input.keys.holding(names, sizes.keys, sizes.head_dim)?;
    let len = elements("flat_scores", sizes.rows, sizes.keys)?;
    let arguments = [
        Arg::Pointer(q),
        Arg::Pointer(weights),
        Arg::Pointer(k),
        Arg::Pointer(k_scale),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(scores.holding("flat_scores", len)?),
        size(sizes.keys),
        small(sizes.heads),
        small(sizes.head_dim),
    ];
    let grid = scorer::grid(scoring, sizes, sizes.keys, device.limits())?;
    let entry = match scoring {
        Scoring::Exact => "flat_scores_exact",
        Scoring::TensorCores => "flat_scores_mma",
    };
    launch(device, stream, (Unit::Dsa, entry), grid, &arguments)
}

/// The best `topk` keys of each window `[M, K]`, relative to it, best first, then -1.
///
/// # Errors
/// As [`flat_scores`].
pub fn flat_topk(
    device: &Device,
    stream: &CudaStream,
    scores: DeviceSlice<'_, f32>,
    windows: WindowSlices<'_>,
    (rows, keys, topk): (usize, usize, usize),
    slots: &mut DeviceSliceMut<'_, i32>,
) -> Result<()> {
    let arguments = topk_arguments(scores, windows, (rows, keys, topk), slots)?;
    let grid = Grid::rows(rows, TOPK_THREADS).shared(shared_bytes(places(topk, keys)));
    launch(device, stream, (Unit::Dsa, "flat_topk"), grid, &arguments)
}

/// What the kernel is given, checked.
fn topk_arguments(
    scores: DeviceSlice<'_, f32>,
    windows: WindowSlices<'_>,
    (rows, keys, topk): (usize, usize, usize),
    slots: &DeviceSliceMut<'_, i32>,
) -> Result<[Arg; 7]> {
    check_rows_and_keys(rows, keys)?;
    check_topk(topk)?;
    let (ks, ke) = windows.holding(rows)?;
    let len = elements("flat_scores", rows, keys)?;
    Ok([
        Arg::Pointer(scores.holding("flat_scores", len)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(slots.holding("slots", elements("slots", rows, topk)?)?),
        size(keys),
        size(topk),
        small(places(topk, keys)),
    ])
}

/// Places for winners.
fn places(topk: usize, keys: usize) -> usize {
    winners(topk.max(PLACES_MIN), keys)
}

/// A run of `dsa` with sizes that are known: what it needs and how it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    sizes: Sizes,
    topk: usize,
    scoring: Scoring,
    tile: usize,
}

impl Plan {
    /// A plan; its kernels are compiled and loaded.
    ///
    /// # Errors
    /// As [`flat_scores`].
    pub fn new(device: &Device, sizes: Sizes, topk: usize, scoring: Scoring) -> Result<Self> {
        sizes.check()?;
        check_topk(topk)?;
        device.load(&[Unit::Dsa])?;
        Ok(Self {
            sizes,
            topk,
            scoring,
            tile: rows_of_a_tile(sizes.rows, sizes.keys * size_of::<f32>()),
        })
    }

    /// Bytes of workspace [`Self::run`] takes.
    #[must_use]
    pub const fn workspace_bytes(&self) -> usize {
        total(bytes_of::<f32>(self.tile * self.sizes.keys))
    }

    /// Puts the run on the stream: `indices` `[M, K]`. The device is that of [`Self::new`]; another
    /// one compiles and loads its kernels first.
    ///
    /// # Errors
    /// [`crate::Error::Length`]; those of launching.
    pub fn run(
        &self,
        device: &Device,
        stream: &CudaStream,
        input: &Input<'_>,
        workspace: &mut DeviceSliceMut<'_, u8>,
        indices: &mut DeviceSliceMut<'_, i32>,
    ) -> Result<()> {
        let Sizes { rows, keys, .. } = self.sizes;
        indices.holding("indices", elements("indices", rows, self.topk)?)?;
        let mut parts = Parts::of(workspace, self.workspace_bytes())?;
        let mut scores = parts.take::<f32>(self.tile * keys)?;
        for start in (0..rows).step_by(self.tile) {
            let part = Sizes {
                rows: self.tile.min(rows - start),
                ..self.sizes
            };
            let input = input.from_row(start, &self.sizes);
            let scoring = self.scoring;
            flat_scores(device, stream, &input, &part, scoring, &mut scores)?;
            let sizes = (part.rows, keys, self.topk);
            let mut slots = indices.tail(start * self.topk);
            flat_topk(
                device,
                stream,
                scores.read(),
                input.windows,
                sizes,
                &mut slots,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn topk(shape: (usize, usize, usize)) -> Result<()> {
        // SAFETY: no address is ever followed.
        let (scores, ids, slots) = unsafe {
            (
                DeviceSlice::from_raw(256, 64),
                DeviceSlice::from_raw(256, 64),
                DeviceSliceMut::from_raw(256, 64),
            )
        };
        let windows = WindowSlices { ks: ids, ke: ids };
        topk_arguments(scores, windows, shape, &slots).map(drop)
    }

    #[test]
    fn sizes_past_their_limits_are_refused_by_name() {
        assert_eq!(topk((4, 4, 4)), Ok(()));
        for value in [1 << 31, (1 << 32) + 1, usize::MAX] {
            for (name, shape) in [
                ("M", (value, 4, 4)),
                ("N", (4, value, 4)),
                ("topk_tokens", (4, 4, value)),
            ] {
                match topk(shape) {
                    Err(Error::Unsupported { name: named, .. }) => assert_eq!(named, name),
                    other => panic!("{shape:?}: {other:?}"),
                }
            }
        }
        assert!(matches!(topk((4, 17, 4)), Err(Error::Length { .. })));
    }
}
