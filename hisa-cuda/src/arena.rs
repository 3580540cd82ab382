//! Tensors on their way to the device and back: one piece of host memory, its twin on the device.
//!
//! A call with ten small tensors costs two copies, not twenty. Both pieces are kept from call to
//! call and grow when they have to.

mod place;

use crate::device::{Device, allocated, call};
use crate::error::{Error, Result};
use crate::slice::{DeviceSlice, DeviceSliceMut, Order, StreamId};
use cudarc::driver::{CudaSlice, CudaStream, PinnedHostSlice, result};
use place::Layout;
pub use place::{Place, Plain};
use std::sync::Arc;

/// Bytes between tensors: NaN as a code and as a float, far out of range as an id.
const GAP: u8 = 0x7F;

/// Staging memory of one stream.
#[derive(Debug)]
pub struct Arena {
    stream: Arc<CudaStream>,
    /// None after a growth that found no room; the layout has no capacity then.
    memory: Option<Memory>,
    layout: Layout,
    /// A copy may be reading or writing the host's side.
    in_flight: bool,
}

/// Both sides, of one size.
#[derive(Debug)]
struct Memory {
    host: Pinned,
    device: CudaSlice<u8>,
}

impl Arena {
    /// An arena of `capacity` bytes or more.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn new(device: &Device, stream: &Arc<CudaStream>, capacity: usize) -> Result<Self> {
        let mut arena = Self {
            stream: Arc::clone(stream),
            memory: None,
            layout: Layout::new(0),
            in_flight: false,
        };
        arena.grow(device, Some(capacity))?;
        Ok(arena)
    }

    /// The stream copies and kernels go to.
    #[must_use]
    pub const fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Forgets all tensors and makes room for others of `bytes` in all, plus their alignment.
    /// Places of before are refused from now on.
    ///
    /// # Errors
    /// As [`Self::new`], where it has to grow. It holds nothing then, and can be started again.
    pub fn start(&mut self, device: &Device, bytes: usize, tensors: usize) -> Result<()> {
        // A call that failed half-way may have left a copy that still reads the host's side.
        self.settle()?;
        let needed = place::needed(bytes, tensors);
        self.layout = Layout::new(self.layout.capacity());
        if needed.is_none_or(|needed| needed > self.layout.capacity()) {
            self.grow(device, needed)?;
        }
        Ok(())
    }

    /// Other memory, for `needed` bytes. The old goes first, so that what has not room for both
    /// has room for the new.
    fn grow(&mut self, device: &Device, needed: Option<usize>) -> Result<()> {
        let mut failure = Error::OutOfMemory {
            what: "staged tensors".to_owned(),
            bytes: needed,
        };
        self.layout = Layout::new(0);
        self.memory = None;
        for capacity in needed.into_iter().flat_map(place::sizes) {
            match Memory::new(device, &self.stream, capacity) {
                Ok(memory) => {
                    self.memory = Some(memory);
                    self.layout = Layout::new(capacity);
                    return Ok(());
                }
                Err(error @ Error::OutOfMemory { .. }) => failure = error,
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// [`Error::Length`] where more is put than [`Self::start`] was told; [`Error::Driver`] where
    /// it has to wait for a copy and that fails.
    pub fn put<T: Plain>(&mut self, elements: &[T]) -> Result<Place<T>> {
        // SAFETY: plain elements are bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements))
        };
        let place = self.reserve::<T>(elements.len())?;
        let range = self.layout.range(place).unwrap_or_default();
        self.host_mut()[range].copy_from_slice(bytes);
        Ok(place)
    }

    /// Adds a tensor whose contents do not matter; they are zeros, or what an earlier call left.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn reserve<T: Plain>(&mut self, len: usize) -> Result<Place<T>> {
        self.settle()?;
        let (place, gap) = self.layout.reserve::<T>(len)?;
        self.host_mut()[gap].fill(GAP);
        Ok(place)
    }

    /// Copies all tensors to the device.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn upload(&mut self) -> Result<()> {
        let what = "copying tensors to the device";
        self.settle()?;
        call(what, self.stream.context().bind_to_thread())?;
        let used = self.layout.used();
        let Some(memory) = self.memory.as_ref().filter(|_| used > 0) else {
            return Ok(());
        };
        let to = memory.device_address(&self.stream);
        let from = &memory.host.bytes()[..used];
        self.in_flight = true;
        // SAFETY: both sides hold `used` bytes. The host's side is neither written nor freed
        // before `settle`, the device's is used and freed in the order of the stream.
        let copied = unsafe { result::memcpy_htod_async(to, from, self.stream.cu_stream()) };
        call(what, copied)
    }

    /// Copies all tensors back and waits: faults of kernels come up here.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn download(&mut self) -> Result<()> {
        let what = "copying tensors from the device";
        // Kernels that read what was uploaded are waited for even where nothing comes back.
        self.in_flight = true;
        call(what, self.stream.context().bind_to_thread())?;
        let used = self.layout.used();
        let mut copied = Ok(());
        if let Some(memory) = self.memory.as_mut().filter(|_| used > 0) {
            let from = memory.device_address(&self.stream);
            let to = &mut memory.host.bytes_mut()[..used];
            // SAFETY: both sides hold `used` bytes; the host's side is neither read, written nor
            // freed before `settle`.
            copied = unsafe { result::memcpy_dtoh_async(to, from, self.stream.cu_stream()) };
        }
        let settled = self.settle();
        call(what, copied).and(settled)
    }

    /// Waits for a copy that may be under way.
    fn settle(&mut self) -> Result<()> {
        if self.in_flight {
            call("waiting for the device", self.stream.synchronize())?;
            self.in_flight = false;
        }
        Ok(())
    }

    fn host_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Some(memory) => memory.host.bytes_mut(),
            None => &mut [],
        }
    }

    /// A tensor after [`Self::download`], or as it was put.
    ///
    /// # Errors
    /// [`Error::Place`] for a place of another arena, or of before the last [`Self::start`];
    /// [`Error::Driver`] where a copy is under way and fails.
    pub fn get<T: Plain>(&self, place: Place<T>) -> Result<&[T]> {
        let tensor = "the tensor asked for";
        if self.in_flight {
            call("waiting for the device", self.stream.synchronize())?;
        }
        let range = self.layout.range(place).ok_or(Error::Place { tensor })?;
        let memory = self.memory.as_ref().ok_or(Error::Place { tensor })?;
        let bytes = &memory.host.bytes()[range];
        // SAFETY: these bytes are `len` plain elements, at a multiple of 256 bytes or, as a part
        // of such a place, of the element's size from there.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), place.len()) })
    }

    /// The twin of a tensor, for kernels to read on the stream of the arena.
    ///
    /// A place of another arena, or of before the last [`Self::start`], gives a slice that every
    /// use refuses with [`Error::Place`].
    #[must_use]
    pub fn read<T>(&self, place: Place<T>) -> DeviceSlice<'_, T> {
        match self.twin(place) {
            // SAFETY: the place lies in the device memory of the arena, which lives as long and is
            // freed in the order of the stream.
            Some((at, order)) => unsafe { DeviceSlice::ordered(at, place.len(), order) },
            None => DeviceSlice::refused(),
        }
    }

    /// The twin of a tensor, for kernels to write on the stream of the arena; refused as by
    /// [`Self::read`].
    ///
    /// One kernel must not get places that overlap where it writes one of them: one place twice, or
    /// a place and its part. That is not checked. Kernels are put on the stream in turn and the
    /// host sees none of this memory, so what suffers is what the kernel computes, nothing else.
    #[must_use]
    pub fn write<T>(&self, place: Place<T>) -> DeviceSliceMut<'_, T> {
        match self.twin(place) {
            // SAFETY: as above. Who else writes the place is the caller's to see to, and what
            // device memory holds is no matter of safety: every pattern of bits is a value.
            Some((at, order)) => unsafe { DeviceSliceMut::ordered(at, place.len(), order) },
            None => DeviceSliceMut::refused(),
        }
    }

    fn twin<T>(&self, place: Place<T>) -> Option<(u64, Order)> {
        let range = self.layout.range(place)?;
        let base = self.memory.as_ref()?.device_address(&self.stream);
        let order = Order::Stream(StreamId::of(&self.stream));
        Some((base + range.start as u64, order))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.settle().is_err() {
            // Nobody knows what a broken device still does: memory that a copy may use is leaked.
            std::mem::forget(self.memory.take());
        }
    }
}

