//! Offsets to windows.

use super::fault::Fault;
use super::launch::Launch;
use crate::backend::{Failure, Job, Outputs};
use crate::case::{WindowSource, WindowSpec};

/// Offsets of queries and keys, and how many positions a key stands for (0: aligned at the end).
struct Sequences {
    q: Vec<i64>,
    k: Vec<i64>,
    stride: i64,
    first_positions: Vec<i64>,
}

pub(super) fn run(launch: &Launch, job: &Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
    let spec = job
        .spec
        .ok_or_else(|| Failure::Unsupported("no offsets".into()))?;
    let Some(sequences) = sequences(launch, &spec.source) else {
        return Err(Failure::Unsupported("windows are given by row".into()));
    };
    let repeats = |offsets: &[i64]| matches!(offsets, [.., a, b] if a == b);
    if launch.is(Fault::WindowsEmptyTail) && repeats(&sequences.q) {
        return Err(Failure::Refused("offsets must increase".into()));
    }
    let real = launch.m - spec.padding_rows;
    let mut window = (i32::MAX, 0);
    for row in 0..launch.m {
        if row < real {
            window = window_of(launch, &sequences, global_row(launch, spec, row, real));
        } else if !launch.is(Fault::WindowsPaddingRepeats) {
            window = (i32::MAX, 0);
        }
        out.i32("ks")?.body_mut()[row] = window.0;
        out.i32("ke")?.body_mut()[row] = window.1;
    }
    Ok(())
}

fn sequences(launch: &Launch, source: &WindowSource) -> Option<Sequences> {
    let mut made = match source {
        WindowSource::Rows(_) => return None,
        WindowSource::Causal(cu) => Sequences {
            q: cu.clone(),
            k: cu.clone(),
            stride: 0,
            first_positions: Vec::new(),
        },
        WindowSource::Separate { q, k } => Sequences {
            q: q.clone(),
            k: k.clone(),
            stride: 0,
            first_positions: Vec::new(),
        },
        WindowSource::Strided {
            q,
            k,
            stride,
            first_positions,
        } => Sequences {
            q: q.clone(),
            k: k.clone().unwrap_or_else(|| divided(q, *stride as i64)),
            stride: *stride as i64,
            first_positions: first_positions.iter().map(|&p| p.into()).collect(),
        },
    };
    if launch.is(Fault::WindowsHalfOffsets) {
        for offsets in [&mut made.q, &mut made.k] {
            let halves = |at: usize| {
                if at.is_multiple_of(2) {
                    offsets[at / 2]
                } else {
                    0
                }
            };
            *offsets = (0..offsets.len()).map(halves).collect();
        }
    }
    Some(made)
}

fn divided(q: &[i64], stride: i64) -> Vec<i64> {
    let mut k = vec![0];
    for pair in q.windows(2) {
        k.push(k[k.len() - 1] + (pair[1] - pair[0]) / stride);
    }
    k
}

/// The number among all rows of a rank's row.
fn global_row(launch: &Launch, spec: &WindowSpec, row: usize, real: usize) -> usize {
    let Some(shard) = spec.shard.filter(|_| !launch.is(Fault::WindowsLocalRows)) else {
        return row;
    };
    let chunk = real / 2;
    let second = if launch.is(Fault::WindowsContiguousShards) {
        2 * shard.rank + 1
    } else {
        2 * shard.ranks - 1 - shard.rank
    };
    if launch.is(Fault::WindowsContiguousShards) && row < chunk {
        2 * shard.rank * chunk + row
    } else if row < chunk {
        shard.rank * chunk + row
    } else {
        second * chunk + row - chunk
    }
}

fn window_of(launch: &Launch, sequences: &Sequences, row: usize) -> (i32, i32) {
    let (q, row) = (&sequences.q, row as i64);
    let starts_before = |&&offset: &&i64| {
        if launch.is(Fault::WindowsLowerBound) {
            offset < row
        } else {
            offset <= row
        }
    };
    let mut s = q[1..].iter().filter(starts_before).count().min(q.len() - 2);
    let i = row - q[s];
    if launch.is(Fault::WindowsDenseSequences) {
        s = q[..=s].windows(2).filter(|pair| pair[0] < pair[1]).count();
    }
    let k = if launch.is(Fault::WindowsKsFromQueries) {
        &sequences.q
    } else {
        &sequences.k
    };
    let (ks, end) = (k[s], sequences.k[s + 1]);
    let seen = i64::from(!launch.is(Fault::WindowsKeExclusive));
    let ke = if sequences.stride == 0 {
        let lengths = (end - sequences.k[s]) - (q[s + 1] - q[s]);
        let lengths = lengths * i64::from(!launch.is(Fault::WindowsLengthsIgnored));
        ks + i + seen + lengths
    } else {
        let first = sequences.first_positions.get(s).copied().unwrap_or(0);
        let first = first * i64::from(!launch.is(Fault::WindowsFirstPosition));
        let rounding = if launch.is(Fault::WindowsCeilStride) {
            sequences.stride - 1
        } else {
            0
        };
        ks + (first + i + seen + rounding) / sequences.stride
    };
    let ke = if ke > end && !launch.is(Fault::WindowsNextSequence) {
        end
    } else {
        ke
    };
    let ke = if ke < ks && !launch.is(Fault::WindowsBelowStart) {
        ks
    } else {
        ke
    };
    (ks as i32, ke as i32)
}
