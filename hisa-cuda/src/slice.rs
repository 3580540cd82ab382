//! Tensors in device memory: a pointer, a length, how long they live, and on which stream.
//!
//! # Streams
//!
//! A launch returns before its kernel has run. What keeps memory from being freed, moved or
//! written over meanwhile is that all of this is put on one stream, which does things in turn:
//! cudarc frees its memory on the stream it was allocated on. So a slice of cudarc's is good for
//! that one stream. [`DeviceSlice::of`] notes the stream the memory belongs to, and what is
//! launched or copied on another is refused with [`crate::Error::Stream`]. Memory that is ordered
//! otherwise, by events or by another library, comes in through `from_raw`, which is unsafe
//! because nobody checks that.
//!
//! Not checked is what goes past this crate: cudarc's own copies and fills of a slice on other
//! streams than its own, in a context without event tracking ([`crate::Device::open`]). Who calls
//! them waits for the one stream before the other goes on, and before the slice is dropped. The
//! per-thread default stream counts as one stream here although each thread has its own.

mod address;

use crate::device::call;
use crate::error::Result;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, result, sys::CUdeviceptr};
use std::marker::PhantomData;

pub use address::Address;
use address::holding;
pub(crate) use address::{Order, StreamId};

/// A tensor that kernels read. Row-major; the shape goes with the call that takes it.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    pointer: CUdeviceptr,
    len: usize,
    order: Order,
    life: PhantomData<&'a T>,
}

