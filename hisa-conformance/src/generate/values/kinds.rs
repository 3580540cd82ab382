//! The kinds of values a tensor can be filled with, each with its word and what it is for.

use std::fmt;

/// An enum of unit variants with a word for addresses, an explanation, and the fault kinds
/// ("K" numbers of the public reports) that it is meant to expose.
macro_rules! kinds {
    ($(#[$meta:meta])* $name:ident {
        $($variant:ident $word:literal $hunts:tt $about:literal)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $about] $variant,)*
        }

        impl $name {
            /// Every kind, in the order of this list.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word addresses use.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What the values are and why.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }

            /// Fault kinds it is meant to expose, as the numbers n of Kn.
            #[must_use]
            pub const fn hunts(self) -> &'static [u8] {
                match self { $(Self::$variant => &$hunts,)* }
            }

            /// The kind with this word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.word() == word)
            }

            /// All words, for messages.
            pub const WORDS: &'static str = concat!($($word, " "),*);
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

kinds! {
    /// What the e4m3 codes of `q` or `k` are. The rules by which each is drawn stand in
    /// `codes.rs` beside this file.
    CodeKind {
        Zero "zero" [12]
            "Every code is 0x00; the ground that patches are set on."
        E0 "e0" [1, 2]
            "1.0 in dimension 0, else 0: a score is the key's scale, so scales program scores."
        Normal "normal" [13, 14]
            "Bell-shaped values of unit size, encoded without a scale."
        Amax "amax" [12, 14]
            "Bell-shaped rows quantised to amax 448, as a real quantiser leaves them; own scale."
        Heavy "heavy" [14]
            "Bell-shaped values times a geometric power of two: few elements carry a row."
        Uniform "uniform" [11]
            "All 254 finite codes alike: subnormals, both zeros and +-448 occur in every row."
        All "all" [3, 11]
            "All 256 codes alike, NaN included; permissive."
        Nan "nan" [3]
            "Normal, but one row in four holds one NaN code, to stay in its row; permissive."
        Zeros "zeros" [2, 5, 12]
            "Zero rows, whole zero blocks, blocks of cancelling pairs, and zeros of either sign."
        Few "few" [2]
            "Only 0, 1, -1 and 2: dots are small integers, so exact ties are everywhere."
        Dup "dup" [2]
            "Every row is one of four originals: duplicate keys tie bit for bit."
        Positive "positive" [2]
            "Normal without signs; the partner of plateau keys."
        Plateau "plateau" [2, 6, 15]
            "Negative rows but for one in sixteen: against positive queries most scores are 0."
        Extreme "extreme" [11, 14]
            "+-448 and its neighbour, the ends of the subnormals, smallest normals, zeros, ones."
        Subnormal "subnormal" [11]
            "Only the 16 codes with exponent field 0."
        Paired "paired" [14]
            "Normal values in equal pairs; the partner of cancelling keys."
        Cancel "cancel" [14]
            "Large opposite pairs and a small rest: a dot whose terms dwarf its value (BR-91)."
        PoolTie "pooltie" [12, 14]
            "448 in dimension 0; elsewhere the block mean lies halfway between two codes (BR-85)."
        Basis "basis" [2, 14]
            "Queries that read the digits of programmed blocks; goes with blocks:PROGRAM keys."
    }
}

kinds! {
    /// What `k_scale` is.
    ScaleKind {
        Own "own" [12]
            "What the codes call for: amax/448 for amax keys, the program's power of two, else 1."
        One "one" [2]
            "1.0."
        Pow2 "pow2" [12]
            "Powers of two from 2^-12 to 2^3."
        Random "random" [13, 14]
            "Full mantissas from 2^-10 to 4."
        Block "block" [12, 14]
            "One random scale per pool block, full mantissa from 2^-10 to 4."
        Tiny "tiny" [12, 14]
            "The subnormals and the smallest normals: what a flush to zero loses."
        Huge "huge" [4, 12]
            "From 2^120 to the largest f32: block sums and scores overflow to infinity."
        Wide "wide" [14]
            "Any positive normal f32, exponents alike: no f64 sum of a block is exact."
        Zeros "zeros" [5, 12]
            "Half random, half zero, of either sign."
        Zero "zero" [2, 12]
            "Only +0.0 (BR-81)."
        Floor "floor" [12]
            "Block scales at 1e-10, some units in the last place around it, below it, and zero."
        Ulp "ulp" [1, 2, 14]
            "1.0 and its three upper neighbours."
        Special "special" [3, 4, 5]
            "Half random, half NaN (also signalling and negative), +-inf, -1.0 or -0.0; permissive."
    }
}

