//! block_mask, block_topk, index_map and block_sparse.

use crate::emulator::{Arg, Launch, Unit, have_compiler, in_place, input, output};
use crate::values::{Draw, Rows, Shape, TASTES, Taste, bits, differs};
use hisa_ref::stages::{block_mask, block_topk, index_map, token_topk};
use hisa_ref::{E4M3, HisaParams, IndexerInput, Rank, Strictness};
use ndarray::{Array1, Array2, Array3};

/// Sizes that matter to selections: keys and keys of a block. Blocks from none to hundreds.
const SIZES: [(usize, usize); 16] = [
    (0, 3),
    (1, 1),
    (5, 7),
    (31, 1),
    (33, 1),
    (40, 3),
    (64, 2),
    (97, 128),
    (130, 7),
    (200, 1),
    (257, 2),
    (384, 128),
    (500, 3),
    (700, 1),
    (900, 7),
    (1100, 2),
];

/// A case of every size and taste. One of four has many rows.
pub(crate) fn cases(
    seed: u64,
    mut check: impl FnMut(&mut Draw, Shape, Taste) -> Result<(), String>,
) -> Result<(), String> {
    for (number, (n, b)) in SIZES.into_iter().enumerate() {
        for taste in TASTES {
            let mut draw = Draw::new(seed * 1000 + number as u64 * 10 + taste as u64);
            let m = if draw.once_in(4) { 7 } else { 3 };
            check(
                &mut draw,
                Shape {
                    m,
                    n,
                    h: 1,
                    d: 1,
                    b,
                },
                taste,
            )?;
        }
    }
    Ok(())
}

pub(crate) fn scores(draw: &mut Draw, taste: Taste, rows: usize, columns: usize) -> Array2<f32> {
    Array2::from_shape_simple_fn((rows, columns), || match taste {
        // Around values of bf16 and the middles between them.
        Taste::Edge => {
            let lower = draw.pick(&[0, 0x7FFF, 0x8000, 0x8001, 0xFFFF]);
            let upper = draw.pick(&[0x3F80, 0x3F81, 0x3F82, 0xBF80, 0xBF81]);
            f32::from_bits(upper << 16 | lower)
        }
        _ => draw.number(taste),
    })
}

pub(crate) fn flat<T: Copy>(values: &Array2<T>) -> &[T] {
    values.as_slice().unwrap()
}

pub(crate) fn check_block_mask(unit: &Unit) -> Result<(), String> {
    cases(1, |draw, shape, taste| {
        let Shape { m, n, b, .. } = shape;
        let rows = Rows::draw(draw, m, n, b);
        let before = scores(draw, taste, m, shape.blocks());
        let mut got = flat(&before).to_vec();
        let launch = Launch {
            grid: [m, draw.pick(&[1, 2, 5])],
            block: 64,
            shared: 0,
        };
        let mut args = [
            in_place(&mut got),
            input(&rows.ks),
            input(&rows.ke),
            Arg::scalar(n as i64),
            Arg::scalar(shape.blocks() as i64),
            Arg::scalar(b as i64),
        ];
        unit.launch("block_mask", launch, &mut args)?;
        let mut expected = before;
        block_mask::run(&mut expected, &rows.windows, b).unwrap();
        let expected = bits(&expected);
        differs(
            "block_mask",
            &(shape, &rows),
            shape.blocks(),
            &bits(&got),
            &expected,
        )
    })
}

pub(crate) fn check_block_topk(unit: &Unit) -> Result<(), String> {
    cases(2, |draw, shape, taste| {
        let Shape { m, n, b, .. } = shape;
        let blocks = shape.blocks();
        let rows = Rows::draw(draw, m, n, b);
        let masked = scores(draw, taste, m, blocks);
        for rank in [Rank::Bf16, Rank::F32] {
            let topk = draw.pick(&[1, 2, 3, 5, 31, 33, 64, 100]);
            let mut got = vec![0i32; m * topk];
            let launch = Launch {
                grid: [m, 1],
                block: draw.pick(&[32, 128]),
                shared: 0,
            };
            let mut args = [
                input(flat(&masked)),
                input(&rows.ks),
                input(&rows.ke),
                output(&mut got),
                Arg::scalar(n as i64),
                Arg::scalar(blocks as i64),
                Arg::scalar(b as i64),
                Arg::scalar(topk as i64),
                Arg::scalar(i32::from(rank == Rank::Bf16)),
            ];
            unit.launch("block_topk", launch, &mut args)?;
            let expected = block_topk::run(masked.view(), &rows.windows, b, topk, rank).unwrap();
            differs(
                "block_topk",
                &(shape, rank, &rows),
                topk,
                &got,
                flat(&expected),
            )?;
        }
        Ok(())
    })
}

