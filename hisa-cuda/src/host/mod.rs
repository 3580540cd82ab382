//! The indexer on arrays in host memory: copy in, run, copy out. For tests and small tools; whoever
//! serves a model keeps tensors on the device and calls the stages and plans. The pooled cache that
//! grows with a sequence ([`crate::incremental`]) is there only on the device.

mod staged;
mod stages;

use crate::arena::Arena;
use crate::device::Device;
use crate::error::Result;
use crate::scratch::Scratch;
use crate::shape::elements;
use crate::slice::DeviceSliceMut;
use crate::stages::{Input, Scoring};
use crate::{block_sparse, dsa, hisa};
use cudarc::driver::CudaStream;
use hisa_ref::{HisaParams, IndexerInput};
use ndarray::Array2;
use staged::{bytes, sizes};

/// A GPU with staging memory and a workspace, both reused from call to call.
#[derive(Debug)]
pub struct Host {
    device: Device,
    arena: Arena,
    workspace: Scratch,
}

/// What [`Host::block_sparse`] gives: the tensors of the reference's trace that a run keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSparse {
    /// `[M, m]` chosen blocks, ascending, then -1.
    pub block_ids: Array2<i32>,
    /// `[M, m*B]`, `key - ks` of their visible keys, ascending, then -1.
    pub indices: Array2<i32>,
}

/// Bytes that the staging memory and the workspace start with.
const FIRST_BYTES: usize = 1 << 20;

/// What is in every word of a workspace, so that a run does not depend on the one before.
const FILL: u32 = u32::MAX;

impl Host {
    /// The GPU of that number with a stream of its own.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::of(Device::open(ordinal)?)
    }

    /// An opened GPU.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::Driver`].
    pub fn of(device: Device) -> Result<Self> {
        let stream = device.stream()?;
        Ok(Self {
            arena: Arena::new(&device, &stream, FIRST_BYTES)?,
            workspace: Scratch::new(&stream, FIRST_BYTES)?,
            device,
        })
    }

    /// The GPU.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// `indices` of the whole indexer (SPEC 9.1).
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`]; those of the device.
    pub fn hisa(
        &mut self,
        input: &IndexerInput<'_>,
        params: &HisaParams,
        scoring: Scoring,
    ) -> Result<Array2<i32>> {
        let sizes = sizes(input.queries(), input.keys().len());
        let plan = hisa::Plan::new(&self.device, sizes, params, scoring)?;
        let shape = (plan.workspace_bytes(), params.topk_tokens());
        self.indexer(input, shape, |on, input, space, indices| {
            plan.run(on.0, on.1, input, space, indices)
        })
    }

    /// `indices` of the flat indexer (SPEC 9.2).
    ///
    /// # Errors
    /// As [`Self::hisa`].
    pub fn dsa(
        &mut self,
        input: &IndexerInput<'_>,
        topk: usize,
        scoring: Scoring,
    ) -> Result<Array2<i32>> {
        let sizes = sizes(input.queries(), input.keys().len());
        let plan = dsa::Plan::new(&self.device, sizes, topk, scoring)?;
        let shape = (plan.workspace_bytes(), topk);
        self.indexer(input, shape, |on, input, space, indices| {
            plan.run(on.0, on.1, input, space, indices)
        })
    }

    /// Chosen blocks and their keys by the indexer that keeps whole blocks (SPEC 9.3). Of `params`
    /// it uses B, K and the rank: it keeps ceil(K/B) blocks.
    ///
    /// # Errors
    /// As [`Self::hisa`].
    pub fn block_sparse(
        &mut self,
        input: &IndexerInput<'_>,
        params: &HisaParams,
        scoring: Scoring,
    ) -> Result<BlockSparse> {
        let sizes = sizes(input.queries(), input.keys().len());
        let plan = block_sparse::Plan::new(&self.device, sizes, params, scoring)?;
        let rows = sizes.rows;
        let (kept, slots) = (plan.blocks().kept(), plan.blocks().slots());
        let out = elements("indices", rows, 4 * (kept + slots))?;
        self.start(bytes(&sizes, sizes.keys) + out, 8)?;
        let staged = self.put_input(input.queries(), input.keys(), input.windows())?;
        let block_ids = self.arena.reserve::<i32>(rows * kept)?;
        let indices = self.arena.reserve::<i32>(rows * slots)?;
        self.arena.upload()?;
        let stream = self.arena.stream();
        let mut space = self.workspace.filled(plan.workspace_bytes(), FILL)?;
        let slices = staged.slices(&self.arena);
        let out = (
            &mut self.arena.write(block_ids),
            &mut self.arena.write(indices),
        );
        plan.run(&self.device, stream, &slices, &mut space, out)?;
        self.arena.download()?;
        Ok(BlockSparse {
            block_ids: self.matrix(block_ids, (rows, kept))?,
            indices: self.matrix(indices, (rows, slots))?,
        })
    }

    /// Runs a plan that takes so many bytes of workspace and writes `[M, K]`.
    fn indexer(
        &mut self,
        input: &IndexerInput<'_>,
        (workspace_bytes, topk): (usize, usize),
        run: impl FnOnce(
            (&Device, &CudaStream),
            &Input<'_>,
            &mut DeviceSliceMut<'_, u8>,
            &mut DeviceSliceMut<'_, i32>,
        ) -> Result<()>,
    ) -> Result<Array2<i32>> {
        let sizes = sizes(input.queries(), input.keys().len());
        self.start(bytes(&sizes, sizes.keys) + 4 * sizes.rows * topk, 7)?;
        let staged = self.put_input(input.queries(), input.keys(), input.windows())?;
        let indices = self.arena.reserve::<i32>(sizes.rows * topk)?;
        self.arena.upload()?;
        let stream = self.arena.stream();
        let mut space = self.workspace.filled(workspace_bytes, FILL)?;
        let slices = staged.slices(&self.arena);
        let mut out = self.arena.write(indices);
        run((&self.device, stream), &slices, &mut space, &mut out)?;
        self.arena.download()?;
        self.matrix(indices, (sizes.rows, topk))
    }
}
