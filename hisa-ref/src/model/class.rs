//! The numerics classes of e4m3 dots: one record each, with where its numbers come from.

/// How a kernel takes the dot of two e4m3 vectors.
///
/// A class belongs to machine instructions, not to source: on `sm_90` and `sm_100` the PTX
/// `mma.sync` of e4m3 operands is assembled into f16 conversions and `HMMA`, which is
/// [`Self::HmmaEmulated`]. Read the class off the SASS.
///
/// | class | instruction | evidence |
/// |---|---|---|
/// | [`Self::Exact`] | none | definition |
/// | [`Self::HopperQgmma`] | `wgmma` k32 e4m3 (`QGMMA`) | H200 run; H100 records; MMA-Sim |
/// | [`Self::HopperQgmmaUnchained`] | the same, each from 0 | the same step, and IEEE adds |
/// | [`Self::AdaQmma`] | `mma.sync` k32 e4m3 on `sm_89` | Ada records; MMA-Sim |
/// | [`Self::BlackwellF25`] | `tcgen05.mma` f8f6f4; `QMMA` on `sm_120` | MMA-Sim; B200 model |
/// | [`Self::HmmaEmulated`] | `mma.sync` k32 e4m3 on `sm_90`, `sm_100` | H200 run; SASS |
/// | [`Self::HopperHgmmaF16`] | k16 f16: `HGMMA`, `HMMA` on `sm_90` | `HMMA`: H200 run; MMA-Sim |
/// | [`Self::AmpereHmmaF16`] | `mma.sync` k16 f16 on `sm_80`, `sm_89` | A100, Ada records |
///
/// An *H200 run* had the bulk streams and vectors of the tests executed on the device, bit for
/// bit. *Records* are published hardware outputs that the step reproduces, 5,000 of 5,000.
/// MMA-Sim is Microsoft's simulator (arXiv 2511.10909), the B200 model and the records are those
/// of Khattak and Mikaitis (arXiv 2512.07004). What has no run or records of its own
/// instruction (`BlackwellF25`; `HGMMA`) rests on published models alone, and so does the
/// order of the two halves of `AmpereHmmaF16`.
///
/// CDNA3 is not here. Its published rules leave open which exponent a partial sum carries into
/// the next alignment, there are no recorded vectors to settle it, and its operands are e4m3fnuz,
/// another format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DotClass {
    /// The exact sum, rounded once to f32: what the specification calls a dot, in an f32.
    Exact,
    /// Hopper `wgmma`, all steps in one chain.
    HopperQgmma,
    /// Hopper `wgmma` with scale-d = 0 for every chunk of 32; the chunks are added in f32.
    HopperQgmmaUnchained,
    /// Ada `mma.sync`: each k32 instruction is two steps of 16.
    AdaQmma,
    /// Blackwell's native fp8: 25 fraction bits and an f32 result.
    BlackwellF25,
    /// Hopper and Blackwell `mma.sync`: two f16 `HMMA` from 0 and an f32 add per chunk of 32.
    HmmaEmulated,
    /// Codes converted to f16, then Hopper `wgmma` f16, or `mma.sync` f16 on `sm_90` and `sm_100`.
    HopperHgmmaF16,
    /// Codes converted to f16, then Ampere or Ada `mma.sync` f16: each k16 is two steps of 8.
    AmpereHmmaF16,
}

/// How an e4m3 code enters a matrix unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// As it is; a subnormal keeps the exponent -6 and is not renormalised.
    E4M3,
    /// Converted to f16, exactly; every nonzero e4m3 value is a normal f16.
    F16,
}

/// Which products of a chunk one step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// Consecutive k.
    Contiguous,
    /// Of 32 consecutive k, first those with k mod 4 in {0, 1}, then those in {2, 3}: the low and
    /// the high halves of the registers.
    PairsModFour,
}

/// Where the accumulator of a step comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chain {
    /// From the step before, over all of D; the first starts from +0.
    Whole,
    /// Every chunk of 32 starts from +0; its result is added to an f32 register, half to even.
    PerChunk,
}

/// The record of a matrix unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unit {
    /// F: terms are cut to multiples of `2^(E-F)`, E the largest exponent among them. At most 25.
    pub fraction_bits: i32,
    /// KEEP: fraction bits of the result of a step. At most F and at most 23.
    pub kept_bits: i32,
    /// G: products per step. Divides 32.
    pub group: usize,
    /// How codes enter.
    pub operand: Operand,
    /// Which products of a chunk go together.
    pub grouping: Grouping,
    /// What a step accumulates onto.
    pub chain: Chain,
}

/// Products of one e4m3 instruction, k0..k0+32: a chunk of [`Chain::PerChunk`].
pub const CHUNK: usize = 32;

impl DotClass {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Exact,
        Self::HopperQgmma,
        Self::HopperQgmmaUnchained,
        Self::AdaQmma,
        Self::BlackwellF25,
        Self::HmmaEmulated,
        Self::HopperHgmmaF16,
        Self::AmpereHmmaF16,
    ];

    /// The name in reports and in SPEC 11.1.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::HopperQgmma => "hopper-qgmma",
            Self::HopperQgmmaUnchained => "hopper-qgmma-unchained",
            Self::AdaQmma => "ada-qmma",
            Self::BlackwellF25 => "blackwell-f25",
            Self::HmmaEmulated => "hmma-emulated",
            Self::HopperHgmmaF16 => "hopper-hgmma-f16",
            Self::AmpereHmmaF16 => "ampere-hmma-f16",
        }
    }

    /// The class of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The matrix unit of the class; none for [`Self::Exact`].
    #[must_use]
    pub const fn unit(self) -> Option<Unit> {
        use {Chain::*, Grouping::*, Operand::*};
        Some(match self {
            Self::Exact => return None,
            Self::HopperQgmma => unit(13, 13, 32, E4M3, Contiguous, Whole),
            Self::HopperQgmmaUnchained => unit(13, 13, 32, E4M3, Contiguous, PerChunk),
            Self::AdaQmma => unit(13, 13, 16, E4M3, Contiguous, Whole),
            Self::BlackwellF25 => unit(25, 23, 32, E4M3, Contiguous, Whole),
            Self::HmmaEmulated => unit(25, 23, 16, F16, PairsModFour, PerChunk),
            Self::HopperHgmmaF16 => unit(25, 23, 16, F16, Contiguous, Whole),
            Self::AmpereHmmaF16 => unit(24, 23, 8, F16, Contiguous, Whole),
        })
    }
}

impl std::fmt::Display for DotClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

const fn unit(
    fraction_bits: i32,
    kept_bits: i32,
    group: usize,
    operand: Operand,
    grouping: Grouping,
    chain: Chain,
) -> Unit {
    Unit {
        fraction_bits,
        kept_bits,
        group,
        operand,
        grouping,
        chain,
    }
}
