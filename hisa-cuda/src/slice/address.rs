//! Addresses of tensors, and what orders the accesses to them.

use crate::error::{Error, Result};
use cudarc::driver::{CudaStream, sys::CUdeviceptr};

/// A stream, by its context's address and its own: two wrappers of one stream are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamId {
    context: usize,
    stream: usize,
}

impl StreamId {
    pub(crate) fn of(stream: &CudaStream) -> Self {
        Self {
            context: stream.context().cu_ctx().addr(),
            stream: stream.cu_stream().addr(),
        }
    }

    #[cfg(test)]
    pub(super) const fn numbered(context: usize, stream: usize) -> Self {
        Self { context, stream }
    }
}

/// What orders the accesses to a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Whoever called `from_raw`.
    Caller,
    /// One stream.
    Stream(StreamId),
    /// It never was a tensor: an arena was asked for what it does not hold.
    Nothing,
}

/// The address of a tensor that was measured, for one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    tensor: &'static str,
    pub(crate) pointer: CUdeviceptr,
    order: Order,
}

impl Address {
    pub(super) const fn new(tensor: &'static str, pointer: CUdeviceptr, order: Order) -> Self {
        Self {
            tensor,
            pointer,
            order,
        }
    }

    /// The address, where the tensor may be used on `stream`.
    ///
    /// # Errors
    /// [`Error::Stream`].
    pub fn on(self, stream: &CudaStream) -> Result<CUdeviceptr> {
        match self.order {
            Order::Stream(_) => self.of_stream(StreamId::of(stream)),
            _ => Ok(self.pointer),
        }
    }

    pub(super) fn of_stream(self, id: StreamId) -> Result<CUdeviceptr> {
        let tensor = self.tensor;
        match self.order {
            Order::Stream(own) if own != id => Err(Error::Stream { tensor }),
            _ => Ok(self.pointer),
        }
    }

    /// What orders the accesses to it and to its parts.
    pub(crate) const fn order(self) -> Order {
        self.order
    }
}

/// The address, where the tensor is one and long enough.
pub(super) const fn holding(address: Address, len: usize, needed: usize) -> Result<Address> {
    let tensor = address.tensor;
    if matches!(address.order, Order::Nothing) {
        return Err(Error::Place { tensor });
    }
    if len < needed {
        return Err(Error::Length {
            tensor,
            len,
            needed,
        });
    }
    Ok(address)
}
