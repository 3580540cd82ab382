//! How the e4m3 codes of `q` and `k` are drawn: every kind is one function from a row's stream.
//!
//! "Encoded" means rounded to e4m3 once, half to even, saturating. `Stream` is the row's stream of
//! [`crate::generate::stream`]; the functions say in their own words what they draw and in which
//! order, which together with that module is enough to write them again in another language.

use super::blocks::basis;
use super::kinds::CodeKind;
use crate::generate::stream::{Lane, Stream};
use hisa_ref::{E4M3, Overflow};
use std::sync::LazyLock;

/// What a row of codes needs to know besides its kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodeRows {
    pub(super) seed: u64,
    pub(super) lane: Lane,
    /// Rows that are pooled together.
    pub(super) block_size: usize,
    /// Number of rows in all, for the length of the last block.
    pub(super) rows: usize,
}

impl CodeRows {
    /// Fills the row with this index; returns the scale the codes call for.
    pub(super) fn fill(&self, kind: CodeKind, row: usize, out: &mut [E4M3]) -> f32 {
        let mut stream = Stream::new(self.seed, self.lane, row as u64);
        match kind {
            CodeKind::Zero => out.fill(E4M3::ZERO),
            CodeKind::E0 => e0(out),
            CodeKind::Normal => normal(&mut stream, out),
            CodeKind::Amax => return amax(&mut stream, out),
            CodeKind::Heavy => heavy(&mut stream, out),
            CodeKind::Uniform => bytes(&mut stream, out, finite),
            CodeKind::All => bytes(&mut stream, out, E4M3::from_bits),
            CodeKind::Nan => rare_nan(&mut stream, out),
            CodeKind::Zeros => self.zeros(&mut stream, row, out),
            CodeKind::Few => bytes(&mut stream, out, |byte| {
                E4M3::from_bits(FEW[byte as usize & 3])
            }),
            CodeKind::Dup => self.duplicate(&mut stream, out),
            CodeKind::Positive => {
                normal(&mut stream, out);
                map_bits(out, |bits| bits & 0x7F);
            }
            CodeKind::Plateau => plateau(&mut stream, out),
            CodeKind::Extreme => {
                bytes(&mut stream, out, |byte| {
                    E4M3::from_bits(EXTREME[byte as usize & 15])
                });
            }
            CodeKind::Subnormal => {
                bytes(&mut stream, out, |byte| E4M3::from_bits(byte & 0x87));
            }
            CodeKind::Paired => paired(&mut stream, out),
            CodeKind::Cancel => cancel(&mut stream, out),
            CodeKind::PoolTie => self.pool_tie(row, out),
            CodeKind::Basis => basis(out),
        }
        1.0
    }

    /// Draws one of four from the block's stream. 0: the block is zero. 1: rows of even place
    /// within the block are normal, the next one is its negative. Else a row is zero once in two
    /// and normal otherwise. Zero rows are 0x00, or once in four a mix of 0x00 and 0x80.
    fn zeros(&self, stream: &mut Stream, row: usize, out: &mut [E4M3]) {
        let place = row % self.block_size;
        let mut block = Stream::new(self.seed, Lane::Block, (row / self.block_size) as u64);
        match block.below(4) {
            1 if place % 2 == 1 => {
                normal(&mut Stream::new(self.seed, self.lane, row as u64 - 1), out);
                map_bits(out, |bits| bits ^ 0x80);
            }
            1 => normal(stream, out),
            0 => zero_row(stream, out),
            _ if stream.one_in(2) => zero_row(stream, out),
            _ => normal(stream, out),
        }
    }

    /// A copy of one of four normal rows of lane `Original`, whose rows are `lane * 4 + below(4)`.
    fn duplicate(&self, stream: &mut Stream, out: &mut [E4M3]) {
        let original = self.lane as u64 * 4 + u64::from(stream.below(4));
        normal(&mut Stream::new(self.seed, Lane::Original, original), out);
    }

