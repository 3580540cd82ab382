//! `hisa-cuda` as a backend: every stage and indexer on a GPU.
//!
//! ```text
//! Job, Outputs -> refuse -> staged (one copy there) -> stage | pipeline -> staged (one copy back)
//! ```
//!
//! Inputs and outputs travel with their guards, and come back with them, so that a kernel that
//! writes beside its output is found as any other backend is. Device memory is kept from job to
//! job; the workspace of an indexer holds what [`Outputs::workspace`] holds.

pub mod faults;
mod pipeline;
mod refuse;
mod stage;
mod staged;

use super::{Backend, BackendError, Capabilities, Failure, Job, Outputs, not_offered};
use crate::numerics::{BoundedScores, ModelScores, Numerics, Scores};
use crate::op::Op;
use faults::Fault;
use hisa_cuda::arena::Arena;
use hisa_cuda::kernel::Unit;
use hisa_cuda::scratch::Scratch;
use hisa_cuda::shape::{HEAD_DIM_MAX, HEADS_MAX};
use hisa_cuda::toolchain::{Arch, Source};
use hisa_cuda::{Device, Scoring, numerics};
use hisa_ref::bound::Dots;
use hisa_ref::model::DotClass;
use staged::Staged;
use std::ffi::OsString;

/// Which GPU, by its number; 0 where it is not set.
pub const DEVICE_VARIABLE: &str = "HISA_DEVICE";

/// Bytes that staging memory and workspace start with.
const FIRST_BYTES: usize = 1 << 20;

/// A GPU on trial.
#[derive(Debug)]
pub struct Cuda {
    name: String,
    capabilities: Capabilities,
    gpu: Gpu,
    lost: Option<Lost>,
}

/// A device with the memory that jobs share.
#[derive(Debug)]
struct Gpu {
    device: Device,
    arena: Arena,
    scratch: Scratch,
    scoring: Scoring,
}

/// A fault of a kernel stays with the context: no later call succeeds in this process.
#[derive(Debug)]
struct Lost {
    op: Op,
    why: String,
}

impl Cuda {
    /// `cuda`, `cuda:exact`, or `cuda-fault:` and a name of [`faults::FAULTS`] or `none`, which is
    /// `cuda` under another name.
    ///
    /// # Errors
    /// [`BackendError::Unknown`]; [`BackendError::Unavailable`] without driver, GPU or NVRTC, and
    /// where a kernel does not compile.
    pub fn by_name(name: &str) -> Result<Self, BackendError> {
        let unavailable = |error: Opening| BackendError::Unavailable {
            name: name.to_owned(),
            reason: error.0,
        };
        let opened = match name.split_once(':') {
            None => Self::open(name, Scoring::TensorCores),
            Some(("cuda", "exact")) => Self::open(name, Scoring::Exact),
            Some(("cuda-fault", "none")) => Self::open(name, Scoring::TensorCores),
            Some(("cuda-fault", fault)) => match faults::named(fault) {
                Some(fault) => Self::faulty(name, fault),
                None => return Err(super::unknown(name)),
            },
            _ => return Err(super::unknown(name)),
        };
        opened.map_err(unavailable)
    }

    fn open(name: &str, scoring: Scoring) -> Result<Self, Opening> {
        let device = Device::open(ordinal(std::env::var_os(DEVICE_VARIABLE))?)?;
        device.load(&Unit::ALL)?;
        Self::of(name, device, scoring)
    }

    /// The same with a fault planted in one kernel.
    fn faulty(name: &str, fault: &Fault) -> Result<Self, Opening> {
        let ordinal = ordinal(std::env::var_os(DEVICE_VARIABLE))?;
        let changed = fault.source()?;
        let source = |unit| match unit == fault.unit {
            true => changed.clone(),
            false => Source::of(unit),
        };
        let device = Device::with_sources(ordinal, Unit::ALL.map(source).to_vec())?;
        device.load(&[fault.unit])?;
        Self::of(name, device, fault.scoring)
    }

    fn of(name: &str, device: Device, scoring: Scoring) -> Result<Self, Opening> {
        let stream = device.stream()?;
        Ok(Self {
            name: name.to_owned(),
            capabilities: capabilities(scoring, device.limits().arch),
            gpu: Gpu {
                arena: Arena::new(&device, &stream, FIRST_BYTES)?,
                scratch: Scratch::new(&stream, FIRST_BYTES)?,
                device,
                scoring,
            },
            lost: None,
        })
    }
}

