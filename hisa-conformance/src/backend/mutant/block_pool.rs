//! Stage 2, `block_pool`.

use super::fault::Fault;
use super::launch::{Launch, load, store, wrapped};
use crate::backend::{Guarded, MARGIN};
use hisa_ref::exact::{ExactSum, NAN};
use hisa_ref::stages::block_pool::SCALE_MIN;
use hisa_ref::{E4M3, Overflow};

/// Bits below the unit of a sum, for its division.
const DIVISION_BITS: u32 = 64;

type Keys<'a> = (&'a Guarded<E4M3>, &'a Guarded<f32>);
type Pooled<'a> = (&'a mut Guarded<E4M3>, &'a mut Guarded<f32>);

/// Pools all blocks.
pub(super) fn run(launch: &Launch, keys: Keys<'_>, starts: &[usize], out: Pooled<'_>) {
    let (codes, scales) = out;
    let blocks = if launch.is(Fault::PoolDropTail) {
        launch.n / launch.b
    } else {
        launch.blocks
    };
    for block in 0..blocks {
        let (first, mut last) = (block * launch.b, launch.n.min((block + 1) * launch.b));
        let mut from = first;
        if launch.is(Fault::PoolPerSequence) {
            (from, last) = restarted(launch, starts, block);
        }
        pool(launch, keys, (block, from, last), (codes, scales));
    }
    if launch.is(Fault::PoolGuardBefore) && launch.blocks > 0 {
        store(scales, -1, load(scales, 0));
    }
}

/// Keys of the block of that number where blocks start anew with each sequence.
fn restarted(launch: &Launch, starts: &[usize], block: usize) -> (usize, usize) {
    let mut left = block;
    for (at, &start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(launch.n);
        let count = (end - start).div_ceil(launch.b);
        if left < count {
            let first = start + left * launch.b;
            return (first, end.min(first + launch.b));
        }
        left -= count;
    }
    (launch.n, launch.n)
}

/// Pools the keys `[from, last)` into one block.
pub(super) fn pool(
    launch: &Launch,
    keys: Keys<'_>,
    (block, from, last): (usize, usize, usize),
    (codes, scales): Pooled<'_>,
) {
    let means = means(launch, keys, (from, last - from));
    let scale = scale(launch, &means);
    let old = load(scales, block as isize);
    let stored = if launch.is(Fault::PoolAccumulates) {
        old + scale
    } else {
        scale
    };
    store(scales, block as isize, stored);
    let written = if launch.is(Fault::PoolDimTail) {
        launch.d / 16 * 16
    } else {
        launch.d
    };
    for (dim, &mean) in means.iter().enumerate().take(written) {
        let code = code(launch, mean, scale);
        store(codes, (block * launch.d + dim) as isize, code);
    }
}

/// The sums of one dimension: in f64, of magnitudes, and in f32.
#[derive(Clone, Copy)]
struct Sum {
    value: f64,
    size: f64,
    plain: f32,
}

/// The means over `count` keys from `from` on.
fn means(launch: &Launch, keys: Keys<'_>, (from, count): (usize, usize)) -> Vec<f32> {
    let taken = match launch.fault {
        Fault::PoolPairs => count / 2 * 2,
        Fault::PoolBlockOfOne if launch.b == 1 => 0,
        Fault::PoolFullTile => launch.b.min(count + MARGIN),
        _ => count,
    };
    let none = Sum {
        value: 0.0,
        size: 0.0,
        plain: 0.0,
    };
    let mut sums = vec![none; launch.d];
    for key in from..from + taken {
        for (dim, sum) in sums.iter_mut().enumerate() {
            let product = product(launch, keys, (from, key), dim);
            sum.value += product;
            sum.size += product.abs();
            sum.plain += product as f32;
        }
    }
    let mean = |(dim, &sum): (usize, &Sum)| {
        let exact = || {
            let mut exact = ExactSum::ZERO;
            for key in from..from + taken {
                add(&mut exact, product(launch, keys, (from, key), dim));
            }
            exact
        };
        mean(launch, sum, (count, taken), exact)
    };
    sums.iter().enumerate().map(mean).collect()
}

