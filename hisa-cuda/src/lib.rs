#![doc = include_str!("../README.md")]

pub mod arena;
pub mod block_sparse;
mod choose_blocks;
pub mod device;
pub mod dsa;
pub mod error;
pub mod hisa;
pub mod host;
pub mod incremental;
pub mod kernel;
mod launch;
pub mod numerics;
mod scorer;
pub mod scratch;
pub mod shape;
pub mod slice;
pub mod stages;
pub mod toolchain;
mod workspace;

pub use cudarc::driver::CudaStream;
pub use device::{Device, Limits};
pub use error::{Error, Result};
pub use host::Host;
pub use shape::{Blocks, Sizes};
pub use slice::{DeviceSlice, DeviceSliceMut};
pub use stages::Scoring;