    /// Dimension 0 is 448. Every other dimension draws, from the block's stream, `j = below(8)`,
    /// the exponent `e = below(7) - 2` and a sign; the rows of the block then alternate between
    /// `(8 + j) * 2^e` and `(9 + j) * 2^e`. In a block of odd length the first three rows are
    /// `TRIPLE[j] * 2^e` instead, which has the same mean of `(8.5 + j) * 2^e`.
    fn pool_tie(&self, row: usize, out: &mut [E4M3]) {
        let block = row / self.block_size;
        let place = row % self.block_size;
        let count = self.block_size.min(self.rows - block * self.block_size);
        let odd = count % 2 == 1;
        let mut shared = Stream::new(self.seed, Lane::Block, block as u64);
        for (d, code) in out.iter_mut().enumerate() {
            if d == 0 {
                *code = E4M3::from_bits(0x7E);
                continue;
            }
            let j = shared.below(8);
            let unit = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0][shared.below(7) as usize];
            let sign = if shared.one_in(2) { -unit } else { unit };
            let value = match place {
                0..3 if odd && count > 1 => TRIPLE[j as usize][place],
                _ => (8 + j + (place % 2) as u32) as f32,
            };
            *code = encode(value * sign);
        }
    }
}

/// Three codes each whose sum is three times 8.5 + j, in units of 2^e.
const TRIPLE: [[f32; 3]; 8] = [
    [7.5, 9.0, 9.0],
    [7.5, 10.0, 11.0],
    [7.5, 12.0, 12.0],
    [7.5, 13.0, 14.0],
    [7.5, 15.0, 15.0],
    [7.5, 15.0, 18.0],
    [7.5, 18.0, 18.0],
    [7.5, 15.0, 24.0],
];

const FEW: [u8; 4] = [0x00, 0x38, 0xB8, 0x40];
const EXTREME: [u8; 16] = [
    0x7E, 0xFE, 0x01, 0x81, 0x07, 0x87, 0x08, 0x88, 0x00, 0x80, 0x7D, 0xFD, 0x00, 0x80, 0x38, 0xB8,
];

/// The code of a bell-shaped integer divided by 128, by the integer plus 510.
static BELL_CODES: LazyLock<[E4M3; 1021]> =
    LazyLock::new(|| std::array::from_fn(|i| encode((i as i32 - 510) as f32 / 128.0)));

pub(super) fn encode(value: f32) -> E4M3 {
    E4M3::encode(value, Overflow::Saturating)
}

fn map_bits(out: &mut [E4M3], map: impl Fn(u8) -> u8) {
    for code in out {
        *code = E4M3::from_bits(map(code.to_bits()));
    }
}

fn e0(out: &mut [E4M3]) {
    out.fill(E4M3::ZERO);
    if let Some(first) = out.first_mut() {
        *first = E4M3::from_bits(0x38);
    }
}

/// `bell_pair / 128`, encoded; both numbers of each pair in turn.
fn normal(stream: &mut Stream, out: &mut [E4M3]) {
    let codes = &*BELL_CODES;
    for pair in out.chunks_mut(2) {
        let (first, second) = stream.bell_pair();
        pair[0] = codes[(first + 510) as usize];
        if let Some(code) = pair.get_mut(1) {
            *code = codes[(second + 510) as usize];
        }
    }
}

