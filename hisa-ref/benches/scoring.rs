//! Speed of the scoring rule (SPEC S): exact scores against the inexact f32 formula.
//!
//! `cargo bench -p hisa-ref --bench scoring` runs the criterion groups. With `-- --ratio` it
//! prints a table instead: both ways take turns in one run, on one and on two threads, so that a
//! noisy machine disturbs both alike. Every result is validated before anything is timed.
#![allow(unsafe_code, reason = "gemm takes raw pointers")]
#![allow(clippy::print_stdout, reason = "the table is the output")]
#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up must not run"
)]

use criterion::{Criterion, Throughput};
use fearless_simd::{Level, dispatch};
use gemm::{Parallelism, gemm};
use hisa_ref::scoring::{PackedKeys, PackedRow, scalar};
use hisa_ref::{E4M3, Keys, Overflow, Queries, Strictness};
use ndarray::{Array1, Array2, Array3};
use rayon::prelude::*;
use std::hint::black_box;
use std::time::Instant;

const HEADS: usize = 64;
const HEAD_DIM: usize = 128;
/// Keys that a row of config A scores: 64 blocks of 128.
const KEYS: usize = 8192;
/// Rows per round of the table.
const ROWS: usize = 32;
/// Rounds of the table.
const ROUNDS: usize = 25;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Normal numbers cast to e4m3.
    Plain,
    /// Rows scaled so that their largest magnitude is 448, as `quantize` leaves them.
    Amax,
}

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }

    fn row(&mut self, kind: Kind, d: usize) -> Vec<E4M3> {
        let values: Vec<f32> = (0..d).map(|_| self.normal()).collect();
        let amax = values
            .iter()
            .map(|x| x.abs())
            .reduce(|a, b| if a > b { a } else { b });
        let scale = if kind == Kind::Amax {
            amax.unwrap_or(1.0) / 448.0
        } else {
            1.0
        };
        values
            .iter()
            .map(|x| E4M3::encode(x / scale, Overflow::Saturating))
            .collect()
    }
}

struct Tensors {
    q: Array3<E4M3>,
    weights: Array2<f32>,
    k: Array2<E4M3>,
    scales: Array1<f32>,
}

impl Tensors {
    fn new(kind: Kind, [m, n, h, d]: [usize; 4]) -> Self {
        let mut random = Random(7);
        let mut codes =
            |rows: usize| -> Vec<E4M3> { (0..rows).flat_map(|_| random.row(kind, d)).collect() };
        let (q, k) = (codes(m * h), codes(n));
        Self {
            q: Array3::from_shape_vec((m, h, d), q).unwrap(),
            k: Array2::from_shape_vec((n, d), k).unwrap(),
            weights: Array2::from_shape_fn((m, h), |_| random.normal()),
            scales: Array1::from_shape_fn(n, |_| random.unit() + 0.5),
        }
    }

    fn queries(&self) -> Queries<'_> {
        Queries::new(self.q.view(), self.weights.view(), Strictness::Strict).unwrap()
    }

    fn keys(&self) -> Keys<'_> {
        Keys::new(self.k.view(), self.scales.view(), Strictness::Strict).unwrap()
    }
}

/// Exact scores of every row against every key, query-major, packing of rows included.
fn exact(queries: &Queries<'_>, keys: &PackedKeys<'_>, out: &mut [f32]) {
    let rows = out.par_chunks_exact_mut(keys.len()).enumerate();
    rows.for_each_init(PackedRow::default, |packed, (row, out)| {
        packed.pack(queries, row).unwrap();
        keys.score(packed, 0..out.len(), out).unwrap();
    });
}

/// How the inexact formula is cut into matrix products.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Keys per product.
    keys: usize,
    /// Query rows per product.
    rows: usize,
    /// Keys of a product stored [D][keys] rather than [keys][D].
    transposed: bool,
    /// The product itself runs on all threads, rather than one product on each.
    inside: bool,
}

