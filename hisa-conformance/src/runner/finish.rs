//! What becomes of a finding before anybody sees it: saved, shrunk, explained.

use super::{Judge, RunError};
use crate::check::{CHECKS, Detail};
use crate::dump::DumpError;
use crate::problem::Problem;
use crate::report::Portrait;
use crate::save::{Origin, save, store};
use crate::shrink::{Budget, shrink};
use crate::subject::Subject;
use crate::summary::{Finding, Shrunk};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Saves, shrinks and explains findings, one after the other.
#[derive(Debug)]
pub struct Finisher {
    /// Where inputs are saved by value; nowhere if absent.
    pub folder: Option<PathBuf>,
    /// What a shrink may cost; findings stay as they are if absent.
    pub budget: Option<Budget>,
    /// Pictures of the first finding, as it was found.
    pub portrait: Option<Portrait>,
    /// Files this finisher made, and so may remove.
    made: BTreeSet<PathBuf>,
}

/// What the shrink of one of up to twenty findings may cost.
pub const BUDGET: Budget = Budget {
    calls: 2000,
    time: Duration::from_secs(10),
};

/// How a finding begins whose case has no end.
const HANG: &str = "no end";
/// Time limit up to which a case that hangs is shrunk.
const HANG_LIMIT: Duration = Duration::from_secs(2);

/// The cause of a finding that no replay shows.
const ONLY_AFTER_OTHERS: &str = "the case passes in a process of its own: the backend keeps \
                                 something between calls, and only a run shows it";

