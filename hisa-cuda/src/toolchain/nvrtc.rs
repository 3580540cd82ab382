//! NVRTC, loaded by path.
//!
//! cudarc would look for it by name only, and panic where it is not found.

use super::search::{self, Candidates, Environment};
use super::source::{Source, options};
use crate::toolchain::Arch;
use crate::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// The oldest release that is supported.
pub const OLDEST: (u32, u32) = (12, 4);

/// The run-time compiler. Its functions may be called by several threads at once, as long as no
/// two use one program; every program here stays within one call.
#[derive(Debug)]
pub struct Nvrtc {
    library: PathBuf,
    bytes: u64,
    version: (u32, u32),
    functions: Functions,
}

impl Nvrtc {
    /// Loads the first NVRTC that works, from where [`search::candidates`] says.
    ///
    /// # Errors
    /// [`Error::Setting`] where `HISA_NVRTC` names nothing that works, [`Error::NoNvrtc`] where
    /// nothing else does.
    pub fn load() -> Result<Self> {
        let environment = Environment::of_process();
        let candidates = search::candidates(&environment)?;
        let found = Self::first_of(&candidates);
        match (found, environment.hisa_nvrtc) {
            (Err(Error::NoNvrtc { refused, .. }), Some(value)) => {
                let reasons: Vec<String> = refused.iter().map(Error::to_string).collect();
                Err(search::unusable(&value, &reasons.join("; ")))
            }
            (found, _) => found,
        }
    }

    /// Loads the first of these that works.
    ///
    /// # Errors
    /// [`Error::NoNvrtc`] with what was wrong with each file that is there.
    pub fn first_of(candidates: &Candidates) -> Result<Self> {
        let mut refused = Vec::new();
        for library in &candidates.libraries {
            match Self::open(library) {
                Ok(nvrtc) => return Ok(nvrtc),
                // A bare name that the system's loader does not know is not there: no news.
                Err(Error::Library { .. }) if is_bare(library) => {}
                Err(error) => refused.push(error),
            }
        }
        Err(Error::NoNvrtc {
            searched: candidates.searched.clone(),
            refused,
        })
    }

    /// Loads one library: a path, or a bare name for the system's loader to find.
    ///
    /// The library of built-ins beside it is loaded first, by its path: NVRTC asks for it by name
    /// at the first compilation, and only one that is loaded already is sure to be found then.
    ///
    /// # Errors
    /// [`Error::Library`] where it does not load, [`Error::NvrtcSymbol`] where it lacks a
    /// function, [`Error::NvrtcTooOld`] before 12.4, [`Error::Nvrtc`] where it does not say its
    /// version.
    pub fn open(path: &Path) -> Result<Self> {
        let builtins = builtins_beside(path);
        if let Some(newest) = builtins.first() {
            open_global(newest)?;
        }
        let library = open_global(path)?;
        let functions = Functions::of(&library, path)?;
        let version = functions.version()?;
        let (major, minor) = version;
        if version < OLDEST {
            return Err(Error::NvrtcTooOld {
                library: path.to_owned(),
                major,
                minor,
            });
        }
        let own = format!("libnvrtc-builtins.so.{major}.{minor}");
        if let Some(own) = builtins.iter().skip(1).find(|file| file.ends_with(&own)) {
            open_global(own)?;
        }
        Ok(Self {
            library: path.to_owned(),
            bytes: std::fs::metadata(path).map_or(0, |found| found.len()),
            version,
            functions,
        })
    }

    /// Where it was loaded from.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Its release, as major and minor number.
    #[must_use]
    pub const fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The size of the library's file in bytes, 0 where the system's loader found it: tells builds
    /// of one release apart.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Compiles to a cubin: machine code of this architecture, which the driver loads as it is.
    ///
    /// # Errors
    /// [`Error::Compile`] with options and log, [`Error::Nvrtc`] where another call fails.
    pub fn compile(&self, source: &Source, arch: Arch) -> Result<Vec<u8>> {
        let program = Program::new(&self.functions, source)?;
        program.compile(source, options(arch))?;
        program.cubin()
    }
}

/// Whether a path is a name without a folder.
fn is_bare(path: &Path) -> bool {
    path.parent() == Some(Path::new(""))
}

/// Libraries of built-ins in the folder of a library and of the same major release: first the
/// same minor release, where the library's name has it after following links, then the newest.
fn builtins_beside(library: &Path) -> Vec<PathBuf> {
    if is_bare(library) {
        return Vec::new();
    }
    let resolved = std::fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
    let own = release(&resolved);
    let mut found = Vec::new();
    for folder in [library.parent(), resolved.parent()].into_iter().flatten() {
        for file in search::entries(folder, "libnvrtc-builtins.so.") {
            if !found.contains(&file) && (own.is_empty() || release(&file).first() == own.first()) {
                found.push(file);
            }
        }
    }
    let minor = |file: &Path| release(file).get(1).copied();
    found.sort_by_key(|file| own.len() < 2 || minor(file) != own.get(1).copied());
    found
}

/// The numbers at the end of a library's name.
fn release(file: &Path) -> Vec<u64> {
    search::version(&file.file_name().unwrap_or_default().to_string_lossy())
}

/// Loads a library for the rest of the process: compilers leave threads and tables behind that
/// do not survive an unload.
fn open_global(path: &Path) -> Result<ManuallyDrop<Library>> {
    #[cfg(unix)]
    // SAFETY: loading runs the initialisers of NVRTC, which have no precondition.
    let library = unsafe {
        use libloading::os::unix;
        unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL).map(Library::from)
    };
    #[cfg(not(unix))]
    // SAFETY: as above.
    let library = unsafe { Library::new(path) };
    library
        .map(ManuallyDrop::new)
        .map_err(|error| Error::Library {
            library: path.to_owned(),
            reason: error.to_string(),
        })
}