/// Operands of the f32 formula, converted beforehand.
struct Inexact<'a> {
    q: Vec<f32>,
    k: Vec<f32>,
    tensors: &'a Tensors,
    plan: Plan,
}

impl<'a> Inexact<'a> {
    fn new(tensors: &'a Tensors, plan: Plan) -> Self {
        let q = tensors.q.iter().map(|x| x.to_f32()).collect();
        let mut k: Vec<f32> = tensors.k.iter().map(|x| x.to_f32()).collect();
        if plan.transposed {
            for block in k.chunks_exact_mut(plan.keys * HEAD_DIM) {
                let rows = Array2::from_shape_vec((plan.keys, HEAD_DIM), block.to_vec()).unwrap();
                block
                    .iter_mut()
                    .zip(rows.t())
                    .for_each(|(to, from)| *to = *from);
            }
        }
        Self {
            q,
            k,
            tensors,
            plan,
        }
    }

    /// Scores of every row against every key.
    fn run(&self, out: &mut [f32]) {
        let Plan {
            keys, rows, inside, ..
        } = self.plan;
        let n = self.tensors.scales.len();
        let groups = out.chunks_exact_mut(rows * n).enumerate();
        let product = || vec![0.0; keys * rows * HEADS];
        if inside {
            let mut c = product();
            groups.for_each(|(group, out)| self.group(group, &mut c, out));
        } else {
            let groups: Vec<_> = groups.collect();
            let groups = groups.into_par_iter();
            groups.for_each_init(product, |c, (group, out)| self.group(group, c, out));
        }
    }

    /// One group of rows against all keys.
    fn group(&self, group: usize, c: &mut [f32], out: &mut [f32]) {
        let Plan { keys, rows, .. } = self.plan;
        let n = self.tensors.scales.len();
        let q = &self.q[group * rows * HEADS * HEAD_DIM..][..rows * HEADS * HEAD_DIM];
        for (block, k) in self.k.chunks_exact(keys * HEAD_DIM).enumerate() {
            self.product(k, q, c);
            let scales = &self.tensors.scales.as_slice().unwrap()[block * keys..][..keys];
            for (row, c) in c.chunks_exact(keys * HEADS).enumerate() {
                let weights = self.tensors.weights.row(group * rows + row);
                let out = &mut out[row * n + block * keys..][..keys];
                let weights = weights.to_slice().unwrap();
                dispatch!(Level::new(), _ => sum_heads(c, weights, scales, out));
            }
        }
    }

