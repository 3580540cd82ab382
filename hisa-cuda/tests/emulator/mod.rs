//! Runs kernels on the CPU: compiles the real sources against a shim and launches their entries.

mod build;

use build::Shared;
use std::ffi::{CString, c_char, c_int, c_void};

pub(crate) use build::{have_compiler, kernel_text};

/// Definitions that make the tensor cores those of `sm_80` and `sm_89`.
pub(crate) const AMPERE: [&str; 2] = ["EMULATOR_FRACTION_BITS=24", "EMULATOR_GROUP=8"];

/// A plain number that kernels take.
pub(crate) trait Number: Copy + 'static {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for i32 {}
impl Number for i64 {}
impl Number for f32 {}
impl Number for f64 {}

/// An argument of an entry.
#[derive(Debug)]
pub(crate) enum Arg<'a> {
    Scalar(Vec<u8>),
    In(&'a [u8]),
    /// Written in full by the kernel; holds garbage before.
    Out(&'a mut [u8]),
    /// Holds these bytes before.
    InOut(&'a mut [u8]),
}

impl Arg<'_> {
    pub(crate) fn scalar<T: Number>(value: T) -> Self {
        Self::Scalar(bytes(&[value]).to_vec())
    }
}

/// A tensor the kernel reads.
pub(crate) fn input<T: Number>(values: &[T]) -> Arg<'_> {
    Arg::In(bytes(values))
}

/// A tensor the kernel writes.
pub(crate) fn output<T: Number>(values: &mut [T]) -> Arg<'_> {
    Arg::Out(bytes_mut(values))
}

/// A tensor the kernel changes in place.
pub(crate) fn in_place<T: Number>(values: &mut [T]) -> Arg<'_> {
    Arg::InOut(bytes_mut(values))
}

fn bytes<T: Number>(values: &[T]) -> &[u8] {
    // SAFETY: numbers have no padding, and the view has their size.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn bytes_mut<T: Number>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern is a number of each of these types.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// How an entry is launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// Blocks in x and y.
    pub(crate) grid: [usize; 2],
    /// Threads of a block, whole warps.
    pub(crate) block: usize,
    /// Bytes of dynamic shared memory.
    pub(crate) shared: usize,
}

/// The C side of an argument.
#[repr(C)]
struct RawArg {
    data: *mut c_void,
    bytes: u64,
    kind: c_int,
}

#[repr(C)]
struct Request {
    entry: *const c_char,
    arguments: *const RawArg,
    count: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u64,
    seed: u64,
}

type Emulate = unsafe extern "C" fn(*const Request, *mut c_char, usize) -> c_int;

/// A compiled source file of kernels.
pub(crate) struct Unit {
    library: Shared,
}

impl Unit {
    /// The unit of this name in `src/kernels`, on the tensor cores of `sm_90`.
    pub(crate) fn kernel(file: &str) -> Self {
        Self::with(file, &[], &[])
    }

    /// A unit whose files are replaced by texts, with definitions for the emulator.
    pub(crate) fn with(file: &str, texts: &[(&str, String)], defines: &[&str]) -> Self {
        let library = build::unit(file, texts, defines);
        Self { library }
    }

    /// Launches with two schedules, two poisons and tensors at either end of their pages.
    ///
    /// The error is what went wrong in one of them, or that their results differ.
    pub(crate) fn launch(
        &self,
        entry: &str,
        launch: Launch,
        args: &mut [Arg<'_>],
    ) -> Result<(), String> {
        let before: Vec<Option<Vec<u8>>> = args.iter().map(written).collect();
        self.launch_once(entry, launch, args, 0)?;
        let first: Vec<Option<Vec<u8>>> = args.iter().map(written).collect();
        for (arg, bytes) in args.iter_mut().zip(&before) {
            if let (Arg::Out(to) | Arg::InOut(to), Some(bytes)) = (arg, bytes) {
                to.copy_from_slice(bytes);
            }
        }
        self.launch_once(entry, launch, args, 3)?;
        for (index, (arg, first)) in args.iter().zip(&first).enumerate() {
            if let (Some(second), Some(first)) = (written(arg), first)
                && let Some(at) = (0..first.len()).find(|&at| first[at] != second[at])
            {
                return Err(format!(
                    "{entry}: byte {at} of argument {index} depends on the schedule, \
                     on the alignment or on what memory held before"
                ));
            }
        }
        Ok(())
    }

    /// Launches once. Bit 0 of the seed picks how threads are scheduled and the poison of shared
    /// memory and outputs, bit 1 which end of a tensor lies at a guard page.
    pub(crate) fn launch_once(
        &self,
        entry: &str,
        launch: Launch,
        args: &mut [Arg<'_>],
        seed: u64,
    ) -> Result<(), String> {
        let name = CString::new(entry).unwrap();
        let raw: Vec<RawArg> = args.iter_mut().map(raw).collect();
        let [x, y] = launch.grid.map(|size| u32::try_from(size).unwrap());
        let request = Request {
            entry: name.as_ptr(),
            arguments: raw.as_ptr(),
            count: raw.len() as u64,
            grid: [x, y, 1],
            block: [u32::try_from(launch.block).unwrap(), 1, 1],
            shared_bytes: launch.shared as u64,
            seed,
        };
        let mut error = vec![0u8; 1024];
        let library = self
            .library
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: the library was compiled from this folder and exports the function; the request
        // and all it points to outlive the call; the lock keeps calls apart.
        let status = unsafe {
            let emulate: libloading::Symbol<'_, Emulate> = library.get(b"emulate\0").unwrap();
            emulate(&raw const request, error.as_mut_ptr().cast(), error.len())
        };
        if status == 0 {
            return Ok(());
        }
        let end = error.iter().position(|&byte| byte == 0).unwrap_or(0);
        Err(String::from_utf8_lossy(&error[..end]).into_owned())
    }
}

fn written(arg: &Arg<'_>) -> Option<Vec<u8>> {
    match arg {
        Arg::Out(bytes) | Arg::InOut(bytes) => Some(bytes.to_vec()),
        Arg::Scalar(_) | Arg::In(_) => None,
    }
}

fn raw(arg: &mut Arg<'_>) -> RawArg {
    let (data, bytes, kind) = match arg {
        Arg::Scalar(value) => (value.as_mut_ptr(), value.len(), 0),
        Arg::In(values) => (values.as_ptr().cast_mut(), values.len(), 1),
        Arg::Out(values) => (values.as_mut_ptr(), values.len(), 2),
        Arg::InOut(values) => (values.as_mut_ptr(), values.len(), 3),
    };
    RawArg {
        data: data.cast(),
        bytes: bytes as u64,
        kind,
    }
}