/// A gain `(65536 + 3 * below(65536)) / 131072`, then bell pairs. With p their largest magnitude,
/// at least 1: a code is the number times `448 / p` in f64, encoded; the scale is
/// `p / 128 * gain / 448` in f64, rounded to f32.
fn amax(stream: &mut Stream, out: &mut [E4M3]) -> f32 {
    let gain = f64::from(65_536 + 3 * stream.below(65_536)) / 131_072.0;
    let mut ahead = stream.clone();
    let mut peak = 1;
    for pair in out.chunks(2) {
        let (first, second) = ahead.bell_pair();
        let second = if pair.len() == 2 { second.abs() } else { 0 };
        peak = peak.max(first.abs()).max(second);
    }
    let ratio = 448.0 / f64::from(peak);
    let code = |number: i32| E4M3::encode_f64(f64::from(number) * ratio, Overflow::Saturating);
    for pair in out.chunks_mut(2) {
        let (first, second) = stream.bell_pair();
        pair[0] = code(first);
        if let Some(out) = pair.get_mut(1) {
            *out = code(second);
        }
    }
    (f64::from(peak) / 128.0 * gain / 448.0) as f32
}

/// The first number of a bell pair / 128 times 2^z, encoded; z is the number of trailing zeros of
/// a draw, 7 at most.
fn heavy(stream: &mut Stream, out: &mut [E4M3]) {
    for code in out {
        let (number, _) = stream.bell_pair();
        let shift = (stream.draw() | 0x80).trailing_zeros();
        *code = encode((number << shift) as f32 / 128.0);
    }
}

/// Bytes of draws, lowest first, through `code`.
fn bytes(stream: &mut Stream, out: &mut [E4M3], code: impl Fn(u8) -> E4M3) {
    for chunk in out.chunks_mut(8) {
        let draw = stream.draw().to_le_bytes();
        for (out, byte) in chunk.iter_mut().zip(draw) {
            *out = code(byte);
        }
    }
}

/// Byte times 254 / 256, rounded down, counts through the finite codes in order of their bits.
const fn finite(byte: u8) -> E4M3 {
    let index = ((byte as u32 * 254) >> 8) as u8;
    E4M3::from_bits(if index < 0x7F { index } else { index + 1 })
}

/// Normal; then once in four, code `below(D)` becomes 0x7F or, once in two, 0xFF.
fn rare_nan(stream: &mut Stream, out: &mut [E4M3]) {
    normal(stream, out);
    if stream.one_in(4) && !out.is_empty() {
        let at = stream.below(out.len() as u32) as usize;
        out[at] = E4M3::from_bits(if stream.one_in(2) { 0xFF } else { 0x7F });
    }
}

fn zero_row(stream: &mut Stream, out: &mut [E4M3]) {
    if stream.one_in(4) {
        bytes(stream, out, |byte| E4M3::from_bits(byte & 0x80));
    } else {
        out.fill(E4M3::ZERO);
    }
}

/// Once in sixteen a positive row, else a negative one; normal magnitudes, drawn after.
fn plateau(stream: &mut Stream, out: &mut [E4M3]) {
    let sign = if stream.one_in(16) { 0 } else { 0x80 };
    normal(stream, out);
    map_bits(out, |bits| (bits & 0x7F) | sign);
}

/// Element 2j + 1 repeats element 2j of a normal row.
fn paired(stream: &mut Stream, out: &mut [E4M3]) {
    normal(stream, out);
    for pair in out.chunks_exact_mut(2) {
        pair[1] = pair[0];
    }
}

