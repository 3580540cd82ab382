//! Faults planted in kernels, on the GPU: each has to be found, and the kernels as they are pass.

use crate::backend::cuda::faults::{FAULTS, PREFIX};
use crate::report::SelfTestRow;
use crate::runner::{self, Launcher, RunError};
use std::collections::BTreeSet;

/// Whether the kernels pass, and what became of every fault.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuTest {
    /// One row for each fault, in the order of the table.
    pub rows: Vec<SelfTestRow>,
    /// Whether the unchanged kernels had no finding on the small cases.
    pub unchanged_passed: bool,
}

impl GpuTest {
    /// Every fault was found, and nothing else.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let caught = |row: &SelfTestRow| row.caught_by.is_some();
        self.unchanged_passed && !self.rows.is_empty() && self.rows.iter().all(caught)
    }
}

/// Hunts the faults of these names, all of them where none is named, in a worker process started
/// by `launcher`. One that loses the device is caught, and the rest goes to another worker.
///
/// # Errors
/// [`RunError::Refused`] without a GPU and for names that mean nothing; [`RunError::Start`] where
/// a worker is lost over a fault.
pub fn run(launcher: &Launcher, named: &[String]) -> Result<GpuTest, RunError> {
    let mut left: Vec<String> = match named {
        [] => FAULTS.iter().map(|fault| backend(fault.name)).collect(),
        named => named.iter().map(|name| backend(name)).collect(),
    };
    let unchanged_passed = runner::passes(launcher, &backend("none"))?;
    let mut rows = Vec::new();
    while !left.is_empty() {
        let found = runner::hunt(launcher, left.clone())?;
        if found.is_empty() {
            let how = format!("no answer about {}", left.join(", "));
            return Err(RunError::Start { how });
        }
        let done: BTreeSet<String> = found.iter().map(|row| backend(&row.fault)).collect();
        left.retain(|name| !done.contains(name));
        rows.extend(found);
    }
    rows.sort_by_key(|row| FAULTS.iter().position(|fault| fault.name == row.fault));
    Ok(GpuTest {
        rows,
        unchanged_passed,
    })
}

fn backend(fault: &str) -> String {
    format!("{PREFIX}{fault}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_that_is_missed_is_not_clean() {
        let row = |caught: Option<&str>| SelfTestRow {
            caught_by: caught.map(str::to_owned),
            ..SelfTestRow::default()
        };
        let test = |rows, unchanged_passed| GpuTest {
            rows,
            unchanged_passed,
        };
        assert!(test(vec![row(Some("dsa.mask"))], true).is_clean());
        assert!(!test(vec![row(Some("dsa.mask"))], false).is_clean());
        assert!(!test(vec![row(Some("dsa.mask")), row(None)], true).is_clean());
        assert!(!test(Vec::new(), true).is_clean());
    }
}
