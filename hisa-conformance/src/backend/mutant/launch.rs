//! What every kernel is launched with.

use super::fault::Fault;
use crate::backend::{Element, Failure, Guarded, Job, MARGIN};
use hisa_ref::Rank;

/// Sizes and parameters of a launch, and the planted fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) fault: Fault,
    /// How often this job has been launched, this time included.
    pub(super) number: u32,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) h: usize,
    pub(super) d: usize,
    /// Keys of a block, B.
    pub(super) b: usize,
    /// Blocks there are, Nb.
    pub(super) blocks: usize,
    /// Blocks kept, m of the specification.
    pub(super) kept: usize,
    /// Tokens kept, K.
    pub(super) k: usize,
    pub(super) rank: Rank,
}

impl Launch {
    pub(super) fn new(fault: Fault, number: u32, job: &Job<'_>) -> Self {
        let b = job.params.block_size();
        Self {
            fault,
            number,
            m: job.m,
            n: job.n,
            h: job.h,
            d: job.d,
            b,
            blocks: job.n.div_ceil(b),
            kept: job.params.block_topk(),
            k: job.params.topk_tokens(),
            rank: job.params.rank(),
        }
    }

    pub(super) fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// First and one past the last block of a window; `(0, 0)` for an empty one.
    pub(super) fn block_window(&self, window: Bounds) -> (usize, usize) {
        if window.is_empty() {
            return (0, 0);
        }
        let b = self.b as i64;
        ((window.ks / b) as usize, ((window.ke + b - 1) / b) as usize)
    }
}

/// The window of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) ks: i64,
    pub(super) ke: i64,
}

impl Bounds {
    pub(super) fn is_empty(self) -> bool {
        self.ks >= self.ke
    }

    pub(super) fn len(self) -> usize {
        if self.is_empty() {
            0
        } else {
            (self.ke - self.ks) as usize
        }
    }

    pub(super) fn contains(self, key: i64) -> bool {
        self.ks <= key && key < self.ke
    }
}

/// The windows of all rows, as the tensors `ks` and `ke`.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) ks: Vec<i32>,
    pub(super) ke: Vec<i32>,
}

impl Rows {
    pub(super) fn of(job: &Job<'_>) -> Result<Self, Failure> {
        Ok(Self {
            ks: job.i32("ks")?.body().to_vec(),
            ke: job.i32("ke")?.body().to_vec(),
        })
    }

    pub(super) fn row(&self, row: usize) -> Bounds {
        Bounds {
            ks: self.ks[row].into(),
            ke: self.ke[row].into(),
        }
    }
}

/// The keys at which windows start, ascending.
pub(super) fn sequence_starts(job: &Job<'_>) -> Vec<usize> {
    let rows = job
        .windows
        .rows()
        .iter()
        .filter(|window| !window.is_empty());
    let mut starts: Vec<usize> = rows.map(|window| window.ks as usize).chain([0]).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// `len` elements from element `start` on, as far as the arena reaches; none beyond it.
pub(super) fn span<T: Element>(tensor: &Guarded<T>, start: isize, len: usize) -> &[T] {
    let first = start + MARGIN as isize;
    usize::try_from(first)
        .ok()
        .and_then(|first| tensor.arena().get(first..first + len))
        .unwrap_or(&[])
}

/// One element, the guard's value beyond the arena.
pub(super) fn load<T: Element>(tensor: &Guarded<T>, at: isize) -> T {
    span(tensor, at, 1).first().copied().unwrap_or(T::GUARD)
}

/// Writes one element, as far as the arena reaches.
pub(super) fn store<T: Element>(tensor: &mut Guarded<T>, at: isize, value: T) {
    let place = usize::try_from(at + MARGIN as isize).ok();
    if let Some(place) = place.and_then(|place| tensor.arena_mut().get_mut(place)) {
        *place = value;
    }
}

/// `offset`, wrapped at 16 bits by a port that holds offsets in so many.
pub(super) fn wrapped(offset: usize, wraps: bool) -> isize {
    if wraps {
        (offset & 0xFFFF) as isize
    } else {
        offset as isize
    }
}
