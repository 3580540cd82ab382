//! Random cases for fuzzing: sizes, windows and kinds of values, each special kind with a share
//! that a test holds it to.

mod values;

use super::stream::{Lane, Stream};
use super::values::{BLOCKS_DIM_MIN, Codes};
use super::{Generated, Generator};
use crate::case::{Case, Shard, WindowSource, WindowSpec};
use hisa_ref::{Rank, Window};

/// `count` random cases; case i depends on `seed` and i alone.
#[derive(Debug, Clone, Copy)]
pub struct Ragged {
    /// Seed of the run.
    pub seed: u64,
    /// Number of cases.
    pub count: u64,
}

impl Generator for Ragged {
    fn name(&self) -> &'static str {
        "ragged"
    }

    fn about(&self) -> &'static str {
        "Random small cases: ragged windows, special values and every parameter mixed."
    }

    fn len(&self) -> u64 {
        self.count
    }

    fn case(&self, index: u64) -> Option<Generated> {
        (index < self.count).then(|| random_case(self.seed, index).into())
    }
}

/// Case `index` of the run with this seed.
#[must_use]
pub fn random_case(seed: u64, index: u64) -> Case {
    let stream = &mut Stream::new(seed, Lane::Fuzz, index);
    let block_size = block_size(stream);
    let keys_max = if stream.one_in(24) { 300 } else { 63 };
    let n = keys(stream, block_size, keys_max);
    let mut case = windows(stream, n, block_size);
    case.block_size = block_size;
    let blocks = case.blocks() as u32;
    case.block_topk = 1 + match stream.below(4) {
        0 => stream.below(2),
        1 => blocks.saturating_sub(2 + stream.below(2)),
        2 => stream.below(blocks + 1),
        _ => stream.below(6),
    } as usize;
    case.topk_tokens = topk_tokens(stream, &case);
    case.d = match stream.below(8) {
        0 => stream.pick(&[1, 3, 5, 24, 48, 96, 128]),
        _ => stream.pick(&[8, 16, 32, 64]),
    };
    case.h = match stream.below(16) {
        0 if case.m <= 16 => stream.pick(&[7, 16, 31, 32, 33, 64]),
        _ => stream.between(1, 4) as usize,
    };
    case.rank = if stream.one_in(6) {
        Rank::F32
    } else {
        Rank::Bf16
    };
    case.values = values::values(stream, block_size);
    if matches!(case.values.k, Codes::Blocks(_)) && case.d < BLOCKS_DIM_MIN {
        case.d = BLOCKS_DIM_MIN;
    }
    case.seed = stream.draw();
    case
}

fn block_size(stream: &mut Stream) -> usize {
    match stream.below(8) {
        0 => stream.pick(&[1, 16, 32, 64, 128]),
        1 => stream.pick(&[1, 2, 4, 8]),
        _ => stream.between(2, 9) as usize,
    }
}

/// At most `keys_max` keys; the last block has one key, lacks one, or is anything, in turn.
fn keys(stream: &mut Stream, block_size: usize, keys_max: usize) -> usize {
    if stream.one_in(64) {
        return 0;
    }
    let blocks = stream.below((keys_max / block_size + 1) as u32) as usize;
    let tail = match stream.below(4) {
        0 => 1,
        1 => block_size - 1,
        2 => 0,
        _ => stream.below(block_size as u32) as usize,
    };
    (blocks * block_size + tail).min(keys_max)
}

fn topk_tokens(stream: &mut Stream, case: &Case) -> usize {
    let slots = case.block_size * case.block_topk;
    let near = match stream.below(5) {
        0 => 1,
        1 => slots,
        2 => case.n,
        3 => stream.below(slots as u32) as usize,
        _ => stream.pick(&[2, 4, 8, 16, 64]),
    };
    (near + stream.below(3) as usize)
        .saturating_sub(1)
        .clamp(1, 400)
}

/// A case with windows of one of five forms over about `n` keys.
fn windows(stream: &mut Stream, n: usize, block_size: usize) -> Case {
    // Packed sequences have as many rows as keys; long ones would only take time.
    match stream.below(20) {
        0..5 if n < 64 => Case::with_cu(&cut(stream, n)),
        5..9 => separate(stream, n),
        9..11 if n < 64 => strided(stream, n),
        11..13 if n < 64 => sharded(stream, n),
        _ => {
            let m = rows(stream);
            let rows = (0..m).map(|_| window(stream, n, block_size)).collect();
            Case::with_rows(rows, n)
        }
    }
}

