//! The outputs of a run: any subset of the named tensors.

use super::error::DumpError;
use super::read::TensorFile;
use super::tensor::Tensor;
use super::write::write_atomic;
use hisa_ref::E4M3;
use hisa_ref::trace::{BlockSparseTrace, DsaTrace, Trace};
use ndarray::{Array1, Array2};
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::path::Path;

/// What a run produced, ours or somebody else's; every tensor may be absent.
///
/// Read back, dtypes and numbers of dimensions are checked and nothing else: extents and values
/// are for the checks to judge. Ids are accepted as I64 where every one fits int32, and their
/// names are then listed in [`Self::wide_ids`]; codes are accepted as U8 or F8_E4M3.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutputDump {
    /// Quantised rows `[rows,D]`, from `quantize`.
    pub codes: Option<Array2<E4M3>>,
    /// Their scales `[rows]`.
    pub scale: Option<Array1<f32>>,
    /// Pooled keys `[Nb,D]`.
    pub pooled_k: Option<Array2<E4M3>>,
    /// Their scales `[Nb]`.
    pub pooled_scale: Option<Array1<f32>>,
    /// Block scores `[M,Nb]`; unspecified outside the block window.
    pub block_scores: Option<Array2<f32>>,
    /// Masked block scores `[M,Nb]`.
    pub block_mask: Option<Array2<f32>>,
    /// Chosen blocks `[M,m]`, -1 for none.
    pub block_ids: Option<Array2<i32>>,
    /// Scores of the candidate tokens `[M,S]`, S = m*B.
    pub token_scores: Option<Array2<f32>>,
    /// Chosen slots `[M,K]`, -1 for none.
    pub slots: Option<Array2<i32>>,
    /// Chosen keys relative to the window start `[M,K]`, or `[M,m*B]` for `block-sparse`; -1 for
    /// none.
    pub indices: Option<Array2<i32>>,
    /// Scores of every key `[M,N]`, `-inf` outside the window; `dsa` only.
    pub flat_scores: Option<Array2<f32>>,
    /// Names of the ids that came as I64. Never written.
    pub wide_ids: Vec<&'static str>,
}

impl OutputDump {
    /// Names of all outputs, in the order of the stages.
    pub const NAMES: [&'static str; 11] = [
        "codes",
        "scale",
        "pooled_k",
        "pooled_scale",
        "block_scores",
        "block_mask",
        "block_ids",
        "token_scores",
        "slots",
        "indices",
        "flat_scores",
    ];

