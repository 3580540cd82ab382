//! Tensors in device memory: a pointer, a length, and how long they live.

use crate::device::call;
use crate::error::{Error, Result};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, result, sys::CUdeviceptr};
use std::marker::PhantomData;

/// A tensor that kernels read. Row-major; the shape goes with the call that takes it.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    pointer: CUdeviceptr,
    len: usize,
    life: PhantomData<&'a T>,
}

/// A tensor that kernels write, and nobody else sees meanwhile.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    pointer: CUdeviceptr,
    len: usize,
    life: PhantomData<&'a mut T>,
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<'a, T> DeviceSlice<'a, T> {
    /// The elements of a slice or view of cudarc's, read on `stream`.
    #[must_use]
    pub fn of(slice: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> Self {
        let (pointer, _) = slice.device_ptr(stream);
        Self {
            pointer,
            len: slice.len(),
            life: PhantomData,
        }
    }

    /// `len` elements at an address that another library owns.
    ///
    /// # Safety
    /// They are device memory of the context the kernels run in, and stay so until the work that
    /// is given this slice has ended.
    #[must_use]
    pub const unsafe fn from_raw(pointer: CUdeviceptr, len: usize) -> Self {
        Self {
            pointer,
            len,
            life: PhantomData,
        }
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element.
    #[must_use]
    pub const fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// Elements from `start` on; none where it is past the end.
    #[must_use]
    pub const fn from(self, start: usize) -> Self {
        let start = if start < self.len { start } else { self.len };
        Self {
            pointer: self.pointer + (start * size_of::<T>()) as u64,
            len: self.len - start,
            life: PhantomData,
        }
    }

    /// The address, where there are at least `needed` elements.
    ///
    /// # Errors
    /// [`Error::Length`].
    pub const fn holding(&self, tensor: &'static str, needed: usize) -> Result<CUdeviceptr> {
        holding(tensor, self.pointer, self.len, needed)
    }
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// The elements of a slice or view of cudarc's, written on `stream`.
    #[must_use]
    pub fn of(slice: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Self {
        let len = slice.len();
        let (pointer, _) = slice.device_ptr_mut(stream);
        Self {
            pointer,
            len,
            life: PhantomData,
        }
    }

    /// `len` elements at an address that another library owns.
    ///
    /// # Safety
    /// As [`DeviceSlice::from_raw`], and nothing else reads or writes them meanwhile.
    #[must_use]
    pub const unsafe fn from_raw(pointer: CUdeviceptr, len: usize) -> Self {
        Self {
            pointer,
            len,
            life: PhantomData,
        }
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element.
    #[must_use]
    pub const fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// The same elements for one call.
    #[must_use]
    pub const fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut {
            pointer: self.pointer,
            len: self.len,
            life: PhantomData,
        }
    }

    /// The same elements, to be read by what follows on the stream.
    #[must_use]
    pub const fn read(&self) -> DeviceSlice<'_, T> {
        DeviceSlice {
            pointer: self.pointer,
            len: self.len,
            life: PhantomData,
        }
    }

    /// Elements from `start` on; none where it is past the end.
    #[must_use]
    pub const fn from(&mut self, start: usize) -> DeviceSliceMut<'_, T> {
        let start = if start < self.len { start } else { self.len };
        DeviceSliceMut {
            pointer: self.pointer + (start * size_of::<T>()) as u64,
            len: self.len - start,
            life: PhantomData,
        }
    }

    /// Puts a copy of the first elements of `from` here, in the order of the stream.
    ///
    /// # Errors
    /// [`Error::Length`] where `from` is shorter; [`Error::Driver`].
    pub fn copy_from(&mut self, stream: &CudaStream, from: DeviceSlice<'_, T>) -> Result<()> {
        let source = from.holding("the source of a copy", self.len)?;
        if self.len == 0 {
            return Ok(());
        }
        let what = "copying on the device";
        call(what, stream.context().bind_to_thread())?;
        let bytes = self.len * size_of::<T>();
        // SAFETY: both ranges hold `len` elements, and the stream orders the copy.
        let copied =
            unsafe { result::memcpy_dtod_async(self.pointer, source, bytes, stream.cu_stream()) };
        call(what, copied)
    }

    /// The address, where there are at least `needed` elements.
    ///
    /// # Errors
    /// [`Error::Length`].
    pub const fn holding(&self, tensor: &'static str, needed: usize) -> Result<CUdeviceptr> {
        holding(tensor, self.pointer, self.len, needed)
    }
}

const fn holding(
    tensor: &'static str,
    pointer: CUdeviceptr,
    len: usize,
    needed: usize,
) -> Result<CUdeviceptr> {
    if len < needed {
        return Err(Error::Length {
            tensor,
            len,
            needed,
        });
    }
    Ok(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_move_the_address_by_whole_elements_past_four_gigabytes() {
        // SAFETY: the address is never followed.
        let slice = unsafe { DeviceSlice::<f32>::from_raw(1 << 40, 3 << 31) };
        let tail = slice.from(1 << 31);
        assert_eq!(tail.pointer(), (1 << 40) + (1 << 33));
        assert_eq!(tail.len(), 2 << 31);
        assert_eq!(slice.from(usize::MAX).len(), 0);
    }

    #[test]
    fn short_tensors_are_named() {
        // SAFETY: the address is never followed.
        let slice = unsafe { DeviceSlice::<u8>::from_raw(256, 7) };
        assert_eq!(slice.holding("q", 7), Ok(256));
        let error = slice.holding("q", 8).unwrap_err();
        assert_eq!(error.to_string(), "q holds 7 elements; 8 are needed");
    }
}
