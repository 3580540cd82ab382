//! Reading: the header at once, tensors one by one as they are asked for.

use super::error::{DumpError, HeaderError, TensorError};
use super::header::{Header, TensorInfo};
use super::tensor::{Data, Tensor, array_of};
use super::{FILE_BYTES_MAX, HEADER_BYTES_MAX};
use hisa_ref::E4M3;
use ndarray::{Array, Dimension};
use safetensors::Dtype;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, DumpError>;

/// Size of the header's length, in bytes.
const LENGTH_BYTES: u64 = 8;
/// Bytes converted at a time; a multiple of every element size.
const CHUNK_BYTES: usize = 1 << 16;
/// How many names a message lists.
const NAMES_SHOWN: usize = 12;

/// e4m3 codes: bytes, or the dtype some readers do not know.
pub(super) const CODES: &[Dtype] = &[Dtype::U8, Dtype::F8_E4M3];
/// f32 and nothing that would have to be converted.
pub(super) const FLOATS: &[Dtype] = &[Dtype::F32];
/// Sequence offsets of either width.
pub(super) const OFFSETS: &[Dtype] = &[Dtype::I32, Dtype::I64];
/// Row windows.
pub(super) const WINDOWS: &[Dtype] = &[Dtype::I32];
/// Rows to quantise; 16-bit words are bf16 bits.
pub(super) const ROWS: &[Dtype] = &[Dtype::F32, Dtype::BF16, Dtype::U16];

/// A safetensors file whose header has been checked against its length.
///
/// Tensors are read when asked for, so tensors nobody asks for cost nothing, and no read asks for
/// more memory than the file is long.
#[derive(Debug)]
pub struct TensorFile<R> {
    path: PathBuf,
    reader: R,
    data_start: u64,
    header: Header,
}

impl TensorFile<File> {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// [`DumpError::Io`], [`DumpError::NotAFile`], [`DumpError::Header`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_as(path, path)
    }

    /// The same for a file that messages call `name`.
    pub(crate) fn open_as(path: &Path, name: &Path) -> Result<Self> {
        // Looked at before opening: opening a pipe would wait for a writer.
        let found = std::fs::metadata(path).map_err(DumpError::io(name, "open"))?;
        if !found.is_file() {
            return Err(DumpError::NotAFile {
                file: name.to_owned(),
            });
        }
        let file = File::open(path).map_err(DumpError::io(name, "open"))?;
        let bytes = file.metadata().map_err(DumpError::io(name, "open"))?.len();
        Self::new(name, file, bytes)
    }
}

impl<'a> TensorFile<Cursor<&'a [u8]>> {
    /// Checks the header of a file that is in memory; `name` is what messages call it.
    ///
    /// # Errors
    /// [`DumpError::Header`].
    pub fn from_bytes(name: &Path, bytes: &'a [u8]) -> Result<Self> {
        Self::new(name, Cursor::new(bytes), bytes.len() as u64)
    }
}

impl<R: Read + Seek> TensorFile<R> {
    fn new(path: &Path, mut reader: R, file_bytes: u64) -> Result<Self> {
        let damaged = |problem| DumpError::Header {
            file: path.to_owned(),
            problem,
        };
        if file_bytes > FILE_BYTES_MAX {
            let (bytes, limit) = (file_bytes, FILE_BYTES_MAX);
            return Err(damaged(HeaderError::FileTooLarge { bytes, limit }));
        }
        let Some(present) = file_bytes.checked_sub(LENGTH_BYTES) else {
            return Err(damaged(HeaderError::TooShort { bytes: file_bytes }));
        };
        let mut length = [0; LENGTH_BYTES as usize];
        reader
            .read_exact(&mut length)
            .map_err(DumpError::io(path, "read the header of it"))?;
        let bytes = u64::from_le_bytes(length);
        if bytes > present {
            return Err(damaged(HeaderError::Truncated { bytes, present }));
        }
        if bytes > HEADER_BYTES_MAX {
            return Err(damaged(HeaderError::TooLarge {
                bytes,
                limit: HEADER_BYTES_MAX,
            }));
        }
        let mut text = vec![0; bytes as usize];
        reader
            .read_exact(&mut text)
            .map_err(DumpError::io(path, "read the header of it"))?;
        let header = Header::parse(&text, present - bytes).map_err(damaged)?;
        Ok(Self {
            path: path.to_owned(),
            reader,
            data_start: LENGTH_BYTES + bytes,
            header,
        })
    }

