//! The fast path against the definition, bit for bit, at every SIMD level this machine has.

mod cases;

use super::engine::score_keys;
use super::keys::PackedKeys;
use super::row::PackedRow;
use super::scalar;
use crate::fp8::E4M3;
use crate::input::Queries;
use cases::{Case, Codes, FACTORS, Factors, KINDS, Random, Shape, case, encode, make};
use fearless_simd::Level;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::ops::Range;

/// The best level of this machine, every weaker one, and no SIMD at all.
fn levels() -> Vec<Level> {
    #[allow(
        unused_mut,
        reason = "levels between best and fallback exist on x86 only"
    )]
    let mut levels = vec![Level::new(), Level::baseline(), Level::fallback()];
    #[cfg(target_arch = "x86_64")]
    {
        levels.extend(Level::new().as_avx2().map(Level::Avx2));
        levels.extend(Level::new().as_sse4_2().map(Level::Sse4_2));
        levels.extend(Level::new().as_sse2().map(Level::Sse2));
    }
    levels
}

/// Every score of every row over `range`, at every level.
fn check(case: &Case, range: Range<usize>, what: &dyn Fn() -> String) {
    let (queries, raw) = (case.queries(), case.keys());
    for level in levels() {
        let keys = PackedKeys::at(level, &raw);
        let mut packed = PackedRow::default();
        for row in 0..queries.len() {
            packed.pack_at(level, &queries, row);
            let mut out = vec![-7.0; range.len()];
            score_keys(&packed, &keys, range.clone(), &mut out);
            let (codes, weights) = (queries.row(row), queries.row_weights(row));
            for (key, got) in range.clone().zip(out) {
                let want = scalar::score(codes, weights, raw.key(key), raw.scales()[key]);
                assert!(
                    got.to_bits() == want.to_bits(),
                    "{}, row {row}, key {key}, {level:?}: {got:e} {:#010x} for {want:e} {:#010x}",
                    what(),
                    got.to_bits(),
                    want.to_bits(),
                );
            }
        }
    }
}

fn check_all(seed: u64, shape: Shape, kinds: &[(Codes, Codes)], factors: &[Factors]) {
    for (i, &(q, k)) in kinds.iter().enumerate() {
        for (j, &factors) in factors.iter().enumerate() {
            let case = case(seed + 16 * i as u64 + j as u64, shape, q, k, factors);
            check(&case, 0..shape.keys, &|| {
                format!("{shape:?} {q:?} {k:?} {factors:?}")
            });
        }
    }
}

fn every_pair() -> Vec<(Codes, Codes)> {
    KINDS
        .iter()
        .flat_map(|&q| KINDS.iter().map(move |&k| (q, k)))
        .collect()
}

#[test]
fn profile_shape() {
    let shape = Shape {
        rows: 1,
        keys: 40,
        heads: 64,
        head_dim: 128,
    };
    check_all(1, shape, &every_pair(), &[Factors::Plain]);
}

/// SPEC S.1.
#[test]
fn every_kind_of_codes_and_factors() {
    let shape = Shape {
        rows: 2,
        keys: 19,
        heads: 5,
        head_dim: 32,
    };
    check_all(2, shape, &every_pair(), &FACTORS);
}

/// SPEC S.1.
#[test]
fn every_shape() {
    for head_dim in [1, 2, 3, 17, 24, 32, 64, 96, 127, 128] {
        for heads in [1, 2, 3, 4, 5, 16, 31, 64] {
            let shape = Shape {
                rows: 2,
                keys: 17,
                heads,
                head_dim,
            };
            let kinds = [(Codes::Amax, Codes::Amax), (Codes::Mixed, Codes::Mixed)];
            check_all(3, shape, &kinds, &[Factors::Plain, Factors::Cancelling]);
        }
    }
}

#[test]
fn rows_longer_than_the_limb_bound_proves() {
    for head_dim in [600, 1500, 4096] {
        let shape = Shape {
            rows: 1,
            keys: 9,
            heads: 3,
            head_dim,
        };
        check_all(4, shape, &every_pair(), &[Factors::Plain]);
    }
}

