//! The fast path against the definition, bit for bit, at every SIMD level this machine has.

use super::engine::score_keys;
use super::pack::{PackedKeys, PackedRow};
use super::scalar;
use crate::fp8::{E4M3, Overflow};
use crate::input::{Keys, Queries};
use crate::params::Strictness;
use fearless_simd::Level;
use ndarray::{Array1, Array2, Array3};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::ops::Range;

/// SplitMix64: enough randomness for cases that have to be the same on every run.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1 << 24) as f32
    }

    /// Roughly normal: twelve uniform numbers.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.word() as usize % from.len()]
    }
}

/// How the codes of a row come about.
#[derive(Debug, Clone, Copy)]
enum Codes {
    Normal,
    /// Normal, the largest magnitude scaled to 448.
    Amax,
    /// The same with the power of two that is nearest above.
    PowerOfTwo,
    HeavyTail,
    Uniform,
    Zero,
    /// Every value 448 or -448.
    Extreme,
    /// One large value, the others down to the least subnormal: every one a rest.
    Lonely,
    /// Uniform over all codes, NaN among them.
    Any,
    /// Another kind per row.
    Mixed,
}

const KINDS: [Codes; 10] = [
    Codes::Normal,
    Codes::Amax,
    Codes::PowerOfTwo,
    Codes::HeavyTail,
    Codes::Uniform,
    Codes::Zero,
    Codes::Extreme,
    Codes::Lonely,
    Codes::Any,
    Codes::Mixed,
];

fn encode(x: f32) -> E4M3 {
    E4M3::encode(x, Overflow::Saturating)
}

fn fill(random: &mut Random, kind: Codes, row: &mut [E4M3]) {
    match kind {
        Codes::Normal => row.fill_with(|| encode(random.normal())),
        Codes::Amax | Codes::PowerOfTwo => {
            let values: Vec<f32> = row.iter().map(|_| random.normal()).collect();
            let amax = values
                .iter()
                .fold(1e-4, |a: f32, v| if v.abs() > a { v.abs() } else { a });
            let exact = amax / 448.0;
            let scale = if matches!(kind, Codes::Amax) {
                exact
            } else {
                exact.log2().ceil().exp2()
            };
            row.iter_mut()
                .zip(values)
                .for_each(|(code, v)| *code = encode(v / scale));
        }
        Codes::HeavyTail => row.fill_with(|| {
            let size = (random.normal() * 3.0).exp();
            encode(size * random.normal())
        }),
        Codes::Uniform => row.fill_with(|| {
            loop {
                let code = E4M3::from_bits(random.word() as u8);
                if !code.is_nan() {
                    break code;
                }
            }
        }),
        Codes::Zero => row.fill_with(|| E4M3::from_bits(random.pick(&[0x00, 0x80]))),
        Codes::Extreme => row.fill_with(|| E4M3::from_bits(random.pick(&[0x7E, 0xFE]))),
        Codes::Lonely => {
            row.fill_with(|| E4M3::from_bits(random.word() as u8 & 0x9F));
            let at = random.word() as usize % row.len();
            row[at] = E4M3::from_bits(0x7E);
        }
        Codes::Any => row.fill_with(|| E4M3::from_bits(random.word() as u8)),
        Codes::Mixed => {
            let kind = KINDS[random.word() as usize % 8];
            fill(random, kind, row);
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Factors {
    Plain,
    /// Weights in pairs that cancel, powers of two as scales: many sums of zero and exact ties.
    Cancelling,
    /// Subnormal, huge and zero.
    Extreme,
    /// NaN, infinities and negative scales among others.
    Special,
}

const FACTORS: [Factors; 4] = [
    Factors::Plain,
    Factors::Cancelling,
    Factors::Extreme,
    Factors::Special,
];

const SPECIAL: [f32; 8] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    f32::MAX,
    f32::MIN_POSITIVE,
];

fn factor(random: &mut Random, kind: Factors, one_in: usize) -> f32 {
    match kind {
        Factors::Plain => random.normal(),
        Factors::Cancelling => random.pick(&[1.0, -1.0, 0.5, -0.5, 0.25]),
        Factors::Extreme => {
            let tiny = f32::from_bits(random.word() as u32 & 0x007F_FFFF);
            random.pick(&[tiny, -tiny, f32::MAX, 3e38, 1e-38, 0.0, -0.0, 1.0])
        }
        Factors::Special if (random.word() as usize).is_multiple_of(one_in) => {
            random.pick(&SPECIAL)
        }
        Factors::Special => random.normal(),
    }
}

/// The tensors of one case.
struct Case {
    q: Array3<E4M3>,
    weights: Array2<f32>,
    k: Array2<E4M3>,
    scales: Array1<f32>,
}

impl Case {
    fn queries(&self) -> Queries<'_> {
        Queries::new(self.q.view(), self.weights.view(), Strictness::Permissive).unwrap()
    }

    fn keys(&self) -> Keys<'_> {
        Keys::new(self.k.view(), self.scales.view(), Strictness::Permissive).unwrap()
    }
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    keys: usize,
    heads: usize,
    head_dim: usize,
}

fn case(seed: u64, shape: Shape, q: Codes, k: Codes, factors: Factors) -> Case {
    let Shape {
        rows: m,
        keys: n,
        heads: h,
        head_dim: d,
    } = shape;
    let mut random = Random(seed);
    let mut codes = vec![E4M3::ZERO; (m * h + n) * d];
    let (q_codes, k_codes) = codes.split_at_mut(m * h * d);
    q_codes
        .chunks_exact_mut(d)
        .for_each(|row| fill(&mut random, q, row));
    k_codes
        .chunks_exact_mut(d)
        .for_each(|row| fill(&mut random, k, row));
    let weights: Vec<f32> = (0..m * h)
        .map(|_| factor(&mut random, factors, 4 * h))
        .collect();
    let scales: Vec<f32> = (0..n).map(|_| factor(&mut random, factors, 4)).collect();
    make(shape, q_codes, k_codes, weights, scales)
}

fn make(shape: Shape, q: &[E4M3], k: &[E4M3], weights: Vec<f32>, scales: Vec<f32>) -> Case {
    let Shape {
        rows: m,
        keys: n,
        heads: h,
        head_dim: d,
    } = shape;
    Case {
        q: Array3::from_shape_vec((m, h, d), q.to_vec()).unwrap(),
        weights: Array2::from_shape_vec((m, h), weights).unwrap(),
        k: Array2::from_shape_vec((n, d), k.to_vec()).unwrap(),
        scales: Array1::from_vec(scales),
    }
}

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
