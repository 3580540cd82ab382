//! Launches: how a stage is cut into blocks of threads, and the call itself.
//!
//! A row of the result is one block of threads in x. Long rows are cut into chunks in y; kernels
//! go on from chunk to chunk by the size of the grid, so that the limit of y is none of theirs.

use crate::device::{Device, Limits, call};
use crate::error::{Error, Result};
use crate::kernel::Unit;
use crate::slice::Address;
use cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};

/// Most blocks of threads in x.
const ROWS_MAX: usize = i32::MAX as usize;
/// Most blocks of threads in y.
const CHUNKS_MAX: usize = 65_535;
/// Blocks of threads per multiprocessor that keep it busy.
const BLOCKS_PER_MULTIPROCESSOR: usize = 4;

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks of threads in x: rows, or pool blocks.
    rows: usize,
    /// Blocks of threads in y: chunks of a row.
    chunks: usize,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: usize,
}

impl Grid {
    /// One block of `threads` for each row.
    #[must_use]
    pub(crate) const fn rows(rows: usize, threads: u32) -> Self {
        Self {
            rows,
            chunks: 1,
            threads,
            shared: 0,
        }
    }

    /// Rows of `columns`, cut into chunks of at least `chunk` columns, and no more of them than
    /// fill the device.
    #[must_use]
    pub(crate) fn chunked(self, columns: usize, chunk: usize, limits: &Limits) -> Self {
        let wanted = limits.multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
        let filling = wanted.div_ceil(self.rows.max(1));
        let useful = columns.div_ceil(chunk.max(1));
        Self {
            chunks: filling.min(useful).clamp(1, CHUNKS_MAX),
            ..self
        }
    }

    /// Rows of `columns`, one chunk for every `chunk` of them.
    #[must_use]
    pub(crate) fn every(self, columns: usize, chunk: usize) -> Self {
        Self {
            chunks: columns.div_ceil(chunk.max(1)).clamp(1, CHUNKS_MAX),
            ..self
        }
    }

    /// The same with dynamic shared memory.
    #[must_use]
    pub(crate) const fn shared(self, bytes: usize) -> Self {
        Self {
            shared: bytes,
            ..self
        }
    }

    /// The same as the driver takes it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than a grid can have.
    fn config(self) -> Result<LaunchConfig> {
        Ok(LaunchConfig {
            grid_dim: (
                within("blocks of threads in x", self.rows, ROWS_MAX)?,
                within("blocks of threads in y", self.chunks, CHUNKS_MAX)?,
                1,
            ),
            block_dim: (self.threads, 1, 1),
            shared_mem_bytes: within("bytes of shared memory", self.shared, ROWS_MAX)?,
        })
    }
}

/// `value` as 32 bits, where it does not exceed `limit`.
fn within(name: &'static str, value: usize, limit: usize) -> Result<u32> {
    let narrow = u32::try_from(value).ok().filter(|_| value <= limit);
    narrow.ok_or(Error::Unsupported { name, value, limit })
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arg {
    /// A tensor.
    Pointer(Address),
    /// A count of rows, keys or columns.
    Size(i64),
    /// A number that fits 32 bits, or a flag.
    Small(i32),
}

/// A size that its check keeps below 2^31, as kernels take it.
pub(crate) const fn size(value: usize) -> Arg {
    Arg::Size(value as i64)
}

/// A number that its check keeps small.
pub(crate) const fn small(value: usize) -> Arg {
    Arg::Small(value as i32)
}

/// Puts the kernel `entry` on the stream; nothing where there are no rows.
///
/// # Errors
/// [`Error::Stream`] for a tensor of another stream; [`Error::Unsupported`], [`Error::Compile`],
/// [`Error::Driver`].
pub(crate) fn launch(
    device: &Device,
    stream: &CudaStream,
    (unit, entry): (Unit, &'static str),
    grid: Grid,
    args: &[Arg],
) -> Result<()> {
    if grid.rows == 0 {
        return Ok(());
    }
    for arg in args {
        if let Arg::Pointer(address) = arg {
            address.on(stream)?;
        }
    }
    let config = grid.config()?;
    let function = device.function(unit, entry)?;
    let mut builder = stream.launch_builder(&function);
    for arg in args {
        match arg {
            Arg::Pointer(address) => builder.arg(&address.pointer),
            Arg::Size(value) => builder.arg(value),
            Arg::Small(value) => builder.arg(value),
        };
    }
    // SAFETY: the callers, one per kernel, pass what its signature says, and pointers to tensors
    // they have measured; kernels stay inside those whatever the values are.
    let launched = unsafe { builder.launch(config) };
    launched
        .map(drop)
        .or_else(|error| call(&format!("launching {entry}"), Err(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::Arch;

    fn limits() -> Limits {
        Limits {
            name: "test".to_owned(),
            arch: Arch::CI[2],
            multiprocessors: 132,
            shared_bytes: 232_448,
            memory: 1 << 37,
        }
    }

    #[test]
    fn many_rows_are_not_cut_and_few_are() {
        let cut = |rows, columns| {
            Grid::rows(rows, 256)
                .chunked(columns, 256, &limits())
                .chunks
        };
        assert_eq!(cut(1024, 8192), 1);
        assert_eq!(cut(1, 8192), 32);
        assert_eq!(cut(1, 1 << 20), 528);
        assert_eq!(cut(100, 8192), 6);
        assert_eq!(cut(1, 0), 1);
        assert_eq!(cut(0, 8192), 32);
    }

    #[test]
    fn more_rows_than_a_grid_has_are_refused_and_not_cut_to_32_bits() {
        assert_eq!(
            Grid::rows(ROWS_MAX, 256).config().unwrap().grid_dim,
            (2_147_483_647, 1, 1)
        );
        for rows in [ROWS_MAX + 1, (1 << 32) + 1, usize::MAX] {
            let error = Grid::rows(rows, 256).config().unwrap_err();
            let expected = Error::Unsupported {
                name: "blocks of threads in x",
                value: rows,
                limit: ROWS_MAX,
            };
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn chunks_stay_within_the_grid() {
        let chunks = Grid::rows(1, 256).every(i32::MAX as usize, 256).chunks;
        assert_eq!(chunks, CHUNKS_MAX);
        assert_eq!(Grid::rows(5, 256).every(257, 256).chunks, 2);
    }
}
