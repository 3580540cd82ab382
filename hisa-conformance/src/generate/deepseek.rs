//! A few rows at the sizes the indexer is deployed with: H = 64, D = 128, B = 128, m = 64,
//! K = 2048.

use super::stream::{Lane, Stream};
use super::values::{PRESETS, preset};
use super::{Generated, Generator};
use crate::case::{Case, WindowSource};
use hisa_ref::Window;

/// `count` random cases; case i depends on `seed` and i alone.
#[derive(Debug, Clone, Copy)]
pub struct DeepSeek {
    /// Seed of the run.
    pub seed: u64,
    /// Number of cases.
    pub count: u64,
}

impl Generator for DeepSeek {
    fn name(&self) -> &'static str {
        "deepseek"
    }

    fn about(&self) -> &'static str {
        "A few rows at the sizes of DeepSeek-V3.2, windows on both sides of K and of m blocks."
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
    let stream = &mut Stream::new(seed, Lane::DeepSeek, index);
    let m = stream.between(2, 6) as usize;
    // One in four has fewer blocks than are kept, whatever the window.
    let n = if stream.one_in(4) {
        stream.between(1_000, 8_192)
    } else {
        stream.between(8_300, 20_000)
    };
    let mut case = if stream.one_in(3) {
        decode(stream, m, n)
    } else {
        let rows = (0..m).map(|row| window(stream, row, n)).collect();
        Case::with_rows(rows, n as usize)
    };
    (case.h, case.d) = (64, 128);
    (case.block_size, case.block_topk, case.topk_tokens) = (128, 64, 2048);
    let name = match stream.below(8) {
        0 => "pow2",
        1 => "plateau",
        2 => "heavy",
        3 => "pooltie",
        _ => "real",
    };
    case.values = preset(name).unwrap_or(&PRESETS[0]).values();
    case.seed = stream.draw();
    case
}

/// Two sequences with a few last queries each.
fn decode(stream: &mut Stream, m: usize, n: u32) -> Case {
    let (q, k) = (stream.below(m as u32 + 1), stream.between(m as u32, n));
    let source = WindowSource::Separate {
        q: vec![0, i64::from(q), m as i64],
        k: vec![0, i64::from(k), i64::from(n)],
    };
    Case::with_windows(m, n as usize, source.into())
}

/// Row 0 sees everything, row 1 at most K keys, the next ones more than K within m blocks,
/// nothing, or anything.
fn window(stream: &mut Stream, row: usize, n: u32) -> Window {
    let len = match row {
        0 => n,
        1 => stream.between(1, 2048.min(n)),
        2 | 3 => stream.between(2049.min(n), 8_064.min(n)),
        4 if stream.one_in(3) => 0,
        _ => stream.below(n + 1),
    };
    let ks = stream.below(n - len + 1);
    Window {
        ks: ks as i32,
        ke: (ks + len) as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_every_limit_occur() {
        let mut seen = [0; 5];
        for index in 0..60 {
            let case = random_case(1, index);
            assert!((2..=6).contains(&case.m) && (1_000..=20_000).contains(&case.n));
            seen[0] += usize::from(case.blocks() < case.block_topk);
            for window in case.windows().unwrap().rows() {
                let blocks = window.blocks(128).len();
                seen[1] += usize::from(blocks > case.block_topk);
                seen[2] += usize::from(blocks < case.block_topk);
                seen[3] += usize::from(window.len() > 2048);
                seen[4] += usize::from(window.len() < 2048);
            }
        }
        assert!(seen.iter().all(|&count| count >= 10), "{seen:?}");
    }
}