/// A tensor that kernels write, and nobody else sees meanwhile.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    slice: DeviceSlice<'a, T>,
    unique: PhantomData<&'a mut T>,
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<'a, T> DeviceSlice<'a, T> {
    /// The elements of a slice or view of cudarc's, read on `stream`. That has to be the stream it
    /// was allocated on: every use on another is refused (see "Streams" in [`crate::slice`]).
    #[must_use]
    pub fn of(slice: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> Self {
        let (pointer, _) = slice.device_ptr(stream);
        Self {
            pointer,
            len: slice.len(),
            order: Order::Stream(StreamId::of(slice.stream())),
            life: PhantomData,
        }
    }

    /// `len` elements at an address that another library owns.
    ///
    /// # Safety
    /// They are device memory of the context the kernels run in, and stay so until the work that
    /// is given this slice has ended, on whatever streams that is.
    #[must_use]
    pub const unsafe fn from_raw(pointer: CUdeviceptr, len: usize) -> Self {
        // SAFETY: the caller's promise is the same.
        unsafe { Self::ordered(pointer, len, Order::Caller) }
    }

    /// `len` elements at an address, to be used in the order that is known for them.
    ///
    /// # Safety
    /// As [`Self::from_raw`], on what `order` allows.
    pub(crate) const unsafe fn ordered(pointer: CUdeviceptr, len: usize, order: Order) -> Self {
        Self {
            pointer,
            len,
            order,
            life: PhantomData,
        }
    }

    /// What every use of is refused with [`crate::Error::Place`].
    pub(crate) const fn refused() -> Self {
        Self {
            pointer: 0,
            len: 0,
            order: Order::Nothing,
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
    pub const fn tail(self, start: usize) -> Self {
        let start = if start < self.len { start } else { self.len };
        Self {
            pointer: self.pointer + (start * size_of::<T>()) as u64,
            len: self.len - start,
            order: self.order,
            life: PhantomData,
        }
    }

    /// The first `len` elements; all where there are fewer.
    #[must_use]
    pub const fn first(self, len: usize) -> Self {
        Self {
            pointer: self.pointer,
            len: if len < self.len { len } else { self.len },
            order: self.order,
            life: PhantomData,
        }
    }

    /// The address, where there are at least `needed` elements.
    ///
    /// # Errors
    /// [`crate::Error::Length`]; [`crate::Error::Place`] for a tensor that its arena does not hold.
    pub const fn holding(&self, tensor: &'static str, needed: usize) -> Result<Address> {
        let address = Address::new(tensor, self.pointer, self.order);
        holding(address, self.len, needed)
    }
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// The elements of a slice or view of cudarc's, written on `stream`, which has to be its own
    /// as for [`DeviceSlice::of`].
    #[must_use]
    pub fn of(slice: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Self {
        let len = slice.len();
        let order = Order::Stream(StreamId::of(slice.stream()));
        let (pointer, _) = slice.device_ptr_mut(stream);
        Self::unique(DeviceSlice {
            pointer,
            len,
            order,
            life: PhantomData,
        })
    }

    /// `len` elements at an address that another library owns.
    ///
    /// # Safety
    /// As [`DeviceSlice::from_raw`], and nothing else reads or writes them meanwhile.
    #[must_use]
    pub const unsafe fn from_raw(pointer: CUdeviceptr, len: usize) -> Self {
        // SAFETY: the caller's promise is the same.
        Self::unique(unsafe { DeviceSlice::from_raw(pointer, len) })
    }

    /// `len` elements at an address, to be used in the order that is known for them.
    ///
    /// # Safety
    /// As [`Self::from_raw`], on what `order` allows.
    pub(crate) const unsafe fn ordered(pointer: CUdeviceptr, len: usize, order: Order) -> Self {
        // SAFETY: the caller's promise is the same.
        Self::unique(unsafe { DeviceSlice::ordered(pointer, len, order) })
    }

    /// What every use of is refused with [`crate::Error::Place`].
    pub(crate) const fn refused() -> Self {
        Self::unique(DeviceSlice::refused())
    }

    /// A tensor that nobody else holds.
    const fn unique(slice: DeviceSlice<'a, T>) -> Self {
        Self {
            slice,
            unique: PhantomData,
        }
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slice.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// The address of the first element.
    #[must_use]
    pub const fn pointer(&self) -> CUdeviceptr {
        self.slice.pointer()
    }

    /// The same elements for one call.
    #[must_use]
    pub const fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::unique(self.slice)
    }

    /// The same elements, to be read by what follows on the stream.
    #[must_use]
    pub const fn read(&self) -> DeviceSlice<'_, T> {
        self.slice
    }

    /// Elements from `start` on; none where it is past the end.
    #[must_use]
    pub const fn tail(&mut self, start: usize) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::unique(self.slice.tail(start))
    }

    /// The first `len` elements; all where there are fewer.
    #[must_use]
    pub const fn first(self, len: usize) -> Self {
        Self::unique(self.slice.first(len))
    }

    /// Puts a copy of the first elements of `from` here, in the order of the stream.
    ///
    /// # Errors
    /// [`crate::Error::Length`] where `from` is shorter; [`crate::Error::Stream`],
    /// [`crate::Error::Place`]; [`crate::Error::Driver`].
    pub fn copy_from(&mut self, stream: &CudaStream, from: DeviceSlice<'_, T>) -> Result<()> {
        let source = from
            .holding("the source of a copy", self.len())?
            .on(stream)?;
        let target = self.holding("the target of a copy", 0)?.on(stream)?;
        if self.is_empty() {
            return Ok(());
        }
        let what = "copying on the device";
        call(what, stream.context().bind_to_thread())?;
        let bytes = self.len() * size_of::<T>();
        // SAFETY: both ranges hold `len` elements, and the stream orders the copy.
        let copied =
            unsafe { result::memcpy_dtod_async(target, source, bytes, stream.cu_stream()) };
        call(what, copied)
    }

    /// The address, where there are at least `needed` elements.
    ///
    /// # Errors
    /// [`crate::Error::Length`]; [`crate::Error::Place`] for a tensor that its arena does not hold.
    pub const fn holding(&self, tensor: &'static str, needed: usize) -> Result<Address> {
        self.slice.holding(tensor, needed)
    }
}

#[cfg(test)]
mod tests;
