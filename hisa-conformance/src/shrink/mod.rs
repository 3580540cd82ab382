//! From a failing case to the smallest one that fails the same way.
//!
//! ```text
//! start -> sizes (offsets, rows, keys, heads, dimensions, m, K, B, windows) -> values -> again
//! ```
//!
//! The caller says what "still fails" means: the same check on the same backend. [`Case`] shrinks
//! by its address: sizes are numbers of their own and the arrays follow from the seed, so that
//! sizes shrink alone (BR-105). [`Problem`] shrinks by value: it keeps the values of the rows and
//! keys that stay. The order of attempts is fixed; only the time limit depends on the machine.
//!
//! [`Case`]: crate::case::Case
//! [`Problem`]: crate::problem::Problem

mod case;
mod offsets;
mod problem;
mod search;
mod sizes;
mod values;

pub use offsets::Offsets;
pub use search::Search;
pub use sizes::{Extent, Param, Shape};

use std::time::Duration;

/// How much a shrink may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most calls of the caller's function.
    pub calls: u64,
    /// Longest time; the call that passes it is the last one.
    pub time: Duration,
}

impl Default for Budget {
    /// 3000 calls, 20 seconds.
    fn default() -> Self {
        Self {
            calls: 3000,
            time: Duration::from_secs(20),
        }
    }
}

/// Why a shrink ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// No attempt makes it smaller.
    FixedPoint,
    /// The calls are used up.
    Calls,
    /// The time is used up.
    Time,
}

/// The smallest failing value that was found.
#[derive(Debug, Clone)]
pub struct Shrunk<T> {
    /// It still fails; the start itself where nothing smaller does.
    pub smallest: T,
    /// Its M, N, H, D.
    pub sizes: [usize; 4],
    /// Calls of the caller's function.
    pub calls: u64,
    /// Why there are no more.
    pub ended: Ended,
}

/// A value that can be made smaller.
pub trait Candidates: Clone {
    /// Whether it can be run at all. What cannot is never given to the caller.
    fn is_valid(&self) -> bool;

    /// A number that tells values apart: none is tried twice.
    fn key(&self) -> u64;

    /// M, N, H, D.
    fn sizes(&self) -> [usize; 4];

    /// Tries everything that makes the best value smaller, once.
    fn simplify(search: &mut Search<'_, Self>);
}

/// Makes `start`, which fails, as small as the budget allows.
///
/// `still_fails` is never given a value twice, nor one that cannot be run.
pub fn shrink<T: Candidates>(
    start: T,
    budget: Budget,
    mut still_fails: impl FnMut(&T) -> bool,
) -> Shrunk<T> {
    let mut search = Search::new(start, budget, &mut still_fails);
    loop {
        let before = search.improvements();
        T::simplify(&mut search);
        if search.improvements() == before || search.ended().is_some() {
            break;
        }
    }
    search.finish()
}

#[cfg(test)]
mod tests;
