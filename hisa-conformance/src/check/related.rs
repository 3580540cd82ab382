//! Related problems whose answers follow from that of the first one, whatever the arithmetic:
//! which of them each relation needs. Nothing runs here, and none is built before it is asked for.

use super::Verdict;
use crate::backend::Guarded;
use crate::numerics::Quotients;
use crate::op::Op;
use crate::problem::Problem;
use crate::trial::Trial;
use hisa_ref::bound::Range;
use hisa_ref::bound::pool::Block;
use hisa_ref::stages::block_pool::SCALE_MIN;
use hisa_ref::{E4M3, HisaParams, Stage, Strictness};
use ndarray::Axis;

/// What a relation needs, or why it says nothing on a case.
pub type Relate = fn(&Trial<'_>, Op) -> Result<Relation, Verdict>;

/// The related problems of one check.
#[derive(Debug, Clone, PartialEq)]
pub struct Relation {
    /// In the order in which they are compared.
    pub related: Vec<Related>,
    /// Whether it says something that all of them agree.
    pub applies: bool,
}

/// A related problem, and what its answer has to do with that of the first run.
#[derive(Debug, Clone, PartialEq)]
pub struct Related {
    /// The problem.
    pub variant: Variant,
    /// What is compared.
    pub compared: Compared,
    /// How it differs, in the words of a finding.
    pub how: &'static str,
}

/// What of two runs is compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Compared {
    /// Ids: pairs of a row of the first run and the row of the related one that repeats it.
    Ids(Vec<[usize; 2]>),
    /// All scores: those of the related run are those of the first times this.
    Scores(f32),
}

/// What all scales are multiplied by.
pub const SCALE_FACTOR: f32 = 8.0;

/// How a problem comes from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variant {
    /// These rows only, in this order.
    Rows(Vec<usize>),
    /// This row alone, with NaN for every key and scale outside its window.
    Window(usize),
    /// With other queries and weights in all rows but one.
    Neighbours {
        /// The row that stays.
        kept: usize,
        /// Whether the others hold NaN, or large values.
        nan: bool,
    },
    /// With these parameters.
    Params(HisaParams),
    /// With the heads in reverse order.
    Heads,
    /// With all scales times [`SCALE_FACTOR`].
    Scales,
    /// With the sign of every code of q and k changed.
    Signs,
}

impl Variant {
    /// The problem that comes from `problem`, without its `x`.
    #[must_use]
    pub fn of(&self, problem: &Problem) -> Problem {
        let mut related = match self {
            Self::Rows(rows) => return problem.with_rows(rows),
            Self::Window(row) => return window_alone(problem, *row),
            _ => problem.related(),
        };
        let inputs = &mut related.inputs;
        let tensors = &mut inputs.tensors;
        match self {
            Self::Neighbours { kept, nan } => {
                let (code, weight) = match nan {
                    true => (E4M3::NAN, f32::NAN),
                    false => (E4M3::from_bits(0x7E), 1e30),
                };
                if *nan {
                    inputs.strictness = Strictness::Permissive;
                }
                for other in (0..problem.m()).filter(|other| other != kept) {
                    tensors.q.index_axis_mut(Axis(0), other).fill(code);
                    tensors.weights.row_mut(other).fill(weight);
                }
            }
            Self::Params(params) => inputs.params = *params,
            Self::Heads => {
                tensors.q.invert_axis(Axis(1));
                tensors.weights.invert_axis(Axis(1));
            }
            Self::Scales => tensors.k_scale *= SCALE_FACTOR,
            Self::Signs => {
                const SIGN: u8 = 0x80;
                for code in tensors.q.iter_mut().chain(tensors.k.iter_mut()) {
                    *code = E4M3::from_bits(code.to_bits() ^ SIGN);
                }
            }
            Self::Rows(_) | Self::Window(_) => {}
        }
        related
    }
}

fn window_alone(problem: &Problem, row: usize) -> Problem {
    let mut alone = problem.with_rows(&[row]);
    alone.inputs.strictness = Strictness::Permissive;
    let window = problem.inputs.windows.rows()[row];
    let tensors = &mut alone.inputs.tensors;
    for key in (0..problem.n()).filter(|&key| !window.contains(key)) {
        tensors.k.row_mut(key).fill(E4M3::NAN);
        tensors.k_scale[key] = f32::NAN;
    }
    alone
}