kinds! {
    /// What `weights` are.
    WeightKind {
        One "one" [13]
            "1.0 for every head."
        First "first" [1, 2]
            "1.0 for head 0, else 0."
        Minus "minus" [4, 5]
            "-1.0 for head 0, else 0: scores become negative, zeros negative zeros."
        Normal "normal" [13, 14]
            "Bell-shaped, of either sign, full mantissas."
        Positive "positive" [2]
            "Bell-shaped magnitudes; the partner of plateau keys."
        Cancel "cancel" [14]
            "Opposite pairs, one in four off by one unit in the last place."
        Tiny "tiny" [14]
            "Subnormals of either sign, down to the smallest."
        Huge "huge" [4]
            "From 2^120 to the largest f32, of either sign: head sums overflow or cancel."
        Zero "zero" [3, 5]
            "One half +0.0 or -0.0, else normal."
        Wide "wide" [14]
            "Any normal f32 of either sign, exponents alike."
        Bf16 "bf16" [14]
            "1 + j/512 of either sign: bf16 rounds them onto each other (BR-92)."
        Special "special" [3, 4]
            "Half normal, half NaN, +-inf, or the largest f32; permissive."
    }
}

kinds! {
    /// What the rows for `quantize` are.
    RowKind {
        Normal "normal" [11]
            "Bell-shaped f32, a different magnitude per row."
        Bf16 "bf16" [11]
            "The same, with only the upper 16 bits kept."
        Heavy "heavy" [11, 12]
            "Bell-shaped times a power of two from 2^-40 to 2^40."
        Boundary "boundary" [11, 12]
            "Midpoints of neighbouring codes times the row's scale, and one unit to either side."
        Small "small" [12]
            "Around the floor of 1e-4: amax just below it, on it, just above it, and subnormal."
        Zeros "zeros" [5, 12]
            "Rows of zeros of either sign, and rows with a single other element."
        Special "special" [3, 4, 11]
            "One row in two holds a NaN or an infinity; permissive."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_are_unique_and_come_back() {
        fn check<T: Copy + PartialEq + fmt::Debug>(
            all: &[T],
            word: impl Fn(T) -> &'static str,
            parse: impl Fn(&str) -> Option<T>,
        ) {
            let words: HashSet<_> = all.iter().map(|&kind| word(kind)).collect();
            assert_eq!(words.len(), all.len());
            for &kind in all {
                assert_eq!(parse(word(kind)), Some(kind));
                assert!(word(kind).bytes().all(|b| b.is_ascii_alphanumeric()));
            }
        }
        check(CodeKind::ALL, CodeKind::word, CodeKind::from_word);
        check(ScaleKind::ALL, ScaleKind::word, ScaleKind::from_word);
        check(WeightKind::ALL, WeightKind::word, WeightKind::from_word);
        check(RowKind::ALL, RowKind::word, RowKind::from_word);
    }

    #[test]
    fn every_kind_hunts_something() {
        assert!(CodeKind::ALL.iter().all(|kind| !kind.hunts().is_empty()));
        assert!(ScaleKind::ALL.iter().all(|kind| !kind.hunts().is_empty()));
        assert!(WeightKind::ALL.iter().all(|kind| !kind.hunts().is_empty()));
        assert!(RowKind::ALL.iter().all(|kind| !kind.hunts().is_empty()));
        assert_eq!(
            RowKind::WORDS,
            "normal bf16 heavy boundary small zeros special "
        );
    }
}