/// Why a GPU cannot be used, in words.
struct Opening(String);

impl From<hisa_cuda::Error> for Opening {
    fn from(error: hisa_cuda::Error) -> Self {
        Self(error.to_string())
    }
}

/// The GPU that runs would take, and what it is.
///
/// # Errors
/// Why there is none, in words.
pub fn available() -> Result<String, String> {
    let look = || -> Result<String, Opening> {
        let device = Device::open(ordinal(std::env::var_os(DEVICE_VARIABLE))?)?;
        let limits = device.limits();
        Ok(format!("{} ({})", limits.name, limits.arch))
    };
    look().map_err(|error| error.0)
}

fn ordinal(value: Option<OsString>) -> Result<usize, Opening> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(0);
    };
    let number = value.to_str().and_then(|text| text.parse().ok());
    let shown = value.to_string_lossy();
    number.ok_or_else(|| Opening(format!("{DEVICE_VARIABLE} is {shown:?}, not a number")))
}

fn capabilities(scoring: Scoring, arch: Arch) -> Capabilities {
    Capabilities {
        ops: Op::ALL
            .into_iter()
            .filter(|&op| op != Op::Windows)
            .collect(),
        heads_max: HEADS_MAX,
        head_dim_max: HEAD_DIM_MAX,
        numerics: declared(scoring, numerics::class(arch)),
        ..Capabilities::all()
    }
}

/// Where nobody has measured the matrix unit, the widest bound of the f16 classes.
fn declared(scoring: Scoring, class: Option<DotClass>) -> Numerics {
    let scores = match (scoring, class) {
        (Scoring::Exact, _) => Scores::Exact,
        (Scoring::TensorCores, Some(class)) => Scores::Model(ModelScores {
            class,
            epilogue: numerics::EPILOGUE,
        }),
        (Scoring::TensorCores, None) => {
            Scores::Bounded(BoundedScores::of(Dots::Class(DotClass::AmpereHmmaF16)))
        }
    };
    Numerics::of_scores(scores)
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        if let Some(lost) = &self.lost {
            return Err(lost.refuse(job.op));
        }
        refuse::check(job)?;
        let result = self.gpu.run(job, out);
        if let Err(Failure::Error(_)) = &result
            && let Err(error) = self.gpu.device.check()
        {
            let (op, why) = (job.op, error.to_string());
            self.lost = Some(Lost { op, why });
        }
        result
    }

    fn broken(&self) -> Option<String> {
        let Lost { op, why } = self.lost.as_ref()?;
        Some(format!("{}: the device was lost in {op}: {why}", self.name))
    }
}

impl Lost {
    /// The job that lost the device fails again; others are not to blame.
    fn refuse(&self, op: Op) -> Failure {
        if op == self.op {
            return Failure::Error(format!("the device is lost: {}", self.why));
        }
        Failure::Unsupported(format!("not run after {} lost the device", self.op))
    }
}

impl Gpu {
    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        let bound = self.device.context().bind_to_thread();
        bound.map_err(|error| Failure::Error(error.to_string()))?;
        if job.op == Op::Stage(hisa_ref::Stage::BlockMask) {
            // The kernel works in place.
            let scores = job.f32("block_scores")?.body().to_vec();
            out.f32("block_mask")?.write(scores);
        }
        let staged = Staged::put(&mut self.arena, &self.device, job, out)?;
        self.arena.upload()?;
        match job.op {
            Op::Windows => return Err(not_offered(job.op)),
            Op::Stage(stage) => stage::launch(self, &staged, stage, job)?,
            Op::Append => pipeline::append(self, &staged, job)?,
            Op::Hisa | Op::Dsa | Op::BlockSparse => {
                let fill = out.workspace.first().copied().unwrap_or(0);
                pipeline::launch(self, &staged, job, fill)?;
            }
        }
        self.arena.download()?;
        staged.fetch(&self.arena, job, out)
    }
}

impl From<hisa_cuda::Error> for Failure {
    fn from(error: hisa_cuda::Error) -> Self {
        match error {
            hisa_cuda::Error::Unsupported { name, limit, .. } => {
                Self::Unsupported(format!("{name} above {limit}"))
            }
            hisa_cuda::Error::Input(error) => error.into(),
            other => Self::Error(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
