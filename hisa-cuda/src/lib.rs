//! The CUDA fast path of the HISA indexer.
//!
//! **Empty for now.** This crate reserves the place the kernels will take: one kernel per stage of
//! `hisa_ref`, compiled by NVRTC at run time through `cudarc`, with the same stage names. Until
//! then nothing here touches a driver, and the workspace builds on machines without CUDA.
#![forbid(unsafe_code)]
