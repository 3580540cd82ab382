//! From a source to a cubin, through the cache.

use super::cache::{Cache, Key};
use crate::Result;
use crate::toolchain::{Arch, Nvrtc, Source};
use std::sync::OnceLock;

/// Compiles kernels, each once.
///
/// NVRTC is loaded when the first cubin is asked for, even where the cache holds it: its release
/// is part of the key, so that an upgrade of the toolkit never leaves old machine code in use.
#[derive(Debug)]
pub struct Compiler {
    nvrtc: OnceLock<Result<Nvrtc>>,
    cache: Cache,
}

impl Compiler {
    /// Takes NVRTC from where the environment has it.
    #[must_use]
    pub const fn new(cache: Cache) -> Self {
        Self {
            nvrtc: OnceLock::new(),
            cache,
        }
    }

    /// Takes this NVRTC.
    #[must_use]
    pub fn with(nvrtc: Nvrtc, cache: Cache) -> Self {
        Self {
            nvrtc: OnceLock::from(Ok(nvrtc)),
            cache,
        }
    }

    /// NVRTC, loaded now if it was not.
    ///
    /// # Errors
    /// As [`Nvrtc::load`], and the same again on every call.
    pub fn nvrtc(&self) -> Result<&Nvrtc> {
        let loaded = self.nvrtc.get_or_init(Nvrtc::load);
        loaded.as_ref().map_err(Clone::clone)
    }

    /// The cubin of a source.
    ///
    /// # Errors
    /// As [`Nvrtc::load`] and [`Nvrtc::compile`]. What the cache does is never an error.
    pub fn cubin(&self, source: &Source, arch: Arch) -> Result<Vec<u8>> {
        let nvrtc = self.nvrtc()?;
        let key = Key::new(source, arch, nvrtc);
        self.cache.get_or(key, || nvrtc.compile(source, arch))
    }
}