/// A normal row whose pairs but the last are overwritten by `(c, -c)`, c one of the 15 finite
/// codes from 128 up (`0x70 + below(15)`). A row of one or two elements stays normal.
fn cancel(stream: &mut Stream, out: &mut [E4M3]) {
    normal(stream, out);
    let kept = if out.len().is_multiple_of(2) { 2 } else { 1 };
    let paired = out.len().saturating_sub(kept);
    for pair in out[..paired].chunks_exact_mut(2) {
        let code = 0x70 + stream.below(15) as u8;
        pair[0] = E4M3::from_bits(code);
        pair[1] = E4M3::from_bits(code | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: CodeKind, row: usize, d: usize) -> (Vec<E4M3>, f32) {
        let rows = CodeRows {
            seed: 5,
            lane: Lane::K,
            block_size: 4,
            rows: 18,
        };
        let mut out = vec![E4M3::NAN; d];
        let scale = rows.fill(kind, row, &mut out);
        (out, scale)
    }

    #[test]
    fn rows_do_not_depend_on_their_length() {
        let cut = |kind: &CodeKind| {
            // A quantised row depends on its largest element, a cancelling one on its end; the
            // NaN is placed after all elements are drawn.
            !matches!(kind, CodeKind::Amax | CodeKind::Cancel | CodeKind::Nan)
        };
        for &kind in CodeKind::ALL.iter().filter(|kind| cut(kind)) {
            for index in 0..8 {
                let (long, short) = (row(kind, index, 16).0, row(kind, index, 5).0);
                assert_eq!(long[..5], short, "{kind}");
            }
        }
    }

    #[test]
    fn only_permissive_kinds_hold_nan() {
        for &kind in CodeKind::ALL {
            let nan = (0..18).any(|index| row(kind, index, 96).0.iter().any(|c| c.is_nan()));
            assert_eq!(nan, matches!(kind, CodeKind::All | CodeKind::Nan), "{kind}");
        }
    }

    #[test]
    fn amax_rows_reach_448_with_a_realistic_scale() {
        for index in 0..18 {
            let (codes, scale) = row(CodeKind::Amax, index, 64);
            assert!(codes.iter().any(|code| code.to_f32().abs() == 448.0));
            assert!(scale > 0.001 && scale < 0.02, "{scale}");
        }
    }

    #[test]
    fn pool_ties_have_their_mean_halfway_between_two_codes() {
        for (block, count) in [(0, 4), (4, 2)] {
            check_pool_tie(4, 18, block, count);
        }
        check_pool_tie(3, 9, 1, 3);
        check_pool_tie(128, 300, 0, 128);
    }

    fn check_pool_tie(block_size: usize, rows: usize, block: usize, count: usize) {
        let filler = CodeRows {
            seed: 8,
            lane: Lane::K,
            block_size,
            rows,
        };
        let d = 40;
        let mut sums = vec![0.0f64; d];
        let mut out = vec![E4M3::ZERO; d];
        for place in 0..count {
            filler.fill(CodeKind::PoolTie, block * block_size + place, &mut out);
            sums.iter_mut()
                .zip(&out)
                .for_each(|(sum, code)| *sum += f64::from(code.to_f32()));
        }
        assert_eq!(sums[0], 448.0 * count as f64);
        for sum in &sums[1..] {
            let mean = sum / count as f64;
            let (below, above) = (encode((mean * 0.999) as f32), encode((mean * 1.001) as f32));
            let halfway = (f64::from(below.to_f32()) + f64::from(above.to_f32())) / 2.0;
            assert_eq!(mean, halfway);
            assert_ne!(below, above);
        }
    }

    #[test]
    fn zero_blocks_cancelling_blocks_and_zero_rows_all_occur() {
        let filler = CodeRows {
            seed: 1,
            lane: Lane::K,
            block_size: 2,
            rows: 400,
        };
        let mut keys = vec![vec![E4M3::NAN; 8]; 400];
        keys.iter_mut().enumerate().for_each(|(row, out)| {
            filler.fill(CodeKind::Zeros, row, out);
        });
        let zero = |key: &[E4M3]| key.iter().all(|code| code.units() == 0);
        let blocks: Vec<_> = keys.chunks(2).collect();
        let cancels = |block: &&&[Vec<E4M3>]| {
            let sums = block[0]
                .iter()
                .zip(&block[1])
                .map(|(a, b)| a.units() + b.units());
            !zero(&block[0]) && sums.into_iter().all(|sum| sum == 0)
        };
        assert!(blocks.iter().filter(|b| zero(&b[0]) && zero(&b[1])).count() > 40);
        assert!(blocks.iter().filter(cancels).count() > 20);
        assert!(blocks.iter().filter(|b| zero(&b[0]) != zero(&b[1])).count() > 20);
    }
}
