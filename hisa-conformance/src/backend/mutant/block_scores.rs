//! Stage 3, `block_scores`.

use super::fault::Fault;
use super::launch::{Launch, Rows, load, span, store, wrapped};
use super::scoring::{Site, score};
use crate::backend::Guarded;
use hisa_ref::E4M3;

/// Codes and weights of the queries, or codes and scales of keys.
pub(super) type Pair<'a> = (&'a Guarded<E4M3>, &'a Guarded<f32>);

pub(super) fn run(
    launch: &Launch,
    queries: Pair<'_>,
    (codes, scales): Pair<'_>,
    rows: &Rows,
    out: &mut Guarded<f32>,
) {
    let (h, d) = (launch.h, launch.d);
    let tile = if launch.is(Fault::BlocksQueryTile) {
        128 / h
    } else {
        1
    };
    if tile == 0 {
        return;
    }
    for row in 0..launch.m {
        let window = rows.row(row);
        let (start, mut end) = launch.block_window(window);
        if launch.is(Fault::BlocksFloorEnd) && !window.is_empty() {
            end = window.ke as usize / launch.b;
        }
        let offset = if launch.is(Fault::BlocksI16Query) {
            (row * h * d) as i16 as isize
        } else {
            (row * h * d) as isize
        };
        let q = span(queries.0, offset, h * d);
        let weights = span(queries.1, (row * h) as isize, h);
        let base = wrapped(row * launch.blocks, launch.is(Fault::BlocksU16Row));
        for block in start..end {
            let key = span(codes, (block * d) as isize, d);
            let scale = load(scales, block as isize);
            let score = score(launch, Site::Blocks, (q, weights), key, scale);
            let at = base + block as isize;
            let value = if launch.is(Fault::BlocksAccumulates) {
                load(out, at) + score
            } else {
                score
            };
            store(out, at, value);
        }
    }
}
