//! The tensors of a job in the staging memory of the device, guards and old contents included.

use crate::backend::{Buffer, Failure, Job, MARGIN, Outputs};
use crate::problem::steps;
use hisa_cuda::arena::{Arena, Place};
use hisa_cuda::stages::KeySlices;
use hisa_cuda::{Device, DeviceSlice, DeviceSliceMut};
use hisa_ref::E4M3;

/// A tensor between its guards.
#[derive(Debug, Clone, Copy)]
enum Spot {
    Codes(Place<u8>),
    F32(Place<f32>),
    I32(Place<i32>),
}

/// Keys that one piece of `append` adds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// Keys held before it.
    pub(super) from: usize,
    /// Keys it adds.
    pub(super) count: usize,
    codes: Place<u8>,
    scales: Place<f32>,
}

/// Where everything lies.
#[derive(Debug)]
pub(super) struct Staged {
    inputs: Vec<(&'static str, Spot)>,
    outputs: Vec<(&'static str, Spot)>,
    /// For `append`: its pieces, in order.
    pub(super) pieces: Vec<Piece>,
}

impl Staged {
    /// Puts inputs, outputs and pieces of all jobs into the arena.
    pub(super) fn put_all(
        arena: &mut Arena,
        device: &Device,
        jobs: &[(&mut Job<'_>, &mut Outputs)],
    ) -> Result<Vec<Self>, Failure> {
        let (mut count, mut bytes) = (0, 0);
        let mut pieces = Vec::with_capacity(jobs.len());
        for (job, out) in jobs {
            let gathered = gathered(job)?;
            for (_, buffer) in job.tensors.iter().chain(out.tensors.iter()) {
                (count, bytes) = (count + 1, bytes + buffer.bytes());
            }
            for piece in &gathered {
                (count, bytes) = (count + 2, bytes + piece.bytes());
            }
            pieces.push(gathered);
        }
        arena.start(device, bytes, count)?;
        let each = jobs.iter().zip(&pieces);
        each.map(|((job, out), pieces)| Self::put(arena, job, out, pieces))
            .collect()
    }

    fn put(
        arena: &mut Arena,
        job: &Job<'_>,
        out: &Outputs,
        gathered: &[Gathered],
    ) -> Result<Self, Failure> {
        let mut staged = Self {
            inputs: Vec::new(),
            outputs: Vec::new(),
            pieces: Vec::new(),
        };
        for (name, buffer) in job.tensors.iter() {
            staged.inputs.push((name, put(arena, buffer)?));
        }
        for (name, buffer) in out.tensors.iter() {
            staged.outputs.push((name, put(arena, buffer)?));
        }
        for piece in gathered {
            staged.pieces.push(piece.put(arena)?);
        }
        Ok(staged)
    }

    /// Copies inputs and outputs back, guards included.
    pub(super) fn fetch(
        &self,
        arena: &Arena,
        job: &mut Job<'_>,
        out: &mut Outputs,
    ) -> Result<(), Failure> {
        let inputs = self.inputs.iter().zip(job.tensors.iter_mut());
        let outputs = self.outputs.iter().zip(out.tensors.iter_mut());
        for ((_, spot), (_, buffer)) in inputs.chain(outputs) {
            match (spot, buffer) {
                (Spot::Codes(place), Buffer::Codes(tensor)) => {
                    let codes = arena.get(place.cast::<E4M3>())?;
                    tensor.arena_mut().copy_from_slice(codes);
                }
                (Spot::F32(place), Buffer::F32(tensor)) => {
                    tensor.arena_mut().copy_from_slice(arena.get(*place)?);
                }
                (Spot::I32(place), Buffer::I32(tensor)) => {
                    tensor.arena_mut().copy_from_slice(arena.get(*place)?);
                }
                _ => unreachable!("a tensor keeps its type"),
            }
        }
        Ok(())
    }

    /// Codes that kernels read.
    pub(super) fn codes<'a>(
        &self,
        arena: &'a Arena,
        name: &str,
    ) -> Result<DeviceSlice<'a, u8>, Failure> {
        match find(&self.inputs, name)? {
            Spot::Codes(place) => Ok(arena.read(body(place)?)),
            _ => Err(mistyped(name)),
        }
    }

    /// Floats that kernels read.
    pub(super) fn f32<'a>(
        &self,
        arena: &'a Arena,
        name: &str,
    ) -> Result<DeviceSlice<'a, f32>, Failure> {
        match find(&self.inputs, name)? {
            Spot::F32(place) => Ok(arena.read(body(place)?)),
            _ => Err(mistyped(name)),
        }
    }