    /// `c` [heads][keys] = `q` [heads][D] times `k`.
    fn product(&self, k: &[f32], q: &[f32], c: &mut [f32]) {
        let Plan {
            keys,
            rows,
            transposed,
            inside,
        } = self.plan;
        let (m, n, d) = (keys as isize, rows * HEADS, HEAD_DIM as isize);
        assert!(k.len() == keys * HEAD_DIM && q.len() == n * HEAD_DIM && c.len() == keys * n);
        let (column, row) = if transposed { (m, 1) } else { (1, d) };
        let parallelism = if inside {
            Parallelism::Rayon(0)
        } else {
            Parallelism::None
        };
        // SAFETY: dst is `keys` by `n` with strides 1 and `keys`; lhs `keys` by D and rhs D by `n`
        // with the strides given: the lengths asserted above.
        unsafe {
            gemm(
                keys,
                n,
                HEAD_DIM,
                c.as_mut_ptr(),
                m,
                1,
                false,
                k.as_ptr(),
                column,
                row,
                q.as_ptr(),
                d,
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

/// ReLU, weighted sum over heads, scale; `c` is [heads][keys].
#[inline(always)]
fn sum_heads(c: &[f32], weights: &[f32], scales: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (c, &weight) in c.chunks_exact(out.len()).zip(weights) {
        for (out, &c) in out.iter_mut().zip(c) {
            *out += weight * if c > 0.0 { c } else { 0.0 };
        }
    }
    out.iter_mut()
        .zip(scales)
        .for_each(|(out, scale)| *out *= scale);
}

/// Exact scores carry the bits of the definition (a sample of them), inexact ones come near.
fn validate(tensors: &Tensors, exact: &[f32], inexact: &[f32]) {
    let (queries, keys) = (tensors.queries(), tensors.keys());
    let n = keys.len();
    for at in (0..exact.len()).step_by(997) {
        let (row, key) = (at / n, at % n);
        let (codes, weights) = (queries.row(row), queries.row_weights(row));
        let want = scalar::score(codes, weights, keys.key(key), keys.scales()[key]);
        let size = scalar::magnitude(codes, weights, keys.key(key), keys.scales()[key]) as f32;
        assert_eq!(exact[at].to_bits(), want.to_bits(), "row {row}, key {key}");
        assert!(
            (inexact[at] - want).abs() <= 1e-4 * size,
            "row {row}, key {key}"
        );
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

/// The fastest way to cut the inexact formula on the current thread pool.
fn best_plan(tensors: &Tensors, out: &mut [f32]) -> Plan {
    let mut plans = Vec::new();
    for keys in [128, 256, 512, 1024, 2048] {
        for rows in [1, 4, 16] {
            for (transposed, inside) in [(false, false), (true, false), (false, true), (true, true)]
            {
                plans.push(Plan {
                    keys,
                    rows,
                    transposed,
                    inside,
                });
            }
        }
    }
    let timed = plans.into_iter().map(|plan| {
        let inexact = Inexact::new(tensors, plan);
        let times = (0..4).map(|_| seconds(|| inexact.run(out)));
        (
            times.fold(f64::INFINITY, |a, b| if a < b { a } else { b }),
            plan,
        )
    });
    timed
        .min_by(|a, b| a.0.partial_cmp(&b.0).unwrap())
        .unwrap()
        .1
}

/// Best and median GMAC/s of either way, and the median of the ratios of neighbouring runs.
fn ratio(kind: Kind, threads: usize) {
    let tensors = Tensors::new(kind, [ROWS, KEYS, HEADS, HEAD_DIM]);
    let (queries, keys) = (tensors.queries(), tensors.keys());
    let packed = PackedKeys::new(&keys);
    let (mut scores, mut approximate) = (vec![0.0; ROWS * KEYS], vec![0.0; ROWS * KEYS]);
    let gmac = (ROWS * KEYS * HEADS * HEAD_DIM) as f64 / 1e9;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    let (plan, times) = pool.install(|| {
        let plan = best_plan(&tensors, &mut approximate);
        let inexact = Inexact::new(&tensors, plan);
        exact(&queries, &packed, &mut scores);
        inexact.run(&mut approximate);
        validate(&tensors, &scores, &approximate);
        let round = |_| {
            let exact = seconds(|| exact(&queries, &packed, black_box(&mut scores)));
            [exact, seconds(|| inexact.run(black_box(&mut approximate)))]
        };
        (plan, (0..ROUNDS).map(round).collect::<Vec<_>>())
    });
    let rates = |way: usize| -> Vec<f64> { times.iter().map(|t| gmac / t[way]).collect() };
    let best = |way| {
        rates(way)
            .into_iter()
            .fold(0.0, |a: f64, b| if a > b { a } else { b })
    };
    println!(
        "{:>5} {threads:>7} {:>11.1} {:>12.1} {:>12.1} {:>14.1} {:>7.2}   {plan:?}",
        format!("{kind:?}").to_lowercase(),
        best(0),
        median(rates(0)),
        best(1),
        median(rates(1)),
        median(times.iter().map(|t| t[1] / t[0]).collect()),
    );
}

/// Config A's token scores: 1024 rows, each against 64 of the 512 blocks of 128 keys.
fn config_a(kind: Kind, threads: usize) {
    let (rows, n, block) = (1024, 65_536, 128);
    let tensors = Tensors::new(kind, [rows, n, HEADS, HEAD_DIM]);
    let (queries, keys) = (tensors.queries(), tensors.keys());
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    let gmac = (rows * KEYS * HEADS * HEAD_DIM) as f64 / 1e9;
    let mut out = vec![0.0; rows * KEYS];
    let mut times = Vec::new();
    for _ in 0..5 {
        let mut packed = None;
        let packing = seconds(|| packed = Some(pool.install(|| PackedKeys::new(&keys))));
        let packed = packed.unwrap();
        let work = || {
            let rows = out.par_chunks_exact_mut(KEYS).enumerate();
            rows.for_each_init(PackedRow::default, |buffer, (row, out)| {
                buffer.pack(&queries, row).unwrap();
                for (slot, out) in out.chunks_exact_mut(block).enumerate() {
                    let start = (slot * 8 + (row * 5 + slot * 3) % 8) * block;
                    packed.score(buffer, start..start + block, out).unwrap();
                }
            });
        };
        times.push((seconds(|| pool.install(work)), packing));
    }
    times.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap());
    println!(
        "{:>5} {threads:>7} {:>11.1} {:>12.1} {:>22.1}",
        format!("{kind:?}").to_lowercase(),
        gmac / times[0].0,
        gmac / times[2].0,
        times
            .iter()
            .map(|t| t.1)
            .fold(1.0, |a, b| if a < b { a } else { b })
            * 1e3,
    );
}

fn table() {
    println!("GMAC/s of whole scores, H = 64, D = 128; {ROUNDS} interleaved rounds");
    println!("codes threads  exact best exact median inexact best inexact median   ratio");
    for threads in [1, 2] {
        for kind in [Kind::Plain, Kind::Amax] {
            ratio(kind, threads);
        }
    }
    println!("config A, 1024 rows x 8192 of 65536 keys, five runs");
    println!("codes threads  exact best exact median  key packing, best, ms");
    for threads in [1, 2] {
        for kind in [Kind::Plain, Kind::Amax] {
            config_a(kind, threads);
        }
    }
}

fn benches(criterion: &mut Criterion) {
    for kind in [Kind::Plain, Kind::Amax] {
        let tensors = Tensors::new(kind, [1, KEYS, HEADS, HEAD_DIM]);
        let (queries, keys) = (tensors.queries(), tensors.keys());
        let (packed, mut row) = (PackedKeys::new(&keys), PackedRow::default());
        let mut out = vec![0.0; KEYS];
        exact(&queries, &packed, &mut out);
        validate(&tensors, &out, &out);
        let mut group = criterion.benchmark_group(format!("scoring/{kind:?}").to_lowercase());
        group.throughput(Throughput::Elements((KEYS * HEADS * HEAD_DIM) as u64));
        row.pack(&queries, 0).unwrap();
        group.bench_function("row", |b| b.iter(|| packed.score(&row, 0..KEYS, &mut out)));
        group.throughput(Throughput::Elements((HEADS * HEAD_DIM) as u64));
        group.bench_function("pack row", |b| b.iter(|| row.pack(&queries, 0)));
        group.throughput(Throughput::Elements((KEYS * HEAD_DIM) as u64));
        group.bench_function("pack keys", |b| b.iter(|| PackedKeys::new(&keys).len()));
        group.finish();
    }
    let tensors = Tensors::new(Kind::Amax, [32, 32, 4, 32]);
    let (queries, keys) = (tensors.queries(), tensors.keys());
    let mut out = vec![0.0; 32 * 32];
    let mut row = PackedRow::default();
    criterion.bench_function("scoring/tiny 32x32 H=4 D=32, packing included", |b| {
        b.iter(|| {
            let packed = PackedKeys::new(&keys);
            for (at, out) in out.chunks_exact_mut(32).enumerate() {
                row.pack(&queries, at).unwrap();
                packed.score(&row, 0..32, out).unwrap();
            }
        });
    });
}

fn main() {
    if std::env::args().any(|argument| argument == "--ratio") {
        return table();
    }
    let mut criterion = Criterion::default().configure_from_args();
    benches(&mut criterion);
    criterion.final_summary();
}
