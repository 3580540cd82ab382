//! The device and the memory that jobs share.

use super::staged::Staged;
use super::{pipeline, stage};
use crate::backend::{Failure, Job, Outputs, not_offered};
use crate::op::Op;
use hisa_cuda::arena::Arena;
use hisa_cuda::incremental::PooledCache;
use hisa_cuda::scratch::Scratch;
use hisa_cuda::{Device, Scoring};

/// Bytes that staging memory and workspace start with.
const FIRST_BYTES: usize = 1 << 20;

/// Keys of the widest kind that the cache of `append` starts with room for.
const FIRST_KEYS: usize = 1 << 12;

/// A device with the memory that jobs share.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) device: Device,
    pub(super) arena: Arena,
    pub(super) scratch: Scratch,
    pub(super) cache: PooledCache,
    pub(super) scoring: Scoring,
}

impl Gpu {
    /// A device with its first memory.
    pub(super) fn of(device: Device, scoring: Scoring) -> Result<Self, hisa_cuda::Error> {
        let stream = device.stream()?;
        Ok(Self {
            arena: Arena::new(&device, &stream, FIRST_BYTES)?,
            scratch: Scratch::new(&stream, FIRST_BYTES)?,
            cache: PooledCache::new(&device, &stream, (1, 256), FIRST_KEYS)?,
            device,
            scoring,
        })
    }

    /// Runs jobs with one copy to the device, one copy back and one wait for all of them.
    pub(super) fn run_all(
        &mut self,
        jobs: &mut [(&mut Job<'_>, &mut Outputs)],
    ) -> Vec<Result<(), Failure>> {
        match self.try_all(jobs) {
            Ok(results) => results,
            Err(failure) => jobs.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    fn try_all(
        &mut self,
        jobs: &mut [(&mut Job<'_>, &mut Outputs)],
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let bound = self.device.context().bind_to_thread();
        bound.map_err(|error| Failure::Error(error.to_string()))?;
        for (job, out) in jobs.iter_mut() {
            if job.op == Op::Stage(hisa_ref::Stage::BlockMask) {
                // The kernel works in place.
                let scores = job.f32("block_scores")?.body().to_vec();
                out.f32("block_mask")?.write(scores);
            }
        }
        let staged = Staged::put_all(&mut self.arena, &self.device, jobs)?;
        self.arena.upload()?;
        let mut results = Vec::with_capacity(jobs.len());
        for ((job, out), staged) in jobs.iter().zip(&staged) {
            results.push(self.launch(staged, job, out));
        }
        self.arena.download()?;
        for (((job, out), staged), result) in jobs.iter_mut().zip(&staged).zip(&mut results) {
            if result.is_ok() {
                *result = staged.fetch(&self.arena, job, out);
            }
        }
        Ok(results)
    }

    fn launch(&mut self, staged: &Staged, job: &Job<'_>, out: &Outputs) -> Result<(), Failure> {
        match job.op {
            Op::Windows => Err(not_offered(job.op)),
            Op::Stage(stage) => stage::launch(self, staged, stage, job),
            Op::Append => pipeline::append(self, staged, job),
            Op::Hisa | Op::Dsa | Op::BlockSparse => {
                let fill = out.workspace.first().copied().unwrap_or(0);
                pipeline::launch(self, staged, job, fill)
            }
        }
    }
}
