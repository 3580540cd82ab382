//! The checks on trial: planted faults, each to be found by the check that is there for it.
//!
//! A run is worth as much as its checks. So every run can first judge backends that are known to
//! be wrong ([`crate::backend::mutant`]), a copy without a fault that has to pass, and a faulty one
//! with the checks left out, which has to be noticed too.

#[cfg(feature = "cuda")]
pub mod gpu;
mod hunt;
mod planted;

pub use hunt::{Prey, cases, hunt};
pub use planted::Planted;

use crate::backend::mutant::{MUTANTS, Mutant};
use crate::backend::reference::Reference;
use crate::backend::{Backend, BackendError, by_name};
use crate::case::Case;
use crate::check::CHECKS;
use crate::flags::Flags;
use crate::op::Op;
use crate::problem::Problem;
use crate::report::{SelfTest, SelfTestRow};
use crate::runner::{self, Judge, Launcher, RunError};
use crate::subject::Subject;
use crate::summary::{Source, Summary};
use crate::worker::Config;
use crate::worker::judge::{Exhibit, Terms, judge};
use std::time::{Duration, Instant};

/// Cases the copy without a fault has to pass: of three, edge cases and the corpus among them, the
/// first and small ones.
const COPY_CASES: usize = 700;
/// The copy without a fault: a copy of the reference in other words.
const COPY: &str = "mutant:none";
/// Products of M, N, H and D up to which a case is small.
const COPY_WORK_MAX: usize = 1 << 18;
/// How long a mutant may take over a case before it counts as hanging.
const HANG_LIMIT: Duration = Duration::from_secs(2);
/// Cases on which the mutant without checks is judged.
const CANARY_CASES: usize = 40;

/// Hunts faults in this process, by the names that [`Planted::by_name`] takes: one row for each.
/// `start` is called before every case.
///
/// # Errors
/// As [`Planted::by_name`] and [`hunt`].
pub fn rows(
    names: &[String],
    start: &mut dyn FnMut(u64),
) -> Result<Vec<SelfTestRow>, BackendError> {
    let faults = names.iter().map(|name| Planted::by_name(name));
    let faults: Vec<Planted> = faults.collect::<Result<_, _>>()?;
    let prey = hunt(&faults, false, usize::MAX, start)?;
    Ok(prey.iter().map(Prey::row).collect())
}

impl Prey {
    /// The row of the table.
    #[must_use]
    pub fn row(&self) -> SelfTestRow {
        let shrunk = self
            .finding
            .as_ref()
            .and_then(|finding| finding.shrunk.as_ref());
        SelfTestRow {
            fault: self.planted.name().to_owned(),
            kind: self.planted.kind().into(),
            about: self.planted.about().to_owned(),
            meant: self.planted.caught_by().to_owned(),
            caught_by: self
                .finding
                .as_ref()
                .map(|finding| CHECKS[finding.check].id()),
            cases: self.cases,
            shrunk_sizes: shrunk.map(|shrunk| shrunk.sizes),
            shrunk_case: shrunk.map(|shrunk| shrunk.case.clone()),
        }
    }
}

/// Judges the checks, in `jobs` worker processes started by `launcher`.
///
/// # Errors
/// [`RunError`] where no worker can be had.
pub fn run(launcher: &Launcher, jobs: usize) -> Result<SelfTest, RunError> {
    let begun = Instant::now();
    let (living, deadly): (Vec<_>, Vec<_>) = MUTANTS.iter().partition(|mutant| mutant.survives());
    let mut rows = in_workers(launcher, &living, jobs)?;
    for mutant in deadly {
        rows.push(provoke(launcher, mutant)?.row());
    }
    let position = |row: &SelfTestRow| MUTANTS.iter().position(|mutant| mutant.name == row.fault);
    rows.sort_by_key(position);
    Ok(SelfTest {
        rows,
        canary_noticed: canary_is_noticed(),
        copy_passed: runner::passes(launcher, COPY)?,
        elapsed: begun.elapsed().as_secs_f64(),
    })
}

