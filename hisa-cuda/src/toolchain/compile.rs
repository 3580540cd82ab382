//! From a source to a cubin, through the cache.

use super::cache::{Cache, Key};
use crate::Result;
use crate::toolchain::{Arch, Nvrtc, Source};

/// Compiles kernels, each once.
///
/// NVRTC is needed even where the cache holds every cubin: its release is part of the key, so that
/// another toolkit never leaves old machine code in use.
#[derive(Debug)]
pub struct Compiler {
    nvrtc: Nvrtc,
    cache: Cache,
}

impl Compiler {
    /// With NVRTC and the cache from where the environment has them.
    ///
    /// # Errors
    /// As [`Nvrtc::load`].
    pub fn new() -> Result<Self> {
        Ok(Self::with(Nvrtc::load()?, Cache::from_environment()))
    }

    /// With this NVRTC and this cache.
    #[must_use]
    pub const fn with(nvrtc: Nvrtc, cache: Cache) -> Self {
        Self { nvrtc, cache }
    }

    /// The run-time compiler.
    #[must_use]
    pub const fn nvrtc(&self) -> &Nvrtc {
        &self.nvrtc
    }

    /// The cache.
    #[must_use]
    pub const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The cubin of a source. The same source gives the same bytes, cached or not.
    ///
    /// # Errors
    /// As [`Nvrtc::compile`]. What the cache does is never an error.
    pub fn cubin(&self, source: &Source, arch: Arch) -> Result<Vec<u8>> {
        let key = Key::new(source, arch, &self.nvrtc);
        let compile = || self.nvrtc.compile(source, arch);
        self.cache.get_or(key, compile)
    }
}