impl Memory {
    fn new(device: &Device, stream: &Arc<CudaStream>, capacity: usize) -> Result<Self> {
        // SAFETY: `Pinned::of` writes all of it.
        let host = unsafe { device.context().alloc_pinned_with_flags::<u8>(capacity, 0) };
        let host = Pinned::of(allocated("pinned host memory", capacity, host)?)?;
        // SAFETY: what kernels read, `upload` or a kernel before them has written.
        let twin = unsafe { stream.alloc::<u8>(capacity) };
        let device = allocated("staged tensors", capacity, twin)?;
        Ok(Self { host, device })
    }

    fn device_address(&self, stream: &CudaStream) -> u64 {
        DeviceSlice::of(&self.device, stream).pointer()
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
    /// The memory, with zeros in it: it comes as it is, and bytes that nobody has written are not
    /// to be read or copied, not even those of a tensor whose contents do not matter.
    fn of(mut memory: PinnedHostSlice<u8>) -> Result<Self> {
        let address = call("finding pinned memory", memory.as_mut_ptr())?;
        // SAFETY: so many bytes are there, and nobody else has their address yet.
        unsafe { address.write_bytes(0, memory.len()) };
        Ok(Self { memory, address })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes are there as long as the memory is, all of them written by `of` or
        // later; `Arena` calls this when no copy writes them.
        unsafe { std::slice::from_raw_parts(self.address, self.memory.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `Arena` calls this when no copy reads them either.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.memory.len()) }
    }
}