    /// Ids that kernels read.
    pub(super) fn i32<'a>(
        &self,
        arena: &'a Arena,
        name: &str,
    ) -> Result<DeviceSlice<'a, i32>, Failure> {
        match find(&self.inputs, name)? {
            Spot::I32(place) => Ok(arena.read(body(place)?)),
            _ => Err(mistyped(name)),
        }
    }

    /// Codes that kernels write.
    pub(super) fn codes_out<'a>(
        &self,
        arena: &'a Arena,
        name: &str,
    ) -> Result<DeviceSliceMut<'a, u8>, Failure> {
        match find(&self.outputs, name)? {
            Spot::Codes(place) => Ok(arena.write(body(place)?)),
            _ => Err(mistyped(name)),
        }
    }

    /// Floats that kernels write.
    pub(super) fn f32_out<'a>(
        &self,
        arena: &'a Arena,
        name: &str,
    ) -> Result<DeviceSliceMut<'a, f32>, Failure> {
        match find(&self.outputs, name)? {
            Spot::F32(place) => Ok(arena.write(body(place)?)),
            _ => Err(mistyped(name)),
        }
    }

    /// Ids that kernels write.
    pub(super) fn i32_out<'a>(
        &self,
        arena: &'a Arena,
        name: &str,
    ) -> Result<DeviceSliceMut<'a, i32>, Failure> {
        match find(&self.outputs, name)? {
            Spot::I32(place) => Ok(arena.write(body(place)?)),
            _ => Err(mistyped(name)),
        }
    }
}

impl Piece {
    /// Its keys on the device.
    pub(super) fn keys(self, arena: &Arena) -> Result<KeySlices<'_>, Failure> {
        Ok(KeySlices {
            codes: arena.read(body(self.codes)?),
            scales: arena.read(body(self.scales)?),
        })
    }
}

/// A piece of `append` on the host.
struct Gathered {
    from: usize,
    count: usize,
    codes: Buffer,
    scales: Buffer,
}

impl Gathered {
    fn bytes(&self) -> usize {
        self.codes.bytes() + self.scales.bytes()
    }

    fn put(&self, arena: &mut Arena) -> Result<Piece, Failure> {
        match (put(arena, &self.codes)?, put(arena, &self.scales)?) {
            (Spot::Codes(codes), Spot::F32(scales)) => Ok(Piece {
                from: self.from,
                count: self.count,
                codes,
                scales,
            }),
            _ => unreachable!("codes are codes, scales are floats"),
        }
    }
}

/// The keys of every piece, between guards of their own; none for other jobs.
fn gathered(job: &Job<'_>) -> Result<Vec<Gathered>, Failure> {
    use crate::backend::Guarded;
    if job.op != crate::op::Op::Append {
        return Ok(Vec::new());
    }
    let (codes, scales) = (job.codes("k")?, job.f32("k_scale")?.body());
    let pieces = steps(job.pieces, job.n).into_iter().map(|step| {
        let count = step.keys.len();
        let rows = step.keys.iter().flat_map(|&key| codes.row(key));
        let own = step.keys.iter().map(|&key| &scales[key]);
        Gathered {
            from: step.from,
            count,
            codes: Buffer::Codes(Guarded::of(&[count, job.d], rows)),
            scales: Buffer::F32(Guarded::of(&[count], own)),
        }
    });
    Ok(pieces.collect())
}

fn put(arena: &mut Arena, buffer: &Buffer) -> Result<Spot, Failure> {
    Ok(match buffer {
        Buffer::Codes(tensor) => Spot::Codes(arena.put(tensor.arena())?.cast()),
        Buffer::F32(tensor) => Spot::F32(arena.put(tensor.arena())?),
        Buffer::I32(tensor) => Spot::I32(arena.put(tensor.arena())?),
    })
}

/// A tensor without its guards.
fn body<T>(place: Place<T>) -> Result<Place<T>, Failure> {
    let len = place.len().saturating_sub(2 * MARGIN);
    Ok(place.part(MARGIN, len)?)
}

fn find(spots: &[(&'static str, Spot)], name: &str) -> Result<Spot, Failure> {
    let found = spots.iter().find(|(known, _)| *known == name);
    let absent = || Failure::Error(format!("the job has no tensor {name}"));
    found.map(|(_, spot)| *spot).ok_or_else(absent)
}

fn mistyped(name: &str) -> Failure {
    Failure::Error(format!("{name} is of another type"))
}