#[test]
fn ranges_of_any_start_and_length() {
    let shape = Shape {
        rows: 1,
        keys: 70,
        heads: 3,
        head_dim: 24,
    };
    let case = case(5, shape, Codes::Amax, Codes::Any, Factors::Special);
    for start in [0, 1, 15, 16, 17, 33, 69, 70] {
        for end in [0, 1, 14, 16, 31, 33, 48, 69, 70] {
            if start <= end {
                check(&case, start..end, &|| format!("range {start}..{end}"));
            }
        }
    }
}

#[test]
fn scores_can_be_programmed_through_the_scale() {
    let mut random = Random(6);
    let shape = Shape {
        rows: 1,
        keys: 300,
        heads: 1,
        head_dim: 32,
    };
    let mut unit = vec![E4M3::ZERO; 32];
    unit[0] = encode(1.0);
    let mut scales: Vec<f32> = (0..300)
        .map(|_| f32::from_bits(random.word() as u32))
        .collect();
    scales[..6].copy_from_slice(&[f32::MAX, f32::MIN_POSITIVE, 1e-45, -0.0, 0.0, 1e-39]);
    let case = make(shape, &unit, &unit.repeat(300), vec![1.0], scales.clone());
    check(&case, 0..300, &|| "programmed".to_owned());
    let (queries, raw) = (case.queries(), case.keys());
    let (keys, mut row) = (PackedKeys::new(&raw), PackedRow::default());
    row.pack(&queries, 0).unwrap();
    let mut out = vec![0.0; 300];
    keys.score(&row, 0..300, &mut out).unwrap();
    for (score, scale) in out
        .iter()
        .zip(scales)
        .filter(|(_, scale)| scale.is_finite())
    {
        assert_eq!(*score, scale);
    }
}

/// Terms too small for f64 beside the others decide a tie, or are all that is left.
/// SPEC S.1 and V.6.
#[test]
fn roundings_that_f64_cannot_decide() {
    let tiny = 2f32.powi(-60);
    let half_ulp = 2f32.powi(-24);
    for weights in [
        [1.0, half_ulp, tiny],
        [1.0, half_ulp, -tiny],
        [1.0 + f32::EPSILON, half_ulp, -tiny],
        [-1.0, -half_ulp, -tiny],
        [1.0, -1.0, tiny],
        [tiny, 1.0, -1.0],
        [1.0, -1.0, 0.0],
    ] {
        let shape = Shape {
            rows: 1,
            keys: 4,
            heads: 3,
            head_dim: 1,
        };
        let (one, scales) = (encode(1.0), vec![1.0, 0.75, f32::MIN_POSITIVE, f32::MAX]);
        let case = make(shape, &[one; 3], &[one; 4], weights.to_vec(), scales);
        check(&case, 0..4, &|| format!("{weights:?}"));
    }
}

/// Rows whose norms come as close to the limits as they can, with every product of one sign.
/// SPEC S.2.
#[test]
fn largest_dots_do_not_overflow() {
    let (most, least) = (E4M3::from_bits(0x7E), E4M3::from_bits(0xFE));
    for head_dim in (1..=130).chain([255, 256, 1024, 4096, 16_384]) {
        let shape = Shape {
            rows: 1,
            keys: 2,
            heads: 2,
            head_dim,
        };
        let rows = [vec![most; head_dim], vec![least; head_dim]].concat();
        let case = make(shape, &rows, &rows, vec![1.0, -3.0], vec![1.0, 0.3]);
        check(&case, 0..2, &|| format!("D = {head_dim}"));
    }
}

