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
mod gpu;
mod pipeline;
mod refuse;
mod stage;
mod staged;

use super::{Backend, BackendError, Call, Capabilities, Failure, Job, Outputs};
use crate::backend::limits::{Limits, Sizes};
use crate::numerics::{BoundedScores, ModelScores, Numerics, Scores};
use crate::op::Op;
use faults::Fault;
use gpu::Gpu;
use hisa_cuda::kernel::Unit;
use hisa_cuda::shape::{HEAD_DIM_MAX, HEADS_MAX};
use hisa_cuda::toolchain::{Arch, Source};
use hisa_cuda::{Device, Scoring, numerics};
use hisa_ref::bound::Dots;
use hisa_ref::model::DotClass;
use std::ffi::OsString;
use thiserror::Error;

/// Which GPU, by its number; 0 where it is not set.
pub const DEVICE_VARIABLE: &str = "HISA_DEVICE";

/// A GPU on trial.
#[derive(Debug)]
pub struct Cuda {
    name: String,
    capabilities: Capabilities,
    gpu: Gpu,
    lost: Option<Lost>,
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
            reason: error.to_string(),
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
        Ok(Self {
            name: name.to_owned(),
            capabilities: capabilities(scoring, device.limits().arch),
            gpu: Gpu::of(device, scoring)?,
            lost: None,
        })
    }
}

/// Why a GPU cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Opening {
    /// The device, its memory or its kernels.
    #[error(transparent)]
    Device(#[from] hisa_cuda::Error),
    /// [`DEVICE_VARIABLE`] holds something else than a number.
    #[error("{DEVICE_VARIABLE} is {value:?}, not a number")]
    Variable {
        /// What it holds.
        value: String,
    },
}

impl Opening {
    /// Whether this machine has no GPU that kernels can run on, or nothing to compile them with,
    /// rather than one that fails.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        use hisa_cuda::Error::{DeviceTooOld, DriverSymbol, NoDevice, NoDriver, NoNvrtc};
        matches!(
            self,
            Self::Device(
                NoDriver { .. }
                    | DriverSymbol { .. }
                    | NoDevice { .. }
                    | DeviceTooOld { .. }
                    | NoNvrtc { .. }
            )
        )
    }
}

/// The GPU that runs would take, and what it is.
///
/// # Errors
/// Why there is none.
pub fn available() -> Result<String, Opening> {
    let device = Device::open(ordinal(std::env::var_os(DEVICE_VARIABLE))?)?;
    let limits = device.limits();
    Ok(format!("{} ({})", limits.name, limits.arch))
}

fn ordinal(value: Option<OsString>) -> Result<usize, Opening> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(0);
    };
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Opening::Variable {
        value: value.to_string_lossy().into_owned(),
    })
}

fn capabilities(scoring: Scoring, arch: Arch) -> Capabilities {
    Capabilities {
        ops: Op::ALL
            .into_iter()
            .filter(|&op| op != Op::Windows)
            .collect(),
        limits: Limits {
            heads: Sizes::Max(HEADS_MAX),
            dims: Sizes::Max(HEAD_DIM_MAX),
            ..Limits::default()
        },
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
        let result = self.gpu.run_all(&mut [(&mut *job, &mut *out)]).remove(0);
        self.look_after(job.op, result.as_ref().err());
        result
    }

    fn gathers(&self) -> bool {
        true
    }

    fn run_all(&mut self, calls: &mut [Call<'_>]) -> Vec<Result<(), Failure>> {
        if let Some(lost) = &self.lost {
            return calls
                .iter()
                .map(|call| Err(lost.refuse(call.job.op)))
                .collect();
        }
        let checked: Vec<_> = calls.iter().map(|call| refuse::check(&call.job)).collect();
        let fine = calls
            .iter_mut()
            .zip(&checked)
            .filter(|(_, checked)| checked.is_ok());
        let mut fine: Vec<_> = fine
            .map(|(call, _)| (&mut call.job, &mut call.out))
            .collect();
        let mut results = self.gpu.run_all(&mut fine).into_iter();
        let mut next = || {
            results
                .next()
                .unwrap_or_else(|| unreachable!("one for each"))
        };
        let results: Vec<_> = checked
            .into_iter()
            .map(|checked| checked.and_then(|()| next()))
            .collect();
        for (call, result) in calls.iter().zip(&results) {
            self.look_after(call.job.op, result.as_ref().err());
        }
        results
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

impl Cuda {
    /// Notices a device that is lost.
    fn look_after(&mut self, op: Op, failure: Option<&Failure>) {
        if self.lost.is_some() || !matches!(failure, Some(Failure::Error(_))) {
            return;
        }
        if let Err(error) = self.gpu.device.check() {
            let why = error.to_string();
            self.lost = Some(Lost { op, why });
        }
    }
}

impl From<hisa_cuda::Error> for Failure {
    fn from(error: hisa_cuda::Error) -> Self {
        match error {
            hisa_cuda::Error::Unsupported { name, limit, .. } => {
                Self::Unsupported(format!("{name} above {limit}"))
            }
            // A larger device runs it.
            hisa_cuda::Error::OutOfMemory { .. } => Self::Unsupported(error.to_string()),
            hisa_cuda::Error::Input(error) => error.into(),
            other => Self::Error(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