/// An `nvrtcProgram`.
type Handle = *mut c_void;
/// An `nvrtcResult`; 0 is success.
type Status = c_int;
/// Reads a size of a program.
type GetSize = unsafe extern "C" fn(Handle, *mut usize) -> Status;
/// Fills a buffer of that size.
type GetBytes = unsafe extern "C" fn(Handle, *mut c_char) -> Status;

/// Declares the table and fills it from a library by the names that NVRTC exports.
macro_rules! table {
    ($($field:ident = $symbol:ident: $signature:ty,)*) => {
        #[derive(Debug)]
        struct Functions {
            $($field: $signature,)*
        }

        impl Functions {
            fn of(library: &Library, path: &Path) -> Result<Self> {
                $(
                    // SAFETY: the signature is that of nvrtc.h, unchanged from 11.1 to 13.0, and
                    // the library is never unloaded.
                    let $field = unsafe { library.get::<$signature>(stringify!($symbol)) }
                        .map_err(|_| Error::NvrtcSymbol {
                            symbol: stringify!($symbol),
                            library: path.to_owned(),
                        })?;
                )*
                Ok(Self { $($field: *$field,)* })
            }
        }
    };
}

table! {
    version = nvrtcVersion: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    error_string = nvrtcGetErrorString: unsafe extern "C" fn(Status) -> *const c_char,
    create = nvrtcCreateProgram: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy = nvrtcDestroyProgram: unsafe extern "C" fn(*mut Handle) -> Status,
    compile = nvrtcCompileProgram:
        unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    cubin_size = nvrtcGetCUBINSize: GetSize,
    cubin = nvrtcGetCUBIN: GetBytes,
    log_size = nvrtcGetProgramLogSize: GetSize,
    log = nvrtcGetProgramLog: GetBytes,
}

impl Functions {
    fn version(&self) -> Result<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers lead to integers.
        let status = unsafe { (self.version)(&raw mut major, &raw mut minor) };
        self.check("nvrtcVersion", status)?;
        Ok((major.unsigned_abs(), minor.unsigned_abs()))
    }

    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let reason = self.reason(status);
        Err(Error::Nvrtc { call, reason })
    }

    fn reason(&self, status: Status) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: a text of the library's own, which ends in NUL and is never freed.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

/// A program, destroyed when it goes.
struct Program<'a> {
    functions: &'a Functions,
    handle: Handle,
}

impl<'a> Program<'a> {
    fn new(functions: &'a Functions, source: &Source) -> Result<Self> {
        let text = terminated(&source.text, &source.file)?;
        let file = terminated(&source.file, &source.file)?;
        let (mut names, mut texts) = (Vec::new(), Vec::new());
        for (name, text) in &source.headers {
            names.push(terminated(name, name)?);
            texts.push(terminated(text, name)?);
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: all texts end in NUL and outlive the call, which copies them; there are as many
        // names as texts.
        let status = unsafe {
            (functions.create)(
                &raw mut handle,
                text.as_ptr(),
                file.as_ptr(),
                count(&names),
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        functions.check("nvrtcCreateProgram", status)?;
        Ok(Self { functions, handle })
    }

    fn compile(&self, source: &Source, options: Vec<String>) -> Result<()> {
        let terminated: Result<Vec<CString>> = options
            .iter()
            .map(|option| terminated(option, "an option"))
            .collect();
        let terminated = terminated?;
        let pointers = pointers(&terminated);
        // SAFETY: the program is alive, and there are as many options as are counted.
        let status =
            unsafe { (self.functions.compile)(self.handle, count(&terminated), pointers.as_ptr()) };
        if status == 0 {
            return Ok(());
        }
        let log = self.log().unwrap_or_else(|error| error.to_string());
        Err(Error::Compile {
            unit: source.file.clone(),
            options,
            log: format!("{}\n{log}", self.functions.reason(status)),
        })
    }

    fn cubin(&self) -> Result<Vec<u8>> {
        let calls = ("nvrtcGetCUBINSize", "nvrtcGetCUBIN");
        let cubin = self.read(calls, self.functions.cubin_size, self.functions.cubin)?;
        if cubin.is_empty() {
            return Err(Error::Nvrtc {
                call: calls.0,
                reason: "there is no machine code".to_owned(),
            });
        }
        Ok(cubin)
    }

    fn log(&self) -> Result<String> {
        let calls = ("nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
        let log = self.read(calls, self.functions.log_size, self.functions.log)?;
        let text = String::from_utf8_lossy(&log);
        Ok(text.trim_end_matches(['\0', '\n']).to_owned())
    }

    fn read(
        &self,
        calls: (&'static str, &'static str),
        size: GetSize,
        bytes: GetBytes,
    ) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the program is alive and the pointer leads to a size.
        let status = unsafe { size(self.handle, &raw mut len) };
        self.functions.check(calls.0, status)?;
        let mut buffer = vec![0_u8; len];
        if len > 0 {
            // SAFETY: the buffer has the size that the library asked for.
            let status = unsafe { bytes(self.handle, buffer.as_mut_ptr().cast()) };
            self.functions.check(calls.1, status)?;
        }
        Ok(buffer)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is alive, and nothing uses it after this.
        unsafe { (self.functions.destroy)(&raw mut self.handle) };
    }
}

fn terminated(text: &str, name: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::Nvrtc {
        call: "nvrtcCreateProgram",
        reason: format!("{name} holds a NUL at byte {}", error.nul_position()),
    })
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn count(texts: &[CString]) -> c_int {
    // A handful: headers of a unit, options of a call.
    c_int::try_from(texts.len()).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests;
