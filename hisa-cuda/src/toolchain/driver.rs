//! The driver library, looked at before anything calls it.
//!
//! cudarc loads the driver on the first call and each function on its first use, and panics where
//! either is missing. [`probe`] asks for the same library and the same functions first.

use crate::{Error, Result};
use libloading::Library;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

/// Lists functions of the driver by name. A name that cudarc does not have does not compile.
macro_rules! functions {
    ($($name:ident)*) => {
        /// The driver's functions that this crate calls, all of them through cudarc.
        pub const SYMBOLS: &[&str] = &[$(stringify!($name)),*];

        const _: () = {
            $(let _ = cudarc::driver::sys::$name;)*
        };
    };
}

functions! {
    cuInit cuGetErrorName cuGetErrorString
    cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute cuDeviceTotalMem_v2
    cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2
    cuCtxGetCurrent cuCtxSetCurrent cuCtxSynchronize
    cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamWaitEvent
    cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing
    cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventSynchronize
    cuEventElapsedTime
    cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemFreeAsync
    cuMemHostAlloc cuMemFreeHost
    cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2
    cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2
    cuMemsetD8_v2 cuMemsetD8Async
    cuModuleLoadData cuModuleUnload cuModuleGetFunction
    cuFuncGetAttribute cuFuncSetAttribute cuLaunchKernel
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    cuGraphInstantiateWithFlags cuGraphUpload cuGraphLaunch cuGraphExecDestroy cuGraphDestroy
}

/// Says whether the driver can be called. Costs a load on the first call and nothing after.
///
/// # Errors
/// [`Error::NoDriver`] where there is no library, [`Error::DriverSymbol`] where it lacks a
/// function of [`SYMBOLS`].
pub fn probe() -> Result<()> {
    static FOUND: OnceLock<Result<()>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let library = find(&names(), SYMBOLS)?;
            // Kept: cudarc is to get this library, not another that has taken its place.
            let _ = ManuallyDrop::new(library);
            Ok(())
        })
        .clone()
}

/// The names cudarc tries, in its order.
fn names() -> Vec<String> {
    let kinds = ["cuda", "nvcuda"].into_iter();
    kinds.flat_map(cudarc::get_lib_name_candidates).collect()
}

/// The first library of `names` that loads, with every function of `symbols`.
///
/// The first that loads is the one cudarc gets: if it lacks a function, later names do not help.
fn find(names: &[String], symbols: &[&'static str]) -> Result<Library> {
    for name in names {
        // SAFETY: loading runs the initialisers of the CUDA driver, which have no precondition.
        let Ok(library) = (unsafe { Library::new(name) }) else {
            continue;
        };
        for &symbol in symbols {
            // SAFETY: the address is looked at and never called.
            if unsafe { library.get::<*const ()>(symbol) }.is_err() {
                return Err(Error::DriverSymbol {
                    symbol,
                    library: name.clone(),
                });
            }
        }
        return Ok(library);
    }
    Err(Error::NoDriver {
        searched: names.to_vec(),
    })
}