/// Every worker hunts its share.
fn in_workers(
    launcher: &Launcher,
    mutants: &[&'static Mutant],
    jobs: usize,
) -> Result<Vec<SelfTestRow>, RunError> {
    let share = |worker: usize| -> Vec<String> {
        let of_worker = mutants.iter().skip(worker).step_by(jobs);
        of_worker.map(|mutant| mutant.name.to_owned()).collect()
    };
    std::thread::scope(|scope| {
        let hunts: Vec<_> = (0..jobs)
            .map(|worker| {
                let names = share(worker);
                scope.spawn(move || runner::hunt(launcher, names))
            })
            .collect();
        let mut rows = Vec::new();
        for hunt in hunts {
            rows.extend(hunt.join().unwrap_or_else(|_| Ok(Vec::new()))?);
        }
        Ok(rows)
    })
}

/// A mutant that takes its process along, case by case, until it does.
fn provoke(launcher: &Launcher, mutant: &'static Mutant) -> Result<Prey, RunError> {
    let launcher = Launcher {
        time_limit: HANG_LIMIT,
        ..launcher.clone()
    };
    let backend = format!("mutant:{}", mutant.name);
    let mut judge = Judge::new(launcher, &Config::new(&backend, &[mutant.op], 1));
    let mut count = 0;
    for (source, case) in cases() {
        count += 1;
        let address = case.to_string();
        let failing = judge.failing(&Subject::Case(Box::new(case)))?;
        if let Some((check, detail)) = failing.into_iter().next() {
            let finding = crate::worker::judge::finding(check, source, address, detail);
            return Ok(Prey {
                planted: Planted::Port(mutant),
                finding: Some(finding),
                cases: count,
            });
        }
    }
    Ok(Prey {
        planted: Planted::Port(mutant),
        finding: None,
        cases: count,
    })
}

/// Whether a backend passes every check of its jobs on the first and small cases.
///
/// # Errors
/// As [`by_name`].
pub fn passes(name: &str) -> Result<bool, BackendError> {
    let mut backend = by_name(name)?;
    let is_kept = name != COPY;
    let ops = backend.capabilities().ops.clone();
    let mut summary = Summary::default();
    let small = |case: &Case| case.m * case.n * case.h * case.d <= COPY_WORK_MAX;
    for (source, case) in cases().filter(|(_, case)| small(case)).take(COPY_CASES) {
        let Ok(problem) = Problem::new(&case) else {
            return Ok(false);
        };
        if !is_kept {
            backend = by_name(name)?;
        }
        let terms = Terms::of(&ops);
        judge_as(&source, &problem, backend.as_mut(), &terms, &mut summary);
    }
    if name == COPY {
        return Ok(summary.complaints(&ops).is_empty());
    }
    // Other arithmetic gives some relations nothing to say; no job may be left out.
    let exercised = |op: &Op| {
        let checks = CHECKS.iter().zip(&summary.tallies);
        checks
            .filter(|(check, _)| check.op == *op)
            .any(|(_, tally)| tally.passed > 0)
    };
    Ok(summary.findings_total == 0 && ops.iter().all(exercised))
}

fn judge_as(
    source: &Source,
    problem: &Problem,
    backend: &mut dyn Backend,
    terms: &Terms,
    summary: &mut Summary,
) {
    let exhibit = Exhibit {
        problem,
        source,
        case: "",
        flags: &|| Flags::NONE,
    };
    judge(&exhibit, backend, &mut Reference::new(), terms, summary);
}

/// A faulty backend whose checks are left out must neither be caught nor be called clean.
fn canary_is_noticed() -> bool {
    let Some(mutant) = MUTANTS.iter().find(|mutant| mutant.survives()) else {
        return false;
    };
    let planted = Planted::Port(mutant);
    let uncaught = hunt(&[planted], true, CANARY_CASES, &mut |_| {})
        .is_ok_and(|prey| prey.iter().all(|prey| prey.finding.is_none()));
    let mut summary = Summary::default();
    for (source, case) in cases().take(CANARY_CASES) {
        let (Ok(problem), Ok(mut backend)) = (Problem::new(&case), planted.backend()) else {
            return false;
        };
        judge_as(
            &source,
            &problem,
            backend.as_mut(),
            &Terms::of(&[]),
            &mut summary,
        );
    }
    uncaught && !summary.complaints(&Op::ALL).is_empty()
}