    /// The outputs that are present, under their dump names. Codes travel as U8.
    #[must_use]
    pub fn tensors(&self) -> BTreeMap<String, Tensor<'_>> {
        let all = [
            self.codes.as_ref().map(Tensor::codes),
            self.scale.as_ref().map(Tensor::f32),
            self.pooled_k.as_ref().map(Tensor::codes),
            self.pooled_scale.as_ref().map(Tensor::f32),
            self.block_scores.as_ref().map(Tensor::f32),
            self.block_mask.as_ref().map(Tensor::f32),
            self.block_ids.as_ref().map(Tensor::i32),
            self.token_scores.as_ref().map(Tensor::f32),
            self.slots.as_ref().map(Tensor::i32),
            self.indices.as_ref().map(Tensor::i32),
            self.flat_scores.as_ref().map(Tensor::f32),
        ];
        let named = Self::NAMES.into_iter().zip(all);
        named
            .filter_map(|(name, tensor)| Some((name.to_owned(), tensor?)))
            .collect()
    }

    /// Names of the outputs that are present, in the order of the stages.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let tensors = self.tensors();
        let present = Self::NAMES.into_iter();
        present.filter(|&name| tensors.contains_key(name)).collect()
    }

    /// Writes the outputs that are present, complete or not at all; `metadata` travels along.
    ///
    /// # Errors
    /// As [`write_atomic`].
    pub fn to_file(
        &self,
        path: &Path,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), DumpError> {
        write_atomic(path, &self.tensors(), metadata)
    }

    /// Opens and reads outputs.
    ///
    /// # Errors
    /// As [`TensorFile::open`] and [`Self::from_file`].
    pub fn read(path: &Path) -> Result<Self, DumpError> {
        Self::from_file(&mut TensorFile::open(path)?)
    }

    /// Reads every output that is present; other tensors are ignored.
    ///
    /// # Errors
    /// [`DumpError::Tensor`] for a wrong dtype or number of dimensions, or an id past int32;
    /// [`DumpError::Io`].
    pub fn from_file<R: Read + Seek>(file: &mut TensorFile<R>) -> Result<Self, DumpError> {
        let mut wide_ids = Vec::new();
        Ok(Self {
            codes: where_present(file, "codes", |f, name| f.codes(name, "[rows, D]"))?,
            scale: where_present(file, "scale", |f, name| f.floats(name, "[rows]"))?,
            pooled_k: where_present(file, "pooled_k", |f, name| f.codes(name, "[Nb, D]"))?,
            pooled_scale: where_present(file, "pooled_scale", |f, name| f.floats(name, "[Nb]"))?,
            block_scores: where_present(file, "block_scores", |f, name| f.floats(name, "[M, Nb]"))?,
            block_mask: where_present(file, "block_mask", |f, name| f.floats(name, "[M, Nb]"))?,
            block_ids: ids(file, "block_ids", "[M, m]", &mut wide_ids)?,
            token_scores: where_present(file, "token_scores", |f, name| f.floats(name, "[M, S]"))?,
            slots: ids(file, "slots", "[M, K]", &mut wide_ids)?,
            indices: ids(file, "indices", "[M, K]", &mut wide_ids)?,
            flat_scores: where_present(file, "flat_scores", |f, name| f.floats(name, "[M, N]"))?,
            wide_ids,
        })
    }

    /// True where no output is present.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors().is_empty()
    }
}

impl From<Trace> for OutputDump {
    fn from(trace: Trace) -> Self {
        Self {
            pooled_k: Some(trace.pooled_k),
            pooled_scale: Some(trace.pooled_scale),
            block_scores: Some(trace.block_scores),
            block_mask: Some(trace.block_mask),
            block_ids: Some(trace.block_ids),
            token_scores: Some(trace.token_scores),
            slots: Some(trace.slots),
            indices: Some(trace.indices),
            ..Self::default()
        }
    }
}

impl From<DsaTrace> for OutputDump {
    fn from(trace: DsaTrace) -> Self {
        Self {
            flat_scores: Some(trace.flat_scores),
            slots: Some(trace.slots),
            indices: Some(trace.indices),
            ..Self::default()
        }
    }
}

impl From<BlockSparseTrace> for OutputDump {
    fn from(trace: BlockSparseTrace) -> Self {
        Self {
            pooled_k: Some(trace.pooled_k),
            pooled_scale: Some(trace.pooled_scale),
            block_scores: Some(trace.block_scores),
            block_mask: Some(trace.block_mask),
            block_ids: Some(trace.block_ids),
            indices: Some(trace.indices),
            ..Self::default()
        }
    }
}

fn where_present<T, R: Read + Seek>(
    file: &mut TensorFile<R>,
    name: &str,
    read: impl FnOnce(&mut TensorFile<R>, &str) -> Result<T, DumpError>,
) -> Result<Option<T>, DumpError> {
    if file.contains(name) {
        read(file, name).map(Some)
    } else {
        Ok(None)
    }
}

fn ids<R: Read + Seek>(
    file: &mut TensorFile<R>,
    name: &'static str,
    expected: &'static str,
    wide_ids: &mut Vec<&'static str>,
) -> Result<Option<Array2<i32>>, DumpError> {
    let read = where_present(file, name, |file, name| file.ids(name, expected))?;
    Ok(read.map(|(ids, wide)| {
        if wide {
            wide_ids.push(name);
        }
        ids
    }))
}
