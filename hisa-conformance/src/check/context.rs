//! What the checks of one case share: inputs, the reference's results, the oracle's.

use crate::case::{Case, CaseError, Inputs};
use crate::oracle::{
    self, BlockSparseTrace as OracleBlockSparse, DsaTrace as OracleDsa, OracleInput, OracleParams,
    OracleTrace,
};
use hisa_ref::trace::{BlockSparseTrace, DsaTrace, Trace};
use hisa_ref::{HisaParams, IndexerInput, Rank, block_sparse, dsa, hisa};
use ndarray::Array2;

/// One case with everything computed once.
#[derive(Debug)]
pub struct Context {
    /// The case.
    pub case: Case,
    /// Its arrays, windows and parameters.
    pub inputs: Inputs,
    /// The inputs once more, as the oracle takes them.
    pub oracle_input: OracleInput,
    /// Parameters, as the oracle takes them.
    pub oracle_params: OracleParams,
    /// The reference, stage by stage.
    pub trace: Trace,
    /// The reference's fused `hisa`.
    pub indices: Array2<i32>,
    /// The reference's `dsa`.
    pub dsa: DsaTrace,
    /// The reference's `block_sparse`; `None` where its parameters are refused.
    pub block_sparse: Option<BlockSparseTrace>,
    /// The oracle's `hisa`.
    pub oracle: OracleTrace,
    /// The oracle's `dsa`.
    pub oracle_dsa: OracleDsa,
    /// The oracle's `block_sparse`, where the reference has one.
    pub oracle_block_sparse: Option<OracleBlockSparse>,
}

impl Context {
    /// Builds the inputs of `case` and runs reference and oracle on them.
    ///
    /// # Errors
    /// [`CaseError`] where the case is malformed or the reference refuses it.
    pub fn new(case: Case) -> Result<Self, CaseError> {
        let inputs = case.inputs()?;
        let input = inputs.indexer_input()?;
        let params = inputs.params;
        let (oracle_input, oracle_params) = for_oracle(&case, &inputs);
        let trace = hisa::trace(&input, &params)?;
        let indices = hisa::run(&input, &params)?;
        let dsa = dsa::trace(&input, params.topk_tokens())?;
        let block_sparse = block_sparse::trace(&input, &params).ok();
        drop(input);
        let oracle_block_sparse = block_sparse
            .is_some()
            .then(|| oracle::block_sparse(&oracle_input, &oracle_params));
        Ok(Self {
            oracle: oracle::hisa(&oracle_input, &oracle_params),
            oracle_dsa: oracle::dsa(&oracle_input, params.topk_tokens()),
            oracle_block_sparse,
            case,
            inputs,
            oracle_input,
            oracle_params,
            trace,
            indices,
            dsa,
            block_sparse,
        })
    }

    /// The inputs as the reference takes them.
    pub(super) fn input(&self) -> hisa_ref::Result<IndexerInput<'_>> {
        self.inputs.indexer_input()
    }

    pub(super) fn params(&self) -> HisaParams {
        self.inputs.params
    }
}

fn for_oracle(case: &Case, inputs: &Inputs) -> (OracleInput, OracleParams) {
    let tensors = &inputs.tensors;
    let params = &inputs.params;
    let input = OracleInput {
        m: case.m,
        n: case.n,
        h: case.h,
        d: case.d,
        q: tensors.q.iter().map(|code| code.to_bits()).collect(),
        k: tensors.k.iter().map(|code| code.to_bits()).collect(),
        k_scale: tensors.k_scale.to_vec(),
        weights: tensors.weights.iter().copied().collect(),
        windows: inputs
            .windows
            .rows()
            .iter()
            .map(|window| (window.ks, window.ke))
            .collect(),
    };
    let params = OracleParams {
        block_size: params.block_size(),
        block_topk: params.block_topk(),
        topk_tokens: params.topk_tokens(),
        rank_bf16: params.rank() == Rank::Bf16,
    };
    (input, params)
}