impl Finisher {
    /// Saves into `folder`, shrinks within [`BUDGET`].
    #[must_use]
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            budget: Some(BUDGET),
            portrait: None,
            made: BTreeSet::new(),
        }
    }

    /// Saves the input of a finding that has just come in and may wait for hours until it is
    /// finished. A known finding is not saved.
    ///
    /// # Errors
    /// That the input cannot be saved.
    pub fn arrive(&mut self, finding: &mut Finding) -> Result<(), DumpError> {
        match finding.case.parse::<Subject>() {
            Ok(subject) if finding.expected.is_none() => self.save(finding, &subject),
            _ => Ok(()),
        }
    }

    /// Saves the input of `finding`, then its smallest form in its place, and says why it fails.
    /// A known finding is left as it is.
    ///
    /// # Errors
    /// [`RunError`] where no worker can be had. That an input cannot be saved is returned beside.
    pub fn finish(
        &mut self,
        finding: &mut Finding,
        judge: &mut Judge,
    ) -> Result<Option<DumpError>, RunError> {
        if finding.expected.is_some() {
            return Ok(None);
        }
        let Ok(subject) = finding.case.parse::<Subject>() else {
            return Ok(None);
        };
        let mut trouble = self.save(finding, &subject).err();
        if finding.detail.got.starts_with(HANG) && judge.time_limit() > HANG_LIMIT {
            return Ok(trouble); // every further run would take the whole limit
        }
        judge.set_ops(&[CHECKS[finding.check].op]);
        if self.portrait.is_none() {
            // The case as it was found shows more than the smallest one.
            self.portrait = judge.explain(&subject, finding.check)?.portrait;
        }
        let mut smallest = self.shrink(finding, subject.clone(), judge)?;
        // A backend that keeps something between calls may fail only after others.
        if !fails_alone(&smallest, finding.check, judge)? {
            (smallest, finding.shrunk) = (subject, None);
            if !fails_alone(&smallest, finding.check, judge)? {
                finding.detail.cause = Some(ONLY_AFTER_OTHERS.to_owned());
                return Ok(trouble);
            }
        }
        if finding.shrunk.is_some() {
            let before = finding.saved.take();
            match self.save(finding, &smallest) {
                Ok(()) if before != finding.saved => {
                    // The smaller file says all that the larger one did. One that was there
                    // before is not ours to remove.
                    let before = before.map(PathBuf::from);
                    if let Some(before) = before.filter(|path| self.made.remove(path)) {
                        let _ = std::fs::remove_file(before);
                    }
                }
                Ok(()) => {}
                Err(error) => {
                    finding.saved = before;
                    trouble = trouble.or(Some(error));
                }
            }
        }
        let explained = judge.explain(&smallest, finding.check)?;
        let detail = match &mut finding.shrunk {
            Some(shrunk) => &mut shrunk.detail,
            None => &mut finding.detail,
        };
        detail.cause = detail.cause.take().or(explained.cause);
        Ok(trouble)
    }

    fn save(&mut self, finding: &mut Finding, subject: &Subject) -> Result<(), DumpError> {
        let (Some(folder), Ok(problem)) = (&self.folder, subject.problem()) else {
            return Ok(());
        };
        std::fs::create_dir_all(folder).map_err(DumpError::io(folder, "create"))?;
        let origin = Origin {
            check: Some(CHECKS[finding.check].id()),
            address: match subject {
                Subject::Case(case) => Some(case.to_string()),
                Subject::File(_) => None,
            },
        };
        let (path, is_new) = store(&problem, &origin, folder)?;
        if is_new {
            self.made.insert(path.clone());
        }
        finding.saved = Some(path.display().to_string());
        Ok(())
    }

    /// The smallest subject that fails the same check.
    fn shrink(
        &self,
        finding: &mut Finding,
        subject: Subject,
        judge: &mut Judge,
    ) -> Result<Subject, RunError> {
        let Some(budget) = self.budget else {
            return Ok(subject);
        };
        let last = Last::new(finding, judge);
        let (smallest, sizes, runs) = match &subject {
            Subject::Case(case) => {
                let shrunk = shrink(case.as_ref().clone(), budget, |smaller| {
                    last.fails(&Subject::Case(Box::new(smaller.clone())))
                });
                (
                    Subject::Case(Box::new(shrunk.smallest)),
                    shrunk.sizes,
                    shrunk.calls,
                )
            }
            Subject::File(path) => {
                let Ok(problem) = Problem::read(path) else {
                    return Ok(subject);
                };
                // A problem by value reaches the worker as a file.
                let Ok(folder) = tempfile::tempdir() else {
                    return Ok(subject);
                };
                let at = |problem: &Problem| save(problem, &Origin::default(), folder.path());
                let shrunk = shrink(problem, budget, |smaller| {
                    let Ok(path) = at(smaller) else { return false };
                    let fails = last.fails(&Subject::File(path.clone()));
                    let _ = std::fs::remove_file(path);
                    fails
                });
                let kept = self.folder.as_deref().unwrap_or(folder.path());
                let origin = Origin {
                    check: Some(CHECKS[finding.check].id()),
                    address: None,
                };
                match save(&shrunk.smallest, &origin, kept) {
                    Ok(path) if self.folder.is_some() => {
                        (Subject::File(path), shrunk.sizes, shrunk.calls)
                    }
                    _ => return Ok(subject),
                }
            }
        };
        if let Some(error) = last.error.take() {
            return Err(error);
        }
        if let Some(detail) = last.detail.take() {
            finding.shrunk = Some(Shrunk {
                case: smallest.to_string(),
                sizes,
                detail,
                runs,
            });
        }
        Ok(smallest)
    }
}

/// Whether the subject still fails in a process that has run nothing else.
fn fails_alone(subject: &Subject, check: usize, judge: &mut Judge) -> Result<bool, RunError> {
    judge.renew();
    match judge.failing(subject) {
        Ok(failing) => Ok(failing.iter().any(|(failed, _)| *failed == check)),
        Err(RunError::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Asks the judge, and keeps what it said about the smallest subject that fails.
struct Last<'a> {
    check: usize,
    judge: RefCell<&'a mut Judge>,
    detail: RefCell<Option<Detail>>,
    error: RefCell<Option<RunError>>,
}

impl<'a> Last<'a> {
    fn new(finding: &Finding, judge: &'a mut Judge) -> Self {
        Self {
            check: finding.check,
            judge: RefCell::new(judge),
            detail: RefCell::new(None),
            error: RefCell::new(None),
        }
    }

    fn fails(&self, subject: &Subject) -> bool {
        if self.error.borrow().is_some() {
            return false;
        }
        match self.judge.borrow_mut().failing(subject) {
            Ok(failing) => {
                let found = failing.into_iter().find(|(check, _)| *check == self.check);
                found
                    .map(|(_, detail)| self.detail.replace(Some(detail)))
                    .is_some()
            }
            // The smaller subject is not one.
            Err(RunError::Refused { .. }) => false,
            Err(error) => {
                self.error.replace(Some(error));
                false
            }
        }
    }
}
