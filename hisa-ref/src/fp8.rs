//! OCP e4m3fn: the record of the format, decode, and encode with one rounding (SPEC V.1, V.2).

/// One e4m3fn code: sign, four exponent bits (bias 7), three mantissa bits.
///
/// There is no infinity; `0x7F` and `0xFF` are NaN; the largest finite value is 448; subnormals
/// are `k * 2^-9`. Equality and hashing compare codes, so `0x00` and `0x80` differ here although
/// they decode to equal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct E4M3(u8);

/// What happens to values beyond the largest finite code. Always named, never implied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// Finite overflow and infinities give +-448, NaN gives `0x7F`: PTX `cvt.rn.satfinite`.
    Saturating,
    /// Magnitudes above 464 and infinities give NaN with the argument's sign, as older PyTorch
    /// and ml_dtypes do.
    NonSaturating,
}

/// Largest finite magnitude.
pub const E4M3_MAX: f32 = 448.0;
/// Integers of [`E4M3::units`] count multiples of 2^-9.
pub const UNIT_EXPONENT: i32 = -9;

impl E4M3 {
    /// Code of +0.0.
    pub const ZERO: Self = Self(0x00);
    /// The NaN this crate writes.
    pub const NAN: Self = Self(0x7F);

    /// The code with these bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits of the code.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// True for `0x7F` and `0xFF`.
    #[must_use]
    pub const fn is_nan(self) -> bool {
        self.0 & 0x7F == 0x7F
    }

    /// The value as an integer multiple of 2^-9, magnitude at most 229,376; 0 for NaN.
    #[must_use]
    pub const fn units(self) -> i32 {
        UNITS[self.0 as usize]
    }

    /// The value, exactly; the sign of zero is kept, NaN is 0x7FC00000.
    #[must_use]
    pub const fn to_f32(self) -> f32 {
        VALUES[self.0 as usize]
    }

    /// `x` rounded once, half to even (SPEC V.2). The sign bit is the argument's, also for
    /// results of zero; only a saturating NaN drops it.
    #[must_use]
    pub fn encode(x: f32, overflow: Overflow) -> Self {
        Self::encode_f64(f64::from(x), overflow)
    }

    /// [`Self::encode`] from f64: still one rounding, from the full f64 value.
    ///
    /// The f64 quotient of two f32 values decides every e4m3 rounding as the real quotient does:
    /// a real quotient differs from a rounding boundary (five significant bits) by 2^-29 of
    /// itself or not at all, and f64 division errs by at most 2^-53.
    #[must_use]
    pub fn encode_f64(x: f64, overflow: Overflow) -> Self {
        let sign = ((x.to_bits() >> 63) as u8) << 7;
        let magnitude = x.abs();
        if magnitude.is_nan() {
            return match overflow {
                Overflow::Saturating => Self::NAN,
                Overflow::NonSaturating => Self(sign | 0x7F),
            };
        }
        if magnitude > 464.0 {
            return match overflow {
                Overflow::Saturating => Self(sign | 0x7E),
                Overflow::NonSaturating => Self(sign | 0x7F),
            };
        }
        // Spacing of the codes around the magnitude: 2^(e-3), never below 2^-9.
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).clamp(-6, 8);
        let steps = magnitude * power_of_two(3 - exponent);
        // steps < 16 + a bit: adding and removing 1.5 * 2^52 rounds it to an integer, half to even.
        let rounded = ((steps + ROUND_MAGIC) - ROUND_MAGIC) as u8;
        // A carry to 16 steps runs into the exponent field by itself; so does 8 out of subnormals.
        Self(sign | ((((exponent + 6) as u8) << 3) + rounded))
    }
}

const ROUND_MAGIC: f64 = 6_755_399_441_055_744.0;

const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

impl std::fmt::Debug for E4M3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#04x}({})", self.0, self.to_f32())
    }
}

const UNITS: [i32; 256] = {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        let exponent = (code >> 3) & 0xF;
        let mantissa = (code & 7) as i32;
        let magnitude = if exponent == 0 {
            mantissa
        } else {
            (8 + mantissa) << (exponent - 1)
        };
        let signed = if code >= 128 { -magnitude } else { magnitude };
        table[code] = if code & 0x7F == 0x7F { 0 } else { signed };
        code += 1;
    }
    table
};

const VALUES: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let value = UNITS[code] as f32 / 512.0;
        table[code] = if code & 0x7F == 0x7F {
            f32::from_bits(0x7FC0_0000)
        } else if code == 0x80 {
            -0.0
        } else {
            value
        };
        code += 1;
    }
    table
};
