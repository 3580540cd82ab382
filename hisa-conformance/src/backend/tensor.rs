//! Buffers as the tensors of files, and back.

use super::{Buffer, Guarded};
use crate::dump::{Data, Tensor};
use hisa_ref::E4M3;

impl Buffer {
    /// As files hold it, without its guards: codes as U8.
    #[must_use]
    pub fn tensor(&self) -> Tensor<'_> {
        let data = match self {
            Self::Codes(tensor) => {
                Data::U8(tensor.body().iter().map(|code| code.to_bits()).collect())
            }
            Self::F32(tensor) => Data::F32(tensor.body().into()),
            Self::I32(tensor) => Data::I32(tensor.body().into()),
        };
        Tensor::new(self.shape(), data)
            .unwrap_or_else(|_| unreachable!("a buffer has the elements of its shape"))
    }

    /// Between guards: codes, f32 or int32; bf16 words in U16 become f32. `None` for a tensor of
    /// any other type.
    #[must_use]
    pub fn of_tensor(tensor: &Tensor<'_>) -> Option<Self> {
        let shape = tensor.shape();
        Some(match tensor.data() {
            Data::U8(bytes) => {
                let codes: Vec<E4M3> = bytes.iter().map(|&bits| E4M3::from_bits(bits)).collect();
                Self::Codes(Guarded::of(shape, &codes))
            }
            Data::F8E4M3(codes) => Self::Codes(Guarded::of(shape, codes.iter())),
            Data::F32(values) => Self::F32(Guarded::of(shape, values.iter())),
            Data::U16(words) => {
                let values = words
                    .iter()
                    .map(|&word| f32::from_bits(u32::from(word) << 16));
                Self::F32(Guarded::of(shape, &values.collect::<Vec<f32>>()))
            }
            Data::I32(values) => Self::I32(Guarded::of(shape, values.iter())),
            Data::I64(_) | Data::Bf16(_) => return None,
        })
    }
}
