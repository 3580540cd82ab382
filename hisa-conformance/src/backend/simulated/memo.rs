//! Dots that were taken before: a case asks for the same ones in every relation.

use super::{Rule, digest};
use hisa_ref::E4M3;
use std::collections::HashMap;

/// Dots by what they are dots of.
#[derive(Debug, Default)]
pub(super) struct Memo {
    dots: HashMap<[u64; 4], Vec<f32>>,
}

/// Entries kept before all are dropped.
const ENTRIES_MAX: usize = 1 << 18;

/// A rule, and what it computed so far.
#[derive(Debug)]
pub(super) struct Scorer<'a> {
    pub(super) rule: Rule,
    pub(super) memo: &'a mut Memo,
}

/// A row of queries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query<'a> {
    q: &'a [E4M3],
    weights: &'a [f32],
    name: [u64; 2],
}

impl<'a> Query<'a> {
    pub(super) fn new(q: &'a [E4M3], weights: &'a [f32]) -> Self {
        Self {
            q,
            weights,
            name: name(q),
        }
    }
}

impl Scorer<'_> {
    /// The score of a query row and a key.
    pub(super) fn score(&mut self, query: Query<'_>, key: &[E4M3], scale: f32) -> f32 {
        let of_key = name(key);
        let seed = query.name[0].wrapping_add(of_key[0]);
        if self.memo.dots.len() >= ENTRIES_MAX {
            self.memo.dots.clear();
        }
        let both = [query.name[0], query.name[1], of_key[0], of_key[1]];
        let rule = self.rule;
        let dots = self.memo.dots.entry(both);
        let dots = dots.or_insert_with(|| rule.dots(query.q, key, seed));
        rule.score(dots, query.weights, scale, seed)
    }
}

/// 128 bits that stand for some codes.
fn name(codes: &[E4M3]) -> [u64; 2] {
    let bytes = codes.iter().map(|code| u64::from(code.to_bits()));
    let other = bytes.fold(codes.len() as u64, |hash: u64, byte| {
        (hash.rotate_left(5) ^ byte).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    [digest(codes), other]
}
