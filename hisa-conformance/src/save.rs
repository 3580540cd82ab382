//! Problems by value in files: what a finding leaves behind, and what replays it anywhere.
//!
//! The tensors and parameters are those of any input dump (see [`crate::dump`]), so `hisa eval`
//! and `hisa check` take these files too. Further metadata makes a replay judge what the first
//! run judged:
//!
//! | key | value | default |
//! |---|---|---|
//! | `scale_format` | `f32` or `ue8m0`: how `quantize` writes scales | `f32` |
//! | `overflow` | `saturating` or `non-saturating`: codes beyond 448 | `saturating` |
//! | `pieces` | keys present after each piece of `append`, dots between | N/2, N, N/4, N |
//! | `spec` | where the windows came from, as addresses write it | the file's offsets, or none |
//! | `address` | the case it came from | |
//! | `check` | the check that failed | |

use crate::case::{Inputs, Tensors, WindowSpec};
use crate::dump::error::shortened;
use crate::dump::input::{read_offsets, tensors_of};
use crate::dump::write::{digest, file_digest};
use crate::dump::{
    DumpError, Indexer, InputDump, Options, RunParams, Tensor, TensorFile, write_atomic,
};
use crate::problem::Problem;
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::{Overflow, Strictness};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a problem came from; empty for a user's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// Id of the check that failed.
    pub check: Option<String>,
    /// Address of the case.
    pub address: Option<String>,
}

/// Strings of a header by key.
type Metadata = BTreeMap<String, String>;

/// Writes a problem into `folder` under a name that its bytes determine:
/// `<check>-<12 hexadecimal digits>.safetensors`, the digits being the first of the FNV-1a
/// (64 bits) of the file. A file that is there already is left alone. The file is complete and on
/// the disk when the function returns, so a caller can save before it runs (BR-107).
///
/// # Errors
/// [`DumpError::Input`] for a problem whose fields disagree, [`DumpError::Occupied`] where a file
/// of that name holds other bytes, and as [`write_atomic`].
pub fn save(problem: &Problem, origin: &Origin, folder: &Path) -> Result<PathBuf, DumpError> {
    Ok(store(problem, origin, folder)?.0)
}

/// [`save`], and whether the file was not there before.
pub(crate) fn store(
    problem: &Problem,
    origin: &Origin,
    folder: &Path,
) -> Result<(PathBuf, bool), DumpError> {
    let input = problem.inputs.indexer_input()?;
    let mut tensors = tensors_of(&input).map_err(|problem| DumpError::Tensor {
        file: folder.to_owned(),
        tensor: "input".to_owned(),
        problem,
    })?;
    if let Some(x) = &problem.x {
        tensors.insert("x".to_owned(), Tensor::f32(x));
    }
    let metadata = metadata(problem, origin);
    let hash = digest(&tensors, &metadata).map_err(|problem| DumpError::Header {
        file: folder.to_owned(),
        problem,
    })?;
    let check = origin.check.as_deref().unwrap_or("input");
    let path = folder.join(format!("{check}-{:012x}.safetensors", hash >> 16));
    if path
        .try_exists()
        .map_err(DumpError::io(&path, "look for"))?
    {
        if file_digest(&path)? == hash {
            return Ok((path, false));
        }
        return Err(DumpError::Occupied { file: path });
    }
    write_atomic(&path, &tensors, &metadata)?;
    Ok((path, true))
}

fn metadata(problem: &Problem, origin: &Origin) -> Metadata {
    let run = RunParams {
        indexer: Indexer::Hisa,
        hisa: problem.inputs.params,
        strictness: problem.inputs.strictness,
    };
    let mut metadata = run.metadata();
    let mut put = |key: &str, value: String| metadata.insert(key.to_owned(), value);
    put(
        "scale_format",
        format_word(problem.quantize.format).to_owned(),
    );
    put(
        "overflow",
        overflow_word(problem.quantize.overflow).to_owned(),
    );
    let pieces: Vec<String> = problem.pieces.iter().map(usize::to_string).collect();
    put("pieces", pieces.join("."));
    if let Some(spec) = &problem.spec {
        put("spec", spec.to_string());
    }
    if let Some(check) = &origin.check {
        put("check", check.clone());
    }
    if let Some(address) = &origin.address {
        put("address", address.clone());
    }
    metadata
}

