//! The checks on trial: planted faults, each to be found by the check that is there for it.
//!
//! A run is worth as much as its checks. So every run can first judge backends that are known to
//! be wrong ([`crate::backend::mutant`]), a copy without a fault that has to pass, and a faulty one
//! with the checks left out, which has to be noticed too.

mod hunt;

pub use hunt::{Prey, cases, hunt};

use crate::backend::Backend;
use crate::backend::mutant::{MUTANTS, Mutant, by_name};
use crate::backend::reference::Reference;
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
/// Products of M, N, H and D up to which a case is small.
const COPY_WORK_MAX: usize = 1 << 18;
/// How long a mutant may take over a case before it counts as hanging.
const HANG_LIMIT: Duration = Duration::from_secs(2);
/// Cases on which the mutant without checks is judged.
const CANARY_CASES: usize = 40;

/// The mutants of these names.
///
/// # Errors
/// The first name that is none.
pub fn named(names: &[String]) -> Result<Vec<&'static Mutant>, String> {
    let find = |name: &String| {
        let found = MUTANTS.iter().find(|mutant| mutant.name == name);
        found.ok_or_else(|| format!("mutant:{name}"))
    };
    names.iter().map(find).collect()
}

/// Hunts mutants in this process: one row for each. `start` is called before every case.
pub fn rows(mutants: &[&'static Mutant], start: &mut dyn FnMut(u64)) -> Vec<SelfTestRow> {
    hunt(mutants, false, usize::MAX, start)
        .iter()
        .map(Prey::row)
        .collect()
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
            fault: self.mutant.name.to_owned(),
            kind: self.mutant.kind.into(),
            about: self.mutant.about.to_owned(),
            meant: self.mutant.caught_by.to_owned(),
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
        copy_passed: runner::copy_passes(launcher)?,
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
                mutant,
                finding: Some(finding),
                cases: count,
            });
        }
    }
    Ok(Prey {
        mutant,
        finding: None,
        cases: count,
    })
}

/// A copy of the reference in other words has to pass every check.
#[must_use]
pub fn copy_passes() -> bool {
    let mut summary = Summary::default();
    let small = |case: &Case| case.m * case.n * case.h * case.d <= COPY_WORK_MAX;
    for (source, case) in cases().filter(|(_, case)| small(case)).take(COPY_CASES) {
        let (Ok(problem), Some(mut copy)) = (Problem::new(&case), by_name("none")) else {
            return false;
        };
        let terms = Terms::of(&Op::ALL);
        judge_as(&source, &problem, copy.as_mut(), &terms, &mut summary);
    }
    summary.complaints(&Op::ALL).is_empty()
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
    let uncaught = hunt(&[mutant], true, CANARY_CASES, &mut |_| {})
        .iter()
        .all(|prey| prey.finding.is_none());
    let mut summary = Summary::default();
    for (source, case) in cases().take(CANARY_CASES) {
        let (Ok(problem), Some(mut backend)) = (Problem::new(&case), by_name(mutant.name)) else {
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
