//! token_topk and flat_topk: the best of a row in order.

use crate::emulator::{Arg, Launch, Unit, have_compiler, input, output};
use crate::selection::{cases, flat, ids, kept, kernel_tests, scores};
use crate::values::{Draw, Rows, Shape, differs};
use hisa_ref::Windows;
use hisa_ref::stages::{index_map, token_topk};
use ndarray::Array2;

/// Rows of scores and what is asked of them.
struct Tokens {
    n: usize,
    b: usize,
    topk: usize,
    rows: Rows,
    ids: Array2<i32>,
    scores: Array2<f32>,
}

impl Tokens {
    /// `cached` is that of the kernel.
    fn check(&self, unit: &Unit, block: usize, cached: usize) -> Result<(), String> {
        let (m, columns) = self.ids.dim();
        let capacity = self.topk.min(columns * self.b).next_power_of_two();
        let mut got = vec![0i32; m * self.topk];
        let launch = Launch {
            grid: [m, 1],
            block,
            shared: 8 * capacity + 4 * cached,
        };
        let mut args = [
            input(flat(&self.scores)),
            input(flat(&self.ids)),
            input(&self.rows.ks),
            input(&self.rows.ke),
            output(&mut got),
            Arg::scalar(self.n as i64),
            Arg::scalar(self.b as i64),
            Arg::scalar(columns as i64),
            Arg::scalar(self.topk as i64),
            Arg::scalar(capacity as i32),
            Arg::scalar(cached as i32),
        ];
        unit.launch("token_topk", launch, &mut args)?;
        let (scores, ids) = (self.scores.view(), self.ids.view());
        let expected = token_topk::run(scores, ids, &self.rows.windows, self.b, self.topk).unwrap();
        let case = (self.n, self.b, block, cached, &self.rows, &self.ids);
        differs("token_topk", &case, self.topk, &got, flat(&expected))
    }

    /// Both from a copy of the ranks and without.
    fn check_both(&self, unit: &Unit, block: usize) -> Result<(), String> {
        let slots = self.scores.ncols();
        self.check(unit, block, slots)?;
        self.check(unit, block, slots - 1)
    }
}

/// The flat selection of one key per slot, whatever its ids and blocks.
struct Keys<'a> {
    topk: usize,
    rows: &'a Rows,
    scores: &'a Array2<f32>,
}

impl Keys<'_> {
    fn check(&self, unit: &Unit, block: usize, capacity: usize) -> Result<(), String> {
        let (m, n) = self.scores.dim();
        let mut got = vec![0i32; m * self.topk];
        let launch = Launch {
            grid: [m, 1],
            block,
            shared: 8 * capacity,
        };
        let mut args = [
            input(flat(self.scores)),
            input(&self.rows.ks),
            input(&self.rows.ke),
            output(&mut got),
            Arg::scalar(n as i64),
            Arg::scalar(self.topk as i64),
            Arg::scalar(capacity as i32),
        ];
        unit.launch("flat_topk", launch, &mut args)?;
        // The flat selection is that over blocks of one key, all of them chosen (9.2, 7.2).
        let all = Array2::from_shape_fn(
            (m, n.max(1)),
            |(_, key)| if n == 0 { -1 } else { key as i32 },
        );
        let padded = Array2::from_shape_fn((m, n.max(1)), |at| {
            self.scores.get(at).copied().unwrap_or(0.0)
        });
        let (windows, topk) = (&self.rows.windows, self.topk);
        let slots = token_topk::run(padded.view(), all.view(), windows, 1, topk).unwrap();
        let expected = index_map::run(slots.view(), all.view(), windows, 1).unwrap();
        let case = (n, block, capacity, self.rows);
        differs("flat_topk", &case, topk, &got, flat(&expected))
    }
}

/// A row that is hard in some way. All its blocks are chosen.
struct Hard {
    n: usize,
    b: usize,
    topk: usize,
    block: usize,
    /// Keys before and behind the window.
    outside: (usize, usize),
    score: fn(&mut Draw, usize) -> f32,
}

/// Neighbours among the f32 from 1 on, all close to each other beside the largest number.
fn clustered(_: &mut Draw, key: usize) -> f32 {
    if key == 100 {
        return f32::MAX;
    }
    f32::from_bits(0x3F80_0000 + key as u32 * 7 % 256)
}

fn two_values(draw: &mut Draw, _: usize) -> f32 {
    draw.pick(&[2.0, 1.0, 1.0, 1.0])
}

fn mostly_nan(draw: &mut Draw, key: usize) -> f32 {
    if key.is_multiple_of(5) {
        draw.real(1.0)
    } else {
        f32::from_bits(draw.pick(&[0x7FC0_0000, 0xFFC0_0001, 0x7F80_0001]))
    }
}

fn plain(draw: &mut Draw, _: usize) -> f32 {
    draw.real(4.0)
}

const fn hard(
    sizes: [usize; 4],
    outside: (usize, usize),
    score: fn(&mut Draw, usize) -> f32,
) -> Hard {
    let [n, b, topk, block] = sizes;
    Hard {
        n,
        b,
        topk,
        block,
        outside,
        score,
    }
}

