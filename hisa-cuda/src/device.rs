//! A GPU with its compiled kernels.

use crate::error::{Error, Result};
use crate::kernel::Unit;
use crate::toolchain::{Arch, Compiler, Source, driver};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What a GPU is and can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The driver's name of it.
    pub name: String,
    /// What kernels are compiled for.
    pub arch: Arch,
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Bytes of shared memory one block may use.
    pub shared_bytes: usize,
    /// Bytes of device memory.
    pub memory: usize,
}

/// One GPU: a context, and the kernels compiled for it.
///
/// Kernels are compiled when first used, or by [`Self::load`]. A stream that is being captured
/// into a graph must not meet a first use, so plans load what they need when they are made.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    limits: Limits,
    compiler: Compiler,
    sources: Vec<Source>,
    loaded: Mutex<HashMap<Unit, Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    functions: HashMap<&'static str, CudaFunction>,
}

impl Device {
    /// The GPU of that number, in its primary context.
    ///
    /// cudarc's event tracking is switched off in this context: it would put events of other
    /// streams into graphs that are being captured. What its owner has to see to instead is said
    /// in [`crate::slice`], under "Streams".
    ///
    /// # Errors
    /// No driver, a driver or GPU that is too old, no such GPU, no NVRTC.
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::with_sources(ordinal, Unit::ALL.map(Source::of).to_vec())
    }

    /// The same with other kernel sources, one for each of [`Unit::ALL`]: how faults are planted.
    ///
    /// Sources given here become part of the program, as a C library that is linked does, and who
    /// gives them answers for what they do. Of its own kernels this crate holds that they stay
    /// inside their tensors; of these nothing is known, and one that does not may fault, which ends
    /// the context, or change any memory the device reaches, on some systems the host's too. It is
    /// no `unsafe fn` because no condition on the values given could be named and checked at the
    /// call; it is for tests, and never for sources from elsewhere.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_sources(ordinal: usize, sources: Vec<Source>) -> Result<Self> {
        driver::probe()?;
        let devices = counted(CudaContext::device_count())?;
        if ordinal >= devices {
            return Err(Error::NoDevice { ordinal, devices });
        }
        let context = call("opening the device", CudaContext::new(ordinal))?;
        // SAFETY: this crate refuses memory of another stream (`slice`, "Streams"); who uses
        // cudarc besides was told to order streams himself.
        unsafe { context.disable_event_tracking() };
        let limits = limits(&context)?;
        Ok(Self {
            context,
            limits,
            compiler: Compiler::new()?,
            sources,
            loaded: Mutex::default(),
        })
    }

    /// What the GPU is.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The context, for streams, events and allocations. It does not track events: see "Streams" in
    /// [`crate::slice`] before memory of one stream is copied, filled or freed on another.
    #[must_use]
    pub const fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The run-time compiler and its cache.
    #[must_use]
    pub const fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// A stream of one's own. Streams of other libraries are borrowed by
    /// `context().wrap_borrowed_stream`. Each orders its own memory: see [`crate::slice`].
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn stream(&self) -> Result<Arc<CudaStream>> {
        call("cuStreamCreate", self.context.new_stream())
    }

    /// Waits for all work of the context. An error means that no later call will succeed: a fault
    /// of a kernel stays with the context, and the process has to end.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn check(&self) -> Result<()> {
        call("waiting for the context", self.context.synchronize())
    }

    /// Compiles and loads kernels, so that no later call has to.
    ///
    /// # Errors
    /// [`Error::Compile`], [`Error::Driver`].
    pub fn load(&self, units: &[Unit]) -> Result<()> {
        for &unit in units {
            self.with_unit(unit, |_| ())?;
        }
        Ok(())
    }

    /// The kernel `entry` of `unit`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn function(&self, unit: Unit, entry: &'static str) -> Result<CudaFunction> {
        let found = self.with_unit(unit, |loaded| loaded.functions.get(entry).cloned())?;
        found.ok_or_else(|| Error::Driver {
            call: format!("looking for {entry} in {}", unit.file()),
            reason: "there is no such kernel".to_owned(),
        })
    }

    fn with_unit<T>(&self, unit: Unit, then: impl FnOnce(&Loaded) -> T) -> Result<T> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = loaded.get(&unit) {
            return Ok(then(known));
        }
        let made = self.compile(unit)?;
        Ok(then(loaded.entry(unit).or_insert(made)))
    }

    fn compile(&self, unit: Unit) -> Result<Loaded> {
        let file = unit.file();
        let mut sources = self.sources.iter();
        let source = sources.find(|source| source.file == file).ok_or_else(|| {
            let call = format!("looking for the source of {file}");
            let reason = "the device was opened without it".to_owned();
            Error::Driver { call, reason }
        })?;
        let cubin = self.compiler.cubin(source, self.limits.arch)?;
        let what = format!("loading {file}");
        let module: Arc<CudaModule> =
            call(&what, self.context.load_module(Ptx::from_binary(cubin)))?;
        let mut functions = HashMap::new();
        for entry in unit.entries() {
            let function = call(&what, module.load_function(entry.name))?;
            self.allow_all_shared_memory(&function, &what)?;
            functions.insert(entry.name, function);
        }
        Ok(Loaded { functions })
    }

    /// Beyond 48 KiB a kernel has to ask.
    fn allow_all_shared_memory(&self, function: &CudaFunction, what: &str) -> Result<()> {
        let fixed = call(what, function.shared_size_bytes())?;
        let most = i32::try_from(self.limits.shared_bytes).unwrap_or(i32::MAX) - fixed;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        call(what, function.set_attribute(attribute, most))
    }
}

