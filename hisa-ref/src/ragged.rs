//! Windows: which keys each query row may see, and how callers describe them (SPEC W).

use crate::error::{ParamError, Result, WindowError};
use crate::params::{INDEX_MAX, block_count, check_limit};
use std::ops::Range;

/// The keys `[ks, ke)` one query row sees, in absolute key coordinates.
///
/// A row with `ks >= ke` is *empty*, whatever the two numbers are. [`Windows`] refuses one that is
/// not empty and starts below 0; the methods here expect that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// First key.
    pub ks: i32,
    /// One past the last key.
    pub ke: i32,
}

impl Window {
    /// What rows that belong to no sequence carry.
    pub const PADDING: Self = Self {
        ks: i32::MAX,
        ke: 0,
    };

    /// True where the row sees no key.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.ks >= self.ke
    }

    /// Number of keys seen.
    #[must_use]
    pub const fn len(self) -> usize {
        if self.is_empty() {
            0
        } else {
            (self.ke as i64 - self.ks as i64) as usize
        }
    }

    /// The keys seen, as a range; `0..0` for an empty row.
    #[must_use]
    pub const fn keys(self) -> Range<usize> {
        if self.is_empty() {
            0..0
        } else {
            self.ks as usize..self.ke as usize
        }
    }

    /// The block window `[ks / B, ceil(ke / B))`; `0..0` for an empty row (SPEC W.3).
    ///
    /// # Panics
    /// For a block size of 0.
    #[must_use]
    pub const fn blocks(self, block_size: usize) -> Range<usize> {
        let keys = self.keys();
        keys.start / block_size..block_count(keys.end, block_size)
    }

    /// True where the row sees this key.
    #[must_use]
    pub const fn contains(self, key: usize) -> bool {
        let keys = self.keys();
        keys.start <= key && key < keys.end
    }
}

/// Sequence offsets, checked: starts with 0 and never decreases. Repeated entries are empty
/// sequences, which keep their index (BR-50, BR-51).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CuSeqlens {
    argument: &'static str,
    offsets: Vec<usize>,
}

impl CuSeqlens {
    /// From int32 or int64 offsets; `argument` is the name errors use.
    ///
    /// # Errors
    /// [`WindowError`] naming the entry where the array is empty, does not start with 0 or
    /// decreases; [`ParamError::TooLarge`] past [`INDEX_MAX`].
    pub fn new<T: Copy + Into<i64>>(argument: &'static str, entries: &[T]) -> Result<Self> {
        let mut offsets = Vec::with_capacity(entries.len());
        let mut previous = 0i64;
        for (position, &entry) in entries.iter().enumerate() {
            let value: i64 = entry.into();
            if position == 0 && value != 0 {
                return Err(WindowError::FirstOffset { argument, value }.into());
            }
            if value < previous {
                return Err(WindowError::Decreasing {
                    argument,
                    position,
                    value,
                    previous,
                }
                .into());
            }
            if value > INDEX_MAX as i64 {
                return Err(ParamError::TooLarge {
                    name: argument,
                    value: value as u128,
                    limit: INDEX_MAX as u128,
                    reason: "ids travel as int32",
                }
                .into());
            }
            offsets.push(value as usize);
            previous = value;
        }
        if offsets.is_empty() {
            return Err(WindowError::NoOffsets { argument }.into());
        }
        Ok(Self { argument, offsets })
    }

    /// Number of sequences, empty ones included.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The last offset: rows or keys in total.
    #[must_use]
    pub fn total(&self) -> usize {
        self.offsets[self.offsets.len() - 1]
    }

    /// Rows or keys of sequence `s`.
    ///
    /// # Panics
    /// Where `s` is not below [`Self::sequences`].
    #[must_use]
    pub fn sequence(&self, s: usize) -> Range<usize> {
        self.offsets[s]..self.offsets[s + 1]
    }

    /// All offsets.
    #[must_use]
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    fn check_total(&self, what: &'static str, expected: usize) -> Result<()> {
        if self.total() == expected {
            return Ok(());
        }
        Err(WindowError::LastOffset {
            argument: self.argument,
            position: self.offsets.len() - 1,
            value: self.total() as i64,
            what,
            expected,
        }
        .into())
    }
}

