//! Stage 5, `block_topk`.

use super::fault::Fault;
use super::launch::{Launch, Rows, load, store};
use crate::backend::Guarded;
use hisa_ref::Rank;
use hisa_ref::bf16::round_to_bf16;
use hisa_ref::order::rank_key;

/// Keeps `kept` blocks of every row.
pub(super) fn run(
    launch: &Launch,
    masked: &Guarded<f32>,
    rows: &Rows,
    kept: usize,
    out: &mut Guarded<i32>,
) {
    let columns = if launch.is(Fault::BtopkNarrow) {
        kept.min(launch.blocks)
    } else {
        kept
    };
    if columns < kept {
        *out = Guarded::filled(&[launch.m, columns], -1);
    }
    for row in 0..launch.m {
        let mut chosen = choose(launch, masked, row, launch.block_window(rows.row(row)));
        chosen.truncate(columns);
        if launch.is(Fault::BtopkCapped) {
            chosen.truncate(64);
        }
        chosen.sort_unstable();
        for column in 0..columns {
            let id = match chosen.get(column) {
                Some(&block) if launch.is(Fault::BtopkI8Ids) => i32::from(block as i8),
                Some(&block) => block as i32,
                None => match launch.fault {
                    Fault::BtopkPadZero => 0,
                    Fault::BtopkPadCount => launch.blocks as i32,
                    Fault::BtopkStaleTail => continue,
                    _ => -1,
                },
            };
            store(out, (row * columns + column) as isize, id);
        }
    }
}

/// The blocks of a row, best first.
fn choose(
    launch: &Launch,
    masked: &Guarded<f32>,
    row: usize,
    (start, end): (usize, usize),
) -> Vec<usize> {
    let end = if launch.is(Fault::BtopkLastColumn) {
        end.min(launch.blocks.saturating_sub(1))
    } else {
        end
    };
    let (mut first, mut last) = (1, 2);
    match launch.fault {
        Fault::BtopkForcedByScore => (first, last) = (0, 0),
        Fault::BtopkFirstBeforeLast => (first, last) = (2, 1),
        _ => {}
    }
    let mut order = Vec::new();
    for block in start..end {
        let score = load(masked, (row * launch.blocks + block) as isize);
        if launch.is(Fault::BtopkInfDropped) && score == f32::INFINITY {
            continue;
        }
        let forced = if block + 1 == end {
            last
        } else if block == start {
            first
        } else {
            0
        };
        order.push((forced, key(launch, score), block));
    }
    let tie = |block: usize| match launch.fault {
        Fault::BtopkTiesHigh => usize::MAX - block,
        Fault::BtopkTiesParity => block + (1 - block % 2) * launch.blocks,
        _ => block,
    };
    order.sort_by_key(|&(forced, key, block)| (3 - forced, u32::MAX - key, tie(block)));
    order.into_iter().map(|(_, _, block)| block).collect()
}

/// A number that is larger for what ranks earlier.
fn key(launch: &Launch, score: f32) -> u32 {
    let rounded = match (launch.rank, launch.fault) {
        (Rank::F32, _) | (_, Fault::BtopkF32Rank) => score,
        (_, Fault::BtopkTruncate) => f32::from_bits(score.to_bits() & 0xFFFF_0000),
        _ => round_to_bf16(score),
    };
    match launch.fault {
        Fault::BtopkNanLargest if rounded.is_nan() => u32::MAX,
        Fault::BtopkNanZero if rounded.is_nan() => rank_key(0.0),
        Fault::BtopkSignedKey if !rounded.is_nan() => rounded.to_bits() ^ 0x8000_0000,
        _ => rank_key(rounded),
    }
}
