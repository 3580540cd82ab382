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

    /// Room for `bytes`; the contents are lost where it has to grow.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.memory.len() < bytes {
            *self = Self::new(&self.stream, bytes)?;
        }
        Ok(())
    }

    /// Puts `word` into every word, in the order of the stream.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub fn fill(&mut self, word: u32) -> Result<()> {
        let what = "filling the workspace";
        call(what, self.stream.context().bind_to_thread())?;
        let at = DeviceSlice::of(&self.memory, &self.stream).pointer();
        let words = self.memory.len() / size_of::<u32>();
        // SAFETY: the memory is this long, and its address a multiple of 256.
        let filled = unsafe { sys::cuMemsetD32Async(at, word, words, self.stream.cu_stream()) };
        call(what, filled.result())
    }

    /// All of it.
    pub fn slice(&mut self) -> DeviceSliceMut<'_, u8> {
        DeviceSliceMut::of(&mut self.memory, &self.stream)
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
