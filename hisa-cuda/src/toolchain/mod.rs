//! Finding and using the CUDA driver and NVRTC.
//!
//! ```text
//! driver (probed before anything calls it)
//! search -> nvrtc -> compile(source, arch, cache) -> cubin
//! ```

pub mod arch;
pub mod cache;
pub mod compile;
pub mod driver;
pub mod nvrtc;
pub mod search;
pub mod source;
#[cfg(test)]
mod stub;

pub use arch::Arch;
pub use cache::Cache;
pub use compile::Compiler;
pub use nvrtc::Nvrtc;
pub use source::Source;
