//! Every small shape: all windows, all pairs of windows, all ways to cut a few tokens into
//! sequences, each under every small block size, number of blocks and number of tokens.

use super::values::preset;
use super::{Generated, Generator};
use crate::case::{Case, WindowSource};
use hisa_ref::Window;

/// The shapes of one family, and the parameters each of them meets.
#[derive(Debug)]
struct Family {
    shapes: Vec<Shape>,
    block_size: &'static [usize],
    block_topk: &'static [usize],
    topk_tokens: &'static [usize],
    presets: &'static [&'static str],
}

#[derive(Debug)]
struct Shape {
    m: usize,
    n: usize,
    windows: WindowSource,
}

impl Family {
    fn len(&self) -> usize {
        self.shapes.len()
            * self.block_size.len()
            * self.block_topk.len()
            * self.topk_tokens.len()
            * self.presets.len()
    }

    /// `index` counted in the mixed radix of the lists, the shape being the slowest digit.
    fn case(&self, mut index: usize) -> Option<Case> {
        let mut digit = |radix: usize| {
            let digit = index % radix;
            index /= radix;
            digit
        };
        let preset = preset(self.presets[digit(self.presets.len())])?;
        let topk_tokens = self.topk_tokens[digit(self.topk_tokens.len())];
        let block_topk = self.block_topk[digit(self.block_topk.len())];
        let block_size = self.block_size[digit(self.block_size.len())];
        let Shape { m, n, windows } = self.shapes.get(index)?;
        let mut case = Case::with_windows(*m, *n, windows.clone().into());
        case.values = preset.values();
        Some(Case {
            block_size,
            block_topk,
            topk_tokens,
            ..case
        })
    }
}

/// The generator.
#[derive(Debug)]
pub struct Exhaustive {
    families: Vec<Family>,
}

impl Exhaustive {
    /// Lists every shape; the cases are made when asked for.
    #[must_use]
    pub fn new() -> Self {
        let families = vec![
            Family {
                shapes: one_row(5),
                block_size: &[1, 2, 3, 4],
                block_topk: &[1, 2, 3],
                topk_tokens: &[1, 2, 3, 6],
                presets: &["ties", "real"],
            },
            Family {
                shapes: two_rows(3),
                block_size: &[1, 2, 3],
                block_topk: &[1, 2],
                topk_tokens: &[2, 4],
                presets: &["real"],
            },
            Family {
                shapes: packed(4, 4),
                block_size: &[1, 2, 3],
                block_topk: &[1, 2],
                topk_tokens: &[1, 2, 4],
                presets: &["real"],
            },
            Family {
                shapes: separate(2, 3),
                block_size: &[1, 2, 3],
                block_topk: &[1, 2],
                topk_tokens: &[1, 3],
                presets: &["plateau"],
            },
            Family {
                shapes: strided(2, 4),
                block_size: &[1, 2],
                block_topk: &[1, 2],
                topk_tokens: &[2],
                presets: &["real"],
            },
        ];
        Self { families }
    }
}

impl Default for Exhaustive {
    fn default() -> Self {
        Self::new()
    }
}

impl Generator for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn about(&self) -> &'static str {
        "Every small shape, every window and every way to cut it into sequences."
    }

    fn len(&self) -> u64 {
        self.families.iter().map(Family::len).sum::<usize>() as u64
    }

    fn case(&self, index: u64) -> Option<Generated> {
        let mut rest = usize::try_from(index).ok()?;
        for family in &self.families {
            if rest < family.len() {
                let mut case = family.case(rest)?;
                (case.h, case.seed) = (1 + rest % 2, index);
                return Some(case.into());
            }
            rest -= family.len();
        }
        None
    }
}

fn all_windows(n: usize) -> impl Iterator<Item = Window> + Clone {
    let n = n as i32;
    (0..=n).flat_map(move |ks| (ks..=n).map(move |ke| Window { ks, ke }))
}

