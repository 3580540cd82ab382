//! Speed of the reference on this machine's processor, validated before it is timed.
//!
//! Configuration A: the last 1024 rows of a causal sequence of 65,536 keys at H = 64, D = 128,
//! B = 128, m = 64, K = 2048. The comparison with an inexact f32 matrix product needs a raw-pointer
//! API and lives in `cargo bench -p hisa-ref --bench scoring -- --ratio`.

use crate::generate::stream::{Lane, Stream};
use hisa_ref::scoring::{PackedKeys, PackedRow, scalar};
use hisa_ref::stages::quantize::{self, QuantizeOptions, ScaleFormat};
use hisa_ref::stages::{
    block_mask, block_pool, block_scores, block_topk, index_map, token_scores, token_topk,
};
use hisa_ref::{
    E4M3, HisaParams, IndexerInput, Overflow, Rank, Result, Strictness, Window, Windows, hisa,
};
use ndarray::{Array1, Array2, Array3, Axis};
use rayon::prelude::*;
use std::time::Instant;

/// Query rows of configuration A.
pub const ROWS: usize = 1024;
/// Keys of configuration A.
pub const KEYS: usize = 65_536;
const HEADS: usize = 64;
const HEAD_DIM: usize = 128;

/// What the codes of a benchmark look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Normal numbers cast to e4m3.
    Plain,
    /// Normal numbers quantised row by row, so that each row's largest magnitude is 448.
    Quantised,
}

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Best of all rounds.
    pub best: f64,
    /// Median of all rounds.
    pub median: f64,
    /// Unit of both.
    pub unit: &'static str,
}

/// Inputs of a benchmark.
#[derive(Debug)]
pub struct Arrays {
    q: Array3<E4M3>,
    k: Array2<E4M3>,
    k_scale: Array1<f32>,
    weights: Array2<f32>,
    windows: Windows,
}

impl Arrays {
    /// The last `rows` rows of a causal sequence of `keys` keys.
    ///
    /// # Errors
    /// None for `rows <= keys`.
    pub fn new(data: Data, [rows, keys, h, d]: [usize; 4]) -> Result<Self> {
        let (q, _) = codes(data, Lane::Q, rows * h, d)?;
        let (k, k_scale) = codes(data, Lane::K, keys, d)?;
        let mut weights = Stream::new(3, Lane::Weight, 0);
        let first = keys - rows;
        let windows = (0..rows).map(|row| Window {
            ks: 0,
            ke: (first + row + 1) as i32,
        });
        Ok(Self {
            q: Array3::from_shape_fn((rows, h, d), |(row, head, at)| q[(row * h + head, at)]),
            k,
            k_scale,
            weights: Array2::from_shape_simple_fn((rows, h), || weights.bell()),
            windows: Windows::new(windows.collect(), keys)?,
        })
    }

    /// As the reference takes them.
    ///
    /// # Errors
    /// None for arrays of [`Self::new`].
    pub fn input(&self) -> Result<IndexerInput<'_>> {
        let (q, k) = (self.q.view(), self.k.view());
        let (scales, weights) = (self.k_scale.view(), self.weights.view());
        IndexerInput::new(
            q,
            k,
            scales,
            weights,
            self.windows.clone(),
            Strictness::Strict,
        )
    }
}

fn codes(data: Data, lane: Lane, rows: usize, d: usize) -> Result<(Array2<E4M3>, Array1<f32>)> {
    let mut stream = Stream::new(7, lane, 0);
    let x = Array2::from_shape_simple_fn((rows, d), || stream.bell());
    let options = QuantizeOptions {
        format: ScaleFormat::F32,
        overflow: Overflow::Saturating,
        strictness: Strictness::Strict,
    };
    match data {
        Data::Quantised => {
            let quantised = quantize::run(x.view(), options)?;
            Ok((quantised.codes, quantised.scale))
        }
        Data::Plain => {
            let codes = x.mapv(|x| E4M3::encode(x, Overflow::Saturating));
            let scales = Array1::from_shape_simple_fn(rows, || 0.5 + 0.01 * stream.bell().abs());
            Ok((codes, scales))
        }
    }
}

fn figure(what: &str, unit: &'static str, mut rates: Vec<f64>, higher_is_better: bool) -> Figure {
    rates.sort_by(f64::total_cmp);
    let (low, high) = (rates[0], rates[rates.len() - 1]);
    let best = if higher_is_better { high } else { low };
    Figure {
        what: what.to_owned(),
        best,
        median: rates[rates.len() / 2],
        unit,
    }
}

