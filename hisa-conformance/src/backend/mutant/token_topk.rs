//! Stage 7, `token_topk`.

use super::fault::Fault;
use super::launch::{Launch, Rows, load, store, wrapped};
use super::select::best;
use crate::backend::Guarded;
use std::panic::resume_unwind;

pub(super) fn run(
    launch: &Launch,
    scores: &Guarded<f32>,
    ids: &Guarded<i32>,
    rows: &Rows,
    out: &mut Guarded<i32>,
    workspace: &mut Vec<u32>,
) {
    let (k, width) = (launch.k, ids.columns() * launch.b);
    let columns = if launch.is(Fault::TtopkNarrow) {
        k.min(width)
    } else {
        k
    };
    if columns < k {
        *out = Guarded::filled(&[launch.m, columns], -1);
    }
    for row in 0..launch.m {
        let mut candidates = candidates(launch, (scores, ids), rows, row);
        fail(launch, &candidates, columns);
        if launch.is(Fault::TtopkEmptyStale) && candidates.is_empty() {
            continue;
        }
        // Key order, because ties go to the lower key.
        candidates.sort_unstable_by_key(|&(_, key, _)| key);
        let ranked: Vec<(f32, u32)> = (0..).zip(&candidates).map(|(at, c)| (c.0, at)).collect();
        let keep = if launch.is(Fault::TtopkHardK) {
            columns.min(2048)
        } else {
            columns
        };
        let places = best(launch, &ranked, keep, workspace);
        let mut slots: Vec<i32> = places
            .iter()
            .map(|&place| usize::try_from(place).map_or(-1, |at| candidates[at].2 as i32))
            .collect();
        if launch.is(Fault::TtopkUnsorted) {
            slots.sort_unstable();
        }
        disturb(launch, scores, row, width, &mut slots);
        write(launch, &slots, (row, columns), out);
    }
    if launch.is(Fault::TtopkOverrun) {
        let end = launch.m * columns;
        for at in end..end.next_multiple_of(4) {
            store(out, at as isize, -1);
        }
    }
}

/// Score, key and slot of every slot that can be chosen.
fn candidates(
    launch: &Launch,
    (scores, ids): (&Guarded<f32>, &Guarded<i32>),
    rows: &Rows,
    row: usize,
) -> Vec<(f32, i64, usize)> {
    let (b, columns, window) = (launch.b, ids.columns(), rows.row(row));
    let width = columns * b;
    let looked_at = if launch.is(Fault::TtopkSkipsLast) {
        width / 4 * 4
    } else {
        width
    };
    let mut found = Vec::new();
    for slot in 0..looked_at {
        let id = load(ids, (row * columns + slot / b) as isize);
        if id < 0 {
            continue;
        }
        let key = i64::from(id) * b as i64 + (slot % b) as i64;
        let score = load(scores, (row * width + slot) as isize);
        let valid = match launch.fault {
            Fault::TtopkNanDropped => window.contains(key) && !score.is_nan(),
            Fault::TtopkScoreValidity => score != f32::NEG_INFINITY,
            Fault::TtopkBelowSentinel => window.contains(key) && (score.is_nan() || score >= -5e4),
            _ => window.contains(key),
        };
        if valid {
            found.push((score, key, slot));
        } else if launch.is(Fault::TtopkMaskedLanes) && !window.is_empty() {
            found.push((f32::MIN, key, slot));
        }
    }
    found
}

/// Faults that end the launch. A payload without a message to the terminal, as a device has.
fn fail(launch: &Launch, candidates: &[(f32, i64, usize)], columns: usize) {
    let nan = candidates.iter().any(|(score, _, _)| score.is_nan());
    match launch.fault {
        Fault::TtopkPanicNan if nan => resume_unwind(Box::new("a score has no order")),
        Fault::TtopkPanicEmpty if candidates.is_empty() => {
            resume_unwind(Box::new("no best of nothing"));
        }
        Fault::TtopkAbort if candidates.is_empty() => std::process::abort(),
        Fault::TtopkHang if candidates.len() < columns => loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        },
        _ => {}
    }
}

/// Ids that a NaN turns into something else.
fn disturb(launch: &Launch, scores: &Guarded<f32>, row: usize, width: usize, slots: &mut [i32]) {
    let nan =
        |slot: i32| slot >= 0 && load(scores, (row * width) as isize + slot as isize).is_nan();
    match launch.fault {
        Fault::TtopkNanLength => {
            for slot in slots.iter_mut().filter(|slot| nan(**slot)) {
                *slot = width as i32;
            }
        }
        Fault::TtopkNanMax if !slots.is_empty() && slots.iter().all(|&slot| nan(slot)) => {
            slots.fill(i32::MAX);
        }
        _ => {}
    }
}

fn write(launch: &Launch, slots: &[i32], (row, columns): (usize, usize), out: &mut Guarded<i32>) {
    let base = wrapped(row * columns, launch.is(Fault::TtopkU16Row));
    let padding = columns - slots.len().min(columns);
    for column in 0..columns {
        let at = if launch.is(Fault::TtopkPadFirst) {
            column.checked_sub(padding)
        } else {
            Some(column)
        };
        let slot = match at.and_then(|at| slots.get(at)) {
            Some(&slot) => slot,
            None => match launch.fault {
                Fault::TtopkPadZero => 0,
                Fault::TtopkStaleTail => continue,
                _ => -1,
            },
        };
        store(out, base + column as isize, slot);
    }
}