impl Problem {
    /// Reads a problem that [`save`] wrote, or a user's own input dump.
    ///
    /// # Errors
    /// As [`InputDump::read`], and [`DumpError::Param`] for metadata that cannot be read or that
    /// contradicts the tensors.
    pub fn read(path: &Path) -> Result<Self, DumpError> {
        Ok(read(path)?.0)
    }
}

/// [`Problem::read`], and where the problem came from.
///
/// # Errors
/// As [`Problem::read`].
pub fn read(path: &Path) -> Result<(Problem, Origin), DumpError> {
    let mut file = TensorFile::open(path)?;
    let metadata = file.metadata().clone();
    let offsets = read_offsets(&mut file)?;
    let dump = InputDump::from_file(&mut file, &Options::default())?;
    let (m, n) = (dump.q().dim().0, dump.k().nrows());
    let source = Source {
        file: path,
        metadata: &metadata,
    };
    let format = source.read("scale_format", "f32, ue8m0", ScaleFormat::F32, format)?;
    let overflows = "saturating, non-saturating";
    let overflow = source.read("overflow", overflows, Overflow::Saturating, overflow)?;
    let ends = "whole numbers up to N with dots between, the last one N";
    let default = vec![n / 2, n, n / 4, n];
    let pieces = source.read("pieces", ends, default, |text| pieces(text, n))?;
    let fits = |spec: &WindowSpec| {
        let windows = spec.resolve(m, n);
        windows.is_ok_and(|windows| windows == *dump.windows())
    };
    let parse = |text: &str| text.parse().ok().filter(fits).map(Some);
    let described = "the windows of an address, equal to ks and ke";
    let spec = source.read("spec", described, offsets.map(WindowSpec::from), parse)?;
    let problem = Problem {
        inputs: Inputs {
            params: dump.params().hisa,
            windows: dump.windows().clone(),
            tensors: Tensors {
                q: dump.q().to_owned(),
                k: dump.k().to_owned(),
                k_scale: dump.k_scale().to_owned(),
                weights: dump.weights().to_owned(),
            },
            strictness: dump.params().strictness,
        },
        x: dump.x().map(|x| x.to_owned()),
        spec,
        quantize: QuantizeOptions {
            format,
            overflow,
            strictness: Strictness::Permissive,
        },
        pieces,
    };
    let origin = Origin {
        check: metadata.get("check").cloned(),
        address: metadata.get("address").cloned(),
    };
    Ok((problem, origin))
}

struct Source<'a> {
    file: &'a Path,
    metadata: &'a Metadata,
}

impl Source<'_> {
    fn read<T>(
        &self,
        name: &'static str,
        allowed: &'static str,
        default: T,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, DumpError> {
        let Some(text) = self.metadata.get(name) else {
            return Ok(default);
        };
        parse(text).ok_or_else(|| DumpError::Param {
            file: self.file.to_owned(),
            name,
            value: shortened(text, 32),
            allowed,
        })
    }
}

pub(crate) const fn format_word(format: ScaleFormat) -> &'static str {
    match format {
        ScaleFormat::F32 => "f32",
        ScaleFormat::Ue8m0 => "ue8m0",
    }
}

pub(crate) fn format(word: &str) -> Option<ScaleFormat> {
    let all = [ScaleFormat::F32, ScaleFormat::Ue8m0];
    all.into_iter().find(|&format| format_word(format) == word)
}

pub(crate) const fn overflow_word(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Saturating => "saturating",
        Overflow::NonSaturating => "non-saturating",
    }
}

pub(crate) fn overflow(word: &str) -> Option<Overflow> {
    let all = [Overflow::Saturating, Overflow::NonSaturating];
    all.into_iter()
        .find(|&overflow| overflow_word(overflow) == word)
}

fn pieces(text: &str, n: usize) -> Option<Vec<usize>> {
    let ends: Option<Vec<usize>> = text.split('.').map(|end| end.parse().ok()).collect();
    ends.filter(|ends| ends.iter().all(|&end| end <= n) && ends.last() == Some(&n))
}