fn limits(context: &Arc<CudaContext>) -> Result<Limits> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as SHARED,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
    };
    let what = "asking for the device's limits";
    let size = |attribute| {
        let value = call(what, context.attribute(attribute))?;
        Ok::<_, Error>(usize::try_from(value).unwrap_or(0))
    };
    let name = call(what, context.name())?;
    let (major, minor) = call(what, context.compute_capability())?;
    let part = |number: i32| u32::try_from(number).unwrap_or(0);
    Ok(Limits {
        arch: Arch::from_capability(&name, part(major), part(minor))?,
        name,
        multiprocessors: size(MULTIPROCESSORS)?,
        shared_bytes: size(SHARED)?,
        memory: call(what, context.total_mem())?,
    })
}

/// How many devices there are: with a driver and no GPU, `cuInit` already fails.
fn counted(devices: std::result::Result<i32, DriverError>) -> Result<usize> {
    match devices {
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
        other => call("counting devices", other).map(|count| usize::try_from(count).unwrap_or(0)),
    }
}

/// A driver's answer with what was asked.
pub(crate) fn call<T>(what: &str, result: std::result::Result<T, DriverError>) -> Result<T> {
    result.map_err(|error| failed(what, None, error))
}

/// The answer to a request for memory.
pub(crate) fn allocated<T>(
    what: &'static str,
    bytes: usize,
    result: std::result::Result<T, DriverError>,
) -> Result<T> {
    result.map_err(|error| failed(what, Some(bytes), error))
}

fn failed(what: &str, bytes: Option<usize>, error: DriverError) -> Error {
    let what = what.to_owned();
    match error {
        DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => Error::OutOfMemory { what, bytes },
        _ => Error::Driver {
            call: what,
            reason: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_a_gpu_sees_no_devices() {
        assert_eq!(counted(Ok(2)), Ok(2));
        assert_eq!(
            counted(Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE))),
            Ok(0)
        );
    }

    #[test]
    fn no_room_is_told_apart_from_other_failures() {
        let full = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let error = allocated::<()>("the workspace", 640, Err(full)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "out of memory: the workspace needs 640 bytes"
        );
        let error = call::<()>("launching block_pool", Err(full)).unwrap_err();
        assert_eq!(error.to_string(), "out of memory: launching block_pool");
        assert!(matches!(error, Error::OutOfMemory { bytes: None, .. }));
    }
}
