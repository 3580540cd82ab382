//! Flags: why a case is interesting, in words that fixtures and reports repeat.

use crate::case::{Case, Inputs, WindowSource};
use crate::generate::values::{CodeKind, Codes, ScaleKind, Scales, WeightKind};
use hisa_ref::{E4M3, Window};
use std::collections::HashSet;
use std::fmt;

macro_rules! flags {
    ($($variant:ident $about:literal)*) => {
        /// A property that faults are known to hide behind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Flag {
            $(#[doc = $about] $variant,)*
        }

        impl Flag {
            /// Every flag, in the order of this list.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name, as written in fixtures.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            /// One sentence: what the case holds and what tends to go wrong there.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }

            /// The flag with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|flag| flag.name() == name)
            }
        }
    };
}

flags! {
    NoRows "There is no query row: outputs have a length of zero and nothing may be launched."
    NoKeys "There is no key: every row is empty and no block exists."
    EmptyWindow "Some row sees no key: no block is forced and the whole output row is -1."
    AllWindowsEmpty "No row sees any key: there is no work, and still every output is written."
    PaddingRows "Some row carries (INT32_MAX, 0): its start must not be used as an address."
    EmptySequence "Two offsets are equal: the empty sequence keeps its index."
    EmptyThenTwo "Two non-empty sequences follow an empty one: ids counted without it are off."
    ManySequences "Several sequences share the keys: ids are relative to a row's own start."
    SeparateOffsets "Queries and keys have offsets of their own, aligned at the sequence ends."
    Strided "One key stands for several positions: windows grow by steps."
    ContextParallel "The rows are two mirrored chunks: row number and position differ."
    MidBlockStart "Some window starts inside a block: keys of its first block are masked."
    MidBlockEnd "Some window ends inside a block: keys of its last block are masked."
    StraddlingBlock "Some block holds keys of more than one sequence, and is pooled over all."
    SingleKeyWindow "Some row sees a single key: the same block is the first and the last."
    TailBlock "The last block is not full: its mean is over the keys it has."
    TailOfOne "The last block holds one key."
    TailOneShort "The last block lacks one key."
    BlockBeyondKeys "The block is larger than the number of keys."
    BlockOfOne "Every block is a single key."
    OddBlock "The block size is odd: halved tiles and pairs leave a remainder."
    OneBlockKept "One block is kept: the last block of the window takes the only place."
    FewerBlocks "Some window has fewer blocks than are kept: block ids are padded with -1."
    BlocksDropped "Some window has more blocks than are kept: selection decides the result."
    WindowShort "Some non-empty window has fewer keys than are kept: -1 fills the tail."
    WindowExact "Some window has exactly as many keys as are kept."
    WindowLong "Some window has more keys than are kept: selection decides the result."
    SlotsBelowTopk "The kept blocks hold fewer keys than are kept: columns stay -1."
    OddTopk "The number of kept tokens is not a multiple of 4: rows of ids are not aligned."
    OddDim "The head dimension is not a multiple of 16: rows of codes are not aligned."
    OddHeads "The number of heads is not a power of two: tiles of queries do not divide evenly."
    RankF32 "Blocks are ranked by their f32 scores, not by bf16."
    NanCode "Some code is NaN: the scores it enters are NaN, and no others."
    NanValue "Some scale or weight is NaN."
    Infinite "Some scale or weight is infinite: zero times it is NaN, scores may be infinite."
    NegativeScale "Some scale is negative: the scale is applied outside the ReLU."
    NegativeZero "Some scale, weight or code is -0.0, which is the same score as +0.0."
    ZeroScale "Some scale is zero: its key scores zero whatever its codes are."
    ZeroKey "Some key has only zero codes: amax is zero and must not become a divisor."
    ZeroBlock "Some block pools to zero: its scale is the floor and its codes are 0x00."
    Subnormal "Some scale or weight is subnormal: flushing it to zero shows."
    SubnormalCode "Some code is subnormal."
    ExtremeCode "Some code is +-448."
    HugeScale "Some scale is 2^100 or more: sums and scores may overflow."
    NegativeWeight "Some weight is negative: scores below zero compete with zeros."
    ZeroWeight "Some weight is zero: its head must not matter unless its dot is NaN."
    DuplicateKeys "Two keys are equal in codes and scale: their scores tie exactly."
    Ties "Many scores are equal: the lower index wins."
    ZeroPlateau "Most scores are exactly zero and the last place lies among them."
    UlpNeighbours "Scores differ by single units in the last place: a coarse key merges them."
    CoarseBin "Thousands of scores share their leading bits: fixed buffers overflow."
    Bf16Ties "Distinct block scores are equal once rounded to bf16."
    PoolTie "Block means lie halfway between two codes: a reciprocal or a double rounding shows."
    ScaleFloor "Pooled scales lie at the floor of 1e-10."
    Cancellation "Terms of a dot or of a head sum dwarf its value."
    NonFiniteX "Some row for quantize holds a NaN or an infinity."
    Large "The case needs much memory or time, and is run only by name."
}

