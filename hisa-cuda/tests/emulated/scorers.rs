//! The scoring rule, in both arithmetics, as block_scores, token_scores and the flat indexer.

use crate::emulator::{AMPERE, Arg, Launch, Unit, have_compiler, input, output};
use crate::selection::kernel_tests;
use crate::values::{Draw, Input, Shape, TASTES, Taste, bits, codes, differs};
use hisa_ref::E4M3;
use hisa_ref::model::tensor_core::DEVICE_NAN;
use hisa_ref::model::{Arithmetic, DotClass, Epilogue, HeadOrder, Relu, ScalePlace, dot};
use hisa_ref::scoring::scalar;
use ndarray::Array2;

/// Of `_mma` kernels: what fmaf and the butterfly over lanes make of dots.
const EPILOGUE: Epilogue = Epilogue {
    order: HeadOrder::DeepGemmSm90,
    arithmetic: Arithmetic {
        fused: true,
        flush: false,
    },
    scale: ScalePlace::Outside,
    relu: Relu::KeepsNan,
};

/// Which arithmetic an entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Exact,
    /// As on `sm_90` and `sm_100`.
    Mma,
    /// As on `sm_80` and `sm_89`.
    MmaAmpere,
}

/// Which keys the columns stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
    Blocks,
    Tokens,
    Flat,
}

/// (D, H, B): every value of each, the large ones together only once.
const SHAPES: [(usize, usize, usize); 16] = [
    (1, 1, 1),
    (3, 2, 2),
    (16, 7, 3),
    (17, 8, 7),
    (32, 9, 128),
    (64, 64, 2),
    (100, 2, 3),
    (128, 9, 7),
    (256, 7, 1),
    (128, 64, 3),
    (256, 128, 2),
    (100, 128, 128),
    (17, 1, 1),
    (200, 8, 7),
    (48, 33, 2),
    (160, 64, 128),
];

impl Rule {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Mma | Self::MmaAmpere => "mma",
        }
    }

    /// Bytes of dynamic shared memory, as the headers of the scorers say.
    pub(crate) fn shared(self, h: usize, d: usize, block: usize) -> usize {
        match self {
            Self::Exact => {
                let heads = h.next_multiple_of(32);
                2 * heads * d.next_multiple_of(16) + 8 * heads
            }
            Self::Mma | Self::MmaAmpere => {
                let tiles = h.div_ceil(8);
                let steps = [2, 4, 8, 16]
                    .into_iter()
                    .find(|steps| 16 * steps >= d)
                    .unwrap();
                let fragments = if steps <= 8 { 2 } else { 1 };
                let stage = 2 * 16 * fragments * (16 * steps + 16);
                32 * tiles + 256 * tiles * steps + block / 32 * stage
            }
        }
    }

    fn score(self, case: &Input, row: usize, key: usize) -> f32 {
        let queries = case.queries();
        let (d, weights) = (case.shape.d, queries.row_weights(row));
        let keys = case.keys();
        let (key, scale) = (keys.key(key), keys.scales()[key]);
        let class = match self {
            Self::Exact => return scalar::score(queries.row(row), weights, key, scale),
            Self::Mma => DotClass::HopperHgmmaF16,
            Self::MmaAmpere => DotClass::AmpereHmmaF16,
        };
        let heads = queries.row(row).chunks_exact(d);
        let dots: Vec<f32> = heads.map(|head| dot(class, head, key)).collect();
        EPILOGUE.score(&dots, weights, scale)
    }
}

impl Columns {
    fn entry(self) -> &'static str {
        match self {
            Self::Blocks => "block_scores",
            Self::Tokens => "token_scores",
            Self::Flat => "flat_scores",
        }
    }

    /// The key of every column of every row, or none.
    fn keys(self, case: &Input, ids: &Array2<i32>) -> Vec<Vec<Option<usize>>> {
        let Shape { n, b, .. } = case.shape;
        let rows = case.rows.windows.rows().iter().enumerate();
        rows.map(|(row, window)| match self {
            Self::Blocks => {
                let seen = window.blocks(b);
                (0..n)
                    .map(|block| seen.contains(&block).then_some(block))
                    .collect()
            }
            Self::Flat => (0..n)
                .map(|key| window.contains(key).then_some(key))
                .collect(),
            Self::Tokens => {
                let slots = ids
                    .row(row)
                    .into_iter()
                    .flat_map(|&id| (0..b).map(move |i| (id, i)));
                slots
                    .map(|(id, i)| {
                        let key = (usize::try_from(id).ok()? * b) + i;
                        window.contains(key).then_some(key)
                    })
                    .collect()
            }
        })
        .collect()
    }
}

