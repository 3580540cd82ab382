//! Stage 4, `block_mask`.

use super::fault::Fault;
use super::launch::{Bounds, Launch, Rows, load, store};
use crate::backend::Guarded;

pub(super) fn run(launch: &Launch, scores: &Guarded<f32>, rows: &Rows, out: &mut Guarded<f32>) {
    for row in 0..launch.m {
        let window = rows.row(row);
        let (start, end) = block_window(launch, window);
        for block in 0..launch.blocks {
            let at = (row * launch.blocks + block) as isize;
            let score = load(scores, at);
            let forced = forced(launch, block, (start, end));
            let value = if block < start || block >= end {
                match launch.fault {
                    Fault::MaskAdds => score + f32::NEG_INFINITY,
                    Fault::MaskSentinel => f32::MIN,
                    _ => f32::NEG_INFINITY,
                }
            } else if forced && launch.is(Fault::MaskLargeForce) {
                1e9
            } else if forced {
                f32::INFINITY
            } else if launch.is(Fault::MaskNanToZero) && score.is_nan() {
                0.0
            } else {
                score
            };
            store(out, at, value);
        }
        if launch.is(Fault::MaskEmptyForces) && window.is_empty() {
            for key in [window.ks, window.ke - 1] {
                let block = key / launch.b as i64;
                if (0..launch.blocks as i64).contains(&block) {
                    let at = row * launch.blocks + block as usize;
                    store(out, at as isize, f32::INFINITY);
                }
            }
        }
    }
}

fn block_window(launch: &Launch, window: Bounds) -> (usize, usize) {
    let (start, end) = launch.block_window(window);
    if window.is_empty() {
        return (start, end);
    }
    let b = launch.b as i64;
    match launch.fault {
        Fault::MaskFloorEnd => (start, (window.ke / b) as usize),
        Fault::MaskInclusive => (start, (window.ke / b + 1) as usize),
        Fault::MaskCeilStart => (((window.ks + b - 1) / b) as usize, end),
        Fault::MaskU16Ceil => {
            let rounded = (window.ke as u16)
                .wrapping_add(launch.b as u16)
                .wrapping_sub(1);
            (start, usize::from(rounded) / launch.b)
        }
        _ => (start, end),
    }
}

fn forced(launch: &Launch, block: usize, (start, end): (usize, usize)) -> bool {
    let (first, last) = (block == start, block + 1 == end);
    match launch.fault {
        Fault::MaskNoForce => false,
        Fault::MaskNoLast => first && !last,
        Fault::MaskNoFirst => last,
        _ => first || last,
    }
}
