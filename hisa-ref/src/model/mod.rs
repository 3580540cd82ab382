//! What declared arithmetics other than the specification's compute, bit for bit.
//!
//! [`tensor_core`] holds integer models of the matrix units that kernels take dots with,
//! [`epilogue`] the f32 arithmetic that turns dots into a score. Derivations and evidence are in
//! `docs/NUMERICS.md`.

pub mod class;
pub mod epilogue;
pub mod tensor_core;

pub use class::{Chain, DotClass, Grouping, Operand, Unit};
pub use epilogue::{Arithmetic, Epilogue, HeadOrder, Relu, ScalePlace};
pub use tensor_core::{dot, step};
