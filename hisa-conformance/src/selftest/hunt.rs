//! Planted faults over the cases of a quick run, each until its first finding.

use super::Planted;
use crate::backend::reference::Reference;
use crate::backend::{Backend, BackendError};
use crate::case::Case;
use crate::effort::Effort;
use crate::flags::Flags;
use crate::generate::{self, edge::Edge};
use crate::op::Op;
use crate::problem::Problem;
use crate::runner::Plan;
use crate::shrink::{Budget, shrink};
use crate::summary::{Finding, Shrunk, Source, Summary};
use crate::truth::Truth;
use crate::worker::Batch;
use crate::worker::judge::{Exhibit, Terms, judge_by};
use std::time::Duration;

/// What a shrink may cost here: a demonstration, and ninety of them.
const SHRINK: Budget = Budget {
    calls: 400,
    time: Duration::from_secs(2),
};

/// What became of a fault.
#[derive(Debug, Clone)]
pub struct Prey {
    /// The fault.
    pub planted: Planted,
    /// Its first finding; `None` where no case shows the fault.
    pub finding: Option<Finding>,
    /// Cases it took.
    pub cases: u64,
}

/// The cases of `hisa run` without those of DeepSeek's size: the edge cases and the corpus from the
/// smallest to the largest, so that a small one is found where there is one, then the others.
pub fn cases() -> impl Iterator<Item = (Source, Case)> {
    let parts = Plan::new("reference", Effort::Quick).parts().into_iter();
    let parts = parts.filter(|part| part.generator != "deepseek");
    let (fixed, others): (Vec<Batch>, Vec<Batch>) = parts.partition(|part| part.len < 1000);
    let mut fixed: Vec<(Source, Case)> = fixed.into_iter().flat_map(of_part).collect();
    // Those just beyond a tile's size last: most faults show on fewer rows and keys.
    let tiles = |source: &Source| source.generator == "edge" && Edge::is_tile(source.index);
    fixed.sort_by_key(|(source, case)| (tiles(source), case.m * case.n * case.h * case.d));
    fixed
        .into_iter()
        .chain(others.into_iter().flat_map(of_part))
}

fn of_part(part: Batch) -> impl Iterator<Item = (Source, Case)> {
    let generator = generate::by_name(&part.generator, part.seed, part.count);
    part.indices().filter_map(move |index| {
        let case = generator.as_ref()?.case(index)?.case;
        let generator = part.generator.clone();
        Some((Source { generator, index }, case))
    })
}

/// A fault that is still sought, with the backend that all its cases share, where they do.
struct Alive {
    planted: Planted,
    kept: Option<Box<dyn Backend>>,
}

impl Alive {
    /// The first check that fails, in the order of the table.
    fn first_finding(
        &mut self,
        problem: &Problem,
        truth: &Truth,
        terms: &Terms,
    ) -> Result<Option<Finding>, BackendError> {
        let mut backend = match self.kept.take() {
            Some(kept) => kept,
            None => self.planted.backend()?,
        };
        let found = first_finding(backend.as_mut(), problem, truth, terms);
        self.kept = Some(backend).filter(|_| self.planted.is_kept());
        Ok(found)
    }

    fn is_broken(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|backend| backend.broken().is_some())
    }
}

/// Each fault over the cases until a check of its job finds it, no check where `blind`; a case's
/// truth is computed once for all of them. `start` is called with the number of each case before
/// it runs. A fault that ends the process or never returns takes the caller with it; one that
/// breaks its backend for good ends the hunt, and the answer leaves out those still sought.
///
/// # Errors
/// [`BackendError::Unavailable`] for faults in kernels where there is no GPU.
pub fn hunt(
    faults: &[Planted],
    blind: bool,
    cases_max: usize,
    start: &mut dyn FnMut(u64),
) -> Result<Vec<Prey>, BackendError> {
    let alive = faults.iter().map(|&planted| Alive {
        planted,
        kept: None,
    });
    let mut alive: Vec<Alive> = alive.collect();
    let mut caught = Vec::new();
    let mut count = 0;
    for (source, case) in cases().take(cases_max) {
        start(count);
        let ops: Vec<Op> = alive.iter().map(|one| one.planted.op()).collect();
        if alive.is_empty() {
            break;
        }
        count += 1;
        let Ok(problem) = Problem::new(&case) else {
            continue;
        };
        let truth = Truth::of_ops(&problem, &mut Reference::new(), &ops);
        for mut one in std::mem::take(&mut alive) {
            let terms = if blind {
                Terms::of(&[])
            } else {
                Terms::of(&[one.planted.op()])
            };
            let Some(mut finding) = one.first_finding(&problem, &truth, &terms)? else {
                alive.push(one);
                continue;
            };
            finding.source = source.clone();
            finding.case = case.to_string();
            if !one.is_broken() {
                finding.shrunk = Some(smallest(&mut one, &case, &finding));
            }
            caught.push(Prey {
                planted: one.planted,
                finding: Some(finding),
                cases: count,
            });
            if one.is_broken() {
                return Ok(caught);
            }
        }
    }
    let missed = alive.into_iter().map(|one| Prey {
        planted: one.planted,
        finding: None,
        cases: count,
    });
    Ok(caught.into_iter().chain(missed).collect())
}

fn first_finding(
    backend: &mut dyn Backend,
    problem: &Problem,
    truth: &Truth,
    terms: &Terms,
) -> Option<Finding> {
    let mut summary = Summary::default();
    let nowhere = Source {
        generator: String::new(),
        index: 0,
    };
    let exhibit = Exhibit {
        problem,
        source: &nowhere,
        case: "",
        flags: &|| Flags::NONE,
    };
    judge_by(&exhibit, truth, backend, terms, &mut summary);
    summary.findings.into_iter().next()
}

/// The smallest case on which the same check is the first to fail.
fn smallest(one: &mut Alive, case: &Case, finding: &Finding) -> Shrunk {
    let mut detail = finding.detail.clone();
    let terms = Terms::of(&[one.planted.op()]);
    let shrunk = shrink(case.clone(), SHRINK, |smaller| {
        let Ok(problem) = Problem::new(smaller) else {
            return false;
        };
        let truth = Truth::of_ops(&problem, &mut Reference::new(), &terms.ops);
        match one.first_finding(&problem, &truth, &terms) {
            Ok(Some(found)) if found.check == finding.check => {
                detail = found.detail;
                true
            }
            _ => false,
        }
    });
    Shrunk {
        case: shrunk.smallest.to_string(),
        sizes: shrunk.sizes,
        detail,
        runs: shrunk.calls,
    }
}
