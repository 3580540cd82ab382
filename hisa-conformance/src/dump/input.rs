//! The input of a run, read from a dump and checked as a whole.

use super::error::{DumpError, PagedProblem, TensorError, WindowsProblem};
use super::paged;
use super::params::{Options, RunParams};
use super::read::{OFFSETS, TensorFile};
use super::tensor::{Data, Tensor};
use crate::case::WindowSource;
use hisa_ref::{CuSeqlens, E4M3, IndexerInput, Keys, Queries, Strictness, Windows};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, ArrayView3};
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, DumpError>;

/// Everything a run needs, owned. Once constructed, [`Self::as_input`] succeeds.
///
/// | tensor | shape | dtypes |
/// |---|---|---|
/// | `q` | `[M,H,D]` | U8 (codes), F8_E4M3 |
/// | `k` | `[N,D]` | U8 (codes), F8_E4M3 |
/// | `k_scale` | `[N]` | F32 |
/// | or `kv_cache`, | `[pages,P,D+4]` | U8 |
/// | `block_table` and | `[S,W]` | I32 |
/// | `seq_lens` | `[S]` | I32 |
/// | `weights` | `[M,H]` | F32 |
/// | `cu_seqlens` | `[S+1]` | I32, I64 |
/// | or `cu_seqlens_q` and `cu_seqlens_k` | `[S+1]` | I32, I64 |
/// | or `cu_seqlens_q` alone, where the keys are in a cache | `[S+1]` | I32, I64 |
/// | or `ks` and `ke` | `[M]` | I32 |
/// | `x`, optional | `[rows,D]` | F32, BF16, U16 (bf16 bits) |
///
/// No other dtype is converted: int64 `ks` and `ke` are refused by type, int64 offsets are
/// taken at their value and refused above int32. Other tensors in the file are ignored, so a
/// file may hold outputs beside the inputs.
#[derive(Debug, Clone)]
pub struct InputDump {
    path: PathBuf,
    params: RunParams,
    q: Array3<E4M3>,
    k: Array2<E4M3>,
    k_scale: Array1<f32>,
    weights: Array2<f32>,
    windows: Windows,
    x: Option<Array2<f32>>,
}

impl InputDump {
    /// Opens and reads a dump; `options` override its metadata.
    ///
    /// # Errors
    /// As [`TensorFile::open`] and [`Self::from_file`].
    pub fn read(path: &Path, options: &Options) -> Result<Self> {
        Self::from_file(&mut TensorFile::open(path)?, options)
    }

    /// Reads a dump; `options` override its metadata.
    ///
    /// # Errors
    /// [`DumpError::Param`] first; then [`DumpError::Tensor`] for the first tensor that is missing
    /// or of another dtype or number of dimensions, in the order of the table above;
    /// [`DumpError::Windows`]; and [`DumpError::Input`] for shapes, windows and values.
    pub fn from_file<R: Read + Seek>(file: &mut TensorFile<R>, options: &Options) -> Result<Self> {
        let params = RunParams::read(file.path(), file.metadata(), options)?;
        let way = Way::of(file)?;
        let q: Array3<E4M3> = file.codes("q", "[M, H, D]")?;
        let paged::Keys {
            k,
            k_scale,
            offsets,
        } = paged::Keys::read(file)?;
        let weights: Array2<f32> = file.floats("weights", "[M, H]")?;
        // Shapes before windows: M rows of H = 0 heads take no byte of a file, so only a checked
        // shape keeps a short file from asking for a long list of windows.
        Queries::new(q.view(), weights.view(), Strictness::Permissive)?;
        Keys::new(k.view(), k_scale.view(), Strictness::Permissive)?;
        let windows = way.read(file, q.dim().0, k.nrows(), offsets.as_deref())?;
        let x = read_x(file)?;
        let path = file.path().to_owned();
        let dump = Self {
            path,
            params,
            q,
            k,
            k_scale,
            weights,
            windows,
            x,
        };
        dump.as_input()?;
        Ok(dump)
    }

