//! `quantize`: rows to codes with one scale each (SPEC 1).

use crate::device::Device;
use crate::error::Result;
use crate::kernel::Unit;
use crate::launch::{Arg, Grid, launch as put, size};
use crate::shape::{at_most, elements};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use cudarc::driver::CudaStream;
use hisa_ref::Overflow;
use hisa_ref::params::INDEX_MAX;
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
/// [`crate::Error::Unsupported`], [`crate::Error::Length`]; those of compiling and launching.
pub fn launch(device: &Device, stream: &CudaStream, args: &Args<'_>) -> Result<()> {
    let arguments = arguments(args)?;
    let entry = match args.x {
        RowSlice::F32(_) => "quantize_f32",
        RowSlice::Bf16(_) => "quantize_bf16",
    };
    let grid = Grid::rows(args.rows, THREADS);
    put(device, stream, (Unit::Quantize, entry), grid, &arguments)
}

/// What the kernel is given, checked.
pub(super) fn arguments(args: &Args<'_>) -> Result<[Arg; 7]> {
    at_most("rows", args.rows, INDEX_MAX)?;
    at_most("D", args.head_dim, INDEX_MAX)?;
    let len = elements("x", args.rows, args.head_dim)?;
    let x = match args.x {
        RowSlice::F32(x) => x.holding("x", len)?,
        RowSlice::Bf16(x) => x.holding("x", len)?,
    };
    Ok([
        Arg::Pointer(x),
        Arg::Pointer(args.codes.holding("codes", len)?),
        Arg::Pointer(args.scale.holding("scale", args.rows)?),
        size(args.rows),
        size(args.head_dim),
        Arg::Small(i32::from(args.format == ScaleFormat::Ue8m0)),
        Arg::Small(i32::from(args.overflow == Overflow::NonSaturating)),
    ])
}