/// Seconds that each of `rounds` calls takes, after one that is not counted.
fn seconds(rounds: usize, mut call: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    call()?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// `hisa` end to end at configuration A, in seconds.
///
/// # Errors
/// What the reference refuses: nothing here.
pub fn end_to_end(arrays: &Arrays, rounds: usize) -> Result<Figure> {
    let params = HisaParams::DEEPSEEK_V32;
    let input = arrays.input()?;
    let times = seconds(rounds, || hisa::run(&input, &params).map(drop))?;
    Ok(figure("hisa end to end, config A", "s", times, false))
}

/// Exact scores of every row against 8192 keys, packing included, in GMAC/s.
///
/// # Errors
/// What the reference refuses: nothing here.
pub fn scoring(arrays: &Arrays, rounds: usize) -> Result<Figure> {
    let input = arrays.input()?;
    let (queries, keys) = (input.queries(), input.keys());
    let range = KEYS - 8192..KEYS;
    let mut scores = vec![0.0f32; ROWS * range.len()];
    let times = seconds(rounds, || {
        let packed = PackedKeys::new(keys);
        let rows = scores.par_chunks_exact_mut(range.len()).enumerate();
        rows.try_for_each_init(PackedRow::default, |row_buffer, (row, out)| {
            row_buffer.pack(queries, row)?;
            packed.score(row_buffer, range.clone(), out)
        })
    })?;
    let macs = (ROWS * range.len() * HEADS * HEAD_DIM) as f64;
    let rates = times.iter().map(|seconds| macs / seconds / 1e9).collect();
    Ok(figure("exact scoring, 1024 x 8192", "GMAC/s", rates, true))
}

/// True where spot-checked fast scores and indices equal the scalar definitions.
///
/// # Errors
/// What the reference refuses: nothing here.
pub fn validate(arrays: &Arrays) -> Result<bool> {
    let input = arrays.input()?;
    let (queries, keys) = (input.queries(), input.keys());
    let packed = PackedKeys::new(keys);
    let mut buffer = PackedRow::default();
    let mut scores = vec![0.0f32; KEYS];
    for row in [0, ROWS / 2, ROWS - 1] {
        buffer.pack(queries, row)?;
        packed.score(&buffer, 0..KEYS, &mut scores)?;
        let exact = |key: usize| {
            let (q, w) = (queries.row(row), queries.row_weights(row));
            scalar::score(q, w, keys.key(key), keys.scales()[key])
        };
        let same = |key: usize| scores[key].to_bits() == exact(key).to_bits();
        if !(0..KEYS).step_by(31).all(same) {
            return Ok(false);
        }
    }
    let params = HisaParams::DEEPSEEK_V32;
    let few = Arrays {
        q: arrays.q.select(Axis(0), &[0, ROWS - 1]),
        weights: arrays.weights.select(Axis(0), &[0, ROWS - 1]),
        windows: Windows::new(
            [0, ROWS - 1].map(|row| arrays.windows.rows()[row]).to_vec(),
            KEYS,
        )?,
        k: arrays.k.clone(),
        k_scale: arrays.k_scale.clone(),
    };
    let staged = hisa::trace(&few.input()?, &params)?.indices;
    Ok(hisa::run(&few.input()?, &params)? == staged)
}

/// Small cases through all eight stages on the calling thread, in cases per second: M and N
/// below 64, H up to 4, D up to 64.
///
/// # Errors
/// What the reference refuses: nothing here.
pub fn small_cases(rounds: usize) -> Result<Figure> {
    let mut sizes = Stream::new(11, Lane::Q, 0);
    let mut size = |below: u32| sizes.below(below) as usize;
    let mut cases = Vec::new();
    for _ in 0..512 {
        let keys = 1 + size(63);
        let rows = 1 + size(keys as u32);
        let shape = [rows, keys, 1 + size(4), [16, 32, 64][size(3)]];
        cases.push((
            Arrays::new(Data::Plain, shape)?,
            Array2::ones((rows, shape[3])),
        ));
    }
    let options = QuantizeOptions {
        format: ScaleFormat::F32,
        overflow: Overflow::Saturating,
        strictness: Strictness::Strict,
    };
    let times = seconds(rounds, || {
        for (arrays, x) in &cases {
            quantize::run(x.view(), options)?;
            all_stages(&arrays.input()?)?;
        }
        Ok(())
    })?;
    let rates = times
        .iter()
        .map(|seconds| cases.len() as f64 / seconds)
        .collect();
    Ok(figure(
        "small cases, eight stages, one thread",
        "cases/s",
        rates,
        true,
    ))
}

fn all_stages(input: &IndexerInput<'_>) -> Result<()> {
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    let (b, m, k) = (8, 4, 16);
    let pooled = block_pool::run(keys, b)?;
    let mut scores = block_scores::run(queries, &pooled.as_keys()?, windows, b)?;
    block_mask::run(&mut scores, windows, b)?;
    let ids = block_topk::run(scores.view(), windows, b, m, Rank::Bf16)?;
    let tokens = token_scores::run(queries, keys, windows, ids.view(), b)?;
    let slots = token_topk::run(tokens.view(), ids.view(), windows, b, k)?;
    index_map::run(slots.view(), ids.view(), windows, b).map(drop)
}

/// Largest memory this process has held, in bytes, where the system tells.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