/// One window per query row over `n` keys, every non-empty one inside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    rows: Vec<Window>,
    n: usize,
}

impl Windows {
    /// Windows given row by row.
    ///
    /// # Errors
    /// [`WindowError::RowCounts`] where `ks` and `ke` differ in length,
    /// [`WindowError::OutsideKeys`] for a non-empty row that leaves `[0, n)`.
    pub fn from_rows(ks: &[i32], ke: &[i32], n: usize) -> Result<Self> {
        if ks.len() != ke.len() {
            return Err(WindowError::RowCounts {
                ks: ks.len(),
                ke: ke.len(),
                m: ks.len(),
            }
            .into());
        }
        Self::new(
            ks.iter()
                .zip(ke)
                .map(|(&ks, &ke)| Window { ks, ke })
                .collect(),
            n,
        )
    }

    /// Windows given as pairs.
    ///
    /// # Errors
    /// As [`Self::from_rows`].
    pub fn new(rows: Vec<Window>, n: usize) -> Result<Self> {
        check_limit("N", n, INDEX_MAX, "ids travel as int32")?;
        check_limit("M", rows.len(), INDEX_MAX, "ids travel as int32")?;
        for (row, window) in rows.iter().enumerate() {
            if !window.is_empty() && (window.ks < 0 || window.ke as usize > n) {
                let (ks, ke) = (i64::from(window.ks), i64::from(window.ke));
                return Err(WindowError::OutsideKeys { row, ks, ke, n }.into());
            }
        }
        Ok(Self { rows, n })
    }

    /// Causal self-attention: row i of sequence s sees its sequence up to and including itself.
    ///
    /// # Errors
    /// [`WindowError::NotSelfAttention`] unless `m == n`, [`WindowError::LastOffset`] unless the
    /// offsets end with `m`.
    pub fn causal(cu_seqlens: &CuSeqlens, m: usize, n: usize) -> Result<Self> {
        if m != n {
            return Err(WindowError::NotSelfAttention { m, n }.into());
        }
        cu_seqlens.check_total("M", m)?;
        Self::causal_qk(cu_seqlens, cu_seqlens, m, n)
    }

    /// Queries and keys with their own offsets; the last query of a sequence sees all its keys.
    ///
    /// Row i of sequence s sees `[ks, clamp(ks + i + 1 + len_k - len_q, ks, cu_k[s+1]))`.
    ///
    /// # Errors
    /// [`WindowError::OffsetCounts`], [`WindowError::LastOffset`].
    pub fn causal_qk(cu_q: &CuSeqlens, cu_k: &CuSeqlens, m: usize, n: usize) -> Result<Self> {
        check_pair(cu_q, cu_k, m, n)?;
        let visible = |s: usize, i: usize| {
            let (len_q, len_k) = (cu_q.sequence(s).len(), cu_k.sequence(s).len());
            (i + 1 + len_k).saturating_sub(len_q)
        };
        Self::by_sequence(cu_q, cu_k, n, visible)
    }

    /// Keys that stand for `kv_stride` positions each: row i of a sequence whose first query has
    /// position p sees `floor((p + i + 1) / kv_stride)` keys, no more than the sequence has.
    ///
    /// `cu_k` defaults to `floor(len_q / kv_stride)` keys a sequence. `first_positions` holds p
    /// for every sequence, or is empty for all zero.
    ///
    /// # Errors
    /// [`WindowError::KvStride`], [`WindowError::Positions`], [`WindowError::OffsetCounts`],
    /// [`WindowError::LastOffset`].
    pub fn strided(
        cu_q: &CuSeqlens,
        cu_k: Option<&CuSeqlens>,
        kv_stride: usize,
        first_positions: &[u32],
        m: usize,
        n: usize,
    ) -> Result<Self> {
        if kv_stride == 0 {
            return Err(WindowError::KvStride.into());
        }
        let (got, expected) = (first_positions.len(), cu_q.sequences());
        if got != 0 && got != expected {
            return Err(WindowError::Positions { got, expected }.into());
        }
        let derived;
        let cu_k = match cu_k {
            Some(cu_k) => cu_k,
            None => {
                derived = cu_q.divided_by(kv_stride);
                &derived
            }
        };
        check_pair(cu_q, cu_k, m, n)?;
        let visible = |s: usize, i: usize| {
            let p = first_positions.get(s).map_or(0, |&p| u64::from(p));
            ((p + i as u64 + 1) / kv_stride as u64) as usize
        };
        Self::by_sequence(cu_q, cu_k, n, visible)
    }

