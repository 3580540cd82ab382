//! Tensors on their way to the device and back: one piece of host memory, its twin on the device.
//!
//! A call with ten small tensors costs two copies, not twenty. Both pieces are kept from call to
//! call and grow when they have to.

use crate::device::{Device, allocated, call};
use crate::error::Result;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use cudarc::driver::{CudaSlice, CudaStream, PinnedHostSlice, result};
use std::marker::PhantomData;
use std::sync::Arc;

/// Tensors start at multiples of this, so that vector loads see what they see in practice.
const ALIGNMENT: usize = 256;
/// Bytes between tensors: NaN as a code and as a float, far out of range as an id.
const GAP: u8 = 0x7F;

/// Element types without padding or invalid values.
///
/// # Safety
/// Every pattern of bits is a value, and there are no padding bytes.
pub unsafe trait Plain: Copy {}

// SAFETY: integers and floats are plain.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: a transparent byte.
unsafe impl Plain for hisa_ref::E4M3 {}

/// Where a tensor lies in an [`Arena`].
#[derive(Debug)]
pub struct Place<T> {
    offset: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T> Place<T> {
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

    /// `len` elements from `start` on.
    #[must_use]
    pub const fn part(self, start: usize, len: usize) -> Self {
        Self {
            offset: self.offset + start * size_of::<T>(),
            len,
            element: PhantomData,
        }
    }

    /// The same bytes as elements of another type of the same size.
    #[must_use]
    pub const fn cast<U>(self) -> Place<U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        Place {
            offset: self.offset,
            len: self.len,
            element: PhantomData,
        }
    }
}

/// Staging memory of one stream.
#[derive(Debug)]
pub struct Arena {
    stream: Arc<CudaStream>,
    host: Pinned,
    device: CudaSlice<u8>,
    used: usize,
    capacity: usize,
    in_flight: bool,
}

impl Arena {
    /// An arena of `capacity` bytes.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::Driver`].
    pub fn new(device: &Device, stream: &Arc<CudaStream>, capacity: usize) -> Result<Self> {
        let capacity = capacity.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let context = device.context();
        // SAFETY: bytes are written before they are read: `put` fills tensors and gaps.
        let host = unsafe { context.alloc_pinned_with_flags::<u8>(capacity, 0) };
        // SAFETY: `upload` fills what kernels read.
        let twin = unsafe { stream.alloc::<u8>(capacity) };
        Ok(Self {
            host: Pinned::of(allocated("pinned host memory", capacity, host)?)?,
            device: allocated("staged tensors", capacity, twin)?,
            stream: Arc::clone(stream),
            used: 0,
            capacity,
            in_flight: false,
        })
    }

    /// The stream copies and kernels go to.
    #[must_use]
    pub const fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Forgets all tensors and makes room for others of `bytes` in all, plus their alignment.
    ///
    /// # Errors
    /// As [`Self::new`], where it has to grow.
    pub fn start(&mut self, device: &Device, bytes: usize, tensors: usize) -> Result<()> {
        if self.in_flight {
            // A call that failed half-way may have left a copy that still reads the host's side.
            self.wait()?;
        }
        let needed = bytes + tensors * ALIGNMENT;
        if needed > self.capacity {
            *self = Self::new(device, &self.stream, needed.next_power_of_two())?;
        }
        self.used = 0;
        Ok(())
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// [`crate::Error::Length`] where more is put than [`Self::start`] was told.
    pub fn put<T: Plain>(&mut self, elements: &[T]) -> Result<Place<T>> {
        // SAFETY: plain elements are bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements))
        };
        let place = self.reserve::<T>(elements.len())?;
        self.host.bytes_mut()[place.offset..place.offset + bytes.len()].copy_from_slice(bytes);
        Ok(place)
    }

    /// Adds a tensor whose contents do not matter; they are what the last call left.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn reserve<T: Plain>(&mut self, len: usize) -> Result<Place<T>> {
        let offset = self.used;
        let end = offset + len * size_of::<T>();
        let next = end.next_multiple_of(ALIGNMENT);
        if next > self.capacity {
            return Err(crate::Error::Length {
                tensor: "the arena",
                len: self.capacity,
                needed: next,
            });
        }
        self.host.bytes_mut()[end..next].fill(GAP);
        self.used = next;
        Ok(Place {
            offset,
            len,
            element: PhantomData,
        })
    }

    /// Copies all tensors to the device.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub fn upload(&mut self) -> Result<()> {
        if self.used == 0 {
            return Ok(());
        }
        let to = DeviceSlice::of(&self.device, &self.stream).pointer();
        let host = self.host.bytes();
        self.in_flight = true;
        // SAFETY: both sides hold `used` bytes; the host's side is not written before `wait`.
        let copied =
            unsafe { result::memcpy_htod_async(to, &host[..self.used], self.stream.cu_stream()) };
        call("copying tensors to the device", copied)
    }

    /// Copies all tensors back and waits: faults of kernels come up here.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub fn download(&mut self) -> Result<()> {
        if self.used > 0 {
            let from = DeviceSlice::of(&self.device, &self.stream).pointer();
            let host = self.host.bytes_mut();
            // SAFETY: both sides hold `used` bytes, and `wait` follows.
            let copied = unsafe {
                let to = &mut host[..self.used];
                result::memcpy_dtoh_async(to, from, self.stream.cu_stream())
            };
            call("copying tensors from the device", copied)?;
        }
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        call("waiting for the device", self.stream.synchronize())?;
        self.in_flight = false;
        Ok(())
    }

    /// A tensor after [`Self::download`], or as it was put.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub fn get<T: Plain>(&self, place: Place<T>) -> Result<&[T]> {
        let bytes = &self.host.bytes()[place.offset..place.offset + place.len * size_of::<T>()];
        // SAFETY: the place was made for this many plain elements, at a multiple of 256 bytes or,
        // as a part of such a place, of the element's size.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), place.len) })
    }

    /// The twin of a tensor, for kernels to read.
    #[must_use]
    pub fn read<T>(&self, place: Place<T>) -> DeviceSlice<'_, T> {
        let base = DeviceSlice::of(&self.device, &self.stream).pointer();
        // SAFETY: the place lies in the device memory of the arena, which lives as long.
        unsafe { DeviceSlice::from_raw(base + place.offset as u64, place.len) }
    }

    /// The twin of a tensor, for kernels to write.
    #[must_use]
    pub fn write<T>(&self, place: Place<T>) -> DeviceSliceMut<'_, T> {
        let base = DeviceSlice::of(&self.device, &self.stream).pointer();
        // SAFETY: as above; places do not overlap, and kernels of one stream run in turn.
        unsafe { DeviceSliceMut::from_raw(base + place.offset as u64, place.len) }
    }
}

/// Pinned memory with its address at hand: asking for it anew would ask the driver each time
/// whether an event of the memory has passed, and there never is one.
#[derive(Debug)]
struct Pinned {
    memory: PinnedHostSlice<u8>,
    address: *mut u8,
}

// SAFETY: the address is that of the memory it owns.
unsafe impl Send for Pinned {}

impl Pinned {
    fn of(mut memory: PinnedHostSlice<u8>) -> Result<Self> {
        let address = call("finding pinned memory", memory.as_mut_ptr())?;
        Ok(Self { memory, address })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes are there as long as the memory is, and nobody writes them now.
        unsafe { std::slice::from_raw_parts(self.address, self.memory.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else reads them.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.memory.len()) }
    }
}
