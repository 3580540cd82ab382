//! The random numbers every tensor and every fuzzed case is made of.
//!
//! One SplitMix64 per row, so that a row depends on nothing but the seed, what it is for and its
//! index: cutting a case to fewer rows, keys, heads or dimensions leaves the rest of its bytes
//! alone. With all arithmetic modulo 2^64 and `G = 0x9E3779B97F4A7C15`:
//!
//! ```text
//! mix(z)   z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB;
//!          return z ^ (z >> 31)
//! start    state = mix(mix(seed + lane * G) + row * G)
//! draw     state += G; return mix(state)
//! ```
//!
//! `lane` is the number of the [`Lane`]. Everything else is derived from draws by the rules on
//! the methods of [`Stream`]; none of them uses a transcendental function, so the bytes are the
//! same on every machine. They are also the same in every later version: the pinned digests in
//! the tests of [`crate::case`] fail otherwise.

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a stream is for; the number enters its start state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Codes of `q`; the row is `query * 65536 + head`.
    Q = 1,
    /// Codes of `k`; the row is the key.
    K = 2,
    /// `k_scale`; the row is the key.
    Scale = 3,
    /// `weights`; the row is the query.
    Weight = 4,
    /// Rows to quantise.
    X = 5,
    /// What the keys of a pool block share; the row is the block.
    Block = 6,
    /// Random segments of a programmed row; the row is the segment.
    Program = 7,
    /// Shuffles of a programmed row; the row is the segment, or 65536 for the whole row.
    Shuffle = 8,
    /// The originals that duplicated rows copy.
    Original = 9,
    /// Cases of the fuzzer; the row is the case's index in the run.
    Fuzz = 10,
    /// Cases at the DeepSeek sizes; the row is the case's index in the run.
    DeepSeek = 11,
}

/// SplitMix64 from a start state of its own.
#[derive(Debug, Clone)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// The stream for `row` of `lane` under `seed`.
    #[must_use]
    pub const fn new(seed: u64, lane: Lane, row: u64) -> Self {
        let lane = mix(seed.wrapping_add((lane as u64).wrapping_mul(GAMMA)));
        Self {
            state: mix(lane.wrapping_add(row.wrapping_mul(GAMMA))),
        }
    }

    /// The next 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// The next 32 bits: the high half of a draw.
    pub const fn draw_u32(&mut self) -> u32 {
        (self.draw() >> 32) as u32
    }

    /// A number below `n`: the high half of a draw times `n`, shifted right by 32. 0 for `n` = 0.
    pub const fn below(&mut self, n: u32) -> u32 {
        ((self.draw_u32() as u64 * n as u64) >> 32) as u32
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` on average.
    pub const fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`; `choices` must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// Two bell-shaped integers in -510..=510 with standard deviation 147.8: the sums of the four
    /// low and the four high bytes of a draw, each minus 510.
    pub const fn bell_pair(&mut self) -> (i32, i32) {
        let draw = self.draw();
        // Bytes are added in 16-bit lanes, then the lanes in pairs; no lane can overflow.
        let lanes = (draw & 0x00FF_00FF_00FF_00FF) + ((draw >> 8) & 0x00FF_00FF_00FF_00FF);
        let sums = (lanes & 0x0000_FFFF_0000_FFFF) + ((lanes >> 16) & 0x0000_FFFF_0000_FFFF);
        ((sums & 0xFFFF) as i32 - 510, (sums >> 32) as i32 - 510)
    }

    /// A bell-shaped f32 with standard deviation 1.15 and a full mantissa: the sum of the four
    /// 16-bit parts of one draw minus 131,070, times 128, plus the low 7 bits of a second draw,
    /// rounded to f32, times 2^-22.
    pub fn bell(&mut self) -> f32 {
        let draw = self.draw();
        let sum: i64 = (0..4)
            .map(|part| (draw >> (16 * part) & 0xFFFF) as i64)
            .sum();
        let fine = (sum - 131_070) * 128 + (self.draw() & 0x7F) as i64;
        fine as f32 / 4_194_304.0
    }

    /// A positive f32 with 23 random mantissa bits and the exponent `low + below(count)`.
    pub const fn float(&mut self, low: i32, count: u32) -> f32 {
        let exponent = (low + self.below(count) as i32 + 127) as u32;
        f32::from_bits((exponent << 23) | (self.draw_u32() >> 9))
    }

    /// Shuffles: for i from the last place down to 1, swap places i and `below(i + 1)`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u32 + 1) as usize);
        }
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_splitmix64() {
        // First outputs of SplitMix64 from state 0.
        let mut stream = Stream { state: 0 };
        assert_eq!(stream.draw(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(stream.draw(), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(stream.draw(), 0x06C4_5D18_8009_454F);
    }

    #[test]
    fn streams_differ_by_seed_lane_and_row() {
        let first = |seed, lane, row| Stream::new(seed, lane, row).draw();
        let base = first(1, Lane::Q, 0);
        assert_ne!(base, first(2, Lane::Q, 0));
        assert_ne!(base, first(1, Lane::K, 0));
        assert_ne!(base, first(1, Lane::Q, 1));
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        let mut stream = Stream::new(0, Lane::Fuzz, 0);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[stream.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(stream.below(0), 0);
        assert_eq!(stream.between(3, 3), 3);
    }

    #[test]
    fn bells_have_the_stated_spread() {
        let mut stream = Stream::new(7, Lane::X, 0);
        let (mut squares, mut count) = (0.0f64, 0.0f64);
        for _ in 0..20_000 {
            let (a, b) = stream.bell_pair();
            assert!(a.abs() <= 510 && b.abs() <= 510);
            squares += f64::from(a * a + b * b);
            count += 2.0;
        }
        assert!((squares / count - 147.8 * 147.8).abs() < 500.0);
        let squares: f64 = (0..20_000).map(|_| f64::from(stream.bell()).powi(2)).sum();
        assert!((squares / 20_000.0 - 1.333).abs() < 0.05);
    }

    #[test]
    fn shuffles_keep_the_items() {
        let mut items: Vec<u32> = (0..100).collect();
        Stream::new(3, Lane::Shuffle, 0).shuffle(&mut items);
        assert_ne!(items[..5], [0, 1, 2, 3, 4]);
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..100));
    }
}
