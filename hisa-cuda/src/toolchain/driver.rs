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
    cuMemsetD8_v2 cuMemsetD8Async cuMemsetD32Async
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::stub;

    /// A driver of functions that do nothing.
    fn driver(folder: &std::path::Path, symbols: &[&str]) -> Option<Vec<String>> {
        let functions = symbols
            .iter()
            .map(|name| format!("int {name}(void) {{ return 0; }}\n"));
        let file = stub::library(folder, "libcuda.so", &functions.collect::<String>())?;
        let absent = folder.join("libabsent.so");
        let names = [absent, file].map(|path| path.to_str().unwrap().to_owned());
        Some(names.to_vec())
    }

    #[test]
    fn a_driver_with_every_function_passes() {
        let folder = tempfile::tempdir().unwrap();
        let Some(names) = driver(folder.path(), SYMBOLS) else {
            return;
        };
        assert!(find(&names, SYMBOLS).is_ok());
    }

    #[test]
    fn each_function_that_is_missing_is_named() {
        for missing in [0, SYMBOLS.len() / 2, SYMBOLS.len() - 1] {
            let folder = tempfile::tempdir().unwrap();
            let mut present = SYMBOLS.to_vec();
            let symbol = present.remove(missing);
            let Some(names) = driver(folder.path(), &present) else {
                return;
            };
            let library = names[1].clone();
            let error = find(&names, SYMBOLS).unwrap_err();
            assert_eq!(error, Error::DriverSymbol { symbol, library });
        }
    }

    #[test]
    fn a_machine_without_driver_is_told_what_was_tried() {
        let searched = vec!["libabsent.so".to_owned(), "libabsent.so.1".to_owned()];
        let error = find(&searched, SYMBOLS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no CUDA driver: libabsent.so, libabsent.so.1 could not be loaded"
        );
    }

    #[test]
    fn names_are_those_that_cudarc_tries() {
        let names = names();
        for name in ["libcuda.so", "libcuda.so.1", "libnvcuda.so"] {
            assert!(names.iter().any(|tried| tried == name), "{names:?}");
        }
        // Whether there is a driver or not, asking twice says the same.
        assert_eq!(probe(), probe());
    }
}
