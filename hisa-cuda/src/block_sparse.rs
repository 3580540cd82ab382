//! `block_sparse`: the baseline that keeps whole blocks (SPEC 9.3).

use crate::choose_blocks::{self, ChooseBlocks};
use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch, size};
use crate::shape::{Blocks, Sizes, check_rows_and_keys, elements};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stages::{Input, Scoring, WindowSlices};
use crate::workspace::{Parts, rows_of_a_tile, total};
use cudarc::driver::CudaStream;
use hisa_ref::HisaParams;
use hisa_ref::params::block_count;

const THREADS: u32 = 256;

/// `key - ks` `[M, m*B]` of every in-window key of the chosen blocks, ascending, then -1.
///
/// # Errors
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn indices(
    device: &Device,
    stream: &CudaStream,
    block_ids: DeviceSlice<'_, i32>,
    windows: WindowSlices<'_>,
    (rows, keys, blocks): (usize, usize, Blocks),
    indices: &mut DeviceSliceMut<'_, i32>,
) -> Result<()> {
    let arguments = arguments(block_ids, windows, (rows, keys, blocks), indices)?;
    let grid = Grid::rows(rows, THREADS);
    let kernel = (Unit::BlockSparse, "block_sparse_indices");
    launch(device, stream, kernel, grid, &arguments)
}

/// What the kernel is given, checked.
fn arguments(
    block_ids: DeviceSlice<'_, i32>,
    windows: WindowSlices<'_>,
    (rows, keys, blocks): (usize, usize, Blocks),
    indices: &DeviceSliceMut<'_, i32>,
) -> Result<[Arg; 7]> {
    check_rows_and_keys(rows, keys)?;
    let (ks, ke) = windows.holding(rows)?;
    let ids = elements("block_ids", rows, blocks.kept())?;
    let len = elements("indices", rows, blocks.slots())?;
    Ok([
        Arg::Pointer(block_ids.holding("block_ids", ids)?),
        Arg::Pointer(ks),
        Arg::Pointer(ke),
        Arg::Pointer(indices.holding("indices", len)?),
        size(keys),
        size(blocks.size()),
        size(blocks.kept()),
    ])
}

/// A run of `block_sparse` with sizes that are known: what it needs and how it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    choice: ChooseBlocks,
    tile: usize,
}

impl Plan {
    /// A plan; its kernels are compiled and loaded. Of `params` it uses B, K and the rank: it
    /// keeps ceil(K/B) blocks.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`], [`crate::Error::Input`]; those of compiling.
    pub fn new(
        device: &Device,
        sizes: Sizes,
        params: &HisaParams,
        scoring: Scoring,
    ) -> Result<Self> {
        let plan = Self::of(sizes, params, scoring)?;
        device.load(&choose_blocks::UNITS)?;
        device.load(&[Unit::BlockSparse])?;
        Ok(plan)
    }

    /// The arithmetic of a plan, which needs no device.
    fn of(sizes: Sizes, params: &HisaParams, scoring: Scoring) -> Result<Self> {
        sizes.check()?;
        let b = params.block_size();
        let blocks = Blocks::new(b, block_count(params.topk_tokens(), b))?;
        Ok(Self {
            choice: ChooseBlocks {
                sizes,
                blocks,
                rank: params.rank(),
                scoring,
            },
            tile: rows_of_a_tile(sizes.rows, sizes.blocks(b) * size_of::<f32>()),
        })
    }

    /// Blocks kept, ceil(K/B).
    #[must_use]
    pub const fn blocks(&self) -> Blocks {
        self.choice.blocks
    }

    /// Bytes of workspace [`Self::run`] takes.
    #[must_use]
    pub const fn workspace_bytes(&self) -> usize {
        total(self.choice.pooled_bytes() + self.choice.score_bytes(self.tile))
    }

    /// Puts the run on the stream: `block_ids` `[M, m]` and `ids` `[M, m*B]`. The device is that of
    /// [`Self::new`]; another one compiles and loads its kernels first.
    ///
    /// # Errors
    /// [`crate::Error::Length`]; those of launching.
    pub fn run(
        &self,
        device: &Device,
        stream: &CudaStream,
        input: &Input<'_>,
        workspace: &mut DeviceSliceMut<'_, u8>,
        (block_ids, ids): (&mut DeviceSliceMut<'_, i32>, &mut DeviceSliceMut<'_, i32>),
    ) -> Result<()> {
        let ChooseBlocks { sizes, blocks, .. } = self.choice;
        let (kept, slots) = (blocks.kept(), blocks.slots());
        block_ids.holding("block_ids", elements("block_ids", sizes.rows, kept)?)?;
        ids.holding("indices", elements("indices", sizes.rows, slots)?)?;
        let mut parts = Parts::of(workspace, self.workspace_bytes())?;
        let pooled = self.choice.pool(device, stream, input.keys, &mut parts)?;
        let mut scores = parts.take::<f32>(self.tile * self.choice.all())?;
        for start in (0..sizes.rows).step_by(self.tile) {
            let rows = self.tile.min(sizes.rows - start);
            let input = input.from_row(start, &sizes);
            let from = (&input, pooled.read());
            let chosen = block_ids.tail(start * kept);
            self.choice
                .choose(device, stream, from, (rows, &mut scores), chosen)?;
            let chosen = block_ids.read().tail(start * kept);
            let shape = (rows, sizes.keys, blocks);
            let mut to = ids.tail(start * slots);
            indices(device, stream, chosen, input.windows, shape, &mut to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn sizes_past_their_limits_are_refused_by_name() {
        // SAFETY: no address is ever followed.
        let (read, write) = unsafe {
            (
                DeviceSlice::<i32>::from_raw(256, 64),
                DeviceSliceMut::from_raw(256, 64),
            )
        };
        let windows = WindowSlices { ks: read, ke: read };
        let blocks = Blocks::new(2, 2).unwrap();
        let check = |rows, keys| arguments(read, windows, (rows, keys, blocks), &write);
        assert!(check(4, 4).is_ok());
        for value in [1 << 31, (1 << 32) + 1, usize::MAX] {
            for (expected, refused) in [("M", check(value, 4)), ("N", check(4, value))] {
                let named = matches!(&refused, Err(Error::Unsupported { name, .. })
                    if *name == expected);
                assert!(named, "{value}: {refused:?}");
            }
        }
        assert!(matches!(check(17, 4), Err(Error::Length { .. })));
    }

    #[test]
    fn blocks_are_counted_by_tokens_and_rows_cut_into_tiles() {
        let sizes = Sizes {
            rows: 1 << 20,
            keys: 1_000_000,
            heads: 64,
            head_dim: 128,
        };
        let params = HisaParams::new(128, 3, 2049).unwrap();
        let plan = Plan::of(sizes, &params, Scoring::Exact).unwrap();
        assert_eq!(plan.blocks().kept(), 17);
        assert_eq!(plan.tile, (256 << 20) / (7813 * 4));
        assert!(plan.workspace_bytes() < 258 << 20);
    }
}