fn settle(rule: Rule, bits: u32) -> u32 {
    // Which NaN an instruction writes is no part of its arithmetic.
    let nan = rule != Rule::Exact && f32::from_bits(bits).is_nan();
    if nan { DEVICE_NAN.to_bits() } else { bits }
}

/// Scores on the middle between two f32 where the first code of the key is a power of two: the
/// heads add up to 1 and 2^-24, and to a hair that no f64 holds beside 1.
fn put_on_ties(case: &mut Input, draw: &mut Draw) {
    for code in &mut case.q {
        *code = E4M3::ZERO;
    }
    for mut head in case.q.rows_mut() {
        head[0] = E4M3::from_bits(0x38);
    }
    for mut weights in case.weights.rows_mut() {
        let hair = draw.pick(&[0.0, 0.0, 2f32.powi(-70), -(2f32.powi(-70))]);
        for (head, weight) in weights.iter_mut().enumerate() {
            *weight = [1.0, 2f32.powi(-24), hair]
                .get(head)
                .copied()
                .unwrap_or(0.0);
        }
    }
    for mut key in case.k.rows_mut() {
        key[0] = E4M3::from_bits(draw.pick(&[0x38, 0x40, 0x3C, 0x30]));
    }
}

/// Values with few NaN in them, so that most scores are numbers.
fn case(draw: &mut Draw, shape: Shape, taste: Taste) -> Input {
    let mut case = Input::draw(draw, shape, taste);
    if taste == Taste::Edge && draw.once_in(2) {
        put_on_ties(&mut case, draw);
    }
    if taste == Taste::Wild {
        for weight in &mut case.weights {
            *weight = if draw.once_in(60) {
                draw.special()
            } else {
                draw.real(2.0)
            };
        }
        for scale in &mut case.k_scale {
            *scale = if draw.once_in(6) {
                draw.special()
            } else {
                draw.real(1.0)
            };
        }
        let few = |code: &mut E4M3, draw: &mut Draw| {
            if code.is_nan() && !draw.once_in(4) {
                *code = E4M3::from_bits(0x01);
            }
        };
        case.q
            .iter_mut()
            .chain(&mut case.k)
            .for_each(|code| few(code, draw));
    }
    case
}

/// The bits of every column of every row.
fn expected(case: &Input, rule: Rule, columns: Columns, ids: &Array2<i32>) -> Vec<u32> {
    let rows = columns.keys(case, ids).into_iter().enumerate();
    rows.flat_map(|(row, keys)| keys.into_iter().map(move |key| (row, key)))
        .map(|(row, key)| key.map_or(f32::NEG_INFINITY, |key| rule.score(case, row, key)))
        .map(|score| settle(rule, score.to_bits()))
        .collect()
}

