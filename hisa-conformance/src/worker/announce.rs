//! A backend whose jobs are announced before they run, so that a crash can be charged to one.

use crate::backend::{Backend, Capabilities, Failure, Job, Outputs};
use crate::op::Op;

/// `inner`, with `tell` called before every job, and with nothing after it.
pub(super) struct Announcing<F> {
    pub(super) inner: Box<dyn Backend>,
    pub(super) tell: F,
}

impl<F: FnMut(Option<Op>) + Send> Backend for Announcing<F> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        (self.tell)(Some(job.op));
        let result = self.inner.run(job, out);
        (self.tell)(None);
        result
    }

    fn broken(&self) -> Option<String> {
        self.inner.broken()
    }
}
