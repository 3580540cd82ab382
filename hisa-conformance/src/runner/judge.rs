//! One case at a time in a warm worker: what replaying and shrinking ask thousands of times.

use super::RunError;
use super::attempt::{Lost, answer, attempt, charge, charged};
use super::child::{Child, Launcher};
use crate::check::Detail;
use crate::op::Op;
use crate::subject::Subject;
use crate::summary::{Source, Summary};
use crate::worker::judge::Explained;
use crate::worker::protocol::{About, Config, Reply, Request};

/// What a worker is asked about a subject.
fn request(subject: &Subject) -> Request {
    match subject {
        Subject::Case(case) => Request::Address(case.to_string()),
        Subject::File(path) => Request::File(path.clone()),
    }
}

/// Source and name in findings.
fn place(subject: &Subject) -> (Source, String) {
    let generator = match subject {
        Subject::Case(_) => "replay",
        Subject::File(_) => "file",
    };
    let source = Source {
        generator: generator.to_owned(),
        index: 0,
    };
    (source, subject.to_string())
}

/// A worker that judges one subject after the other. No process is started for a subject, except
/// after one that killed the worker or took longer than the limit.
#[derive(Debug)]
pub struct Judge {
    launcher: Launcher,
    config: Config,
    child: Option<Child>,
    /// What the backend last said of itself.
    about: Option<About>,
}

impl Judge {
    /// A judge with this configuration. The fewer jobs it names, the less each subject takes.
    #[must_use]
    pub fn new(launcher: Launcher, config: &Config) -> Self {
        Self {
            launcher,
            // The job in flight is then known without a second run.
            config: config.announcing(),
            child: None,
            about: None,
        }
    }

    /// Judges the next subject in a new worker, as a replay does.
    pub fn renew(&mut self) {
        self.child = None;
    }

    /// What the backend says of itself; `None` as long as no worker was needed.
    #[must_use]
    pub const fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }

    fn child(&mut self) -> Result<Child, RunError> {
        let child = match self.child.take() {
            Some(child) => child,
            None => self.launcher.start(&self.config)?,
        };
        self.about.get_or_insert_with(|| child.about.clone());
        Ok(child)
    }

    /// How long a job may take.
    #[must_use]
    pub const fn time_limit(&self) -> std::time::Duration {
        self.launcher.time_limit
    }

    /// Whether these are the jobs it judges; otherwise it judges them from now on, in a new
    /// worker.
    pub fn set_ops(&mut self, ops: &[Op]) {
        let names: Vec<String> = ops.iter().map(|op| op.name().to_owned()).collect();
        if self.config.ops != names {
            self.config.ops = names;
            self.child = None;
        }
    }

    /// What all checks say about `subject`. A subject that kills its worker, or takes too long,
    /// fails the check `runs` of the job that was running, and no other check is judged.
    ///
    /// # Errors
    /// [`RunError::Refused`] for a subject that cannot be run, [`RunError::Program`] and
    /// [`RunError::Start`].
    pub fn summary(&mut self, subject: &Subject) -> Result<Summary, RunError> {
        let mut child = self.child()?;
        match attempt(&mut child, &request(subject), self.launcher.time_limit) {
            Ok(answer) => {
                self.keep(child);
                answer
            }
            Err(Lost { loss, op, .. }) => {
                let cause = op.is_none().then_some("no job of the backend was running");
                let first = self.config.ops.first().and_then(|name| Op::from_name(name));
                let op = op.or(first).unwrap_or(Op::Windows);
                let (source, case) = place(subject);
                Ok(charged(op, source, case, charge(&loss, cause)))
            }
        }
    }

    /// Why `subject` fails check number `check`, and pictures of it; nothing where the worker is
    /// lost over it.
    ///
    /// # Errors
    /// As [`Self::summary`].
    pub fn explain(&mut self, subject: &Subject, check: usize) -> Result<Explained, RunError> {
        let mut child = self.child()?;
        let request = Request::Explain(Box::new(request(subject)), check);
        match answer(&mut child, &request, self.launcher.time_limit) {
            Ok(answer) => {
                self.keep(child);
                match answer? {
                    Reply::Explained(explained) => Ok(*explained),
                    _ => Ok(Explained::default()),
                }
            }
            Err(_) => Ok(Explained::default()),
        }
    }

    /// Keeps a worker for the next subject, unless its backend is broken.
    fn keep(&mut self, child: Child) {
        self.child = Some(child).filter(|child| child.ending.is_none());
    }

    /// The checks `subject` fails, as positions in [`crate::check::CHECKS`], and what they say.
    ///
    /// # Errors
    /// As [`Self::summary`].
    pub fn failing(&mut self, subject: &Subject) -> Result<Vec<(usize, Detail)>, RunError> {
        let findings = self.summary(subject)?.findings.into_iter();
        Ok(findings.map(|found| (found.check, found.detail)).collect())
    }
}