fn check_case(
    unit: &Unit,
    draw: &mut Draw,
    rule: Rule,
    columns: Columns,
    shape: Shape,
    taste: Taste,
) -> Result<(), String> {
    let Shape { m, n, h, d, b } = shape;
    // Pooled blocks are the keys of block_scores: n of them here, and their windows in keys.
    let input_shape = if columns == Columns::Blocks {
        Shape {
            n: shape.blocks(),
            ..shape
        }
    } else {
        shape
    };
    let mut case = case(draw, input_shape, taste);
    case.rows = crate::values::Rows::draw(draw, m, n, b);
    let kept = draw.pick(&[1, 2, 5]);
    let ids: Vec<i32> = (0..m)
        .flat_map(|_| draw.block_ids(kept, shape.blocks()))
        .collect();
    let ids = Array2::from_shape_vec((m, kept), ids).unwrap();
    let expected = expected(&case, rule, columns, &ids);
    let width = expected.len() / m;
    let mut got = vec![0f32; expected.len()];
    let block = draw.pick(&[128, 256]);
    let (q, k) = (codes(&case.q), codes(&case.k));
    let mut args = vec![
        input(&q),
        input(case.weights.as_slice().unwrap()),
        input(&k),
        input(case.k_scale.as_slice().unwrap()),
    ];
    if columns == Columns::Tokens {
        args.push(input(ids.as_slice().unwrap()));
    }
    args.extend([input(&case.rows.ks), input(&case.rows.ke), output(&mut got)]);
    args.push(Arg::scalar(n as i64));
    if columns == Columns::Blocks {
        args.push(Arg::scalar(shape.blocks() as i64));
    }
    args.extend([Arg::scalar(h as i32), Arg::scalar(d as i32)]);
    if columns != Columns::Flat {
        args.push(Arg::scalar(b as i64));
    }
    if columns == Columns::Tokens {
        args.push(Arg::scalar(kept as i64));
    }
    let grid = [m, draw.pick(&[1, 2, 3])];
    let launch = Launch {
        grid,
        block,
        shared: rule.shared(h, d, block),
    };
    unit.launch(
        &format!("{}_{}", columns.entry(), rule.name()),
        launch,
        &mut args,
    )?;
    let got: Vec<u32> = bits(&got)
        .into_iter()
        .map(|bits| settle(rule, bits))
        .collect();
    let what = (shape, taste, launch, &case.rows, &ids);
    differs(columns.entry(), &what, width, &got, &expected)
}

pub(crate) fn check(unit: &Unit, rule: Rule, columns: Columns) -> Result<(), String> {
    for (number, (d, h, b)) in SHAPES.into_iter().enumerate() {
        for taste in TASTES {
            let mut draw = Draw::new(900 + number as u64 * 8 + taste as u64);
            let most = if h * d > 4096 { 40 } else { 150 };
            let blocks = if columns == Columns::Blocks { b } else { 1 };
            let n = 1 + draw.below(most) * blocks;
            let shape = Shape { m: 2, n, h, d, b };
            check_case(unit, &mut draw, rule, columns, shape, taste)?;
        }
    }
    Ok(())
}

pub(crate) fn check_block_scores_mma(unit: &Unit) -> Result<(), String> {
    check(unit, Rule::Mma, Columns::Blocks)
}

pub(crate) fn check_token_scores_mma(unit: &Unit) -> Result<(), String> {
    check(unit, Rule::Mma, Columns::Tokens)
}

pub(crate) fn check_flat_scores_mma(unit: &Unit) -> Result<(), String> {
    check(unit, Rule::Mma, Columns::Flat)
}

pub(crate) fn check_block_scores_exact(unit: &Unit) -> Result<(), String> {
    check(unit, Rule::Exact, Columns::Blocks)
}

pub(crate) fn check_token_scores_exact(unit: &Unit) -> Result<(), String> {
    check(unit, Rule::Exact, Columns::Tokens)
}

pub(crate) fn check_flat_scores_exact(unit: &Unit) -> Result<(), String> {
    check(unit, Rule::Exact, Columns::Flat)
}

#[test]
fn block_scores_mma_is_the_older_model_on_older_cores() {
    if have_compiler() {
        let unit = Unit::with("block_scores.cu", &[], &AMPERE);
        check(&unit, Rule::MmaAmpere, Columns::Blocks).unwrap();
        check(&unit, Rule::Mma, Columns::Blocks).unwrap_err();
    }
}

kernel_tests! {
    block_scores_exact_is_the_reference: "block_scores.cu", check_block_scores_exact;
    token_scores_exact_is_the_reference: "token_scores.cu", check_token_scores_exact;
    flat_scores_exact_is_the_reference: "dsa.cu", check_flat_scores_exact;
    block_scores_mma_is_the_model: "block_scores.cu", check_block_scores_mma;
    token_scores_mma_is_the_model: "token_scores.cu", check_token_scores_mma;
    flat_scores_mma_is_the_model: "dsa.cu", check_flat_scores_mma;
}
