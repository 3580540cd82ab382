//! `quantize`: rows to codes with one scale each (SPEC 1).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use cudarc::driver::CudaStream;
use hisa_ref::Overflow;
use hisa_ref::stages::quantize::ScaleFormat;

const THREADS: u32 = 128;

/// Rows of either type.
#[derive(Debug, Clone, Copy)]
pub enum RowSlice<'a> {
    /// f32.
    F32(DeviceSlice<'a, f32>),
    /// bf16, by its bits.
    Bf16(DeviceSlice<'a, u16>),
}

/// What the stage reads and writes.
#[derive(Debug)]
pub struct Args<'a> {
    /// `[rows, D]`.
    pub x: RowSlice<'a>,
    /// Rows.
    pub rows: usize,
    /// D.
    pub head_dim: usize,
    /// How scales are written.
    pub format: ScaleFormat,
    /// What codes beyond 448 become.
    pub overflow: Overflow,
    /// Out: `[rows, D]`.
    pub codes: DeviceSliceMut<'a, u8>,
    /// Out: `[rows]`.
    pub scale: DeviceSliceMut<'a, f32>,
}

/// Quantises rows by the rules of permissive mode (SPEC 1.5).
///
/// # Errors
/// [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let elements = args.rows * args.head_dim;
    let (entry, x) = match args.x {
        RowSlice::F32(x) => ("quantize_f32", x.holding("x", elements)?),
        RowSlice::Bf16(x) => ("quantize_bf16", x.holding("x", elements)?),
    };
    let arguments = [
        Arg::Pointer(x),
        Arg::Pointer(args.codes.holding("codes", elements)?),
        Arg::Pointer(args.scale.holding("scale", args.rows)?),
        size(args.rows),
        size(args.head_dim),
        Arg::Small(i32::from(args.format == ScaleFormat::Ue8m0)),
        Arg::Small(i32::from(args.overflow == Overflow::NonSaturating)),
    ];
    let grid = Grid::rows(args.rows, THREADS);
    put(device, stream, (Unit::Quantize, entry), grid, &arguments)
}
