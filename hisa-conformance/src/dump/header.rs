//! The header of a safetensors file, checked against the length of the data behind it.

use super::error::{HeaderError, shortened};
use super::{METADATA_KEY, NAME_BYTES_MAX, RANK_MAX};
use safetensors::Dtype;
use serde::de::value::StrDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, HeaderError>;

/// Where a tensor lies and what its bytes mean; consistent once read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    dtype: Dtype,
    shape: Vec<usize>,
    begin: u64,
    end: u64,
}

impl TensorInfo {
    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.begin
    }

    /// First byte, counted from the start of the data.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.begin
    }
}

#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) tensors: BTreeMap<String, TensorInfo>,
}

impl Header {
    /// `text` is the header without its length, `present` the number of bytes behind it.
    pub(super) fn parse(text: &[u8], present: u64) -> Result<Self> {
        if text.first() != Some(&b'{') {
            let reason = "it does not begin with {".to_owned();
            return Err(HeaderError::NotJson { reason });
        }
        let raw: RawHeader =
            serde_json::from_slice(text).map_err(|error| HeaderError::NotJson {
                reason: shortened(&error.to_string(), 200),
            })?;
        let mut header = Self::default();
        if raw.metadata.len() > 1 {
            return Err(HeaderError::Duplicate {
                name: METADATA_KEY.to_owned(),
            });
        }
        for (key, value) in raw.metadata.into_iter().flat_map(|strings| strings.0) {
            if header.metadata.contains_key(&key) {
                return Err(HeaderError::DuplicateMetadata {
                    key: shortened(&key, 32),
                });
            }
            header.metadata.insert(key, value);
        }
        for (name, entry) in raw.tensors {
            header.insert(name, entry, present)?;
        }
        header.check_layout(present)?;
        Ok(header)
    }

    fn insert(&mut self, name: String, entry: RawTensor, present: u64) -> Result<()> {
        check_name(&name)?;
        let info = entry.checked(&name, present)?;
        match self.tensors.insert(name.clone(), info) {
            Some(_) => Err(HeaderError::Duplicate { name }),
            None => Ok(()),
        }
    }

    /// The tensors cover the data without gap or overlap.
    fn check_layout(&self, present: u64) -> Result<()> {
        let mut tensors: Vec<_> = self.tensors.iter().collect();
        tensors.sort_by_key(|(_, info)| (info.begin, info.end));
        let (mut other, mut expected) = (String::new(), 0);
        for (tensor, info) in tensors {
            let (tensor, begin) = (tensor.clone(), info.begin);
            if begin < expected {
                return Err(HeaderError::Overlap {
                    tensor,
                    begin,
                    other,
                    end: expected,
                });
            }
            if begin > expected {
                return Err(HeaderError::Gap {
                    tensor,
                    begin,
                    expected,
                });
            }
            (other, expected) = (tensor, info.end);
        }
        if expected != present {
            return Err(HeaderError::Trailing {
                end: expected,
                present,
            });
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        let (start, bytes, limit) = (shortened(name, 32), name.len(), NAME_BYTES_MAX);
        return Err(HeaderError::NameTooLong {
            start,
            bytes,
            limit,
        });
    }
    Ok(())
}

/// A tensor's entry as written.
#[derive(serde::Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl RawTensor {
    /// Everything that can be said about one tensor without looking at the others.
    fn checked(self, name: &str, present: u64) -> Result<TensorInfo> {
        let Self {
            dtype,
            shape,
            data_offsets: (begin, end),
        } = self;
        let tensor = || name.to_owned();
        if shape.len() > RANK_MAX {
            let (rank, limit) = (shape.len(), RANK_MAX);
            return Err(HeaderError::Rank {
                tensor: tensor(),
                rank,
                limit,
            });
        }
        let Some(dtype) = dtype_named(&dtype) else {
            let dtype = shortened(&dtype, 32);
            return Err(HeaderError::UnknownDtype {
                tensor: tensor(),
                dtype,
            });
        };
        let Some((extents, bits)) = addressable(&shape, dtype) else {
            return Err(HeaderError::Overflow {
                tensor: tensor(),
                dtype,
                shape,
            });
        };
        if !bits.is_multiple_of(8) {
            return Err(HeaderError::PartialByte {
                tensor: tensor(),
                dtype,
                shape,
            });
        }
        if end < begin {
            return Err(HeaderError::Backwards {
                tensor: tensor(),
                begin,
                end,
            });
        }
        let (needed, span) = (bits / 8, end - begin);
        if needed != span {
            return Err(HeaderError::Size {
                tensor: tensor(),
                dtype,
                shape,
                needed,
                span,
            });
        }
        if end > present {
            return Err(HeaderError::PastEnd {
                tensor: tensor(),
                end,
                present,
            });
        }
        Ok(TensorInfo {
            dtype,
            shape: extents,
            begin,
            end,
        })
    }
}

fn dtype_named(word: &str) -> Option<Dtype> {
    let deserializer = StrDeserializer::<serde::de::value::Error>::new(word);
    Dtype::deserialize(deserializer).ok()
}

/// The extents as `usize` and the size in bits; `None` unless the non-zero extents alone can be
/// addressed, so that the answer does not depend on where in the shape a zero stands.
fn addressable(shape: &[u64], dtype: Dtype) -> Option<(Vec<usize>, u64)> {
    let mut extents = Vec::with_capacity(shape.len());
    let mut bits = dtype.bitsize() as u64;
    for &extent in shape {
        extents.push(usize::try_from(extent).ok()?);
        bits = bits.checked_mul(extent.max(1))?;
    }
    isize::try_from(bits).ok()?;
    Some((extents, if shape.contains(&0) { 0 } else { bits }))
}

/// The header as written, with names that occur twice still in it.
#[derive(Default)]
struct RawHeader {
    tensors: Vec<(String, RawTensor)>,
    metadata: Vec<Strings>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut raw = RawHeader::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA_KEY {
                raw.metadata
                    .push(map.next_value::<Option<Strings>>()?.unwrap_or_default());
            } else {
                raw.tensors.push((name, map.next_value()?));
            }
        }
        Ok(raw)
    }
}

/// Metadata as written, with keys that occur twice still in it.
#[derive(Default)]
struct Strings(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(StringsVisitor)
    }
}

struct StringsVisitor;

impl<'de> Visitor<'de> for StringsVisitor {
    type Value = Strings;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut strings = Strings::default();
        while let Some(pair) = map.next_entry()? {
            strings.0.push(pair);
        }
        Ok(strings)
    }
}
