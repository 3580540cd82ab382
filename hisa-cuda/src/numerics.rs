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
/// `None` where the matrix unit has not been measured, here or by others (`sm_120`): its bits are
/// not predicted there.
#[must_use]
pub const fn class(arch: Arch) -> Option<DotClass> {
    match (arch.major, arch.minor) {
        (8, _) => Some(DotClass::AmpereHmmaF16),
        (9, _) | (10, _) => Some(DotClass::HopperHgmmaF16),
        _ => None,
    }
}