const HARD: &[Hard] = &[
    // More in one bucket than are compared with each other; the same where few are left out.
    hard([300, 4, 200, 64], (0, 0), clustered),
    hard([300, 7, 256, 64], (3, 5), clustered),
    // One score, and so many winners that places to spare do not help.
    hard([300, 4, 100, 64], (0, 0), |_, _| 1.0),
    hard([300, 4, 256, 64], (2, 1), |_, _| -0.0),
    hard([300, 3, 129, 32], (1, 0), |_, _| f32::NEG_INFINITY),
    // The last place falls among ties.
    hard([500, 5, 200, 64], (7, 9), two_values),
    hard([500, 128, 300, 64], (7, 9), two_values),
    hard([400, 16, 150, 64], (3, 3), mostly_nan),
    // As many eligible as places, and one more or less.
    hard([300, 4, 200, 64], (60, 40), plain),
    hard([300, 4, 200, 64], (60, 39), plain),
    hard([300, 4, 200, 64], (60, 41), plain),
    hard([300, 4, 200, 64], (60, 40), mostly_nan),
];

/// The sizes that the host launches with, at the longest row it has copied and beyond.
const LONG: &[Hard] = &[
    hard([8192, 128, 2048, 512], (100, 30), plain),
    hard([8193, 3, 2048, 512], (1, 0), two_values),
];

impl Hard {
    /// One row with this window, and one with any.
    fn rows(&self, draw: &mut Draw) -> Rows {
        let (ks, ke) = draw.window(self.n, self.b);
        let (before, behind) = self.outside;
        let ks = vec![before as i32, ks];
        let ke = vec![(self.n - behind) as i32, ke];
        let windows = Windows::from_rows(&ks, &ke, self.n).unwrap();
        Rows { ks, ke, windows }
    }

    fn tokens(&self, draw: &mut Draw, ascending: bool) -> Tokens {
        let columns = self.n.div_ceil(self.b);
        let mut order: Vec<i32> = (0..columns as i32).collect();
        if !ascending {
            for at in (1..columns).rev() {
                order.swap(at, draw.below(at + 1));
            }
        }
        let ids = Array2::from_shape_fn((2, columns), |(_, column)| order[column]);
        let scores =
            Array2::from_shape_fn((2, columns * self.b), |(_, slot)| (self.score)(draw, slot));
        Tokens {
            n: self.n,
            b: self.b,
            topk: self.topk,
            rows: self.rows(draw),
            ids,
            scores,
        }
    }

    fn keys(&self, draw: &mut Draw, unit: &Unit, capacity: usize) -> Result<(), String> {
        let rows = self.rows(draw);
        let scores = Array2::from_shape_fn((2, self.n), |(_, key)| (self.score)(draw, key));
        let (topk, rows, scores) = (self.topk, &rows, &scores);
        Keys { topk, rows, scores }.check(unit, self.block, capacity)
    }
}

pub(crate) fn check_token_topk(unit: &Unit) -> Result<(), String> {
    let mut draw = Draw::new(31);
    for row in HARD {
        for ascending in [true, false] {
            let tokens = row.tokens(&mut draw, ascending);
            tokens.check_both(unit, row.block)?;
        }
    }
    cases(3, |draw, shape, taste| {
        let Shape { m, n, b, .. } = shape;
        let (columns, topk) = kept(draw, shape);
        let tokens = Tokens {
            n,
            b,
            topk,
            rows: Rows::draw(draw, m, n, b),
            ids: ids(draw, m, columns, shape.blocks()),
            scores: scores(draw, taste, m, columns * b),
        };
        let block = draw.pick(&[32, 64, 256]);
        let cached = if draw.once_in(2) { columns * b } else { 0 };
        tokens.check(unit, block, cached)
    })
}

pub(crate) fn check_flat_topk(unit: &Unit) -> Result<(), String> {
    let mut draw = Draw::new(41);
    for row in HARD {
        let fewest = row.topk.next_power_of_two();
        row.keys(&mut draw, unit, fewest)?;
        row.keys(&mut draw, unit, 2 * fewest)?;
    }
    cases(4, |draw, shape, taste| {
        let Shape { m, n, .. } = shape;
        let topk = draw.pick(&[1, 2, 3, 31, 32, 100, 129, 300]);
        let keys = Keys {
            topk,
            rows: &Rows::draw(draw, m, n, 1),
            scores: &scores(draw, taste, m, n),
        };
        let block = draw.pick(&[32, 64, 256]);
        let least = draw.pick(&[1, 64, 1024]);
        let capacity = topk.max(least).min(n).next_power_of_two();
        keys.check(unit, block, capacity)
    })
}

fn check_long_rows(unit: &Unit) -> Result<(), String> {
    let mut draw = Draw::new(51);
    for row in LONG {
        for ascending in [true, false] {
            let tokens = row.tokens(&mut draw, ascending);
            let slots = tokens.scores.ncols();
            let cached = if slots <= 8192 { slots } else { 0 };
            tokens.check(unit, row.block, cached)?;
        }
    }
    Ok(())
}

fn check_long_windows(unit: &Unit) -> Result<(), String> {
    let mut draw = Draw::new(61);
    for row in LONG {
        let row = Hard { block: 768, ..*row };
        row.keys(&mut draw, unit, 4096)?;
    }
    Ok(())
}

kernel_tests! {
    token_topk_is_the_reference: "token_topk.cu", check_token_topk;
    flat_topk_is_the_reference: "dsa.cu", check_flat_topk;
    token_topk_of_long_rows_is_the_reference: "token_topk.cu", check_long_rows;
    flat_topk_of_long_windows_is_the_reference: "dsa.cu", check_long_windows;
}