/// A set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u64);

const _: () = assert!(Flag::ALL.len() <= 64, "Flags has 64 places");

impl Flags {
    /// Nothing to say.
    pub const NONE: Self = Self(0);

    /// These flags.
    #[must_use]
    pub const fn of(flags: &[Flag]) -> Self {
        let mut set = Self::NONE;
        let mut i = 0;
        while i < flags.len() {
            set = set.with(flags[i]);
            i += 1;
        }
        set
    }

    /// With one flag more.
    #[must_use]
    pub const fn with(self, flag: Flag) -> Self {
        Self(self.0 | 1 << flag as u8)
    }

    /// All flags of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True where the flag is in the set.
    #[must_use]
    pub const fn contains(self, flag: Flag) -> bool {
        self.0 >> flag as u8 & 1 == 1
    }

    /// True where no flag is.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags in the order of [`Flag::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL
            .iter()
            .copied()
            .filter(move |&flag| self.contains(flag))
    }

    fn set(&mut self, flag: Flag, on: bool) {
        if on {
            *self = self.with(flag);
        }
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, flag) in self.iter().enumerate() {
            write!(f, "{}{flag}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Every flag that follows from the case and its arrays.
#[must_use]
pub fn flags(case: &Case, inputs: &Inputs) -> Flags {
    let mut flags = declared(case);
    sizes(case, &mut flags);
    offsets(case, &mut flags);
    for &window in inputs.windows.rows() {
        row(case, window, &mut flags);
    }
    let empty = inputs.windows.rows().iter().all(|window| window.is_empty());
    flags.set(Flag::AllWindowsEmpty, case.m > 0 && empty);
    codes(inputs, &mut flags);
    floats(inputs, &mut flags);
    keys(case, inputs, &mut flags);
    flags
}

/// What the kinds of values promise by construction, without looking at any array.
#[must_use]
pub fn declared(case: &Case) -> Flags {
    let values = &case.values;
    let mut flags = Flags::NONE;
    let few = values.q == CodeKind::Few && values.k == Codes::Kind(CodeKind::Few);
    let one_scale = matches!(values.s, Scales::Kind(ScaleKind::One | ScaleKind::Zero));
    flags.set(
        Flag::Ties,
        few && one_scale || values.s == Scales::Kind(ScaleKind::Zero),
    );
    let ulp = values.k == Codes::Kind(CodeKind::E0) && values.s == Scales::Kind(ScaleKind::Ulp);
    flags.set(Flag::UlpNeighbours, ulp);
    let plateau = values.k == Codes::Kind(CodeKind::Plateau)
        && values.q == CodeKind::Positive
        && values.w == WeightKind::Positive;
    flags.set(Flag::ZeroPlateau, plateau);
    flags.set(Flag::PoolTie, values.k == Codes::Kind(CodeKind::PoolTie));
    flags.set(Flag::ScaleFloor, values.s == Scales::Kind(ScaleKind::Floor));
    let cancel = values.k == Codes::Kind(CodeKind::Cancel) || values.w == WeightKind::Cancel;
    flags.set(Flag::Cancellation, cancel);
    flags
}

fn sizes(case: &Case, flags: &mut Flags) {
    let Case {
        m,
        n,
        h,
        d,
        block_size: b,
        ..
    } = *case;
    flags.set(Flag::NoRows, m == 0);
    flags.set(Flag::NoKeys, n == 0);
    let tail = n.checked_rem(b).unwrap_or(0);
    flags.set(Flag::TailBlock, tail != 0);
    flags.set(Flag::TailOfOne, tail == 1);
    flags.set(Flag::TailOneShort, tail > 0 && tail + 1 == b);
    flags.set(Flag::BlockBeyondKeys, n > 0 && b > n);
    flags.set(Flag::BlockOfOne, b == 1);
    flags.set(Flag::OddBlock, b % 2 == 1);
    flags.set(Flag::OneBlockKept, case.block_topk == 1);
    flags.set(
        Flag::SlotsBelowTopk,
        b.saturating_mul(case.block_topk) < case.topk_tokens,
    );
    flags.set(Flag::OddTopk, !case.topk_tokens.is_multiple_of(4));
    flags.set(Flag::OddDim, !d.is_multiple_of(16));
    flags.set(Flag::OddHeads, !h.is_power_of_two());
    flags.set(Flag::RankF32, case.rank == hisa_ref::Rank::F32);
}

fn offsets(case: &Case, flags: &mut Flags) {
    let source = &case.windows.source;
    flags.set(Flag::ContextParallel, case.windows.shard.is_some());
    flags.set(
        Flag::SeparateOffsets,
        matches!(source, WindowSource::Separate { .. }),
    );
    flags.set(
        Flag::Strided,
        matches!(source, WindowSource::Strided { .. }),
    );
    let Some(cu) = source.query_offsets() else {
        return;
    };
    let lengths: Vec<i64> = cu.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let first_empty = lengths.iter().position(|&len| len == 0);
    flags.set(Flag::EmptySequence, first_empty.is_some());
    let after = first_empty.map_or(0, |at| lengths[at..].iter().filter(|&&len| len > 0).count());
    flags.set(Flag::EmptyThenTwo, after >= 2);
    flags.set(
        Flag::ManySequences,
        lengths.iter().filter(|&&len| len > 0).count() >= 2,
    );
    let b = case.block_size.max(1) as i64;
    let total = cu.last().copied().unwrap_or(0);
    let inner = |at: &&i64| **at > 0 && **at < total && **at % b != 0;
    let causal = matches!(source, WindowSource::Causal(_));
    flags.set(
        Flag::StraddlingBlock,
        causal && cu.iter().find(inner).is_some(),
    );
}

fn row(case: &Case, window: Window, flags: &mut Flags) {
    flags.set(Flag::PaddingRows, window == Window::PADDING);
    flags.set(Flag::EmptyWindow, window.is_empty());
    if window.is_empty() {
        return;
    }
    let (keys, b) = (window.keys(), case.block_size.max(1));
    let blocks = window.blocks(b).len();
    flags.set(Flag::MidBlockStart, !keys.start.is_multiple_of(b));
    flags.set(Flag::MidBlockEnd, !keys.end.is_multiple_of(b));
    flags.set(Flag::SingleKeyWindow, window.len() == 1);
    flags.set(Flag::FewerBlocks, blocks < case.block_topk);
    flags.set(Flag::BlocksDropped, blocks > case.block_topk);
    flags.set(Flag::WindowShort, window.len() < case.topk_tokens);
    flags.set(Flag::WindowExact, window.len() == case.topk_tokens);
    flags.set(Flag::WindowLong, window.len() > case.topk_tokens);
}

fn codes(inputs: &Inputs, flags: &mut Flags) {
    let mut seen = [false; 256];
    for code in inputs.tensors.q.iter().chain(&inputs.tensors.k) {
        seen[code.to_bits() as usize] = true;
    }
    for (bits, _) in seen.iter().enumerate().filter(|(_, seen)| **seen) {
        match bits {
            0x00 => {}
            0x80 => flags.set(Flag::NegativeZero, true),
            0x7F | 0xFF => flags.set(Flag::NanCode, true),
            0x7E | 0xFE => flags.set(Flag::ExtremeCode, true),
            _ => flags.set(Flag::SubnormalCode, bits & 0x78 == 0),
        }
    }
}

fn floats(inputs: &Inputs, flags: &mut Flags) {
    let (scales, weights) = (&inputs.tensors.k_scale, &inputs.tensors.weights);
    for &value in scales.iter().chain(weights) {
        flags.set(Flag::NanValue, value.is_nan());
        flags.set(Flag::Infinite, value.is_infinite());
        flags.set(Flag::NegativeZero, value.to_bits() == 0x8000_0000);
        flags.set(Flag::Subnormal, value.is_subnormal());
    }
    for &scale in scales {
        flags.set(Flag::NegativeScale, scale < 0.0);
        flags.set(Flag::ZeroScale, scale == 0.0);
        flags.set(
            Flag::HugeScale,
            scale >= 1.267_650_6e30 && scale.is_finite(),
        );
    }
    for &weight in weights {
        flags.set(Flag::NegativeWeight, weight < 0.0);
        flags.set(Flag::ZeroWeight, weight == 0.0);
    }
}

fn keys(case: &Case, inputs: &Inputs, flags: &mut Flags) {
    let (k, d) = (inputs.tensors.k.as_slice().unwrap_or(&[]), case.d);
    let scales = &inputs.tensors.k_scale;
    let zero = |key: &[E4M3]| key.iter().all(|code| code.units() == 0 && !code.is_nan());
    flags.set(Flag::ZeroKey, k.chunks_exact(d).any(zero));
    let mut seen = HashSet::new();
    let keys = k.chunks_exact(d).zip(scales).take(DUPLICATES_SOUGHT);
    let repeated = keys
        .into_iter()
        .any(|(key, scale)| !seen.insert((key, scale.to_bits())));
    flags.set(Flag::DuplicateKeys, repeated);
    let b = case.block_size.max(1);
    let blocks = k
        .chunks(b.saturating_mul(d))
        .zip(scales.as_slice().unwrap_or(&[]).chunks(b));
    for (codes, scales) in blocks {
        let finite = scales.iter().all(|scale| scale.is_finite());
        let equal = scales.iter().all(|&scale| scale == scales[0]);
        let cancels = |axis: usize| {
            let column = codes.iter().skip(axis).step_by(d);
            column.map(|code| i64::from(code.units())).sum::<i64>() == 0
        };
        let pools_to_zero =
            zero(codes) || scales.iter().all(|&scale| scale == 0.0) || equal && (0..d).all(cancels);
        let nan = codes.iter().any(|code| code.is_nan());
        flags.set(Flag::ZeroBlock, finite && !nan && pools_to_zero);
    }
}

/// Keys among which duplicates are looked for; more would only cost time.
const DUPLICATES_SOUGHT: usize = 4096;

/// Adds what only the rows for `quantize` can tell.
#[must_use]
pub fn flags_of_x(x: &ndarray::Array2<f32>) -> Flags {
    let mut flags = Flags::NONE;
    flags.set(Flag::NonFiniteX, x.iter().any(|value| !value.is_finite()));
    flags.set(Flag::Subnormal, x.iter().any(|value| value.is_subnormal()));
    flags.set(
        Flag::NegativeZero,
        x.iter().any(|value| value.to_bits() == 0x8000_0000),
    );
    flags
}

#[cfg(test)]
mod tests;
