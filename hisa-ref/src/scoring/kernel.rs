//! Dots of sixteen keys with groups of query heads: exact `i32` sums of `i16` products.
//!
//! Keys run along the lanes, heads are broadcast, so no lane ever has to be added to another. The
//! row rule of `limbs.rs` keeps every partial sum within `i32`.

use super::pack::{Lanes, QUAD};
use fearless_simd::{Simd, SimdBase, SimdIntWiden, i16x32, i32x16, prelude::*};

/// `acc + keys . word`, the word being two values of one head.
#[inline(always)]
fn step<S: Simd>(simd: S, acc: i32x16<S>, keys: i16x32<S>, word: i32) -> i32x16<S> {
    let head: i16x32<S> = i32x16::splat(simd, word).bitcast();
    acc + keys.pairwise_dot_product(head)
}

#[inline(always)]
pub(super) fn load<S: Simd>(simd: S, lanes: &Lanes) -> i16x32<S> {
    i32x16::simd_from(simd, lanes.0).bitcast()
}

/// Dots of one panel with `4 * Q` heads, into `dots`.
#[inline(always)]
pub(super) fn dots<S: Simd, const Q: usize>(
    simd: S,
    panel: &[Lanes],
    quads: [&[[i32; QUAD]]; Q],
    dots: &mut [[Lanes; QUAD]; Q],
) {
    let quads = quads.map(|quad| &quad[..panel.len()]);
    let mut acc = [[i32x16::splat(simd, 0); QUAD]; Q];
    for (position, lanes) in panel.iter().enumerate() {
        let keys = load(simd, lanes);
        for (acc, quad) in acc.iter_mut().zip(&quads) {
            for (acc, &word) in acc.iter_mut().zip(&quad[position]) {
                *acc = step(simd, *acc, keys, word);
            }
        }
    }
    for (dots, acc) in dots.as_flattened_mut().iter_mut().zip(acc.as_flattened()) {
        dots.0 = (*acc).into();
    }
}

/// Dots of four heads' `main` with the panel's `rest`.
#[inline(always)]
pub(super) fn key_rest_dots<S: Simd>(
    simd: S,
    positions: &[u32],
    lanes: &[Lanes],
    quad: &[[i32; QUAD]],
) -> [i32x16<S>; QUAD] {
    let mut acc = [i32x16::splat(simd, 0); QUAD];
    for (&position, lanes) in positions.iter().zip(lanes) {
        let keys = load(simd, lanes);
        for (acc, &word) in acc.iter_mut().zip(&quad[position as usize]) {
            *acc = step(simd, *acc, keys, word);
        }
    }
    acc
}

/// Dots of one head's `rest` with the panel's `main`.
#[inline(always)]
pub(super) fn head_rest_dots<S: Simd>(simd: S, panel: &[Lanes], words: &[(u32, i32)]) -> i32x16<S> {
    let mut acc = i32x16::splat(simd, 0);
    for &(position, word) in words {
        acc = step(simd, acc, load(simd, &panel[position as usize]), word);
    }
    acc
}

/// Dots of one head's `rest` with the panel's `rest`: the positions both of them have.
#[inline(always)]
pub(super) fn rest_rest_dots<S: Simd>(
    simd: S,
    positions: &[u32],
    lanes: &[Lanes],
    words: &[(u32, i32)],
) -> i32x16<S> {
    let mut acc = i32x16::splat(simd, 0);
    let mut keys = positions.iter().zip(lanes).peekable();
    for &(position, word) in words {
        while keys.next_if(|&(&at, _)| at < position).is_some() {}
        if let Some((_, lanes)) = keys.next_if(|&(&at, _)| at == position) {
            acc = step(simd, acc, load(simd, lanes), word);
        }
    }
    acc
}
