//! Single elements set by hand: how exact inputs from bug reports are written down.

use std::fmt;

/// The tensor a patch changes. The order is that of `Case::shapes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// `q` `[M,H,D]`, codes.
    Q,
    /// `k` `[N,D]`, codes.
    K,
    /// `k_scale` `[N]`, f32.
    S,
    /// `weights` `[M,H]`, f32.
    W,
    /// Rows for `quantize` `[N,D]`, f32.
    X,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 5] = [Self::Q, Self::K, Self::S, Self::W, Self::X];

    /// The letter addresses use.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Q => "q",
            Self::K => "k",
            Self::S => "s",
            Self::W => "w",
            Self::X => "x",
        }
    }

    /// Number of axes.
    #[must_use]
    pub const fn axes(self) -> usize {
        match self {
            Self::Q => 3,
            Self::K | Self::W | Self::X => 2,
            Self::S => 1,
        }
    }

    /// True for tensors of codes, false for f32.
    #[must_use]
    pub const fn is_code(self) -> bool {
        matches!(self, Self::Q | Self::K)
    }
}

/// One element, or all along some axes, set to given bits: `k.3.0=7f`, `w._.1=3f800000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Patch {
    /// The tensor.
    pub target: Target,
    /// Index along each of the target's axes, `None` for all; further entries are `None`.
    pub index: [Option<u32>; 3],
    /// The code, or the f32 bit pattern.
    pub bits: u32,
}

impl Patch {
    /// True where every index lies within the shape.
    #[must_use]
    pub fn fits(&self, shape: [usize; 3]) -> bool {
        let axes = self.target.axes();
        self.index
            .iter()
            .zip(shape)
            .take(axes)
            .all(|(index, len)| match *index {
                Some(at) => (at as usize) < len,
                None => true,
            })
    }

    /// Sets every element it names in a row-major tensor of this shape.
    pub(crate) fn apply<T: Copy>(&self, shape: [usize; 3], out: &mut [T], value: T) {
        let mut len = [1; 3];
        len[..self.target.axes()].copy_from_slice(&shape[..self.target.axes()]);
        let range = |axis: usize| match self.index[axis] {
            Some(at) => at as usize..(at as usize + 1).min(len[axis]),
            None => 0..len[axis],
        };
        for a in range(0) {
            for b in range(1) {
                for c in range(2) {
                    out[(a * len[1] + b) * len[2] + c] = value;
                }
            }
        }
    }

    /// Reads the part before and after the `=`.
    ///
    /// # Errors
    /// What was expected.
    pub(crate) fn parse(key: &str, value: &str) -> Result<Self, &'static str> {
        let (word, places) = key.split_once('.').unwrap_or((key, ""));
        let target = Target::ALL.into_iter().find(|target| target.word() == word);
        let target = target.ok_or("a patch of q, k, s, w or x")?;
        let mut index = [None; 3];
        let places: Vec<_> = places.split('.').collect();
        if places.len() != target.axes() {
            return Err("one index or _ for each axis: q 3, k 2, s 1, w 2, x 2");
        }
        for (slot, place) in index.iter_mut().zip(places) {
            if place != "_" {
                let canonical = place == "0" || !place.starts_with(['0', '+']);
                let number = place.parse().ok().filter(|_| canonical);
                *slot = Some(number.ok_or("an index or _")?);
            }
        }
        let (digits, want) = if target.is_code() {
            (2, "a code of two hexadecimal digits")
        } else {
            (8, "f32 bits of eight hexadecimal digits")
        };
        let hexadecimal =
            value.len() == digits && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u32::from_str_radix(value, 16)
            .ok()
            .filter(|_| hexadecimal)
            .ok_or(want)?;
        Ok(Self {
            target,
            index,
            bits,
        })
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.target.word())?;
        for index in &self.index[..self.target.axes()] {
            match index {
                Some(at) => write!(f, ".{at}")?,
                None => f.write_str("._")?,
            }
        }
        let width = if self.target.is_code() { 2 } else { 8 };
        write!(f, "={:0width$x}", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_print_and_parse_back() {
        for text in [
            "q.0._.3=7f",
            "k._.0=38",
            "s.7=7f800000",
            "w._._=bf800000",
            "x.1.2=00000001",
        ] {
            let (key, value) = text.split_once('=').unwrap();
            assert_eq!(Patch::parse(key, value).unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_patches_are_refused() {
        for text in [
            "q.0.0=7f",
            "k.0.0.0=7f",
            "s.=00000000",
            "k.0.0=7",
            "k.0.0=+7",
            "s.0=7f",
            "y.0=00",
            "s.00=3f800000",
            "s.-1=3f800000",
            "s.+1=3f800000",
        ] {
            let (key, value) = text.split_once('=').unwrap();
            assert!(Patch::parse(key, value).is_err(), "{text}");
        }
    }

    #[test]
    fn wildcards_set_whole_axes() {
        let mut out = [0u8; 12];
        let patch = Patch::parse("q._.1.0", "05").unwrap();
        patch.apply([2, 3, 2], &mut out, 5);
        assert_eq!(out, [0, 0, 5, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
        assert!(patch.fits([2, 3, 2]) && !patch.fits([2, 1, 2]));
    }
}
