//! Programs: rows of f32 bit patterns, written down value by value or as ladders.
//!
//! With one head, `q` and every key equal to e0 and weight 1, a token's score is its `k_scale`;
//! with the `basis` queries and `blocks` keys of [`super::values`] a block's score is what the
//! program says. So any row of scores reaches a selector through the public inputs: ties,
//! thousands of neighbours in one coarse bin, ladders of one ulp, permutations (BR-01 to BR-08).
//!
//! ```text
//! program   = segment *( "." segment ) [ ".perm" ]
//! segment   = BITS [ "+" STEP | "u" RANGE ] [ "r" REPEAT ] [ "x" COUNT ] [ "p" ]
//! ```
//!
//! `BITS`, `STEP` and `RANGE` are hexadecimal, `REPEAT` and `COUNT` decimal. Value i of a segment
//! has the bits `BITS + (i / REPEAT) * STEP`, or `BITS` plus a random number below `RANGE`.
//! `COUNT` defaults to 1, except that a last segment without one goes on to the end of the row;
//! a row longer than its program repeats the last value. `p` shuffles the segment, `perm` the
//! whole row.

use super::stream::{Lane, Stream};
use std::fmt;

/// Most segments of a program.
pub const SEGMENTS_MAX: usize = 4096;

/// A row of f32 bit patterns of any length.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    /// The segments in order; never empty in a parsed program.
    pub segments: Vec<Segment>,
    /// True where the finished row is shuffled.
    pub shuffled: bool,
}

/// A run of related values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Bits of the first value.
    pub bits: u32,
    /// How later values differ.
    pub step: Step,
    /// How often each value of a ladder occurs in a row; at least 1.
    pub repeat: u32,
    /// Number of values; `None` for one value, or for all that remain in the last segment.
    pub count: Option<u32>,
    /// True where the segment is shuffled.
    pub shuffled: bool,
}

/// How the values of a segment differ from its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Not at all.
    Constant,
    /// By this many units in the last place per step.
    Ladder(u32),
    /// By a random number of units in the last place below this one.
    Random(u32),
}

impl Segment {
    /// `count` values, the first with these bits.
    #[must_use]
    pub const fn new(bits: u32, step: Step, count: u32) -> Self {
        Self {
            bits,
            step,
            repeat: 1,
            count: Some(count),
            shuffled: false,
        }
    }

    fn value(&self, i: usize, stream: &mut Stream) -> u32 {
        match self.step {
            Step::Constant => self.bits,
            Step::Ladder(step) => {
                let steps = i as u64 / u64::from(self.repeat.max(1));
                (u64::from(self.bits)).wrapping_add(steps.wrapping_mul(u64::from(step))) as u32
            }
            Step::Random(range) => self.bits.wrapping_add(stream.below(range)),
        }
    }
}

impl Program {
    /// The first `len` values of the row as f32 bit patterns.
    #[must_use]
    pub fn bits(&self, seed: u64, len: usize) -> Vec<u32> {
        let mut row = Vec::with_capacity(len);
        let last = self.segments.len().saturating_sub(1);
        for (index, segment) in self.segments.iter().enumerate() {
            let rest = len - row.len();
            let count = match segment.count {
                Some(count) => (count as usize).min(rest),
                None if index == last => rest,
                None => 1.min(rest),
            };
            let mut stream = Stream::new(seed, Lane::Program, index as u64);
            let start = row.len();
            row.extend((0..count).map(|i| segment.value(i, &mut stream)));
            if segment.shuffled {
                Stream::new(seed, Lane::Shuffle, index as u64).shuffle(&mut row[start..]);
            }
        }
        let last = row.last().copied().unwrap_or(0);
        row.resize(len, last);
        if self.shuffled {
            Stream::new(seed, Lane::Shuffle, 1 << 16).shuffle(&mut row);
        }
        row
    }

    /// Bounds on the bits each segment contributes to a row of `len` values, in order.
    pub(crate) fn ranges(&self, len: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut rest = len as u64;
        let last = self.segments.len().saturating_sub(1);
        self.segments
            .iter()
            .enumerate()
            .filter_map(move |(index, segment)| {
                let open = if index == last { rest } else { 1 };
                let count = segment.count.map_or(open, u64::from).min(rest);
                rest -= count;
                let steps = count.checked_sub(1)? / u64::from(segment.repeat.max(1));
                let low = u64::from(segment.bits);
                let spread = match segment.step {
                    Step::Constant => 0,
                    Step::Ladder(step) => steps.saturating_mul(u64::from(step)),
                    Step::Random(range) => u64::from(range.saturating_sub(1)),
                };
                Some((low, low.saturating_add(spread)))
            })
    }

    /// Reads a program.
    ///
    /// # Errors
    /// The byte offset within `text` and what was expected there.
    pub fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let (body, shuffled) = match text.strip_suffix(".perm") {
            Some(body) => (body, true),
            None => (text, false),
        };
        let mut segments = Vec::new();
        let mut at = 0;
        for part in body.split('.') {
            if segments.len() == SEGMENTS_MAX {
                return Err((at, "fewer segments"));
            }
            let segment = parse_segment(part).map_err(|(inner, want)| (at + inner, want))?;
            segments.push(segment);
            at += part.len() + 1;
        }
        Ok(Self { segments, shuffled })
    }
}

