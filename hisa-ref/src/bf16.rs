//! bf16 as a ranking type: f32 rounded half to even, NaN kept (SPEC V.3).

/// `x` rounded to bf16, half to even, as f32. NaN stays NaN whatever its payload; magnitudes
/// beyond the largest bf16 become infinite.
#[must_use]
pub const fn round_to_bf16(x: f32) -> f32 {
    // The const conversion never takes a hardware path, so its bits are the same everywhere.
    half::bf16::from_f32_const(x).to_f32_const()
}

#[cfg(test)]
mod tests {
    use super::round_to_bf16;

    /// SPEC V.3.
    #[test]
    fn br_93_ties_and_nan_payloads() {
        for (bits, expected) in [
            (0x3F80_8001, 0x3F81_0000),
            (0x3F80_8000, 0x3F80_0000),
            (0x3F81_8000, 0x3F82_0000),
            (0x7F7F_FFFF, 0x7F80_0000),
            (0xFF80_0000, 0xFF80_0000),
            (0x8000_0000, 0x8000_0000),
        ] {
            assert_eq!(
                round_to_bf16(f32::from_bits(bits)).to_bits(),
                expected,
                "{bits:#x}"
            );
        }
        assert!(round_to_bf16(f32::from_bits(0x7F80_0001)).is_nan());
        assert!(round_to_bf16(f32::from_bits(0xFFFF_FFFF)).is_nan());
    }
}
