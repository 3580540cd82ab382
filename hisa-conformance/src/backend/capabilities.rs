//! What a backend says it can do.

use crate::numerics::Numerics;
use crate::op::Op;
use crate::problem::Problem;

/// Jobs, limits and promises of a backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Capabilities {
    /// Jobs it takes, in the order of [`Op::ALL`].
    pub ops: Vec<Op>,
    /// Most heads.
    pub heads_max: usize,
    /// Most dimensions of a head.
    pub head_dim_max: usize,
    /// Dimensions of a head are a multiple of this.
    pub head_dim_multiple: usize,
    /// Most keys of a block.
    pub block_size_max: usize,
    /// Most products of M, N, H and D.
    pub work_max: usize,
    /// Whether it takes NaN codes, and scales and weights that are not finite or negative.
    pub permissive: bool,
    /// Whether ids come best first; otherwise their order says nothing.
    pub ordered: bool,
    /// What arithmetic it declares.
    pub numerics: Numerics,
}

impl Capabilities {
    /// Every job, no limit.
    #[must_use]
    pub fn all() -> Self {
        Self {
            ops: Op::ALL.to_vec(),
            heads_max: usize::MAX,
            head_dim_max: usize::MAX,
            head_dim_multiple: 1,
            block_size_max: usize::MAX,
            work_max: usize::MAX,
            permissive: true,
            ordered: true,
            numerics: Numerics::default(),
        }
    }

    /// The arithmetic it declares, in words.
    #[must_use]
    pub fn arithmetic(&self) -> String {
        self.numerics.to_string()
    }

    /// Whether scores are the real results, rounded once.
    #[must_use]
    pub const fn exact_scores(&self) -> bool {
        self.numerics.exact_scores()
    }

    /// Why the backend does not take this job on this problem; `None` where it does.
    #[must_use]
    pub fn refuses(&self, op: Op, problem: &Problem) -> Option<String> {
        if !self.ops.contains(&op) {
            return Some(format!("{op} is not offered"));
        }
        let sizes = [problem.m(), problem.n(), problem.h(), problem.d()];
        let work = sizes.into_iter().fold(1, usize::saturating_mul);
        let most = [
            ("H", problem.h(), self.heads_max),
            ("D", problem.d(), self.head_dim_max),
            ("B", problem.b(), self.block_size_max),
            ("M*N*H*D", work, self.work_max),
        ];
        if let Some((name, _, limit)) = most.iter().find(|(_, value, limit)| value > limit) {
            return Some(format!("{name} above {limit}"));
        }
        if !problem.d().is_multiple_of(self.head_dim_multiple.max(1)) {
            return Some(format!("D not a multiple of {}", self.head_dim_multiple));
        }
        let needs_permissive = problem.inputs.strictness == hisa_ref::Strictness::Permissive;
        (needs_permissive && !self.permissive).then(|| "values strict mode refuses".to_owned())
    }
}
