//! Device memory for workspaces: grown when asked, kept from call to call.

use crate::device::{allocated, call};
use crate::error::Result;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use cudarc::driver::{CudaSlice, CudaStream, sys};
use std::sync::Arc;

/// Bytes of device memory that one stream uses.
#[derive(Debug)]
pub struct Scratch {
    stream: Arc<CudaStream>,
    memory: CudaSlice<u8>,
}

impl Scratch {
    /// `bytes` of memory, at least a word, with contents that mean nothing.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::Driver`].
    pub fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        let bytes = whole_words(bytes);
        // SAFETY: kernels write what they read of a workspace, and `fill` writes all of it.
        let memory = unsafe { stream.alloc::<u8>(bytes) };
        Ok(Self {
            memory: allocated("the workspace", bytes, memory)?,
            stream: Arc::clone(stream),
        })
    }

    /// `bytes` of memory, grown where it has to be, with `word` in every word of it, in the order
    /// of the stream. What lies behind them is left alone: once grown for a large run, memory would
    /// take longer to fill than most runs take.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn filled(&mut self, bytes: usize, word: u32) -> Result<DeviceSliceMut<'_, u8>> {
        let bytes = whole_words(bytes);
        if self.memory.len() < bytes {
            *self = Self::new(&self.stream, bytes)?;
        }
        let what = "filling the workspace";
        call(what, self.stream.context().bind_to_thread())?;
        let at = DeviceSlice::of(&self.memory, &self.stream).pointer();
        let words = bytes / size_of::<u32>();
        // SAFETY: the memory is this long, and its address a multiple of 256.
        let filled = unsafe { sys::cuMemsetD32Async(at, word, words, self.stream.cu_stream()) };
        call(what, filled.result())?;
        // SAFETY: the memory holds so many bytes, and is borrowed as long as the slice.
        Ok(unsafe { DeviceSliceMut::from_raw(at, bytes) })
    }
}

/// At least `bytes`, and a multiple of a word, so that `fill` leaves no byte out.
const fn whole_words(bytes: usize) -> usize {
    let words = bytes.div_ceil(size_of::<u32>());
    size_of::<u32>() * if words == 0 { 1 } else { words }
}

#[cfg(test)]
mod tests {
    use super::whole_words;

    #[test]
    fn no_byte_is_left_beside_the_words() {
        let sizes = [0, 1, 4, 5, 256].map(whole_words);
        assert_eq!(sizes, [4, 4, 4, 8, 256]);
    }
}