/// One row with every window over 0 to `n_max` keys.
fn one_row(n_max: usize) -> Vec<Shape> {
    let shape = |n, row| Shape {
        m: 1,
        n,
        windows: WindowSource::Rows(vec![row]),
    };
    (0..=n_max)
        .flat_map(|n| all_windows(n).map(move |row| shape(n, row)))
        .collect()
}

/// Two rows with every pair of windows.
fn two_rows(n_max: usize) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for n in 0..=n_max {
        for first in all_windows(n) {
            shapes.extend(all_windows(n).map(|second| {
                let windows = WindowSource::Rows(vec![first, second]);
                Shape { m: 2, n, windows }
            }));
        }
    }
    shapes
}

/// Offsets of every way to cut 0 to `tokens_max` tokens into 1 to `sequences_max` sequences.
fn cuts(sequences_max: usize, tokens_max: i64) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    let mut open = vec![vec![0]];
    for _ in 0..sequences_max {
        let longer = |cu: &Vec<i64>| {
            let (cu, last) = (cu.clone(), cu[cu.len() - 1]);
            (last..=tokens_max).map(move |next| [cu.as_slice(), &[next]].concat())
        };
        open = open.iter().flat_map(longer).collect();
        all.extend_from_slice(&open);
    }
    all
}

fn total(cu: &[i64]) -> usize {
    cu.last().copied().unwrap_or(0).unsigned_abs() as usize
}

fn packed(sequences_max: usize, tokens_max: i64) -> Vec<Shape> {
    let shape = |cu: Vec<i64>| {
        let tokens = total(&cu);
        Shape {
            m: tokens,
            n: tokens,
            windows: WindowSource::Causal(cu),
        }
    };
    cuts(sequences_max, tokens_max)
        .into_iter()
        .map(shape)
        .collect()
}

fn separate(sequences_max: usize, tokens_max: i64) -> Vec<Shape> {
    let cuts = cuts(sequences_max, tokens_max);
    let mut shapes = Vec::new();
    for q in &cuts {
        for k in cuts.iter().filter(|k| k.len() == q.len()) {
            let windows = WindowSource::Separate {
                q: q.clone(),
                k: k.clone(),
            };
            shapes.push(Shape {
                m: total(q),
                n: total(k),
                windows,
            });
        }
    }
    shapes
}

fn strided(sequences_max: usize, tokens_max: i64) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for q in cuts(sequences_max, tokens_max) {
        for stride in 1..=3usize {
            let m = total(&q);
            let n = q
                .windows(2)
                .map(|pair| (pair[1] - pair[0]) as usize / stride)
                .sum();
            let first_positions = if m.is_multiple_of(2) {
                vec![]
            } else {
                vec![1; q.len() - 1]
            };
            let windows = WindowSource::Strided {
                q: q.clone(),
                k: None,
                stride,
                first_positions,
            };
            shapes.push(Shape { m, n, windows });
        }
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_complete() {
        // C(T + s, s) ways to cut at most T tokens into s sequences.
        assert_eq!(cuts(1, 4).len(), 5);
        assert_eq!(cuts(2, 4).len(), 5 + 15);
        assert_eq!(cuts(4, 4).len(), 5 + 15 + 35 + 70);
        assert!(cuts(3, 2).contains(&vec![0, 0, 1, 2]));
    }

    #[test]
    fn the_size_is_what_is_meant() {
        assert_eq!(one_row(5).len(), 56);
        assert_eq!(two_rows(3).len(), 1 + 9 + 36 + 100);
        assert_eq!(separate(2, 3).len(), 16 + 100);
        assert_eq!(strided(2, 4).len(), 60);
        let parts = [56 * 96, 146 * 12, 125 * 18, 116 * 12, 60 * 4];
        assert_eq!(Exhaustive::new().len(), parts.iter().sum::<u64>());
    }
}
