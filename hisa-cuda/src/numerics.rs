//! What arithmetic the scorers have, by architecture.

use crate::toolchain::Arch;
use hisa_ref::model::{Arithmetic, DotClass, Epilogue, HeadOrder, Relu, ScalePlace};

/// How [`crate::stages::Scoring::TensorCores`] makes a score of dots: heads two by two to four
/// threads, fused, the key's scale at the end.
pub const EPILOGUE: Epilogue = Epilogue {
    order: HeadOrder::DeepGemmSm90,
    arithmetic: Arithmetic {
        fused: true,
        flush: false,
    },
    scale: ScalePlace::Outside,
    relu: Relu::KeepsNan,
};

/// The class of the dots of [`crate::stages::Scoring::TensorCores`]: codes converted to f16, then
/// `mma.sync` m16n8k16 f16 (`HMMA.16816.F32`).
///
/// `None` where there are no records of the matrix unit, ours or others' (docs/NUMERICS.md, "Where
/// the facts come from"): its bits are not predicted there. Records are of single chips, and a
/// neighbour of the same generation is not one of them.
#[must_use]
pub const fn class(arch: Arch) -> Option<DotClass> {
    match (arch.major, arch.minor) {
        // A100, Ada.
        (8, 0 | 9) => Some(DotClass::AmpereHmmaF16),
        // H100 and H200, B200.
        (9 | 10, 0) => Some(DotClass::HopperHgmmaF16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_records_is_predicted() {
        let of = |(major, minor)| class(Arch { major, minor });
        for known in [(8, 0), (8, 9)] {
            assert_eq!(of(known), Some(DotClass::AmpereHmmaF16), "{known:?}");
        }
        for known in [(9, 0), (10, 0)] {
            assert_eq!(of(known), Some(DotClass::HopperHgmmaF16), "{known:?}");
        }
        for other in [(8, 6), (8, 7), (9, 1), (10, 3), (11, 0), (12, 0), (12, 1)] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