impl Related {
    /// All rows, each as in the first run.
    fn all_rows(problem: &Problem, variant: Variant, how: &'static str) -> Self {
        let rows = (0..problem.m()).map(|row| [row, row]).collect();
        Self {
            variant,
            compared: Compared::Ids(rows),
            how,
        }
    }

    /// Rows of the first run, in the order given.
    fn of_rows(rows: Vec<usize>, how: &'static str) -> Self {
        let pairs = rows.iter().enumerate().map(|(at, &row)| [row, at]);
        Self {
            compared: Compared::Ids(pairs.collect()),
            variant: Variant::Rows(rows),
            how,
        }
    }

    /// All scores of a stage, times `factor`, or all rows of an indexer.
    fn whole(op: Op, problem: &Problem, variant: Variant, factor: f32, how: &'static str) -> Self {
        match op {
            Op::Stage(_) => Self {
                variant,
                compared: Compared::Scores(factor),
                how,
            },
            _ => Self::all_rows(problem, variant, how),
        }
    }

    fn alone(self, applies: bool) -> Relation {
        Relation {
            related: vec![self],
            applies,
        }
    }
}

pub(super) const TOO_FEW_ROWS: Verdict = Verdict::NotApplicable("too few rows that see a key");

/// One row that sees a key, another one in every problem.
fn some_row(problem: &Problem) -> Option<usize> {
    let windows = problem.inputs.windows.rows();
    let seeing: Vec<usize> = (0..windows.len())
        .filter(|&row| !windows[row].is_empty())
        .collect();
    let sizes = [problem.n(), problem.d(), problem.b(), seeing.len()];
    let turn = sizes
        .into_iter()
        .fold(0usize, |sum, size| sum.wrapping_mul(31).wrapping_add(size));
    seeing.get(turn % seeing.len().max(1)).copied()
}

/// Every key and scale outside a row's window becomes NaN; the row must not notice.
pub(super) fn window(trial: &Trial<'_>, _: Op) -> Result<Relation, Verdict> {
    let row = some_row(trial.problem).ok_or(TOO_FEW_ROWS)?;
    let related = Related {
        variant: Variant::Window(row),
        compared: Compared::Ids(vec![[row, 0]]),
        how: "the row alone, with NaN everywhere outside its window",
    };
    Ok(related.alone(true))
}

/// The first and the second half of the rows by themselves.
pub(super) fn split(trial: &Trial<'_>, _: Op) -> Result<Relation, Verdict> {
    let m = trial.problem.m();
    let half =
        |rows: std::ops::Range<usize>| Related::of_rows(rows.collect(), "half of the rows alone");
    Ok(Relation {
        related: vec![half(0..m / 2), half(m / 2..m)],
        applies: m > 1,
    })
}

/// All rows in reverse order.
pub(super) fn rows(trial: &Trial<'_>, _: Op) -> Result<Relation, Verdict> {
    let m = trial.problem.m();
    let rows = (0..m).rev().collect();
    Ok(Related::of_rows(rows, "with the rows in reverse order").alone(m > 1))
}

/// The queries and weights of all other rows become NaN, or large where NaN is not taken.
pub(super) fn neighbours(trial: &Trial<'_>, _: Op) -> Result<Relation, Verdict> {
    let problem = trial.problem;
    let chosen = some_row(problem).filter(|_| problem.m() > 1);
    let kept = chosen.ok_or(TOO_FEW_ROWS)?;
    let nan = trial.capabilities().permissive;
    let related = Related {
        variant: Variant::Neighbours { kept, nan },
        compared: Compared::Ids(vec![[kept, kept]]),
        how: "with other queries in the other rows",
    };
    Ok(related.alone(true))
}

