//! The best value so far, and the ways to look for a smaller one.

use super::{Budget, Candidates, Ended, Shrunk};
use std::collections::HashSet;
use std::ops::Range;
use std::time::Instant;

/// Values above the least one that are tried one by one before bisecting, and steps below the
/// threshold that are tried after it.
const SINGLE_STEPS: usize = 16;
/// Most calls of one pass over the parts of a list, so that no pass uses up the budget.
const PASS_CALLS: u64 = 400;

/// A shrink under way.
pub struct Search<'a, T> {
    best: T,
    budget: Budget,
    started: Instant,
    calls: u64,
    improvements: u64,
    seen: HashSet<u64>,
    ended: Option<Ended>,
    still_fails: &'a mut dyn FnMut(&T) -> bool,
}

impl<T: std::fmt::Debug> std::fmt::Debug for Search<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search")
            .field("best", &self.best)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl<'a, T: Candidates> Search<'a, T> {
    pub(super) fn new(
        start: T,
        budget: Budget,
        still_fails: &'a mut dyn FnMut(&T) -> bool,
    ) -> Self {
        Self {
            seen: HashSet::from([start.key()]),
            best: start,
            budget,
            started: Instant::now(),
            calls: 0,
            improvements: 0,
            ended: None,
            still_fails,
        }
    }

    /// The smallest failing value so far.
    #[must_use]
    pub const fn best(&self) -> &T {
        &self.best
    }

    /// How often the best value has changed.
    #[must_use]
    pub const fn improvements(&self) -> u64 {
        self.improvements
    }

    pub(super) const fn ended(&self) -> Option<Ended> {
        self.ended
    }

    pub(super) fn finish(self) -> Shrunk<T> {
        Shrunk {
            sizes: self.best.sizes(),
            smallest: self.best,
            calls: self.calls,
            ended: self.ended.unwrap_or(Ended::FixedPoint),
        }
    }

    /// Takes `candidate` as the best value where it still fails. Values that cannot be run, or
    /// were tried before, cost nothing.
    pub fn attempt(&mut self, candidate: T) -> bool {
        if self.ended.is_some() || !candidate.is_valid() || !self.seen.insert(candidate.key()) {
            return false;
        }
        if self.calls == self.budget.calls {
            self.ended = Some(Ended::Calls);
            return false;
        }
        if self.started.elapsed() > self.budget.time {
            self.ended = Some(Ended::Time);
            return false;
        }
        self.calls += 1;
        let fails = (self.still_fails)(&candidate);
        if fails {
            self.best = candidate;
            self.improvements += 1;
        }
        fails
    }

    /// [`Self::attempt`] of what `change` makes of the best value.
    pub fn change(&mut self, change: impl FnOnce(&T) -> Option<T>) -> bool {
        change(&self.best).is_some_and(|candidate| self.attempt(candidate))
    }

    /// The smallest of some number from `floor` on: the least values one by one, then bisection
    /// to the threshold, then steps of 1, 2, ... below it, which find what is not monotone, such
    /// as a fault that needs N mod 7 = 3.
    pub fn lower(
        &mut self,
        floor: usize,
        get: impl Fn(&T) -> usize,
        with: impl Fn(&T, usize) -> Option<T>,
    ) {
        let small = get(&self.best).min(floor.saturating_add(SINGLE_STEPS));
        for value in floor..small {
            if self.change(|best| with(best, value)) {
                return;
            }
        }
        let mut passes = small.saturating_sub(1);
        loop {
            let fails = get(&self.best);
            if fails <= floor || fails - passes.min(fails) <= 1 {
                break;
            }
            let middle = passes + (fails - passes) / 2;
            if !self.change(|best| with(best, middle)) {
                passes = middle;
            } else if get(&self.best) >= fails {
                return;
            }
        }
        self.step_down(floor, &get, &with);
    }

    fn step_down(
        &mut self,
        floor: usize,
        get: &impl Fn(&T) -> usize,
        with: &impl Fn(&T, usize) -> Option<T>,
    ) {
        let mut step = 1;
        while step <= SINGLE_STEPS {
            let mut stride = step;
            let mut moved = false;
            loop {
                let now = get(&self.best);
                let Some(value) = now.checked_sub(stride).filter(|&value| value >= floor) else {
                    break;
                };
                if !self.change(|best| with(best, value)) || get(&self.best) >= now {
                    break;
                }
                (moved, stride) = (true, stride * 2);
            }
            step = if moved { 1 } else { step + 1 };
        }
    }

    /// Drops as much of a list as can be: all of it, halves, quarters, down to single entries,
    /// from the end on.
    pub fn drop_parts(
        &mut self,
        len: impl Fn(&T) -> usize,
        without: impl Fn(&T, Range<usize>) -> Option<T>,
    ) {
        let limit = self.calls.saturating_add(PASS_CALLS);
        let mut chunk = len(&self.best);
        while chunk > 0 {
            let mut end = len(&self.best);
            while end > 0 && self.calls < limit && self.ended.is_none() {
                let start = end.saturating_sub(chunk);
                self.change(|best| without(best, start..end));
                end = start.min(len(&self.best));
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
        }
    }

    /// The first of some replacements that still fails, the simplest first.
    pub fn first_of<V>(
        &mut self,
        simpler: impl IntoIterator<Item = V>,
        with: impl Fn(&T, V) -> Option<T>,
    ) -> bool {
        for value in simpler {
            if self.change(|best| with(best, value)) {
                return true;
            }
        }
        false
    }
}
