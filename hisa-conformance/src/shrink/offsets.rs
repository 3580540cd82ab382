//! Sequence offsets as lengths, for faults that need windows made from sequences.

use super::sizes::Shape;
use super::{Candidates, Search};
use crate::case::{Shard, WindowSource, WindowSpec};

/// A [`WindowSpec`] with offsets, as lengths of sequences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offsets {
    /// Queries of each sequence.
    pub q: Vec<usize>,
    /// Keys of each sequence, where they are given apart.
    pub k: Option<Vec<usize>>,
    /// Positions of a key, where keys are strided.
    pub stride: Option<usize>,
    /// Position of each sequence's first query; empty for all zero.
    pub first_positions: Vec<u32>,
    /// The rows kept of them.
    pub shard: Option<Shard>,
    /// Rows of no sequence added after them.
    pub padding_rows: usize,
}

impl Offsets {
    /// `None` for windows given row by row, and for offsets that are none.
    #[must_use]
    pub fn of(spec: &WindowSpec) -> Option<Self> {
        let (q, k, stride, first_positions) = match &spec.source {
            WindowSource::Causal(q) => (q, None, None, Vec::new()),
            WindowSource::Separate { q, k } => (q, Some(k), None, Vec::new()),
            WindowSource::Strided {
                q,
                k,
                stride,
                first_positions,
            } => (q, k.as_ref(), Some(*stride), first_positions.clone()),
            WindowSource::Rows(_) => return None,
        };
        Some(Self {
            q: lengths(q)?,
            k: match k {
                Some(k) => Some(lengths(k)?),
                None => None,
            },
            stride,
            first_positions,
            shard: spec.shard,
            padding_rows: spec.padding_rows,
        })
    }

    /// The description, and the M and N it stands for.
    #[must_use]
    pub fn spec(&self) -> (WindowSpec, usize, usize) {
        let q = offsets(&self.q);
        let k = self.k.as_ref().map(|k| offsets(k));
        let rows: usize = self.q.iter().sum();
        let n = match (&self.k, self.stride) {
            (Some(k), _) => k.iter().sum(),
            (None, Some(stride)) => self.q.iter().map(|len| len / stride.max(1)).sum(),
            (None, None) => rows,
        };
        let source = match (k, self.stride) {
            (k, Some(stride)) => WindowSource::Strided {
                q,
                k,
                stride,
                first_positions: self.first_positions.clone(),
            },
            (Some(k), None) => WindowSource::Separate { q, k },
            (None, None) => WindowSource::Causal(q),
        };
        let spec = WindowSpec {
            source,
            shard: self.shard,
            padding_rows: self.padding_rows,
        };
        let ranks = self.shard.map_or(1, |shard| shard.ranks.max(1));
        (spec, rows / ranks + self.padding_rows, n)
    }
}

fn lengths(offsets: &[i64]) -> Option<Vec<usize>> {
    let pairs = offsets.windows(2);
    pairs
        .map(|pair| usize::try_from(pair[1].checked_sub(pair[0])?).ok())
        .collect()
}

fn offsets(lengths: &[usize]) -> Vec<i64> {
    let mut offsets = vec![0];
    let mut at = 0;
    for &len in lengths {
        at += len as i64;
        offsets.push(at);
    }
    offsets
}

/// Most sequences whose lengths are lowered one by one.
const SEQUENCES_MAX: usize = 16;

/// Fewer and shorter sequences, no padding, no shard, stride 1.
pub(super) fn simplify<T: Candidates + Shape>(search: &mut Search<'_, T>) {
    if search.best().offsets().is_none() {
        return;
    }
    let edit = |best: &T, edit: &dyn Fn(&mut Offsets)| {
        let mut offsets = best.offsets()?;
        edit(&mut offsets);
        best.with_offsets(&offsets)
    };
    search.change(|best| edit(best, &|offsets| offsets.shard = None));
    search.change(|best| edit(best, &|offsets| offsets.padding_rows = 0));
    search.change(|best| edit(best, &|offsets| offsets.first_positions.clear()));
    search.change(|best| edit(best, &|offsets| offsets.k = None));
    search.change(|best| edit(best, &|offsets| offsets.stride = None));
    search.drop_parts(
        |best| best.offsets().map_or(0, |offsets| offsets.q.len()),
        |best, range| {
            edit(best, &|offsets| {
                offsets.q.drain(range.clone());
                if let Some(k) = offsets.k.as_mut().filter(|k| k.len() >= range.end) {
                    k.drain(range.clone());
                }
                if offsets.first_positions.len() >= range.end {
                    offsets.first_positions.drain(range.clone());
                }
            })
        },
    );
    for place in 0..SEQUENCES_MAX {
        let len = |best: &T| Some(*best.offsets()?.q.get(place)?);
        search.lower(
            0,
            |best| len(best).unwrap_or(0),
            |best, value| edit(best, &|offsets| offsets.q[place] = value),
        );
        let len = |best: &T| Some(*best.offsets()?.k?.get(place)?);
        search.lower(
            0,
            |best| len(best).unwrap_or(0),
            |best, value| {
                edit(best, &|offsets| {
                    if let Some(k) = &mut offsets.k {
                        k[place] = value;
                    }
                })
            },
        );
    }
    search.lower(
        1,
        |best| best.offsets().and_then(|o| o.stride).unwrap_or(1),
        |best, value| edit(best, &|offsets| offsets.stride = Some(value)),
    );
}
