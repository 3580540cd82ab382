//! The pooled cache: any history of appends, overwrites and roll-backs equals pooling once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Case, KINDS, Numbers};
use hisa_ref::error::{Error, ParamError};
use hisa_ref::incremental::PooledCache;
use hisa_ref::stages::block_pool::{self, Pooled};
use hisa_ref::{E4M3, Keys, Strictness};
use ndarray::{Array1, Array2, Axis, Slice};

fn keys<'a>(k: &'a Array2<E4M3>, s: &'a Array1<f32>, range: std::ops::Range<usize>) -> Keys<'a> {
    let slice = Slice::from(range);
    let (k, s) = (k.slice_axis(Axis(0), slice), s.slice_axis(Axis(0), slice));
    Keys::new(k, s, Strictness::Permissive).unwrap()
}

fn assert_same(got: &Pooled, expected: &Pooled, label: &str) {
    assert_eq!(got.codes, expected.codes, "{label}");
    let bits = |pooled: &Pooled| {
        pooled
            .scales
            .iter()
            .map(|s| s.to_bits())
            .collect::<Vec<_>>()
    };
    assert_eq!(bits(got), bits(expected), "{label}");
}

/// SPEC 9.5.
#[test]
fn every_split_in_two_gives_the_same_bytes() {
    for kind in KINDS {
        let case = Case::new(7, 0, 23, 1, 8, kind);
        for b in [1, 2, 3, 4, 7, 23, 40] {
            let whole = block_pool::run(&keys(&case.k, &case.k_scale, 0..23), b).unwrap();
            for at in 0..=23 {
                let mut cache = PooledCache::new(b, 8).unwrap();
                assert!(cache.is_empty());
                cache.append(&keys(&case.k, &case.k_scale, 0..at)).unwrap();
                cache.append(&keys(&case.k, &case.k_scale, at..23)).unwrap();
                assert_eq!(cache.len(), 23);
                assert_same(
                    &cache.pooled(),
                    &whole,
                    &format!("{kind:?} B={b} split at {at}"),
                );
            }
        }
    }
}

/// SPEC 9.5.
#[test]
fn random_histories_equal_pooling_what_is_held() {
    for seed in 0..300u64 {
        let mut r = Numbers(seed);
        let kind = KINDS[seed as usize % 4];
        let (b, d) = (1 + r.below(9), 1 + r.below(9));
        let source = Case::new(seed, 0, 64, 1, d, kind);
        let mut cache = PooledCache::new(b, d).unwrap();
        // The model: which source key is held at each position.
        let mut held: Vec<usize> = Vec::new();
        for step in 0..12 {
            let from = r.below(64);
            let count = r.below(20).min(64 - from);
            let chunk = keys(&source.k, &source.k_scale, from..from + count);
            match r.below(4) {
                0 => {
                    let len = r.below(held.len() + 1);
                    held.truncate(len);
                    cache.truncate(len).unwrap();
                }
                1 => {
                    let at = r.below(held.len() + 1);
                    held.resize(held.len().max(at + count), 0);
                    for (i, slot) in held[at..at + count].iter_mut().enumerate() {
                        *slot = from + i;
                    }
                    cache.write(at, &chunk).unwrap();
                }
                _ => {
                    held.extend(from..from + count);
                    cache.append(&chunk).unwrap();
                }
            }
            let (k, s) = (
                source.k.select(Axis(0), &held),
                source.k_scale.select(Axis(0), &held),
            );
            let expected = block_pool::run(&keys(&k, &s, 0..held.len()), b).unwrap();
            assert_eq!(cache.len(), held.len());
            assert_same(
                &cache.pooled(),
                &expected,
                &format!("seed {seed} step {step} B={b}"),
            );
        }
    }
}

/// SPEC V.10.
#[test]
fn refusals_change_nothing() {
    let case = Case::new(1, 0, 6, 1, 4, common::Kind::Plain);
    let mut cache = PooledCache::new(4, 4).unwrap();
    cache.append(&keys(&case.k, &case.k_scale, 0..6)).unwrap();
    let before = cache.clone();
    let position = |error: Error| match error {
        Error::Param(ParamError::CachePosition {
            what,
            position,
            len,
        }) => (what, position, len),
        other => panic!("{other}"),
    };
    assert_eq!(
        position(cache.truncate(7).unwrap_err()),
        ("roll-back length", 7, 6)
    );
    let chunk = keys(&case.k, &case.k_scale, 0..1);
    assert_eq!(
        position(cache.write(7, &chunk).unwrap_err()),
        ("write position", 7, 6)
    );
    let narrow = Case::new(1, 0, 6, 1, 3, common::Kind::Plain);
    let error = cache
        .append(&keys(&narrow.k, &narrow.k_scale, 0..6))
        .unwrap_err();
    assert!(error.to_string().contains("[6, 3]"), "{error}");
    assert_eq!(cache, before);
    assert!(PooledCache::new(0, 4).is_err() && PooledCache::new(4, 0).is_err());
    assert!(PooledCache::new(4, 1 << 20).is_err());
}
