//! How much memory the outputs of a run take, known before it starts.

use super::error::DumpError;
use super::input::InputDump;
use super::params::Indexer;
use hisa_ref::params::block_count;

/// Largest total size of the outputs of one `hisa eval`, in bytes.
///
/// `topk_tokens` and `block_topk` may be any int32, so a few bytes of input can ask for terabytes
/// of output; 8 GiB is as large as the largest dump that would be read back.
pub const OUTPUT_BYTES_MAX: u128 = super::FILE_BYTES_MAX as u128;

/// One output of a run that has not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedOutput {
    /// Its dump name.
    pub name: &'static str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its size in bytes.
    pub bytes: u128,
}

impl PlannedOutput {
    fn new(name: &'static str, element_bytes: u128, shape: &[usize]) -> Self {
        let elements: u128 = shape.iter().map(|&extent| extent as u128).product();
        Self {
            name,
            shape: shape.to_vec(),
            bytes: elements * element_bytes,
        }
    }
}

/// The outputs of a run on this input: `indices`, and with `all` every intermediate as well.
///
/// For `block-sparse`, m is ceil(K/B). With `all`, an `x` in the dump adds `codes` and `scale`.
#[must_use]
pub fn planned_outputs(input: &InputDump, all: bool) -> Vec<PlannedOutput> {
    let (m, n, d) = (input.q().dim().0, input.k().nrows(), input.k().ncols());
    let run = input.params();
    let (b, k) = (run.hisa.block_size(), run.hisa.topk_tokens());
    let nb = block_count(n, b);
    let blocks = match run.indexer {
        Indexer::BlockSparse => block_count(k, b),
        Indexer::Hisa | Indexer::Dsa => run.hisa.block_topk(),
    };
    // m*B of `block-sparse` exceeds K by less than B, both int32: no overflow in 64 bits.
    let slots = blocks * b;
    let width = if run.indexer == Indexer::BlockSparse {
        slots
    } else {
        k
    };
    let mut outputs = vec![PlannedOutput::new("indices", 4, &[m, width])];
    if !all {
        return outputs;
    }
    if let Some(x) = input.x() {
        outputs.push(PlannedOutput::new("codes", 1, x.shape()));
        outputs.push(PlannedOutput::new("scale", 4, &[x.nrows()]));
    }
    match run.indexer {
        Indexer::Dsa => outputs.push(PlannedOutput::new("flat_scores", 4, &[m, n])),
        Indexer::Hisa | Indexer::BlockSparse => outputs.extend([
            PlannedOutput::new("pooled_k", 1, &[nb, d]),
            PlannedOutput::new("pooled_scale", 4, &[nb]),
            PlannedOutput::new("block_scores", 4, &[m, nb]),
            PlannedOutput::new("block_mask", 4, &[m, nb]),
            PlannedOutput::new("block_ids", 4, &[m, blocks]),
        ]),
    }
    if run.indexer == Indexer::Hisa {
        outputs.push(PlannedOutput::new("token_scores", 4, &[m, slots]));
        outputs.push(PlannedOutput::new("slots", 4, &[m, k]));
    }
    outputs
}

/// Total size in bytes of [`planned_outputs`].
///
/// # Errors
/// [`DumpError::OutputsTooLarge`] where it exceeds `limit` bytes; the default is
/// [`OUTPUT_BYTES_MAX`].
pub fn check_output_bytes(input: &InputDump, all: bool, limit: u128) -> Result<u128, DumpError> {
    let planned = planned_outputs(input, all);
    let bytes = planned.iter().map(|output| output.bytes).sum();
    match planned.into_iter().max_by_key(|output| output.bytes) {
        Some(largest) if bytes > limit => Err(DumpError::OutputsTooLarge {
            bytes,
            limit,
            largest: largest.name,
            shape: largest.shape,
            largest_bytes: largest.bytes,
        }),
        _ => Ok(bytes),
    }
}
