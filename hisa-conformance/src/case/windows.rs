//! Where a case's windows come from, in every form callers use.

use hisa_ref::error::WindowError;
use hisa_ref::{CuSeqlens, Result, Window, Windows};

/// A description of one window per row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowSpec {
    /// The windows of all rows.
    pub source: WindowSource,
    /// The rows kept of them, where a context-parallel rank holds only some.
    pub shard: Option<Shard>,
    /// Rows of no sequence (INT32_MAX, 0) added after them.
    pub padding_rows: usize,
}

/// Sequence offsets, or the windows themselves. Offsets are signed and unchecked, so that
/// malformed ones can be written down.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WindowSource {
    /// `cu=`: packed causal self-attention, M = N.
    Causal(Vec<i64>),
    /// `cuq=,cuk=`: queries and keys with their own offsets, aligned at their ends.
    Separate {
        /// Offsets of the queries.
        q: Vec<i64>,
        /// Offsets of the keys.
        k: Vec<i64>,
    },
    /// `cuq=,stride=`: one key for several positions.
    Strided {
        /// Offsets of the queries.
        q: Vec<i64>,
        /// Offsets of the keys; derived from `q` where absent.
        k: Option<Vec<i64>>,
        /// Positions a key stands for.
        stride: usize,
        /// Position of each sequence's first query; empty for all zero.
        first_positions: Vec<u32>,
    },
    /// `win=`: start and end for every row.
    Rows(Vec<Window>),
}

/// One rank of a context-parallel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The rank, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
}

impl From<WindowSource> for WindowSpec {
    fn from(source: WindowSource) -> Self {
        Self {
            source,
            shard: None,
            padding_rows: 0,
        }
    }
}

impl WindowSpec {
    /// The windows of `m` rows over `n` keys.
    ///
    /// # Errors
    /// What the constructors of [`Windows`] refuse; [`WindowError::RowCounts`] where the
    /// description stands for another number of rows.
    pub fn resolve(&self, m: usize, n: usize) -> Result<Windows> {
        let rows = m.saturating_sub(self.padding_rows);
        let rows = rows.saturating_mul(self.shard.map_or(1, |shard| shard.ranks));
        let mut windows = self.source.resolve(rows, n)?;
        if let Some(Shard { rank, ranks }) = self.shard {
            windows = windows.context_parallel(rank, ranks)?;
        }
        let rows = windows.len().saturating_add(self.padding_rows);
        if rows != m {
            return Err(WindowError::RowCounts {
                ks: rows,
                ke: rows,
                m,
            }
            .into());
        }
        windows.padded_to(m)
    }
}

impl WindowSource {
    fn resolve(&self, m: usize, n: usize) -> Result<Windows> {
        match self {
            Self::Causal(cu) => Windows::causal(&CuSeqlens::new("cu_seqlens", cu)?, m, n),
            Self::Separate { q, k } => {
                Windows::causal_qk(&queries(q)?, &CuSeqlens::new("cu_seqlens_k", k)?, m, n)
            }
            Self::Strided {
                q,
                k,
                stride,
                first_positions,
            } => {
                let k = k
                    .as_ref()
                    .map(|k| CuSeqlens::new("cu_seqlens_k", k))
                    .transpose()?;
                Windows::strided(&queries(q)?, k.as_ref(), *stride, first_positions, m, n)
            }
            Self::Rows(rows) => Windows::new(rows.clone(), n),
        }
    }

    /// Its offsets under their names in dumps; none where windows are given row by row.
    #[must_use]
    pub fn offsets(&self) -> Vec<(&'static str, &[i64])> {
        match self {
            Self::Causal(cu) => vec![("cu_seqlens", cu)],
            Self::Separate { q, k } => vec![("cu_seqlens_q", q), ("cu_seqlens_k", k)],
            Self::Strided { q, k, .. } => {
                let k = k.as_deref().map(|k| ("cu_seqlens_k", k));
                [("cu_seqlens_q", q.as_slice())]
                    .into_iter()
                    .chain(k)
                    .collect()
            }
            Self::Rows(_) => Vec::new(),
        }
    }

    /// Offsets of the queries, where there are any.
    #[must_use]
    pub fn query_offsets(&self) -> Option<&[i64]> {
        match self {
            Self::Causal(q) | Self::Separate { q, .. } | Self::Strided { q, .. } => Some(q),
            Self::Rows(_) => None,
        }
    }
}

fn queries(offsets: &[i64]) -> Result<CuSeqlens> {
    CuSeqlens::new("cu_seqlens_q", offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(spec: &WindowSpec, m: usize, n: usize) -> Vec<(i32, i32)> {
        spec.resolve(m, n)
            .unwrap()
            .rows()
            .iter()
            .map(|w| (w.ks, w.ke))
            .collect()
    }

    #[test]
    fn every_form_resolves() {
        let causal = WindowSpec::from(WindowSource::Causal(vec![0, 0, 1, 2]));
        assert_eq!(rows(&causal, 2, 2), [(0, 1), (1, 2)]);
        let separate = WindowSpec::from(WindowSource::Separate {
            q: vec![0, 2],
            k: vec![0, 5],
        });
        assert_eq!(rows(&separate, 2, 5), [(0, 4), (0, 5)]);
        let strided = WindowSpec::from(WindowSource::Strided {
            q: vec![0, 4],
            k: None,
            stride: 2,
            first_positions: vec![],
        });
        assert_eq!(rows(&strided, 4, 2), [(0, 0), (0, 1), (0, 1), (0, 2)]);
    }

    /// SPEC W.7 and W.8.
    #[test]
    fn shards_hold_mirrored_chunks_and_padding_comes_last() {
        let spec = WindowSpec {
            source: WindowSource::Causal(vec![0, 4]),
            shard: Some(Shard { rank: 0, ranks: 2 }),
            padding_rows: 1,
        };
        assert_eq!(rows(&spec, 3, 4), [(0, 1), (0, 4), (i32::MAX, 0)]);
    }

    #[test]
    fn wrong_row_counts_are_refused() {
        let spec = WindowSpec::from(WindowSource::Rows(vec![Window::PADDING]));
        assert!(spec.resolve(2, 3).is_err());
        assert!(spec.resolve(0, 3).is_err());
        let padded = WindowSpec {
            padding_rows: usize::MAX,
            ..spec
        };
        assert!(padded.resolve(1, 3).is_err());
        let spec = WindowSpec::from(WindowSource::Causal(vec![0, 3, 2]));
        assert!(spec.resolve(2, 2).is_err());
    }
}