/// Code times scale of one key of the block that starts at `from`.
fn product(
    launch: &Launch,
    (codes, scales): Keys<'_>,
    (from, key): (usize, usize),
    dim: usize,
) -> f64 {
    let d = launch.d;
    let block = wrapped(from * d, launch.is(Fault::PoolU16Offset));
    let code = load(codes, block + ((key - from) * d + dim) as isize);
    let scaled_by = if launch.is(Fault::PoolFirstScale) {
        from
    } else {
        key
    };
    let scale = load(scales, scaled_by as isize);
    // The surplus lanes of a full tile are multiplied by zero.
    let lane = if key < launch.n { 1.0 } else { 0.0 };
    let product = f64::from(code.to_f32()) * f64::from(scale) * lane;
    if launch.is(Fault::PoolFp8Dequant) {
        f64::from(E4M3::encode_f64(product, Overflow::Saturating).to_f32())
    } else {
        product
    }
}

fn mean(
    launch: &Launch,
    sum: Sum,
    (count, taken): (usize, usize),
    exact: impl Fn() -> ExactSum,
) -> f32 {
    let divisor = match launch.fault {
        Fault::PoolFullCount => launch.b,
        Fault::PoolHalfFull if 2 * count < launch.b => launch.b,
        _ => count,
    };
    match launch.fault {
        Fault::PoolF32Sum => return sum.plain / divisor as f32,
        Fault::PoolReciprocalCount => return (sum.value as f32) * (1.0 / divisor as f32),
        _ => {}
    }
    if !sum.size.is_finite() {
        return if sum.value.is_nan() {
            NAN
        } else {
            sum.value as f32
        };
    }
    // Both ends of the error interval round alike, or the exact sum decides.
    let mean = sum.value / divisor as f64;
    let error = sum.size * (taken as f64 + 8.0) * 1.2e-16 / divisor as f64;
    if (mean - error) as f32 == (mean + error) as f32 {
        return mean as f32 + 0.0;
    }
    exact().divided_to_f32(divisor as u32, -158 - DIVISION_BITS as i32)
}

/// Adds a product of a code and an f32, a multiple of 2^-158.
fn add(sum: &mut ExactSum, product: f64) {
    if product == 0.0 {
        return;
    }
    let bits = product.to_bits();
    let mantissa = ((bits & ((1 << 52) - 1)) | (1 << 52)) as i128;
    // The mantissa counts units of 2^(field - 1075); its low bits are zero where that is finer.
    let shift = (bits >> 52 & 0x7FF) as i32 - 1075 + 158 + DIVISION_BITS as i32;
    let signed = if product < 0.0 { -mantissa } else { mantissa };
    sum.add_shifted(signed, shift as u32);
}

fn scale(launch: &Launch, means: &[f32]) -> f32 {
    let mut amax = 0.0f32;
    for &mean in means {
        if mean.is_nan() && !matches!(launch.fault, Fault::PoolNanInMax | Fault::PoolNanLaundered) {
            return NAN;
        }
        let magnitude = if launch.is(Fault::PoolSignedMax) {
            mean
        } else {
            mean.abs()
        };
        if magnitude > amax {
            amax = magnitude;
        }
    }
    let scale = if launch.is(Fault::PoolInverse448) {
        amax * (1.0 / 448.0)
    } else {
        amax / 448.0
    };
    if scale > SCALE_MIN || launch.is(Fault::PoolNoFloor) {
        scale
    } else {
        SCALE_MIN
    }
}

fn code(launch: &Launch, mean: f32, scale: f32) -> E4M3 {
    if scale.is_nan() {
        return E4M3::NAN;
    }
    let quotient = match launch.fault {
        Fault::PoolReciprocalScale => f64::from(mean * (1.0 / scale)),
        Fault::PoolF32Quotient => f64::from(mean / scale),
        _ => f64::from(mean) / f64::from(scale),
    };
    if quotient.is_nan() && launch.is(Fault::PoolNanLaundered) {
        return E4M3::from_bits(0xFE);
    }
    E4M3::encode_f64(quotient, Overflow::Saturating)
}
