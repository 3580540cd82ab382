//! What a backend says it can do.

use super::limits::Limits;
use crate::numerics::Numerics;
use crate::op::Op;
use crate::problem::Problem;
use hisa_ref::{Stage, Strictness};

/// Jobs, limits and promises of a backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Capabilities {
    /// Jobs it takes, in the order of [`Op::ALL`].
    pub ops: Vec<Op>,
    /// Sizes it takes.
    pub limits: Limits,
    /// Whether generated cases are made to fit the limits; otherwise those beyond are skipped.
    pub fits: bool,
    /// Most products of M, N, H and D.
    pub work_max: usize,
    /// Whether it takes NaN codes, and scales and weights that are not finite or negative.
    pub permissive: bool,
    /// Whether ids come best first; otherwise their order says nothing.
    pub ordered: bool,
    /// Whether it works on copies in memory of its own, so that nothing can be said of what it does
    /// beside its outputs.
    pub own_memory: bool,
    /// What arithmetic it declares.
    pub numerics: Numerics,
}

impl Capabilities {
    /// Every job, no limit.
    #[must_use]
    pub fn all() -> Self {
        Self {
            ops: Op::ALL.to_vec(),
            limits: Limits::default(),
            fits: false,
            work_max: usize::MAX,
            permissive: true,
            ordered: true,
            own_memory: false,
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
        let sizes = problem.extents();
        if let Some(why) = self.limits.refuses(&sizes) {
            return Some(why);
        }
        let factors = [sizes.rows, sizes.keys, sizes.heads, sizes.dims];
        let work = factors.into_iter().fold(1, usize::saturating_mul);
        if work > self.work_max {
            return Some(format!("M*N*H*D above {}", self.work_max));
        }
        let needs_permissive = match op {
            Op::Stage(Stage::Quantize) => {
                let rows = problem.x.iter().flatten();
                !self.permissive && rows.into_iter().any(|value| !value.is_finite())
            }
            _ => problem.inputs.strictness == Strictness::Permissive,
        };
        (needs_permissive && !self.permissive).then(|| "values strict mode refuses".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, Patch, Target};

    #[test]
    fn a_strict_backend_is_spared_what_strict_mode_refuses_job_by_job() {
        let strict = Capabilities {
            permissive: false,
            ..Capabilities::all()
        };
        let case = |target, bits| Case {
            patches: vec![Patch {
                target,
                index: [None; 3],
                bits,
            }],
            ..Case::with_cu(&[0, 2, 5])
        };
        for (target, quantize, dsa) in [(Target::X, true, false), (Target::S, false, true)] {
            let problem = Problem::new(&case(target, f32::NAN.to_bits())).unwrap();
            let refuses = |op| strict.refuses(op, &problem).is_some();
            assert_eq!(refuses(Op::Stage(Stage::Quantize)), quantize, "{target:?}");
            assert_eq!(refuses(Op::Dsa), dsa, "{target:?}");
            assert_eq!(Capabilities::all().refuses(Op::Dsa, &problem), None);
        }
    }
}