    /// The tensors as every stage takes them.
    ///
    /// # Errors
    /// None once constructed; the type is the one of [`IndexerInput::new`].
    pub fn as_input(&self) -> hisa_ref::Result<IndexerInput<'_>> {
        IndexerInput::new(
            self.q.view(),
            self.k.view(),
            self.k_scale.view(),
            self.weights.view(),
            self.windows.clone(),
            self.params.strictness,
        )
    }

    /// Where the dump was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the run is asked to do.
    #[must_use]
    pub fn params(&self) -> &RunParams {
        &self.params
    }

    /// Query codes `[M,H,D]`.
    #[must_use]
    pub fn q(&self) -> ArrayView3<'_, E4M3> {
        self.q.view()
    }

    /// Key codes `[N,D]`.
    #[must_use]
    pub fn k(&self) -> ArrayView2<'_, E4M3> {
        self.k.view()
    }

    /// Key scales `[N]`.
    #[must_use]
    pub fn k_scale(&self) -> ArrayView1<'_, f32> {
        self.k_scale.view()
    }

    /// Head weights `[M,H]`.
    #[must_use]
    pub fn weights(&self) -> ArrayView2<'_, f32> {
        self.weights.view()
    }

    /// One window per query row.
    #[must_use]
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Rows to quantise `[rows,D]`, where the dump holds any.
    #[must_use]
    pub fn x(&self) -> Option<ArrayView2<'_, f32>> {
        self.x.as_ref().map(|x| x.view())
    }
}

/// The rows to quantise, `x` `[rows,D]` as F32, BF16 or bf16 bits in U16; `None` where the file has
/// no `x`. Values are not checked.
///
/// # Errors
/// [`DumpError::Tensor`] for another dtype or number of dimensions, [`DumpError::Io`].
pub fn read_x<R: Read + Seek>(file: &mut TensorFile<R>) -> Result<Option<Array2<f32>>> {
    if !file.contains("x") {
        return Ok(None);
    }
    file.rows("x", "[rows, D]").map(Some)
}

/// The tensors of an input under their dump names, windows as `ks` and `ke`. With
/// [`RunParams::metadata`] they make a dump that reads back as the same input.
///
/// # Errors
/// None for an input that was constructed; the type is the one of [`Tensor::new`].
pub fn tensors_of<'a>(
    input: &'a IndexerInput<'_>,
) -> std::result::Result<BTreeMap<String, Tensor<'a>>, TensorError> {
    let (queries, keys) = (input.queries(), input.keys());
    let (m, h, d, n) = (
        queries.len(),
        queries.heads(),
        queries.head_dim(),
        keys.len(),
    );
    let bits = |codes: &[E4M3]| Data::U8(codes.iter().map(|code| code.to_bits()).collect());
    let weights: Vec<f32> = (0..m)
        .flat_map(|row| queries.row_weights(row).iter().copied())
        .collect();
    let rows = input.windows().rows();
    let ks = rows.iter().map(|window| window.ks).collect();
    let ke = rows.iter().map(|window| window.ke).collect();
    Ok(BTreeMap::from([
        (
            "q".to_owned(),
            Tensor::new(&[m, h, d], bits(queries.codes()))?,
        ),
        ("k".to_owned(), Tensor::new(&[n, d], bits(keys.codes()))?),
        (
            "k_scale".to_owned(),
            Tensor::new(&[n], Data::F32(keys.scales().into()))?,
        ),
        (
            "weights".to_owned(),
            Tensor::new(&[m, h], Data::F32(weights.into()))?,
        ),
        ("ks".to_owned(), Tensor::new(&[m], Data::I32(ks))?),
        ("ke".to_owned(), Tensor::new(&[m], Data::I32(ke))?),
    ]))
}

/// The sequence offsets a file gives its windows by; `None` where it gives them row by row.
///
/// # Errors
/// As [`InputDump::from_file`].
pub fn read_offsets<R: Read + Seek>(file: &mut TensorFile<R>) -> Result<Option<WindowSource>> {
    let signed = |cu: CuSeqlens| cu.offsets().iter().map(|&offset| offset as i64).collect();
    Ok(match Way::of(file)? {
        Way::Shared => Some(WindowSource::Causal(signed(offsets(file, "cu_seqlens")?))),
        Way::Separate => Some(WindowSource::Separate {
            q: signed(offsets(file, "cu_seqlens_q")?),
            k: signed(offsets(file, "cu_seqlens_k")?),
        }),
        Way::Cached => Some(WindowSource::Separate {
            q: signed(offsets(file, "cu_seqlens_q")?),
            k: paged::sequence_offsets(file)?,
        }),
        Way::Rows => None,
    })
}

/// How a file gives its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Shared,
    Separate,
    /// Offsets of the queries; those of the keys are the sums of `seq_lens`.
    Cached,
    Rows,
}

