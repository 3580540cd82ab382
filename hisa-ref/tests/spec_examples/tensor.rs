//! Tensors as examples write them: nested lists of numbers or strings, kept as bits.

use hisa_ref::E4M3;
use ndarray::{Array, Array1, Array2, Array3, ArrayBase, ArrayD, Data, Dimension};
use serde_json::Value;

/// What the elements of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// e4m3 codes, written as two hexadecimal digits.
    Code,
    /// f32, written as an exact number, as its bits, or as a word.
    F32,
    /// int32 ids.
    I32,
}

/// A tensor with its elements as bits, so that comparison is bit for bit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    kind: Kind,
    shape: Vec<usize>,
    bits: Vec<u32>,
}

impl Tensor {
    /// The tensor a nested list spells, or what is wrong with the list.
    pub(crate) fn parse(value: &Value, kind: Kind) -> Result<Self, String> {
        let mut tensor = Self {
            kind,
            shape: vec![],
            bits: vec![],
        };
        tensor.shape = tensor.collect(value)?;
        Ok(tensor)
    }

    /// Appends the elements of `value` and returns its shape.
    fn collect(&mut self, value: &Value) -> Result<Vec<usize>, String> {
        let Some(items) = value.as_array() else {
            self.bits.push(element(value, self.kind)?);
            return Ok(vec![]);
        };
        let mut inner: Option<Vec<usize>> = None;
        for item in items {
            let shape = self.collect(item)?;
            if inner.get_or_insert_with(|| shape.clone()) != &shape {
                return Err(format!("a list holds {shape:?} beside {inner:?}"));
            }
        }
        Ok([vec![items.len()], inner.unwrap_or_default()].concat())
    }

    pub(crate) fn codes<S: Data<Elem = E4M3>, D: Dimension>(array: &ArrayBase<S, D>) -> Self {
        let bits = array.iter().map(|code| u32::from(code.to_bits())).collect();
        Self {
            kind: Kind::Code,
            shape: array.shape().to_vec(),
            bits,
        }
    }

    pub(crate) fn f32s<S: Data<Elem = f32>, D: Dimension>(array: &ArrayBase<S, D>) -> Self {
        let bits = array.iter().map(|value| value.to_bits()).collect();
        Self {
            kind: Kind::F32,
            shape: array.shape().to_vec(),
            bits,
        }
    }

    pub(crate) fn i32s<S: Data<Elem = i32>, D: Dimension>(array: &ArrayBase<S, D>) -> Self {
        let bits = array.iter().map(|id| id.cast_unsigned()).collect();
        Self {
            kind: Kind::I32,
            shape: array.shape().to_vec(),
            bits,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in a shape of `D` dimensions, each made by `make`.
    fn array<T, D: Dimension>(&self, shape: D, make: impl Fn(u32) -> T) -> Array<T, D> {
        let elements = self.bits.iter().map(|&bits| make(bits)).collect();
        Array::from_shape_vec(shape, elements).expect("a list of the right depth")
    }

    /// One dimension.
    pub(crate) fn vector<T>(&self, make: impl Fn(u32) -> T) -> Array1<T> {
        self.array(ndarray::Dim(self.bits.len()), make)
    }

    /// As many dimensions as the list is deep.
    pub(crate) fn dynamic<T>(&self, make: impl Fn(u32) -> T) -> ArrayD<T> {
        self.array(ndarray::IxDyn(&self.shape), make)
    }

    /// Two dimensions; `columns` decides where there is no row.
    pub(crate) fn matrix<T>(&self, columns: usize, make: impl Fn(u32) -> T) -> Array2<T> {
        let columns = self.shape.get(1).copied().unwrap_or(columns);
        self.array(ndarray::Dim([self.shape[0], columns]), make)
    }

    /// Three dimensions, none of them empty.
    pub(crate) fn cube<T>(&self, make: impl Fn(u32) -> T) -> Array3<T> {
        self.array(
            ndarray::Dim([self.shape[0], self.shape[1], self.shape[2]]),
            make,
        )
    }
}

pub(crate) fn to_code(bits: u32) -> E4M3 {
    E4M3::from_bits(bits as u8)
}

pub(crate) fn to_i32(bits: u32) -> i32 {
    bits.cast_signed()
}

impl std::fmt::Display for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.shape)?;
        for &bits in &self.bits {
            match self.kind {
                Kind::Code => write!(f, " {bits:#04X}")?,
                Kind::F32 => write!(f, " {}({bits:#010X})", f32::from_bits(bits))?,
                Kind::I32 => write!(f, " {}", to_i32(bits))?,
            }
        }
        Ok(())
    }
}

/// Bits of one element.
fn element(value: &Value, kind: Kind) -> Result<u32, String> {
    let refuse = || format!("{value} is not an element of a {kind:?} tensor");
    match (kind, value) {
        (Kind::Code, Value::String(word)) => hexadecimal(word, 2).ok_or_else(refuse),
        (Kind::I32, Value::Number(number)) => {
            let id = number.as_i64().and_then(|id| i32::try_from(id).ok());
            id.map(i32::cast_unsigned).ok_or_else(refuse)
        }
        (Kind::F32, Value::Number(number)) => {
            let exact = number.as_f64().filter(|&x| f64::from(x as f32) == x);
            exact.map(|x| (x as f32).to_bits()).ok_or_else(refuse)
        }
        (Kind::F32, Value::String(word)) => match word.as_str() {
            "inf" => Ok(f32::INFINITY.to_bits()),
            "-inf" => Ok(f32::NEG_INFINITY.to_bits()),
            "nan" => Ok(0x7FC0_0000),
            _ => hexadecimal(word, 8).ok_or_else(refuse),
        },
        _ => Err(refuse()),
    }
}

/// `0x` and exactly `digits` hexadecimal digits.
fn hexadecimal(word: &str, digits: usize) -> Option<u32> {
    let written = word
        .strip_prefix("0x")
        .filter(|written| written.len() == digits)?;
    u32::from_str_radix(written, 16).ok()
}