/// A long row of which half sets the shift and the other half is all `rest`, against a key that
/// is large where the `rest` is, and the other way round.
#[test]
fn a_rest_beyond_the_limit_goes_to_the_definition() {
    let half = 2048;
    let shape = Shape {
        rows: 1,
        keys: 2,
        heads: 2,
        head_dim: 2 * half,
    };
    let (large, small) = (E4M3::from_bits(0x7E), encode(1.875));
    let mixed = [vec![large; half], vec![small; half]].concat();
    let other = [vec![E4M3::ZERO; half], vec![large; half]].concat();
    let rows = [mixed, other].concat();
    let case = make(shape, &rows, &rows, vec![1.0, 0.7], vec![1.0, 0.3]);
    check(&case, 0..2, &|| "half a rest".to_owned());
}

/// A buffer that went through rows of other shapes and classes leaves no trace.
#[test]
fn packed_rows_are_reusable() {
    let shapes = [(64, 128), (3, 17), (5, 128), (1, 1), (31, 96)];
    let cases: Vec<Case> = (0..40)
        .map(|i| {
            let (heads, head_dim) = shapes[i % shapes.len()];
            let shape = Shape {
                rows: 1,
                keys: 20,
                heads,
                head_dim,
            };
            let kind = KINDS[i % KINDS.len()];
            case(
                700 + i as u64,
                shape,
                kind,
                Codes::Amax,
                FACTORS[i % FACTORS.len()],
            )
        })
        .collect();
    let queries: Vec<Queries<'_>> = cases.iter().map(Case::queries).collect();
    let mut reused = PackedRow::default();
    for (case, queries) in cases.iter().zip(&queries) {
        let raw = case.keys();
        let keys = PackedKeys::new(&raw);
        let mut fresh = PackedRow::default();
        let mut scores = [[0.0f32; 20]; 2];
        for (row, out) in [&mut reused, &mut fresh].into_iter().zip(&mut scores) {
            row.pack(queries, 0).unwrap();
            keys.score(row, 0..20, out).unwrap();
        }
        let [reused, fresh] = scores.map(|scores| scores.map(f32::to_bits));
        assert_eq!(reused, fresh);
    }
}

#[test]
fn parallel_packing_gives_the_same_scores() {
    let shape = Shape {
        rows: 1,
        keys: 5000,
        heads: 2,
        head_dim: 64,
    };
    let case = case(8, shape, Codes::Amax, Codes::Mixed, Factors::Plain);
    check(&case, 0..5000, &|| "parallel".to_owned());
}

#[test]
fn misuse_is_an_error() {
    let shape = Shape {
        rows: 2,
        keys: 20,
        heads: 2,
        head_dim: 8,
    };
    let case = case(9, shape, Codes::Normal, Codes::Normal, Factors::Plain);
    let (queries, raw) = (case.queries(), case.keys());
    let (keys, mut row) = (PackedKeys::new(&raw), PackedRow::default());
    assert!(row.pack(&queries, 2).is_err());
    assert!(
        keys.score(&row, 0..4, &mut [0.0; 4]).is_err(),
        "nothing packed yet"
    );
    row.pack(&queries, 1).unwrap();
    assert!(keys.score(&row, 18..21, &mut [0.0; 3]).is_err());
    assert!(keys.score(&row, 0..4, &mut [0.0; 3]).is_err());
    assert!(keys.score(&row, 20..20, &mut []).is_ok());
}

fn any_shape() -> impl Strategy<Value = Shape> {
    (1..3usize, 1..50usize, 1..70usize, 1..140usize).prop_map(|(rows, keys, heads, head_dim)| {
        Shape {
            rows,
            keys,
            heads,
            head_dim,
        }
    })
}

#[test]
fn anything_else() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let input = (
        any::<u64>(),
        any_shape(),
        (0..KINDS.len(), 0..KINDS.len(), 0..FACTORS.len()),
        (0.0..1.0f64, 0.0..1.0f64),
    );
    let result = runner.run(&input, |(seed, shape, (q, k, f), (from, to))| {
        let case = case(seed, shape, KINDS[q], KINDS[k], FACTORS[f]);
        let (a, b) = (
            (from * shape.keys as f64) as usize,
            (to * shape.keys as f64) as usize,
        );
        check(&case, a.min(b)..a.max(b), &|| {
            format!("seed {seed} {shape:?}")
        });
        Ok(())
    });
    result.unwrap();
}