impl Way {
    const ALL: [(Self, &'static [&'static str]); 3] = [
        (Self::Shared, &["cu_seqlens"]),
        (Self::Separate, &["cu_seqlens_q", "cu_seqlens_k"]),
        (Self::Rows, &["ks", "ke"]),
    ];

    fn of<R: Read + Seek>(file: &TensorFile<R>) -> Result<Self> {
        let wrong = |problem| DumpError::Windows {
            file: file.path().to_owned(),
            problem,
        };
        let present =
            |names: &&'static [&'static str]| names.iter().any(|name| file.contains(name));
        let used: Vec<_> = Self::ALL
            .into_iter()
            .filter(|(_, names)| present(names))
            .collect();
        let &[(way, names)] = used.as_slice() else {
            let names = used.iter().flat_map(|(_, names)| names.iter().copied());
            let found: Vec<_> = names.filter(|name| file.contains(name)).collect();
            return Err(wrong(match found.len() {
                0 => WindowsProblem::None,
                _ => WindowsProblem::Several { found },
            }));
        };
        let (found, missing): (Vec<_>, Vec<_>) =
            names.iter().copied().partition(|name| file.contains(name));
        match (found.first(), missing.first()) {
            (Some(&"cu_seqlens_q"), _) if paged::is_paged(file)? && !missing.is_empty() => {
                Ok(Self::Cached)
            }
            (Some(found), Some(missing)) => Err(wrong(WindowsProblem::Half { found, missing })),
            _ => Ok(way),
        }
    }

    /// `sequences` are the offsets of keys that come from a cache.
    fn read<R: Read + Seek>(
        self,
        file: &mut TensorFile<R>,
        m: usize,
        n: usize,
        sequences: Option<&[i64]>,
    ) -> Result<Windows> {
        let windows = match self {
            Self::Shared => Windows::causal(&offsets(file, "cu_seqlens")?, m, n),
            Self::Separate => {
                let cu_q = offsets(file, "cu_seqlens_q")?;
                let cu_k = offsets(file, "cu_seqlens_k")?;
                agree(file, &cu_k, sequences)?;
                Windows::causal_qk(&cu_q, &cu_k, m, n)
            }
            Self::Cached => {
                let cu_q = offsets(file, "cu_seqlens_q")?;
                let cu_k = CuSeqlens::new("seq_lens", sequences.unwrap_or_default())?;
                Windows::causal_qk(&cu_q, &cu_k, m, n)
            }
            Self::Rows => {
                let ks: Array1<i32> = file.windows("ks", "[M]")?;
                let ke: Array1<i32> = file.windows("ke", "[M]")?;
                check_rows(ks.len(), ke.len(), m)?;
                Windows::from_rows(&ks.to_vec(), &ke.to_vec(), n)
            }
        };
        Ok(windows?)
    }
}

/// Offsets of the keys against the sequences of a cache, where there is one.
fn agree<R: Read + Seek>(
    file: &TensorFile<R>,
    given: &CuSeqlens,
    sequences: Option<&[i64]>,
) -> Result<()> {
    let Some(sequences) = sequences else {
        return Ok(());
    };
    let given: Vec<i64> = given
        .offsets()
        .iter()
        .map(|&offset| offset as i64)
        .collect();
    if given == sequences {
        return Ok(());
    }
    let entry = given.iter().zip(sequences).position(|(a, b)| a != b);
    let entry = entry.unwrap_or(given.len().min(sequences.len()));
    Err(DumpError::Paged {
        file: file.path().to_owned(),
        problem: PagedProblem::Offsets { entry },
    })
}

/// Both lengths against M at once: which of the three is wrong is for the reader to see.
fn check_rows(ks: usize, ke: usize, m: usize) -> hisa_ref::Result<()> {
    if ks == m && ke == m {
        return Ok(());
    }
    Err(hisa_ref::error::WindowError::RowCounts { ks, ke, m }.into())
}

fn offsets<R: Read + Seek>(file: &mut TensorFile<R>, name: &'static str) -> Result<CuSeqlens> {
    let tensor = file.tensor(name, OFFSETS)?;
    if tensor.shape().len() != 1 {
        let problem = TensorError::Dimensions {
            got: tensor.shape().to_vec(),
            expected: "[S + 1]",
        };
        return Err(DumpError::tensor(file.path(), name, problem));
    }
    let offsets = match tensor.data() {
        Data::I32(entries) => CuSeqlens::new(name, entries),
        Data::I64(entries) => CuSeqlens::new(name, entries),
        other => {
            let problem = TensorError::Dtype {
                got: other.dtype(),
                accepted: OFFSETS,
            };
            return Err(DumpError::tensor(file.path(), name, problem));
        }
    };
    Ok(offsets?)
}