fn parse_segment(text: &str) -> Result<Segment, (usize, &'static str)> {
    let mut cursor = Cursor { text, at: 0 };
    let bits = cursor.number(16)?;
    let mut segment = Segment {
        bits,
        step: Step::Constant,
        repeat: 1,
        count: None,
        shuffled: false,
    };
    if cursor.eat('+') {
        segment.step = Step::Ladder(cursor.number(16)?);
    } else if cursor.eat('u') {
        segment.step = Step::Random(cursor.number(16)?);
    }
    if cursor.eat('r') {
        segment.repeat = cursor.number(10)?;
        if segment.repeat < 2 {
            return Err((cursor.at, "a repeat of at least 2"));
        }
    }
    if cursor.eat('x') {
        segment.count = Some(cursor.number(10)?);
    }
    segment.shuffled = cursor.eat('p');
    if cursor.at < text.len() {
        return Err((cursor.at, "the end of the segment"));
    }
    Ok(segment)
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn eat(&mut self, wanted: char) -> bool {
        let found = self.text[self.at..].starts_with(wanted);
        self.at += usize::from(found);
        found
    }

    fn number(&mut self, radix: u32) -> Result<u32, (usize, &'static str)> {
        let rest = &self.text[self.at..];
        let digits = rest
            .bytes()
            .take_while(|b| (*b as char).is_digit(radix))
            .count();
        let want = if radix == 16 {
            "hexadecimal bits"
        } else {
            "a decimal number"
        };
        let canonical = digits == 1 || radix == 16 || !rest.starts_with('0');
        let number = u32::from_str_radix(&rest[..digits], radix)
            .ok()
            .filter(|_| canonical);
        let number = number.ok_or((self.at, want))?;
        self.at += digits;
        Ok(number)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            segment.fmt(f)?;
        }
        f.write_str(if self.shuffled { ".perm" } else { "" })
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.bits)?;
        match self.step {
            Step::Constant => {}
            Step::Ladder(step) => write!(f, "+{step:x}")?,
            Step::Random(range) => write!(f, "u{range:x}")?,
        }
        if self.repeat > 1 {
            write!(f, "r{}", self.repeat)?;
        }
        if let Some(count) = self.count {
            write!(f, "x{count}")?;
        }
        f.write_str(if self.shuffled { "p" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(text: &str, len: usize) -> Vec<u32> {
        Program::parse(text).unwrap().bits(9, len)
    }

    #[test]
    fn literal_rows_and_ladders() {
        assert_eq!(bits("40000000.3f800000", 4), [0x4000_0000, ONE, ONE, ONE]);
        assert_eq!(
            bits("3f800000+1x3.00000000x1", 5),
            [ONE, ONE + 1, ONE + 2, 0, 0]
        );
        assert_eq!(
            bits("3f800000+10r2", 5),
            [ONE, ONE, ONE + 16, ONE + 16, ONE + 32]
        );
        assert_eq!(bits("3f800000x9", 2), [ONE, ONE]);
        assert!(bits("3f800000", 0).is_empty());
    }

    #[test]
    fn random_segments_stay_in_range_and_shuffles_permute() {
        let row = bits("3f900000u400x8192", 8192);
        assert!(row.iter().all(|&b| (0x3F90_0000..0x3F90_0400).contains(&b)));
        assert!(row.iter().any(|&b| b > 0x3F90_0300));
        let mut row = bits("3f800000+1x256p.3f800000", 300);
        assert_ne!(row[0..3], [ONE, ONE + 1, ONE + 2]);
        assert!(row[256..].iter().all(|&b| b == ONE));
        row[..256].sort_unstable();
        assert!(row[..256].iter().copied().eq(ONE..ONE + 256));
        let mut row = bits("3f800000+1x50.perm", 50);
        row.sort_unstable();
        assert!(row.iter().copied().eq(ONE..ONE + 50));
    }

    #[test]
    fn programs_print_and_parse_back() {
        for text in [
            "3f800000",
            "00000000x3.7f800000+1r4x9p.3f800000u400x8.perm",
            "7fc00000x6",
        ] {
            assert_eq!(Program::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Program::parse("40.1x2").unwrap().to_string(),
            "00000040.00000001x2"
        );
    }

    #[test]
    fn errors_name_the_place() {
        let error = |text| Program::parse(text).unwrap_err();
        assert_eq!(error(""), (0, "hexadecimal bits"));
        assert_eq!(error("3f800000."), (9, "hexadecimal bits"));
        assert_eq!(error("1.2q"), (3, "the end of the segment"));
        assert_eq!(error("1x"), (2, "a decimal number"));
        assert_eq!(error("1r1"), (3, "a repeat of at least 2"));
        assert_eq!(error("123456789"), (0, "hexadecimal bits"));
        assert_eq!(error("é"), (0, "hexadecimal bits"));
        assert_eq!(error("1x02"), (2, "a decimal number"));
    }

    const ONE: u32 = 0x3F80_0000;
}
