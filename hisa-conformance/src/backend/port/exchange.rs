//! Tensors to a port and back, in files.

use super::protocol::Params;
use crate::backend::{Buffer, Buffers, Job, Kind, Outputs};
use crate::dump::write::write_plain;
use crate::dump::{
    Data, Dtype, DumpError, HEADER_BYTES_MAX, HeaderError, Indexer, Tensor, TensorFile,
};
use crate::op::Op;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Bytes an output file may have beside its header and four times its tensors: for tensors
/// nobody reads.
const SPARE_BYTES: u64 = 16 << 20;

/// What messages call the file of a port's outputs.
const OUT: &str = "the output file";

/// Writes the tensors a job reads, with its parameters as metadata.
pub(super) fn write(job: &Job<'_>, params: &Params, path: &Path) -> Result<(), DumpError> {
    let mut tensors = BTreeMap::new();
    for (name, buffer) in job.tensors.iter() {
        tensors.insert(name.to_owned(), buffer.tensor());
    }
    if let (Op::Windows, Some(spec)) = (job.op, job.spec) {
        for (name, entries) in spec.source.offsets() {
            tensors.insert(name.to_owned(), Tensor::offsets(entries));
        }
    }
    let mut metadata: BTreeMap<String, String> = params.metadata().into_iter().collect();
    let indexer = match job.op {
        Op::Dsa => Indexer::Dsa,
        Op::BlockSparse => Indexer::BlockSparse,
        _ => Indexer::Hisa,
    };
    metadata.insert("indexer".to_owned(), indexer.to_string());
    write_plain(path, &tensors, &metadata)
}

/// Reads the outputs of a job from the file a port wrote; what the job does not ask for stays
/// unread. The shapes are the port's.
///
/// # Errors
/// In words: no file, one too large, a damaged one, a tensor that is missing or of another type.
pub(super) fn read(op: Op, path: &Path, out: &mut Outputs) -> Result<(), String> {
    let bytes = std::fs::metadata(path)
        .map_err(|_| "no output file was written".to_owned())?
        .len();
    let expected = out
        .tensors
        .iter()
        .map(|(_, buffer)| bytes_of(buffer))
        .sum::<u64>();
    let most = HEADER_BYTES_MAX + SPARE_BYTES + 4 * expected;
    if bytes > most {
        let damage = HeaderError::FileTooLarge { bytes, limit: most };
        return Err(format!("{OUT}: {damage}"));
    }
    let mut file = TensorFile::open_as(path, Path::new(OUT)).map_err(|error| error.to_string())?;
    let mut read = Buffers::default();
    for &name in op.outputs() {
        let buffer = buffer(&mut file, name).map_err(|error| error.to_string())?;
        read.put(name, buffer);
    }
    out.tensors = read;
    Ok(())
}

fn bytes_of(buffer: &Buffer) -> u64 {
    let elements: usize = buffer.shape().iter().product();
    let width = if buffer.kind() == Kind::Codes { 1 } else { 4 };
    elements as u64 * width
}

fn buffer(file: &mut TensorFile<File>, name: &'static str) -> Result<Buffer, DumpError> {
    let accepted: &'static [Dtype] = match Kind::of_output(name) {
        Kind::Codes => &[Dtype::U8, Dtype::F8_E4M3],
        Kind::F32 => &[Dtype::F32],
        Kind::I32 => &[Dtype::I32, Dtype::I64],
    };
    let (shape, data) = file.tensor(name, accepted)?.into_parts();
    let data = match data {
        Data::I64(wide) => file.narrowed(name, &wide)?,
        data => data,
    };
    let problem = |problem| DumpError::tensor(file.path(), name, problem);
    let tensor = Tensor::new(&shape, data).map_err(problem)?;
    Buffer::of_tensor(&tensor).ok_or_else(|| file.refused(name, tensor.data(), accepted))
}
