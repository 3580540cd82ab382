//! Stage 6, `token_scores`.

use super::block_scores::Pair;
use super::fault::Fault;
use super::launch::{Bounds, Launch, Rows, load, span, store, wrapped};
use super::scoring::{Site, score};
use crate::backend::Guarded;

pub(super) fn run(
    launch: &Launch,
    queries: Pair<'_>,
    keys: Pair<'_>,
    ids: &Guarded<i32>,
    rows: &Rows,
    out: &mut Guarded<f32>,
) {
    let (b, columns) = (launch.b, ids.columns());
    for row in 0..launch.m {
        let base = wrapped(row * columns * b, launch.is(Fault::TokensU16Row));
        for column in 0..columns {
            let mut id = load(ids, (row * columns + column) as isize);
            match launch.fault {
                Fault::TokensMinusOne if id < 0 => id = 0,
                Fault::TokensColumnAsBlock if id >= 0 => id = column as i32,
                Fault::TokensStaleTail if id < 0 => continue,
                _ => {}
            }
            let poisoned = id >= 0 && block_poisoned(launch, keys, id as usize);
            for lane in 0..b {
                let slot = (column * b + lane) as isize;
                let value = lane_score(
                    launch,
                    (queries, keys),
                    (row, slot),
                    (id, lane),
                    rows.row(row),
                );
                let visible = value != f32::NEG_INFINITY;
                let value = if poisoned && visible { f32::NAN } else { value };
                store(out, base + slot, value);
            }
        }
    }
}

/// The score of one lane of a block, or what a lane without a key gets.
fn lane_score(
    launch: &Launch,
    (queries, keys): (Pair<'_>, Pair<'_>),
    (row, slot): (usize, isize),
    (id, lane): (i32, usize),
    window: Bounds,
) -> f32 {
    let masked = if launch.is(Fault::TokensSentinel) {
        -5e4
    } else {
        f32::NEG_INFINITY
    };
    let tail = launch.is(Fault::TokensPairs) && launch.b % 2 == 1 && lane + 1 == launch.b;
    if id < 0 || tail || launch.is(Fault::TokensTile) && lane >= 128 {
        return masked;
    }
    let (h, d) = (launch.h, launch.d);
    let first = id as usize * launch.b;
    let key = first + lane;
    let position = key as i64;
    let visible = match launch.fault {
        Fault::TokensInclusive => {
            !window.is_empty() && window.ks <= position && position <= window.ke
        }
        Fault::TokensNoStart => !window.is_empty() && position < window.ke,
        Fault::TokensPastEnd => !window.is_empty() && window.ks <= position,
        _ => window.contains(position),
    };
    if !visible && !launch.is(Fault::TokensAddMask) {
        return masked;
    }
    let query_row = if launch.is(Fault::TokensLocalRow) {
        row % 2
    } else {
        row
    };
    let q = span(queries.0, (query_row * h * d) as isize, h * d);
    let weights = span(queries.1, (query_row * h) as isize, h);
    let read = if launch.is(Fault::TokensOffsetIgnored) {
        first
    } else {
        key
    };
    let code = span(
        keys.0,
        wrapped(read * d, launch.is(Fault::TokensU16Offset)),
        d,
    );
    let scale = match launch.fault {
        Fault::TokensFirstScale => load(keys.1, first as isize),
        Fault::TokensSlotScale => load(keys.1, slot),
        _ => load(keys.1, read as isize),
    };
    let score = score(launch, Site::Tokens, (q, weights), code, scale);
    if visible {
        score
    } else {
        score + f32::NEG_INFINITY
    }
}

/// Whether a port that tests whole blocks finds a NaN in this one.
fn block_poisoned(launch: &Launch, (codes, scales): Pair<'_>, id: usize) -> bool {
    if !launch.is(Fault::TokensBlockNan) {
        return false;
    }
    let first = id * launch.b;
    let last = launch.n.min(first + launch.b);
    let nan = |key: usize| {
        let codes = span(codes, (key * launch.d) as isize, launch.d);
        load(scales, key as isize).is_nan() || codes.iter().any(|code| code.is_nan())
    };
    (first..last).any(nan)
}