pub(crate) fn ids(draw: &mut Draw, m: usize, columns: usize, blocks: usize) -> Array2<i32> {
    let ids: Vec<i32> = (0..m)
        .flat_map(|_| draw.block_ids(columns, blocks))
        .collect();
    Array2::from_shape_vec((m, columns), ids).unwrap()
}

/// Columns of block ids and kept tokens.
pub(crate) fn kept(draw: &mut Draw, shape: Shape) -> (usize, usize) {
    let columns = draw.pick(&[1, 2, 3, 8, 40]).min(1 + 600 / shape.b);
    (columns, draw.pick(&[1, 2, 3, 17, 32, 64, 129, 300]))
}

pub(crate) fn check_index_map(unit: &Unit) -> Result<(), String> {
    cases(5, |draw, shape, taste| {
        let Shape { m, n, b, .. } = shape;
        let (columns, topk) = kept(draw, shape);
        let rows = Rows::draw(draw, m, n, b);
        let ids = ids(draw, m, columns, shape.blocks());
        let scores = scores(draw, taste, m, columns * b);
        let mut slots = token_topk::run(scores.view(), ids.view(), &rows.windows, b, topk).unwrap();
        for slot in &mut slots {
            if draw.once_in(6) {
                *slot = -1;
            }
        }
        let mut got = vec![0i32; m * topk];
        let launch = Launch {
            grid: [m, draw.pick(&[1, 3])],
            block: 64,
            shared: 0,
        };
        let mut args = [
            input(flat(&slots)),
            input(flat(&ids)),
            input(&rows.ks),
            input(&rows.ke),
            output(&mut got),
            Arg::scalar(n as i64),
            Arg::scalar(b as i64),
            Arg::scalar(columns as i64),
            Arg::scalar(topk as i64),
        ];
        unit.launch("index_map", launch, &mut args)?;
        let expected = index_map::run(slots.view(), ids.view(), &rows.windows, b).unwrap();
        differs(
            "index_map",
            &(shape, &rows, &ids),
            topk,
            &got,
            flat(&expected),
        )
    })
}

pub(crate) fn check_block_sparse(unit: &Unit) -> Result<(), String> {
    cases(6, |draw, shape, taste| {
        let Shape { m, n, b, .. } = shape;
        let rows = Rows::draw(draw, m, n, b);
        let q = Array3::from_elem((m, 1, 1), E4M3::from_bits(0x38));
        let weights = Array2::from_elem((m, 1), 1.0);
        let k = Array2::from_shape_simple_fn((n, 1), || draw.code(taste));
        let k_scale = Array1::from_elem(n, 1.0);
        let indexer = IndexerInput::new(
            q.view(),
            k.view(),
            k_scale.view(),
            weights.view(),
            rows.windows.clone(),
            Strictness::Permissive,
        );
        let topk = draw.pick(&[1, 9, 40, 300]);
        let params = HisaParams::new(b, 1, topk).unwrap();
        let trace = hisa_ref::block_sparse::trace(&indexer.unwrap(), &params).unwrap();
        let (columns, width) = (trace.block_ids.ncols(), trace.indices.ncols());
        let mut got = vec![0i32; m * width];
        let launch = Launch {
            grid: [m, 1],
            block: draw.pick(&[32, 96, 256]),
            shared: 0,
        };
        let mut args = [
            input(flat(&trace.block_ids)),
            input(&rows.ks),
            input(&rows.ke),
            output(&mut got),
            Arg::scalar(n as i64),
            Arg::scalar(b as i64),
            Arg::scalar(columns as i64),
        ];
        unit.launch("block_sparse_indices", launch, &mut args)?;
        differs(
            "block_sparse",
            &(shape, topk, &rows),
            width,
            &got,
            flat(&trace.indices),
        )
    })
}

macro_rules! kernel_tests {
    ($($name:ident: $file:literal, $check:path;)*) => {$(
        #[test]
        fn $name() {
            if have_compiler() {
                $check(&Unit::kernel($file)).unwrap();
            }
        }
    )*};
}
pub(crate) use kernel_tests;

kernel_tests! {
    block_mask_is_the_reference: "block_mask.cu", check_block_mask;
    block_topk_is_the_reference: "block_topk.cu", check_block_topk;
    index_map_is_the_reference: "index_map.cu", check_index_map;
    block_sparse_is_the_reference: "block_sparse.cu", check_block_sparse;
}
