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

    /// Runs jobs with one copy to the device, one copy back and one wait for all of them. Where
    /// they cannot be put on the device together, each runs by itself.
    pub(super) fn run_all(
        &mut self,
        jobs: &mut [(&mut Job<'_>, &mut Outputs)],
    ) -> Vec<Result<(), Failure>> {
        together_or_apart(jobs, |jobs| self.run_together(jobs))
    }

    /// An error means that nothing was launched. One in a launch is that of its job, and one in
    /// the copy back, which is where faults of kernels come up, that of every job.
    fn run_together(
        &mut self,
        jobs: &mut [(&mut Job<'_>, &mut Outputs)],
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let staged = self.stage(jobs)?;
        let mut results = Vec::with_capacity(jobs.len());
        for ((job, out), staged) in jobs.iter().zip(&staged) {
            results.push(self.launch(staged, job, out));
        }
        if let Err(error) = self.arena.download() {
            let failure = Failure::from(error);
            return Ok(jobs.iter().map(|_| Err(failure.clone())).collect());
        }
        for (((job, out), staged), result) in jobs.iter_mut().zip(&staged).zip(&mut results) {
            if result.is_ok() {
                *result = staged.fetch(&self.arena, job, out);
            }
        }
        Ok(results)
    }

    /// Puts the tensors of all jobs on the device.
    fn stage(&mut self, jobs: &mut [(&mut Job<'_>, &mut Outputs)]) -> Result<Vec<Staged>, Failure> {
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
        Ok(staged)
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

/// One run of all jobs; where it fails as a whole, a run of each. What one job lacks, or all of
/// them together, then costs that job alone.
fn together_or_apart<J>(
    jobs: &mut [J],
    mut run: impl FnMut(&mut [J]) -> Result<Vec<Result<(), Failure>>, Failure>,
) -> Vec<Result<(), Failure>> {
    match run(jobs) {
        Ok(results) => results,
        Err(failure) if jobs.len() <= 1 => jobs.iter().map(|_| Err(failure.clone())).collect(),
        Err(_) => {
            let alone = |job| run(job).unwrap_or_else(|failure| vec![Err(failure)]);
            jobs.chunks_mut(1).flat_map(alone).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::together_or_apart;
    use crate::backend::Failure;

    /// Jobs are sizes, and the memory holds 10: in all, or of one.
    fn run(jobs: &mut [usize], calls: &mut usize) -> Vec<Result<(), Failure>> {
        together_or_apart(jobs, |jobs| {
            *calls += 1;
            match jobs.iter().sum::<usize>() {
                sum if sum > 10 => Err(Failure::Unsupported(format!("{sum} above 10"))),
                _ => Ok(jobs.iter().map(|_| Ok(())).collect()),
            }
        })
    }

    #[test]
    fn jobs_that_do_not_fit_together_run_one_by_one() {
        let mut calls = 0;
        assert_eq!(run(&mut [4, 6], &mut calls), [Ok(()), Ok(())]);
        assert_eq!(calls, 1);
        let too_large = Err(Failure::Unsupported("11 above 10".to_owned()));
        let results = run(&mut [4, 11, 7], &mut calls);
        assert_eq!(results, [Ok(()), too_large.clone(), Ok(())]);
        assert_eq!(calls, 1 + 1 + 3);
        assert_eq!(run(&mut [11], &mut calls), [too_large]);
        assert_eq!(calls, 6, "one that failed alone is not run again");
        assert_eq!(run(&mut [], &mut calls), []);
    }

    #[test]
    fn what_went_wrong_in_one_job_is_not_run_again() {
        let mut calls = 0;
        let results = together_or_apart(&mut [1, 2], |jobs| {
            calls += 1;
            let bad = |&job: &i32| match job {
                1 => Err(Failure::Error("launch".to_owned())),
                _ => Ok(()),
            };
            Ok(jobs.iter().map(bad).collect())
        });
        assert_eq!(results, [Err(Failure::Error("launch".to_owned())), Ok(())]);
        assert_eq!(calls, 1);
    }
}
