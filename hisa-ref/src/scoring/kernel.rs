//! Dots of sixteen keys with groups of query heads: exact `i32` sums of `i16` products.
//!
//! Keys run along the lanes, heads are broadcast, so no lane ever has to be added to another. The
//! row rule of `limbs.rs` keeps every partial sum within `i32`.

use super::keys::Lanes;
use super::row::GROUP;
use fearless_simd::{Simd, SimdBase, SimdIntWiden, i16x32, i32x16, prelude::*};

/// `acc + keys . word`, the word being two values of one head.
#[inline(always)]
fn step<S: Simd>(simd: S, acc: i32x16<S>, keys: i16x32<S>, word: i32) -> i32x16<S> {
    let head: i16x32<S> = i32x16::splat(simd, word).bitcast();
    acc + keys.pairwise_dot_product(head)
}

#[inline(always)]
fn load<S: Simd>(simd: S, lanes: &Lanes) -> i16x32<S> {
    i32x16::simd_from(simd, lanes.0).bitcast()
}

/// Dots of sixteen keys with `HEADS` heads of a group, from head `first` on; both are multiples
/// of four. `keys` and `heads` run over the same positions.
#[inline(always)]
pub(super) fn dots<'a, S: Simd, const HEADS: usize>(
    simd: S,
    keys: &[Lanes],
    heads: impl Iterator<Item = &'a [i32; GROUP]>,
    first: usize,
    out: &mut [Lanes; GROUP],
) {
    let mut acc = [i32x16::splat(simd, 0); HEADS];
    for (keys, words) in keys.iter().zip(heads) {
        let keys = load(simd, keys);
        for i in 0..HEADS {
            acc[i] = step(simd, acc[i], keys, words[(first + i) % GROUP]);
        }
    }
    for (i, acc) in acc.into_iter().enumerate() {
        out[(first + i) % GROUP] = Lanes(acc.into());
    }
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
