//! The driver library, looked at before anything calls it.
//!
//! cudarc loads the driver on the first call and each function on its first use, and panics where
//! either is missing. [`probe`] asks for the same library and the same functions first.

use crate::{Error, Result};
use libloading::Library;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

/// Lists functions of the driver by name. A name that cudarc does not have does not compile.
macro_rules! functions {
    ($($name:ident)*) => {
        /// The driver's functions that the library calls, itself or through cudarc.
        pub const SYMBOLS: &[&str] = &[$(stringify!($name)),*];

        const _: () = {
            $(let _ = cudarc::driver::sys::$name;)*
        };
    };
}

// Graphs, captures, timed events and blocking copies are the caller's: this crate never calls
// them, and a driver without one of them is not refused for it.
functions! {
    cuDriverGetVersion cuInit cuGetErrorName cuGetErrorString
    cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute cuDeviceTotalMem_v2
    cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2
    cuCtxGetCurrent cuCtxSetCurrent cuCtxSynchronize
    cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize
    cuEventCreate cuEventDestroy_v2 cuEventSynchronize
    cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemFreeAsync
    cuMemHostAlloc cuMemFreeHost
    cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2
    cuMemsetD8Async cuMemsetD32Async
    cuModuleLoadData cuModuleUnload cuModuleGetFunction
    cuFuncGetAttribute cuFuncSetAttribute cuLaunchKernel
}

/// The version of CUDA a driver must be of, as the driver writes it: that of the oldest NVRTC.
const NEEDED: i32 = 12_040;

/// Says whether the driver can be called. Costs a load on the first call and nothing after.
///
/// # Errors
/// [`Error::NoDriver`] where there is no library, [`Error::DriverTooOld`] where it is of a CUDA
/// before 12.4, [`Error::DriverSymbol`] where it lacks a function of [`SYMBOLS`].
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
        recent(&library, name)?;
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

/// Asks the library of what CUDA it is. A version comes before functions, because it is what a
/// user can act on.
fn recent(library: &Library, name: &str) -> Result<()> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    let symbol = "cuDriverGetVersion";
    // SAFETY: the driver's function has this signature.
    let found = unsafe { library.get::<GetVersion>(symbol) };
    let get_version = found.map_err(|_| Error::DriverSymbol {
        symbol,
        library: name.to_owned(),
    })?;
    let mut version = 0;
    // SAFETY: it may be called before `cuInit`, and writes one integer.
    let status = unsafe { get_version(&raw mut version) };
    if status != 0 {
        return Err(Error::Driver {
            call: symbol.to_owned(),
            reason: format!("error {status}"),
        });
    }
    if version < NEEDED {
        let version = u32::try_from(version).unwrap_or(0);
        return Err(Error::DriverTooOld {
            library: name.to_owned(),
            major: version / 1000,
            minor: version % 1000 / 10,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::stub;

    /// A driver of functions that do nothing, but for the one that says it is the oldest to do.
    fn driver(folder: &std::path::Path, symbols: &[&str]) -> Option<Vec<String>> {
        driver_of(NEEDED, folder, symbols)
    }

    fn driver_of(version: i32, folder: &std::path::Path, symbols: &[&str]) -> Option<Vec<String>> {
        let functions = symbols.iter().map(|&name| match name {
            "cuDriverGetVersion" => {
                format!("int {name}(int* version) {{ *version = {version}; return 0; }}\n")
            }
            _ => format!("int {name}(void) {{ return 0; }}\n"),
        });
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
    fn an_old_driver_is_told_its_version_whatever_else_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let Some(names) = driver_of(12_020, folder.path(), &SYMBOLS[..3]) else {
            return;
        };
        let library = names[1].clone();
        let error = find(&names, SYMBOLS).unwrap_err();
        let says = format!("the CUDA driver {library} is of CUDA 12.2; 12.4 or later is needed");
        assert_eq!(error.to_string(), says);
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
