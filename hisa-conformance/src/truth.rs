//! The true results of a problem, against which a backend is judged.

use crate::backend::{Backend, Buffers, Failure, Fill, Job, Outputs, inputs, mix_zeros, unspecify};
use crate::op::Op;
use crate::problem::Problem;
use hisa_ref::Stage;

/// What every job should give, computed by a backend that is beyond doubt here: the reference,
/// or for the reference itself the oracle.
///
/// The stages are run in order, each on the results of those before it, so that the results of
/// one stage are also the inputs of isolated runs of the next.
#[derive(Debug)]
pub struct Truth {
    results: [Result<Buffers, Failure>; Op::ALL.len()],
    /// Every stage's outputs, by name.
    chain: Buffers,
    /// The caller's tensors, as jobs hold them.
    inputs: Buffers,
}

/// Scores that the next stage ranks, and the stage that writes them.
const RANKED: [(Stage, &str); 2] = [
    (Stage::BlockMask, "block_mask"),
    (Stage::TokenScores, "token_scores"),
];

impl Truth {
    /// Runs `basis` on everything.
    #[must_use]
    pub fn new(problem: &Problem, basis: &mut dyn Backend) -> Self {
        Self::of_ops(problem, basis, &Op::ALL)
    }

    /// Runs `basis` on what the checks of `ops` look at; nothing is known of the rest.
    #[must_use]
    pub fn of_ops(problem: &Problem, basis: &mut dyn Backend, ops: &[Op]) -> Self {
        let inputs = inputs(problem);
        let mut chain = Buffers::default();
        let mut results = Op::ALL.map(|_| Err(Failure::Unsupported(String::new())));
        for op in Op::ALL.into_iter().filter(|&op| is_needed(op, ops)) {
            let result = match op {
                // What the stages gave, one after the other.
                Op::Append => of_chain(&chain, &["pooled_k", "pooled_scale"]),
                Op::Hisa => of_chain(&chain, &["indices"]),
                _ => run(op, problem, (&inputs, &chain), basis),
            };
            if let (Op::Stage(_), Ok(made)) = (op, &result) {
                for (name, buffer) in made.iter() {
                    chain.put(name, buffer.clone());
                }
            }
            if let Some(scores) = chain.f32_mut("block_scores")
                && op == Op::Stage(Stage::BlockScores)
            {
                unspecify(scores, problem);
            }
            for (stage, name) in RANKED {
                if let (true, Some(scores)) = (op == Op::Stage(stage), chain.f32_mut(name)) {
                    mix_zeros(scores);
                }
            }
            results[op.index()] = result;
        }
        Self {
            results,
            chain,
            inputs,
        }
    }

    /// The true outputs of `op`.
    ///
    /// # Errors
    /// Why there are none: the parameters do not allow it, or the problem has no such inputs.
    pub fn of(&self, op: Op) -> Result<&Buffers, &Failure> {
        self.results[op.index()].as_ref()
    }

    /// True outputs of all stages by name: what isolated runs are fed with. Block scores outside
    /// the block window, which SPEC 3.2 leaves open, are NaN and `+inf` here, and zeros that are
    /// to be ranked have either sign.
    #[must_use]
    pub fn chain(&self) -> &Buffers {
        &self.chain
    }

    /// The caller's tensors, as jobs hold them.
    #[must_use]
    pub fn inputs(&self) -> &Buffers {
        &self.inputs
    }

    /// The first stage without a result. A generated case has none.
    #[must_use]
    pub fn missing_stage(&self) -> Option<(Stage, &Failure)> {
        Stage::ALL.into_iter().find_map(|stage| {
            let failure = self.of(Op::Stage(stage)).err()?;
            Some((stage, failure))
        })
    }
}

/// Whether the result of `op` is looked at by a check of `ops`, or made into what is.
fn is_needed(op: Op, ops: &[Op]) -> bool {
    let reads = |by: &Op| match (*by, op) {
        (by, op) if by == op => true,
        // `quantize` stands apart: keys come quantised.
        (_, Op::Stage(Stage::Quantize)) => false,
        (Op::Stage(by), Op::Stage(stage)) => stage < by && by != Stage::Quantize,
        (Op::Append, Op::Stage(stage)) => stage == Stage::BlockPool,
        // `scale` and the sets of inexact backends look at all stages; `equal-flat` at `hisa`.
        (Op::Hisa | Op::Dsa | Op::BlockSparse, Op::Stage(_)) => true,
        (Op::Dsa, op) => op == Op::Hisa,
        _ => false,
    };
    ops.iter().any(reads)
}

fn run(
    op: Op,
    problem: &Problem,
    (inputs, chain): (&Buffers, &Buffers),
    basis: &mut dyn Backend,
) -> Result<Buffers, Failure> {
    let absent = |name: &str| Failure::Unsupported(format!("there is no {name}"));
    let mut job = Job::copied(op, problem, inputs, chain).map_err(absent)?;
    let mut out = Outputs::new(op, problem, Fill::Ones);
    basis.run(&mut job, &mut out)?;
    Ok(out.tensors)
}

fn of_chain(chain: &Buffers, names: &[&'static str]) -> Result<Buffers, Failure> {
    let mut found = Buffers::default();
    for &name in names {
        let buffer = chain
            .get(name)
            .ok_or_else(|| Failure::Unsupported("no chain".into()))?;
        found.put(name, buffer.clone());
    }
    Ok(found)
}
