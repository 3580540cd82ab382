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
    let count = last - from;
    let mut means = Vec::with_capacity(launch.d);
    for dim in 0..launch.d {
        means.push(mean(launch, keys, (from, count), dim));
    }
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

/// The mean of one dimension over `count` keys from `from` on.
fn mean(
    launch: &Launch,
    (codes, scales): Keys<'_>,
    (from, count): (usize, usize),
    dim: usize,
) -> f32 {
    let (n, b, d) = (launch.n, launch.b, launch.d);
    let taken = match launch.fault {
        Fault::PoolPairs => count / 2 * 2,
        Fault::PoolBlockOfOne if b == 1 => 0,
        Fault::PoolFullTile => b,
        _ => count,
    };
    let (mut sum, mut size) = (0.0f64, 0.0f64);
    let (mut exact, mut plain) = (ExactSum::ZERO, 0.0f32);
    let mut clean = true;
    for key in from..from + taken.min(count + MARGIN) {
        let offset =
            wrapped(from * d, launch.is(Fault::PoolU16Offset)) + ((key - from) * d) as isize;
        let code = load(codes, offset + dim as isize);
        let scale = load(
            scales,
            if launch.is(Fault::PoolFirstScale) {
                from
            } else {
                key
            } as isize,
        );
        // The surplus lanes of a full tile are multiplied by zero.
        let lane = if key < n { 1.0 } else { 0.0 };
        let product = f64::from(code.to_f32()) * f64::from(scale) * lane;
        let product = if launch.is(Fault::PoolFp8Dequant) {
            f64::from(E4M3::encode_f64(product, Overflow::Saturating).to_f32())
        } else {
            product
        };
        clean &= product.is_finite();
        (sum, size) = (sum + product, size + product.abs());
        plain += product as f32;
        if product.is_finite() {
            add(&mut exact, product);
        }
    }
    let divisor = match launch.fault {
        Fault::PoolFullCount => b,
        Fault::PoolHalfFull if 2 * count < b => b,
        _ => count,
    };
    match launch.fault {
        Fault::PoolF32Sum => return plain / divisor as f32,
        Fault::PoolReciprocalCount => return (sum as f32) * (1.0 / divisor as f32),
        _ => {}
    }
    if !clean {
        return if sum.is_nan() { NAN } else { sum as f32 };
    }
    // Both ends of the error interval round alike, or the exact sum decides.
    let (mean, error) = (sum / divisor as f64, size * (taken as f64 + 8.0) * 1.2e-16);
    let error = error / divisor as f64;
    if (mean - error) as f32 == (mean + error) as f32 {
        return mean as f32 + 0.0;
    }
    exact.divided_to_f32(divisor as u32, -158 - DIVISION_BITS as i32)
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
