//! Workspaces: one piece of device memory the caller owns, cut into the tensors of a run.

use crate::error::{Error, Result};
use crate::slice::{DeviceSliceMut, Order};
use std::marker::PhantomData;

/// Tensors start at multiples of this.
const ALIGNMENT: usize = 256;

/// Rows of a long run are taken in tiles, so that the workspace stays about this large.
const TILE_BYTES: usize = 256 << 20;

/// Bytes that `len` elements take, with room for their alignment.
#[must_use]
pub(crate) const fn bytes_of<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(ALIGNMENT)
}

/// Rows of a tile when each takes `row_bytes`; at least one.
#[must_use]
pub(crate) const fn rows_of_a_tile(rows: usize, row_bytes: usize) -> usize {
    let per_row = if row_bytes == 0 { 1 } else { row_bytes };
    let fitting = TILE_BYTES / per_row;
    let tile = if fitting < rows { fitting } else { rows };
    if tile == 0 { 1 } else { tile }
}

/// What is left of a workspace.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pointer: u64,
    left: usize,
    needed: usize,
    order: Order,
    life: PhantomData<&'a mut u8>,
}

impl<'a> Parts<'a> {
    /// A workspace of which `needed` bytes are to be used.
    ///
    /// # Errors
    /// [`Error::Length`] where it is smaller.
    pub(crate) fn of(workspace: &'a mut DeviceSliceMut<'_, u8>, needed: usize) -> Result<Self> {
        let workspace_at = workspace.holding("workspace", needed)?;
        let (pointer, order) = (workspace_at.pointer, workspace_at.order());
        let aligned = pointer.next_multiple_of(ALIGNMENT as u64);
        let lost = (aligned - pointer) as usize;
        Ok(Self {
            pointer: aligned,
            left: workspace.len().saturating_sub(lost),
            needed,
            order,
            life: PhantomData,
        })
    }

    /// The next tensor.
    ///
    /// # Errors
    /// [`Error::Length`] where the parts are together larger than was said.
    pub(crate) fn take<T>(&mut self, len: usize) -> Result<DeviceSliceMut<'a, T>> {
        let bytes = bytes_of::<T>(len);
        if bytes > self.left {
            return Err(Error::Length {
                tensor: "workspace",
                len: self.left,
                needed: self.needed,
            });
        }
        // SAFETY: these bytes belong to the workspace, and no other part covers them.
        let part = unsafe { DeviceSliceMut::ordered(self.pointer, len, self.order) };
        self.pointer += bytes as u64;
        self.left -= bytes;
        Ok(part)
    }
}

/// What a whole workspace takes: its parts, and room for the alignment of the first.
#[must_use]
pub(crate) const fn total(parts: usize) -> usize {
    parts + ALIGNMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_apart_and_inside() {
        let needed = total(bytes_of::<u8>(5) + bytes_of::<f32>(65));
        // SAFETY: the address is never followed.
        let mut memory = unsafe { DeviceSliceMut::from_raw(0x1001, needed) };
        let mut parts = Parts::of(&mut memory, needed).unwrap();
        let first = parts.take::<u8>(5).unwrap();
        let second = parts.take::<f32>(65).unwrap();
        assert_eq!((first.pointer(), first.len()), (0x1100, 5));
        assert_eq!((second.pointer(), second.len()), (0x1200, 65));
        assert!(second.pointer() + 260 <= 0x1001 + needed as u64);
        assert!(parts.take::<u8>(1).is_err());
    }

    #[test]
    fn a_small_workspace_is_refused_before_it_is_cut() {
        // SAFETY: the address is never followed.
        let mut memory = unsafe { DeviceSliceMut::from_raw(0x1000, 99) };
        let error = Parts::of(&mut memory, 100).unwrap_err();
        assert_eq!(
            error.to_string(),
            "workspace holds 99 elements; 100 are needed"
        );
    }

    #[test]
    fn tiles_hold_at_least_one_row_and_at_most_all() {
        assert_eq!(rows_of_a_tile(10, 4), 10);
        assert_eq!(rows_of_a_tile(1 << 20, 1 << 15), 8192);
        assert_eq!(rows_of_a_tile(3, 1 << 40), 1);
        assert_eq!(rows_of_a_tile(0, 0), 1);
    }
}
