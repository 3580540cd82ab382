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

/// The tensors a run on this input holds at its end: `indices`, and with `all` every intermediate.
///
/// `block-sparse` makes its intermediates either way, with m = ceil(K/B). With `all`, an `x` in
/// the dump adds `codes` and `scale`.
#[must_use]
pub fn planned_outputs(input: &InputDump, all: bool) -> Vec<PlannedOutput> {
    let run = input.params();
    let k = run.hisa.topk_tokens();
    let mut outputs = match run.indexer {
        Indexer::Hisa if all => hisa_outputs(input),
        Indexer::Dsa if all => dsa_outputs(input),
        Indexer::Hisa | Indexer::Dsa => {
            vec![PlannedOutput::new("indices", 4, &[input.q().dim().0, k])]
        }
        Indexer::BlockSparse => block_outputs(input, block_count(k, run.hisa.block_size())),
    };
    if let Some(x) = input.x().filter(|_| all) {
        outputs.push(PlannedOutput::new("codes", 1, x.shape()));
        outputs.push(PlannedOutput::new("scale", 4, &[x.nrows()]));
    }
    outputs
}

fn hisa_outputs(input: &InputDump) -> Vec<PlannedOutput> {
    let (rows, hisa) = (input.q().dim().0, &input.params().hisa);
    let (blocks, k) = (hisa.block_topk(), hisa.topk_tokens());
    let mut outputs = block_stages(input, blocks);
    outputs.extend([
        PlannedOutput::new("token_scores", 4, &[rows, hisa.slots()]),
        PlannedOutput::new("slots", 4, &[rows, k]),
        PlannedOutput::new("indices", 4, &[rows, k]),
    ]);
    outputs
}

fn dsa_outputs(input: &InputDump) -> Vec<PlannedOutput> {
    let (rows, k) = (input.q().dim().0, input.params().hisa.topk_tokens());
    vec![
        PlannedOutput::new("flat_scores", 4, &[rows, input.k().nrows()]),
        PlannedOutput::new("slots", 4, &[rows, k]),
        PlannedOutput::new("indices", 4, &[rows, k]),
    ]
}

fn block_outputs(input: &InputDump, blocks: usize) -> Vec<PlannedOutput> {
    // m*B exceeds K by less than B, both int32: no overflow in 64 bits.
    let columns = blocks * input.params().hisa.block_size();
    let mut outputs = block_stages(input, blocks);
    let rows = input.q().dim().0;
    outputs.push(PlannedOutput::new("indices", 4, &[rows, columns]));
    outputs
}

fn block_stages(input: &InputDump, blocks: usize) -> Vec<PlannedOutput> {
    let (rows, (n, d)) = (input.q().dim().0, input.k().dim());
    let nb = block_count(n, input.params().hisa.block_size());
    vec![
        PlannedOutput::new("pooled_k", 1, &[nb, d]),
        PlannedOutput::new("pooled_scale", 4, &[nb]),
        PlannedOutput::new("block_scores", 4, &[rows, nb]),
        PlannedOutput::new("block_mask", 4, &[rows, nb]),
        PlannedOutput::new("block_ids", 4, &[rows, blocks]),
    ]
}

/// Total size in bytes of [`planned_outputs`].
///
/// # Errors
/// [`DumpError::OutputsTooLarge`] where it exceeds `limit` bytes, usually [`OUTPUT_BYTES_MAX`].
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