fn rows(stream: &mut Stream) -> usize {
    match stream.below(32) {
        0 => 0,
        1 => stream.between(33, 200) as usize,
        2..6 => stream.between(9, 32) as usize,
        _ => stream.between(1, 8) as usize,
    }
}

/// The window of one row.
fn window(stream: &mut Stream, n: usize, block_size: usize) -> Window {
    let n = n as u32;
    let (mut ks, mut ke) = match stream.below(12) {
        0 => return Window::PADDING,
        1 => {
            let at = stream.below(n + 1);
            return Window {
                ks: at as i32,
                ke: at as i32,
            };
        }
        2 => {
            return Window {
                ks: stream.below(n + 9) as i32,
                ke: -(stream.below(9) as i32),
            };
        }
        3 | 4 => (0, n),
        5 | 6 => (0, 1 + stream.below(n)),
        7 => {
            let at = stream.below(n);
            (at, at + 1)
        }
        _ => (stream.below(n + 1), stream.below(n + 1)),
    };
    if ks > ke {
        (ks, ke) = (ke, ks);
    }
    if stream.one_in(4) && block_size > 1 {
        // One key off the edge of a block, on either side of it.
        let edge = ks - ks % block_size as u32;
        ks = if edge > 0 && stream.one_in(2) {
            edge - 1
        } else {
            edge + 1
        };
    }
    Window {
        ks: ks.min(n) as i32,
        ke: ke.min(n) as i32,
    }
}

/// Offsets of 1 to 6 sequences over `tokens`, once in three with an empty one before the last
/// two.
fn cut(stream: &mut Stream, tokens: usize) -> Vec<i64> {
    let inner = stream.below(6);
    let mut cu: Vec<i64> = (0..inner)
        .map(|_| i64::from(stream.below(tokens as u32 + 1)))
        .collect();
    cu.extend([0, tokens as i64]);
    cu.sort_unstable();
    if stream.one_in(3) && tokens >= 2 {
        let at = i64::from(stream.below(tokens as u32 - 1));
        let after = at + 1 + i64::from(stream.below(tokens as u32 - 1 - at as u32));
        cu.retain(|&offset| offset <= at);
        cu.extend([at, at, after, tokens as i64]);
    }
    cu
}

/// Offsets of `sequences` sequences over `tokens`.
fn cut_into(stream: &mut Stream, tokens: usize, sequences: usize) -> Vec<i64> {
    let inner = sequences.saturating_sub(1);
    let mut cu: Vec<i64> = (0..inner)
        .map(|_| i64::from(stream.below(tokens as u32 + 1)))
        .collect();
    cu.extend([0, tokens as i64]);
    cu.sort_unstable();
    cu
}

fn separate(stream: &mut Stream, n: usize) -> Case {
    let m = rows(stream);
    let q = cut(stream, m);
    let k = cut_into(stream, n, q.len() - 1);
    Case::with_windows(m, n, WindowSource::Separate { q, k }.into())
}

fn strided(stream: &mut Stream, m: usize) -> Case {
    let q = cut(stream, m);
    let stride = stream.between(1, 5) as usize;
    let derived: Vec<usize> = q
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) as usize / stride)
        .collect();
    let (k, n) = if stream.one_in(3) {
        let n = stream.below(40) as usize;
        (Some(cut_into(stream, n, q.len() - 1)), n)
    } else {
        (None, derived.iter().sum())
    };
    let first_positions = match stream.below(2) {
        0 => Vec::new(),
        _ => derived.iter().map(|_| stream.below(20)).collect(),
    };
    Case::with_windows(
        m,
        n,
        WindowSource::Strided {
            q,
            k,
            stride,
            first_positions,
        }
        .into(),
    )
}

fn sharded(stream: &mut Stream, n: usize) -> Case {
    let ranks = stream.between(1, 4) as usize;
    let tokens = n - n % (2 * ranks);
    let padding_rows = if stream.one_in(2) {
        stream.below(4) as usize
    } else {
        0
    };
    let windows = WindowSpec {
        source: WindowSource::Causal(cut(stream, tokens)),
        shard: Some(Shard {
            rank: stream.below(ranks as u32) as usize,
            ranks,
        }),
        padding_rows,
    };
    Case::with_windows(tokens / ranks + padding_rows, tokens, windows)
}

#[cfg(test)]
mod tests;