    /// The path, or what stands for it in messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The strings of the header.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.tensors.keys().map(String::as_str)
    }

    /// Element type, shape and place of a tensor; `None` where there is none of that name.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensors.get(name)
    }

    /// True where a tensor of that name is there.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.info(name).is_some()
    }

    /// Reads a tensor whose dtype is one of `accepted`; of these, only those in
    /// [`Data::DTYPES`] can be read.
    ///
    /// # Errors
    /// [`DumpError::Tensor`] where it is missing, of another dtype or too large to allocate,
    /// [`DumpError::Io`] where the file cannot be read.
    pub fn tensor(&mut self, name: &str, accepted: &'static [Dtype]) -> Result<Tensor<'static>> {
        let Some(info) = self.info(name).cloned() else {
            let found = self.names().take(NAMES_SHOWN).map(str::to_owned).collect();
            return Err(self.wrong(name, TensorError::Missing { found }));
        };
        let got = info.dtype();
        if !accepted.contains(&got) {
            return Err(self.wrong(name, TensorError::Dtype { got, accepted }));
        }
        let data = match got {
            Dtype::U8 => Data::U8(self.elements(name, &info, |[byte]| byte)?),
            Dtype::F8_E4M3 => {
                Data::F8E4M3(self.elements(name, &info, |[bits]| E4M3::from_bits(bits))?)
            }
            Dtype::F32 => Data::F32(self.elements(name, &info, f32::from_le_bytes)?),
            Dtype::I32 => Data::I32(self.elements(name, &info, i32::from_le_bytes)?),
            Dtype::I64 => Data::I64(self.elements(name, &info, i64::from_le_bytes)?),
            Dtype::BF16 => Data::Bf16(self.elements(name, &info, u16::from_le_bytes)?),
            Dtype::U16 => Data::U16(self.elements(name, &info, u16::from_le_bytes)?),
            _ => {
                let accepted = Data::DTYPES;
                return Err(self.wrong(name, TensorError::Dtype { got, accepted }));
            }
        };
        Tensor::new(info.shape(), data).map_err(|problem| self.wrong(name, problem))
    }

    fn elements<T: Clone, const W: usize>(
        &mut self,
        name: &str,
        info: &TensorInfo,
        convert: fn([u8; W]) -> T,
    ) -> Result<Cow<'static, [T]>> {
        let too_large = TensorError::Allocation {
            bytes: info.bytes(),
        };
        let mut out = Vec::new();
        let reserved = usize::try_from(info.bytes())
            .map_err(drop)
            .and_then(|bytes| out.try_reserve_exact(bytes / W).map_err(drop));
        if reserved.is_err() {
            return Err(self.wrong(name, too_large));
        }
        let failed = DumpError::io(&self.path, "read it to the end");
        let start = SeekFrom::Start(self.data_start + info.begin());
        self.reader.seek(start).map_err(&failed)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut left = info.bytes();
        while left > 0 {
            let step = left.min(CHUNK_BYTES as u64) as usize;
            self.reader
                .read_exact(&mut chunk[..step])
                .map_err(&failed)?;
            out.extend(
                chunk[..step]
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&bytes| convert(bytes)),
            );
            left -= step as u64;
        }
        Ok(Cow::Owned(out))
    }

    fn wrong(&self, name: &str, problem: TensorError) -> DumpError {
        DumpError::tensor(&self.path, name, problem)
    }

    fn array<T: Clone, D: Dimension>(
        &self,
        name: &str,
        shape: Vec<usize>,
        values: Cow<'static, [T]>,
        expected: &'static str,
    ) -> Result<Array<T, D>> {
        array_of(shape, values.into_owned(), expected).map_err(|problem| self.wrong(name, problem))
    }

    /// e4m3 codes, from U8 or F8_E4M3; `expected` is the shape in letters.
    pub(super) fn codes<D: Dimension>(
        &mut self,
        name: &str,
        expected: &'static str,
    ) -> Result<Array<E4M3, D>> {
        let (shape, data) = self.tensor(name, CODES)?.into_parts();
        let codes = match data {
            Data::F8E4M3(codes) => codes,
            Data::U8(bytes) => bytes
                .into_owned()
                .into_iter()
                .map(E4M3::from_bits)
                .collect(),
            other => return Err(self.refused(name, &other, CODES)),
        };
        self.array(name, shape, codes, expected)
    }

    /// f32 values.
    pub(super) fn floats<D: Dimension>(
        &mut self,
        name: &str,
        expected: &'static str,
    ) -> Result<Array<f32, D>> {
        let (shape, data) = self.tensor(name, FLOATS)?.into_parts();
        let Data::F32(values) = data else {
            return Err(self.refused(name, &data, FLOATS));
        };
        self.array(name, shape, values, expected)
    }

    /// f32 values, from F32 or from bf16 bits as BF16 or U16.
    pub(super) fn rows<D: Dimension>(
        &mut self,
        name: &str,
        expected: &'static str,
    ) -> Result<Array<f32, D>> {
        let (shape, data) = self.tensor(name, ROWS)?.into_parts();
        let values = match data {
            Data::F32(values) => values,
            Data::Bf16(words) | Data::U16(words) => words
                .iter()
                .map(|&word| f32::from_bits(u32::from(word) << 16))
                .collect(),
            other => return Err(self.refused(name, &other, ROWS)),
        };
        self.array(name, shape, values, expected)
    }

    /// int32 values.
    pub(super) fn windows<D: Dimension>(
        &mut self,
        name: &str,
        expected: &'static str,
    ) -> Result<Array<i32, D>> {
        let (shape, data) = self.tensor(name, WINDOWS)?.into_parts();
        let Data::I32(values) = data else {
            return Err(self.refused(name, &data, WINDOWS));
        };
        self.array(name, shape, values, expected)
    }

    /// int32 ids, from I32, or from I64 where every one fits; true where they came as I64.
    pub(super) fn ids<D: Dimension>(
        &mut self,
        name: &str,
        expected: &'static str,
    ) -> Result<(Array<i32, D>, bool)> {
        let (shape, data) = self.tensor(name, OFFSETS)?.into_parts();
        let wide = matches!(data, Data::I64(_));
        let values = match data {
            Data::I32(values) => values,
            Data::I64(values) => {
                Cow::Owned(narrowed(&values).map_err(|problem| self.wrong(name, problem))?)
            }
            other => return Err(self.refused(name, &other, OFFSETS)),
        };
        Ok((self.array(name, shape, values, expected)?, wide))
    }

    /// Wide ids as int32.
    pub(crate) fn narrowed(&self, name: &str, wide: &[i64]) -> Result<Data<'static>> {
        let narrow = narrowed(wide).map_err(|problem| self.wrong(name, problem))?;
        Ok(Data::I32(Cow::Owned(narrow)))
    }

    pub(crate) fn refused(
        &self,
        name: &str,
        data: &Data<'_>,
        accepted: &'static [Dtype],
    ) -> DumpError {
        self.wrong(
            name,
            TensorError::Dtype {
                got: data.dtype(),
                accepted,
            },
        )
    }
}

fn narrowed(values: &[i64]) -> std::result::Result<Vec<i32>, TensorError> {
    let narrow = |(position, &value)| {
        i32::try_from(value).map_err(|_| TensorError::IdRange { position, value })
    };
    values.iter().enumerate().map(narrow).collect()
}
