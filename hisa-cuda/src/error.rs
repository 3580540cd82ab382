//! What can go wrong, by type. Every message names what was looked at and the numbers.

use std::path::PathBuf;
use thiserror::Error;

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The CUDA driver library is not there.
    #[error("no CUDA driver: {} could not be loaded", names(.searched))]
    NoDriver {
        /// Names that were tried.
        searched: Vec<String>,
    },
    /// The driver is older than the kernels' compiler.
    #[error("the CUDA driver {library} is of CUDA {major}.{minor}; 12.4 or later is needed")]
    DriverTooOld {
        /// The library.
        library: String,
        /// Of the CUDA version it says it is of.
        major: u32,
        /// Of that version.
        minor: u32,
    },
    /// The driver library lacks a function this crate calls.
    #[error("the CUDA driver {library} has no {symbol}")]
    DriverSymbol {
        /// The missing function.
        symbol: &'static str,
        /// The library.
        library: String,
    },
    /// The driver is there and no GPU is.
    #[error("no CUDA device {ordinal}: the driver sees {devices}")]
    NoDevice {
        /// The device asked for.
        ordinal: usize,
        /// Devices there are.
        devices: usize,
    },
    /// The GPU is older than the kernels.
    #[error("{name} has compute capability {major}.{minor}; kernels need 8.0 or later")]
    DeviceTooOld {
        /// The GPU.
        name: String,
        /// Of its compute capability.
        major: u32,
        /// Of its compute capability.
        minor: u32,
    },
    /// The run-time compiler is not there, or none of those there can be used.
    #[error("no NVRTC 12.4 or later: looked in {}{}", list(.searched), reasons(.refused))]
    NoNvrtc {
        /// Folders and names that were tried, in order.
        searched: Vec<PathBuf>,
        /// What was there, and why each could not be used.
        refused: Vec<Error>,
    },
    /// A setting in the environment names something that cannot be used.
    #[error("{name} is {}: {reason}", .value.display())]
    Setting {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A library was named or found, and could not be loaded.
    #[error("{} could not be loaded: {reason}", .library.display())]
    Library {
        /// The file.
        library: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// The run-time compiler lacks a function.
    #[error("{} has no {symbol}", .library.display())]
    NvrtcSymbol {
        /// The missing function.
        symbol: &'static str,
        /// The library.
        library: PathBuf,
    },
    /// The run-time compiler is too old.
    #[error("{} is NVRTC {major}.{minor}; 12.4 or later is needed", .library.display())]
    NvrtcTooOld {
        /// The library.
        library: PathBuf,
        /// Of its version.
        major: u32,
        /// Of its version.
        minor: u32,
    },
    /// A kernel does not compile.
    #[error("{unit} does not compile with {}:\n{log}", .options.join(" "))]
    Compile {
        /// The source file.
        unit: String,
        /// The options.
        options: Vec<String>,
        /// What the compiler said.
        log: String,
    },
    /// A change of a kernel's source would not be exactly one.
    #[error("{unit} with its headers holds {find:?} {found} times; a change needs it once")]
    Change {
        /// The source file.
        unit: String,
        /// The text to replace.
        find: String,
        /// How often it is there.
        found: usize,
    },
    /// Another call of the run-time compiler failed.
    #[error("{call} failed: {reason}")]
    Nvrtc {
        /// The function.
        call: &'static str,
        /// What it returned.
        reason: String,
    },
    /// The device has no room, or the host none that the device can reach.
    #[error("out of memory: {what}{}", needs(.bytes))]
    OutOfMemory {
        /// What was to be allocated, or the call that found no room for something of the driver's.
        what: String,
        /// The size of what was to be allocated.
        bytes: Option<usize>,
    },
    /// A call of the driver failed. Faults of kernels come up here, in the first call that waits.
    #[error("{call} failed: {reason}")]
    Driver {
        /// What was called, and for which stage.
        call: String,
        /// The driver's name of the error.
        reason: String,
    },
    /// A size beyond what the kernels take.
    #[error("unsupported: {name} is {value}; the kernels take at most {limit}")]
    Unsupported {
        /// The size.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The limit.
        limit: usize,
    },
    /// A device tensor is shorter than its shape.
    #[error("{tensor} holds {len} elements; {needed} are needed")]
    Length {
        /// The argument.
        tensor: &'static str,
        /// Elements it has.
        len: usize,
        /// Elements its shape has.
        needed: usize,
    },
    /// A tensor was given to a stream that does not order its accesses.
    #[error("{tensor} belongs to another stream than the one it is used on")]
    Stream {
        /// The argument.
        tensor: &'static str,
    },
    /// A place that the arena has forgotten, or never had.
    #[error("{tensor} is no tensor that the arena holds")]
    Place {
        /// The argument.
        tensor: &'static str,
    },
    /// The input is refused, as the reference refuses it.
    #[error(transparent)]
    Input(#[from] hisa_ref::Error),
}

fn needs(bytes: &Option<usize>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(" needs {bytes} bytes"))
}

/// The first names, and how many there are besides.
fn names(all: &[String]) -> String {
    const SHOWN: usize = 2;
    let shown = all[..all.len().min(SHOWN)].join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} other names"),
    }
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(", ")
}

fn reasons(errors: &[Error]) -> String {
    errors.iter().map(|error| format!("; {error}")).collect()
}
