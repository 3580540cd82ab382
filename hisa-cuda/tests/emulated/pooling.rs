//! quantize and block_pool.

use crate::emulator::{Arg, Launch, Unit, have_compiler, input, output};
use crate::selection::kernel_tests;
use crate::values::{Draw, Input, Shape, TASTES, Taste, bits, codes, differs};
use hisa_ref::stages::block_pool;
use hisa_ref::stages::quantize::{self, QuantizeOptions, ScaleFormat};
use hisa_ref::{E4M3, Overflow, Strictness};
use ndarray::Array2;

const DIMS: [usize; 11] = [1, 3, 16, 17, 32, 64, 100, 127, 128, 200, 256];

/// The middle between two codes, times a scale, give or take a step of f32.
fn beside_a_tie(draw: &mut Draw, scale: f32) -> f32 {
    let code = draw.below(0x7E) as u8;
    let [low, high] = [code, code + 1].map(|bits| E4M3::from_bits(bits).to_f32());
    let x = (low + high) / 2.0 * scale;
    draw.pick(&[x, x.next_up(), x.next_down(), -x, -x.next_up()])
}

/// A row that looks like activations, is tiny, lies on ties, or holds a few specials.
fn activations(draw: &mut Draw, taste: Taste, rows: usize, d: usize) -> Array2<f32> {
    let mut x = Array2::zeros((rows, d));
    for mut row in x.rows_mut() {
        let size = 2f32.powi(draw.below(40) as i32 - 20);
        let special = taste == Taste::Wild && draw.once_in(2);
        for value in &mut row {
            *value = match taste {
                _ if special && draw.once_in(d) => draw.special(),
                Taste::Ties => draw.pick(&[448.0, 17.0, -17.0, 0.0, -0.0, 1.0625, 464.0]) * size,
                Taste::Edge => beside_a_tie(draw, size / 448.0),
                Taste::Plain | Taste::Wild => draw.real(size),
            };
        }
        if taste == Taste::Edge {
            // Sets the scale for which the others are beside ties.
            row[0] = size;
        }
    }
    x
}

fn quantize_case(unit: &Unit, draw: &mut Draw, taste: Taste, d: usize) -> Result<(), String> {
    let rows = draw.pick(&[1, 2, 5]);
    let mut x = activations(draw, taste, rows, d);
    let bf16 = draw.once_in(3);
    if bf16 {
        x.mapv_inplace(|value| f32::from_bits(value.to_bits() & 0xFFFF_0000));
    }
    let format = draw.pick(&[ScaleFormat::F32, ScaleFormat::Ue8m0]);
    let overflow = draw.pick(&[Overflow::Saturating, Overflow::NonSaturating]);
    let strictness = Strictness::Permissive;
    let options = QuantizeOptions {
        format,
        overflow,
        strictness,
    };
    let expected = quantize::run(x.view(), options).unwrap();
    let (mut got, mut scale) = (vec![0u8; rows * d], vec![0f32; rows]);
    let upper: Vec<u16> = x
        .iter()
        .map(|value| (value.to_bits() >> 16) as u16)
        .collect();
    let mut args = [
        if bf16 {
            input(&upper)
        } else {
            input(x.as_slice().unwrap())
        },
        output(&mut got),
        output(&mut scale),
        Arg::scalar(rows as i64),
        Arg::scalar(d as i64),
        Arg::scalar(i32::from(format == ScaleFormat::Ue8m0)),
        Arg::scalar(i32::from(overflow == Overflow::NonSaturating)),
    ];
    let launch = Launch {
        grid: [rows, 1],
        block: 128,
        shared: 0,
    };
    unit.launch(
        if bf16 {
            "quantize_bf16"
        } else {
            "quantize_f32"
        },
        launch,
        &mut args,
    )?;
    let case = (options, &x);
    differs("scale", &case, 1, &bits(&scale), &bits(&expected.scale))?;
    differs("codes", &case, d, &got, &codes(&expected.codes))
}

pub(crate) fn check_quantize(unit: &Unit) -> Result<(), String> {
    let mut draw = Draw::new(7);
    for d in DIMS.into_iter().chain([0, 300, 1000]) {
        for taste in TASTES {
            for _ in 0..4 {
                quantize_case(unit, &mut draw, taste, d.max(1))?;
            }
        }
    }
    Ok(())
}

/// Keys whose blocks are of finite numbers of any size, some of anything, or have means on ties.
fn pool_input(draw: &mut Draw, shape: Shape, taste: Taste) -> Input {
    let mut case = Input::draw(draw, shape, taste);
    for (key, scale) in case.k_scale.iter_mut().enumerate() {
        match taste {
            Taste::Wild if !scale.is_finite() && !draw.once_in(5) => *scale = 1.0,
            Taste::Edge => {
                let exponents = [0, -24, -60, -130];
                let exponent = exponents.get((key + draw.below(2)) % shape.b);
                *scale = exponent.map_or(0.0, |&exponent| 2f32.powi(exponent));
            }
            _ => {}
        }
    }
    case
}

fn pool_case(unit: &Unit, draw: &mut Draw, shape: Shape, taste: Taste) -> Result<(), String> {
    let Shape { n, d, b, .. } = shape;
    let case = pool_input(draw, shape, taste);
    let expected = block_pool::run(&case.keys(), b).unwrap();
    let blocks = shape.blocks();
    let first = draw.below(blocks);
    let (mut pooled, mut scale) = (codes(&expected.codes), expected.scales.to_vec());
    pooled[first * d..].fill(0x11);
    scale[first..].fill(9.0);
    let key_codes = codes(&case.k);
    let mut args = [
        input(&key_codes),
        input(case.k_scale.as_slice().unwrap()),
        // In place: the blocks before the first must stay as they are.
        crate::emulator::in_place(&mut pooled),
        crate::emulator::in_place(&mut scale),
        Arg::scalar(n as i64),
        Arg::scalar(d as i32),
        Arg::scalar(b as i64),
        Arg::scalar(first as i64),
    ];
    let launch = Launch {
        grid: [blocks - first, 1],
        block: 256,
        shared: 0,
    };
    unit.launch("block_pool", launch, &mut args)?;
    let what = (shape, taste, &case.k_scale);
    differs(
        "pooled_scale",
        &what,
        1,
        &bits(&scale),
        &bits(&expected.scales),
    )?;
    differs("pooled_k", &what, d, &pooled, &codes(&expected.codes))
}

pub(crate) fn check_block_pool(unit: &Unit) -> Result<(), String> {
    let mut draw = Draw::new(8);
    for d in DIMS {
        for b in [1, 2, 3, 4, 7, 128] {
            for taste in TASTES {
                let n = 1 + draw.below(3 * b);
                pool_case(
                    unit,
                    &mut draw,
                    Shape {
                        m: 1,
                        n,
                        h: 1,
                        d,
                        b,
                    },
                    taste,
                )?;
            }
        }
    }
    Ok(())
}

kernel_tests! {
    quantize_is_the_reference: "quantize.cu", check_quantize;
    block_pool_is_the_reference: "block_pool.cu", check_block_pool;
}