/// The row for K is the row for K + 1 without its last column.
pub(super) fn nest(trial: &Trial<'_>, _: Op) -> Result<Relation, Verdict> {
    let problem = trial.problem;
    let params = problem.inputs.params;
    let (b, m, k) = (
        params.block_size(),
        params.block_topk(),
        params.topk_tokens(),
    );
    let Ok(wider) = HisaParams::new(b, m, k + 1) else {
        return Err(Verdict::NotApplicable("K is the largest there is"));
    };
    if !trial.capabilities().ordered {
        return Err(Verdict::Skip("no order is promised".to_owned()));
    }
    let variant = Variant::Params(wider.with_rank(params.rank()));
    let related = Related::all_rows(problem, variant, "in a row one id longer");
    Ok(related.alone(problem.m() > 0))
}

/// Heads in reverse order change nothing where sums are exact.
pub(super) fn permute(trial: &Trial<'_>, op: Op) -> Result<Relation, Verdict> {
    let problem = trial.problem;
    if problem.h() < 2 {
        return Err(Verdict::NotApplicable("one head"));
    }
    if !trial.capabilities().exact_scores() {
        return Err(Verdict::Skip("the sum over heads is not exact".to_owned()));
    }
    let how = "with the heads in reverse order";
    let related = Related::whole(op, problem, Variant::Heads, 1.0, how);
    Ok(related.alone(problem.m() > 0))
}

/// All scales times 8, where nothing comes near the ends of the range or the floor.
pub(super) fn scale(trial: &Trial<'_>, op: Op) -> Result<Relation, Verdict> {
    let problem = trial.problem;
    if !scales_freely(trial) || !pools_above_the_floor(trial) {
        return Err(Verdict::NotApplicable(
            "scores come near the ends of the f32 range",
        ));
    }
    let how = "with all scales times 8";
    let related = Related::whole(op, problem, Variant::Scales, SCALE_FACTOR, how);
    Ok(related.alone(problem.m() > 0))
}

/// Every code of q and k changes its sign. All scores stay, and what a port has kept of the keys
/// of the first run, as pooled blocks, is wrong.
pub(super) fn negate(trial: &Trial<'_>, _: Op) -> Result<Relation, Verdict> {
    let problem = trial.problem;
    if !trial.capabilities().exact_scores() {
        let why = "the order of sums may depend on their terms";
        return Err(Verdict::Skip(why.to_owned()));
    }
    let how = "with the sign of every code of q and k changed";
    let related = Related::all_rows(problem, Variant::Signs, how);
    Ok(related.alone(some_row(problem).is_some()))
}

/// What the truth says of pooled scales holds for a backend that pools in f32 only where its whole
/// range is above the floor.
fn pools_above_the_floor(trial: &Trial<'_>) -> bool {
    if trial.capabilities().numerics.block_pool == Quotients::Exact {
        return true;
    }
    let bounds = trial.bounds();
    let above = |block: &Block| matches!(block.scale, Range::Between(low, _) if low > SCALE_MIN);
    bounds.pooled().iter().all(above)
}

/// With such weights and scales every term is a multiple of 2^-124: a score of zero is a true
/// zero and no underflow, which would not scale.
fn scales_freely(trial: &Trial<'_>) -> bool {
    let within = |value: f32, low: f32| value == 0.0 || (low..1.0 / low).contains(&value.abs());
    let score = |value: &f32| *value == f32::NEG_INFINITY || within(*value, 1e-30);
    let inputs = &trial.problem.inputs;
    let truth = trial.truth;
    let floats = |stage: Stage, name: &str| {
        let made = truth.of(Op::Stage(stage)).ok();
        made.and_then(|made| made.f32(name))
            .map_or(&[][..], Guarded::body)
    };
    inputs.strictness == Strictness::Strict
        && trial.problem.n() > 0
        && inputs
            .tensors
            .k_scale
            .iter()
            .all(|&scale| within(scale, 1e-12))
        && inputs
            .tensors
            .weights
            .iter()
            .all(|&weight| within(weight, 1e-6))
        && floats(Stage::BlockPool, "pooled_scale")
            .iter()
            .all(|&scale| scale > SCALE_MIN && scale < 1e30)
        && floats(Stage::TokenScores, "token_scores")
            .iter()
            .chain(floats(Stage::BlockScores, "block_scores"))
            .all(score)
}