    /// The rows rank `rank` of `ranks` holds under zigzag context parallelism, with their global
    /// windows: of 2R equal chunks of the rows, chunk r and then chunk 2R-1-r. Keys are not
    /// sharded.
    ///
    /// # Errors
    /// [`ParamError::ContextParallelSplit`] unless the rows split into 2R chunks,
    /// [`ParamError::ContextParallelRank`] for a rank outside the group.
    pub fn context_parallel(&self, rank: usize, ranks: usize) -> Result<Self> {
        let rows = self.rows.len();
        if rank >= ranks {
            return Err(ParamError::ContextParallelRank { rank, ranks }.into());
        }
        let chunks = ranks
            .checked_mul(2)
            .filter(|&chunks| rows.is_multiple_of(chunks));
        let Some(chunks) = chunks else {
            return Err(ParamError::ContextParallelSplit { rows, ranks }.into());
        };
        let c = rows / chunks;
        let mirrored = chunks - 1 - rank;
        let mut held = self.rows[rank * c..(rank + 1) * c].to_vec();
        held.extend_from_slice(&self.rows[mirrored * c..(mirrored + 1) * c]);
        Ok(Self {
            rows: held,
            n: self.n,
        })
    }

    /// The same windows followed by rows of no sequence, up to `m` rows (SPEC W.8).
    ///
    /// # Errors
    /// [`ParamError::TooLarge`] for `m` past [`INDEX_MAX`], [`ParamError::Allocation`].
    pub fn padded_to(mut self, m: usize) -> Result<Self> {
        check_limit("M", m, INDEX_MAX, "ids travel as int32")?;
        if m > self.rows.len() {
            reserve(&mut self.rows, m)?;
            self.rows.resize(m, Window::PADDING);
        }
        Ok(self)
    }

    /// M, number of query rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True where there is no row at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// N, number of keys.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// The window of each row.
    #[must_use]
    pub fn rows(&self) -> &[Window] {
        &self.rows
    }

    fn by_sequence(
        cu_q: &CuSeqlens,
        cu_k: &CuSeqlens,
        n: usize,
        visible: impl Fn(usize, usize) -> usize,
    ) -> Result<Self> {
        let mut rows = Vec::new();
        reserve(&mut rows, cu_q.total())?;
        for s in 0..cu_q.sequences() {
            let keys = cu_k.sequence(s);
            for i in 0..cu_q.sequence(s).len() {
                let ke = keys.start.saturating_add(visible(s, i)).min(keys.end);
                rows.push(Window {
                    ks: keys.start as i32,
                    ke: ke as i32,
                });
            }
        }
        Self::new(rows, n)
    }
}

impl CuSeqlens {
    fn divided_by(&self, stride: usize) -> Self {
        let mut offsets = vec![0];
        for s in 0..self.sequences() {
            offsets.push(offsets[s] + self.sequence(s).len() / stride);
        }
        Self {
            argument: "cu_seqlens_k",
            offsets,
        }
    }
}

/// Room for `m` windows in all.
fn reserve(rows: &mut Vec<Window>, m: usize) -> Result<()> {
    let refuse = |_| ParamError::Allocation {
        what: "windows",
        shape: vec![m],
    };
    rows.try_reserve_exact(m.saturating_sub(rows.len()))
        .map_err(refuse)?;
    Ok(())
}

fn check_pair(cu_q: &CuSeqlens, cu_k: &CuSeqlens, m: usize, n: usize) -> Result<()> {
    let (q, k) = (cu_q.offsets.len(), cu_k.offsets.len());
    if q != k {
        return Err(WindowError::OffsetCounts { q, k }.into());
    }
    cu_q.check_total("M", m)?;
    cu_k.check_total("N", n)
}
