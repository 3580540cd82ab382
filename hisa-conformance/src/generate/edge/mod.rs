//! Hand-picked corners: the inputs of public bug reports, and both sides of every limit.

mod corners;
mod large;
mod rejected;
mod reports;
mod sweeps;
mod tensor_core;
mod tiles;

pub use rejected::{Rejected, rejected};

use super::{Generated, Generator};
use crate::case::Case;
use crate::flags::{Flag, Flags};
use std::borrow::Cow;

/// A line of a table of cases.
struct Entry {
    /// Numbers n of BR-n.
    reports: &'static [u16],
    /// What the line vouches for.
    flags: Flags,
    /// What it shows.
    comment: &'static str,
    /// The case.
    address: &'static str,
}

const fn entry(
    reports: &'static [u16],
    flags: &[Flag],
    comment: &'static str,
    address: &'static str,
) -> Entry {
    Entry {
        reports,
        flags: Flags::of(flags),
        comment,
        address,
    }
}

/// The cases of a table. A line that does not parse would be left out; a test sees to it that
/// none is.
fn table(entries: &[Entry]) -> impl Iterator<Item = Generated> + '_ {
    entries.iter().filter_map(|entry| {
        Some(Generated {
            case: entry.address.parse().ok()?,
            comment: Cow::Borrowed(entry.comment),
            reports: entry.reports,
            flags: entry.flags,
        })
    })
}

fn commented(case: Case, reports: &'static [u16], comment: impl Into<String>) -> Generated {
    Generated {
        case,
        reports,
        comment: Cow::Owned(comment.into()),
        flags: Flags::NONE,
    }
}

/// The corners.
#[derive(Debug)]
pub struct Edge {
    cases: Vec<Generated>,
}

impl Edge {
    /// All of them, built at once; their tensors are not.
    #[must_use]
    pub fn new() -> Self {
        let mut cases: Vec<_> = table(reports::TABLE).collect();
        cases.extend(sweeps::cases());
        cases.extend(corners::cases());
        cases.extend(tensor_core::cases());
        cases.extend(tiles::cases());
        Self { cases }
    }
}

impl Edge {
    /// Whether the case of this number is one of those just beyond what a kernel's tile holds.
    #[must_use]
    pub fn is_tile(index: u64) -> bool {
        static FIRST: std::sync::LazyLock<u64> =
            std::sync::LazyLock::new(|| Edge::new().len() - tiles::cases().len() as u64);
        index >= *FIRST
    }
}

impl Default for Edge {
    fn default() -> Self {
        Self::new()
    }
}

impl Generator for Edge {
    fn name(&self) -> &'static str {
        "edge"
    }

    fn about(&self) -> &'static str {
        "Hand-picked corners: inputs of public bug reports and both sides of every limit."
    }

    fn len(&self) -> u64 {
        self.cases.len() as u64
    }

    fn case(&self, index: u64) -> Option<Generated> {
        self.cases.get(usize::try_from(index).ok()?).cloned()
    }
}

/// Reports whose trigger needs gigabytes or minutes.
#[derive(Debug)]
pub struct Large {
    cases: Vec<Generated>,
}

impl Large {
    /// All of them; nothing large is built yet.
    #[must_use]
    pub fn new() -> Self {
        let mut cases: Vec<_> = table(large::TABLE).collect();
        for generated in &mut cases {
            generated.flags = generated.flags.with(Flag::Large);
        }
        Self { cases }
    }
}

impl Default for Large {
    fn default() -> Self {
        Self::new()
    }
}

impl Generator for Large {
    fn name(&self) -> &'static str {
        "large"
    }

    fn about(&self) -> &'static str {
        "Inputs of public bug reports that need much memory or time."
    }

    fn len(&self) -> u64 {
        self.cases.len() as u64
    }

    fn case(&self, index: u64) -> Option<Generated> {
        self.cases.get(usize::try_from(index).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests;
