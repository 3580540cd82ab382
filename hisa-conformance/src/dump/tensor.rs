//! A tensor with its element type, shape and elements, owned or borrowed.

use super::error::TensorError;
use hisa_ref::E4M3;
use ndarray::{Array, ArrayBase, Dimension};
use safetensors::Dtype;
use std::borrow::Cow;

/// The elements of a tensor, row-major. The variant is the element type of the file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Data<'a> {
    /// Bytes; e4m3 codes travel as these.
    U8(Cow<'a, [u8]>),
    /// e4m3fn codes under their own dtype, which some readers do not know (BR-110).
    F8E4M3(Cow<'a, [E4M3]>),
    /// f32.
    F32(Cow<'a, [f32]>),
    /// int32 ids and offsets.
    I32(Cow<'a, [i32]>),
    /// int64 ids and offsets.
    I64(Cow<'a, [i64]>),
    /// bf16 bits under their own dtype.
    Bf16(Cow<'a, [u16]>),
    /// 16-bit words; bf16 bits travel as these.
    U16(Cow<'a, [u16]>),
}

impl Data<'_> {
    /// Element types that can be read and written.
    pub const DTYPES: &'static [Dtype] = &[
        Dtype::U8,
        Dtype::F8_E4M3,
        Dtype::F32,
        Dtype::I32,
        Dtype::I64,
        Dtype::BF16,
        Dtype::U16,
    ];

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::U8(_) => Dtype::U8,
            Self::F8E4M3(_) => Dtype::F8_E4M3,
            Self::F32(_) => Dtype::F32,
            Self::I32(_) => Dtype::I32,
            Self::I64(_) => Dtype::I64,
            Self::Bf16(_) => Dtype::BF16,
            Self::U16(_) => Dtype::U16,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::F8E4M3(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::Bf16(values) | Self::U16(values) => values.len(),
        }
    }

    /// True where there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A tensor to be written, or one that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'a> {
    shape: Vec<usize>,
    data: Data<'a>,
}

impl<'a> Tensor<'a> {
    /// `data` holds as many elements as `shape` says, row-major.
    ///
    /// # Errors
    /// [`TensorError::Elements`] where it does not.
    pub fn new(shape: &[usize], data: Data<'a>) -> Result<Self, TensorError> {
        let product = shape
            .iter()
            .try_fold(1usize, |product, &n| product.checked_mul(n));
        if product != Some(data.len()) {
            let (shape, elements) = (shape.to_vec(), data.len());
            return Err(TensorError::Elements { shape, elements });
        }
        Ok(Self {
            shape: shape.to_vec(),
            data,
        })
    }

    /// Codes of any shape, written as U8.
    pub fn codes<S, D>(array: &ArrayBase<S, D>) -> Tensor<'static>
    where
        S: ndarray::Data<Elem = E4M3>,
        D: Dimension,
    {
        let bytes = array.iter().map(|code| code.to_bits()).collect();
        Tensor {
            shape: array.shape().to_vec(),
            data: Data::U8(Cow::Owned(bytes)),
        }
    }

    /// f32 values of any shape.
    pub fn f32<S, D>(array: &'a ArrayBase<S, D>) -> Self
    where
        S: ndarray::Data<Elem = f32>,
        D: Dimension,
    {
        Self {
            shape: array.shape().to_vec(),
            data: Data::F32(row_major(array)),
        }
    }

    /// int32 values of any shape.
    pub fn i32<S, D>(array: &'a ArrayBase<S, D>) -> Self
    where
        S: ndarray::Data<Elem = i32>,
        D: Dimension,
    {
        Self {
            shape: array.shape().to_vec(),
            data: Data::I32(row_major(array)),
        }
    }

    /// Sequence offsets, as int32 where every entry fits.
    #[must_use]
    pub fn offsets(entries: &'a [i64]) -> Self {
        let narrow: Result<Vec<i32>, _> = entries.iter().map(|&entry| entry.try_into()).collect();
        let data = match narrow {
            Ok(narrow) => Data::I32(narrow.into()),
            Err(_) => Data::I64(entries.into()),
        };
        Self {
            shape: vec![entries.len()],
            data,
        }
    }

    /// The same with elements of its own.
    #[must_use]
    pub fn into_owned(self) -> Tensor<'static> {
        let data = match self.data {
            Data::U8(values) => Data::U8(values.into_owned().into()),
            Data::F8E4M3(values) => Data::F8E4M3(values.into_owned().into()),
            Data::F32(values) => Data::F32(values.into_owned().into()),
            Data::I32(values) => Data::I32(values.into_owned().into()),
            Data::I64(values) => Data::I64(values.into_owned().into()),
            Data::Bf16(values) => Data::Bf16(values.into_owned().into()),
            Data::U16(values) => Data::U16(values.into_owned().into()),
        };
        Tensor {
            shape: self.shape,
            data,
        }
    }

    /// Extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    #[must_use]
    pub fn data(&self) -> &Data<'a> {
        &self.data
    }

    /// Shape and elements.
    #[must_use]
    pub fn into_parts(self) -> (Vec<usize>, Data<'a>) {
        (self.shape, self.data)
    }
}

fn row_major<T, S, D>(array: &ArrayBase<S, D>) -> Cow<'_, [T]>
where
    T: Clone,
    S: ndarray::Data<Elem = T>,
    D: Dimension,
{
    match array.as_slice() {
        Some(values) => Cow::Borrowed(values),
        None => Cow::Owned(array.iter().cloned().collect()),
    }
}

/// An array of as many dimensions as the caller's type has; `expected` names them.
pub(super) fn array_of<T, D: Dimension>(
    shape: Vec<usize>,
    values: Vec<T>,
    expected: &'static str,
) -> Result<Array<T, D>, TensorError> {
    let elements = values.len();
    let dynamic =
        Array::from_shape_vec(shape.clone(), values).map_err(|_| TensorError::Elements {
            shape: shape.clone(),
            elements,
        })?;
    dynamic
        .into_dimensionality()
        .map_err(|_| TensorError::Dimensions {
            got: shape,
            expected,
        })
}
