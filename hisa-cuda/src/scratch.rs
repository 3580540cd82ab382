//! Device memory for workspaces: grown when asked, kept from call to call.

use crate::device::{allocated, call};
use crate::error::Result;
use crate::slice::DeviceSliceMut;
use cudarc::driver::{CudaSlice, CudaStream, sys};
use std::sync::Arc;

/// Bytes of device memory that one stream uses.
#[derive(Debug)]
pub struct Scratch {
    stream: Arc<CudaStream>,
    /// None after a growth that found no room.
    memory: Option<CudaSlice<u8>>,
}

impl Scratch {
    /// `bytes` of memory, at least a word, with contents that mean nothing.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::Driver`].
    pub fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        Ok(Self {
            memory: Some(allocate(stream, whole_words(bytes))?),
            stream: Arc::clone(stream),
        })
    }

    /// `bytes` of memory, grown where it has to be, with `word` in every word of it, in the order
    /// of the stream. What lies behind them is left alone: once grown for a large run, memory would
    /// take longer to fill than most runs take.
    ///
    /// # Errors
    /// As [`Self::new`]; a later call tries again.
    pub fn filled(&mut self, bytes: usize, word: u32) -> Result<DeviceSliceMut<'_, u8>> {
        let bytes = whole_words(bytes);
        let what = "filling the workspace";
        call(what, self.stream.context().bind_to_thread())?;
        let memory = match self.memory.take() {
            Some(memory) if memory.len() >= bytes => memory,
            smaller => {
                // First, so that a device that has not room for both has room for the larger.
                drop(smaller);
                allocate(&self.stream, bytes)?
            }
        };
        let memory = self.memory.insert(memory);
        let whole = DeviceSliceMut::of(memory, &self.stream);
        let at = whole.pointer();
        let words = bytes / size_of::<u32>();
        // SAFETY: the memory is this long, and its address a multiple of 256.
        let filled = unsafe { sys::cuMemsetD32Async(at, word, words, self.stream.cu_stream()) };
        call(what, filled.result())?;
        Ok(whole.first(bytes))
    }
}

fn allocate(stream: &Arc<CudaStream>, bytes: usize) -> Result<CudaSlice<u8>> {
    // SAFETY: `filled` writes what it gives away.
    let memory = unsafe { stream.alloc::<u8>(bytes) };
    allocated("the workspace", bytes, memory)
}

/// At least `bytes`, and a multiple of a word, so that a fill by words leaves no byte out; the
/// largest such size where there is none, which no device has.
const fn whole_words(bytes: usize) -> usize {
    const WORD: usize = size_of::<u32>();
    match bytes.checked_next_multiple_of(WORD) {
        None => usize::MAX - (WORD - 1),
        Some(0) => WORD,
        Some(bytes) => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::whole_words;

    #[test]
    fn no_byte_is_left_beside_the_words() {
        let sizes = [0, 1, 4, 5, 256].map(whole_words);
        assert_eq!(sizes, [4, 4, 4, 8, 256]);
        assert_eq!(whole_words(usize::MAX), usize::MAX - 3);
    }
}
