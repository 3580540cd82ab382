//! Faults planted in the kernels themselves, one change of a source each: what the checks have to
//! find on a GPU.

mod table;

pub use table::FAULTS;

use crate::op::Op;
use hisa_cuda::Scoring;
use hisa_cuda::kernel::Unit;
use hisa_cuda::toolchain::Source;

/// The word before the colon in the name of a backend.
pub const PREFIX: &str = "cuda-fault:";

/// A kernel with one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Its name; the backend is `cuda-fault:NAME`.
    pub name: &'static str,
    /// Kind of fault: 7 for K7, ragged tails.
    pub kind: u8,
    /// The job whose checks are to find it.
    pub op: Op,
    /// Id of the check that is to find it first.
    pub caught_by: &'static str,
    /// What the kernel does wrong, in a sentence.
    pub about: &'static str,
    /// The file that is changed, with its headers.
    pub unit: Unit,
    /// Which of the two scorers runs.
    pub scoring: Scoring,
    find: &'static str,
    replace: &'static str,
}

impl Fault {
    /// The changed source.
    ///
    /// # Errors
    /// [`hisa_cuda::Error::Change`] where the kernel does not hold the text exactly once.
    pub fn source(&self) -> hisa_cuda::Result<Source> {
        Source::of(self.unit).with_change(self.find, self.replace)
    }
}

/// The fault of that name, without [`PREFIX`].
#[must_use]
pub fn named(name: &str) -> Option<&'static Fault> {
    FAULTS.iter().find(|fault| fault.name == name)
}

#[cfg(test)]
mod tests;
