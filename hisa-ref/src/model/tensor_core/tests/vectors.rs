//! Vectors with known results, as f32 bits. The columns were produced by this model's rules and by
//! MMA-Sim; hopper and emulated ones also ran on an H200.

use crate::fp8::E4M3;
use crate::model::DotClass::{self, *};

/// One vector: operands at some k, everything else 0x00.
pub(super) struct Vector {
    pub(super) id: &'static str,
    head_dim: usize,
    /// First k, last k, both codes.
    runs: &'static [(usize, usize, u8, u8)],
    /// Exact, Hopper, Ada, Blackwell, emulated.
    pub(super) results: [u32; 5],
}

impl Vector {
    /// Both vectors, `head_dim` codes each.
    pub(super) fn operands(&self) -> (Vec<E4M3>, Vec<E4M3>) {
        let mut both = (
            vec![E4M3::ZERO; self.head_dim],
            vec![E4M3::ZERO; self.head_dim],
        );
        for &(first, last, a, b) in self.runs {
            both.0[first..=last].fill(E4M3::from_bits(a));
            both.1[first..=last].fill(E4M3::from_bits(b));
        }
        both
    }
}

const fn vector(
    id: &'static str,
    head_dim: usize,
    runs: &'static [(usize, usize, u8, u8)],
    results: [u32; 5],
) -> Vector {
    Vector {
        id,
        head_dim,
        runs,
        results,
    }
}

pub(super) const ALL: &[Vector] = &[
    vector(
        "T1",
        32,
        &[(0, 0, 0x58, 0x58), (1, 1, 0x20, 0x20)],
        [
            0x4380_0200,
            0x4380_0000,
            0x4380_0000,
            0x4380_0200,
            0x4380_0200,
        ],
    ),
    vector(
        "T2",
        32,
        &[(0, 0, 0x58, 0x58), (1, 1, 0xA0, 0x20)],
        [
            0x437F_FC00,
            0x4380_0000,
            0x4380_0000,
            0x437F_FC00,
            0x437F_FC00,
        ],
    ),
    vector(
        "T3",
        32,
        &[(0, 0, 0x58, 0x58), (1, 1, 0x3F, 0x3F)],
        [
            0x4381_C200,
            0x4381_C000,
            0x4381_C000,
            0x4381_C200,
            0x4381_C200,
        ],
    ),
    vector(
        "T4",
        32,
        &[(0, 0, 0x58, 0x58), (1, 1, 0x2A, 0x2A)],
        [
            0x4380_0C80,
            0x4380_0C00,
            0x4380_0C00,
            0x4380_0C80,
            0x4380_0C80,
        ],
    ),
    vector(
        "T5a",
        32,
        &[(0, 0, 0x54, 0x54), (1, 1, 0xD4, 0x54), (2, 2, 0x20, 0x18)],
        [
            0x3C00_0000,
            0x3C00_0000,
            0x3C00_0000,
            0x3C00_0000,
            0x3C00_0000,
        ],
    ),
    vector(
        "T5b",
        32,
        &[(0, 0, 0x59, 0x50), (1, 1, 0xD9, 0x50), (2, 2, 0x20, 0x18)],
        [
            0x3C00_0000,
            0x0000_0000,
            0x0000_0000,
            0x3C00_0000,
            0x3C00_0000,
        ],
    ),
    vector(
        "T6",
        32,
        &[(0, 0, 0x01, 0x7E), (1, 1, 0x81, 0x7E), (2, 2, 0x08, 0x08)],
        [
            0x3980_0000,
            0x0000_0000,
            0x0000_0000,
            0x3980_0000,
            0x3980_0000,
        ],
    ),
    vector(
        "T7",
        32,
        &[(0, 1, 0x38, 0x38), (2, 2, 0x08, 0x04)],
        [
            0x4000_0200,
            0x4000_0000,
            0x4000_0000,
            0x4000_0200,
            0x4000_0200,
        ],
    ),
    vector(
        "T8",
        32,
        &[(0, 0, 0x38, 0x38), (2, 2, 0x08, 0x04)],
        [
            0x3F80_0400,
            0x3F80_0400,
            0x3F80_0400,
            0x3F80_0400,
            0x3F80_0400,
        ],
    ),
    vector(
        "T9",
        32,
        &[(0, 0, 0x38, 0x38), (1, 31, 0x04, 0x04)],
        [
            0x3F80_3E00,
            0x3F80_0000,
            0x3F80_0000,
            0x3F80_3E00,
            0x3F80_3E00,
        ],
    ),
    vector(
        "T10",
        32,
        &[(0, 15, 0x20, 0x20), (16, 16, 0x58, 0x58)],
        [
            0x4380_2000,
            0x4380_0000,
            0x4380_2000,
            0x4380_2000,
            0x4380_2000,
        ],
    ),
    vector(
        "T11",
        128,
        &[(0, 0, 0x7E, 0x7E), (32, 63, 0x57, 0x38)],
        [
            0x4844_7800,
            0x4844_0000,
            0x4844_0000,
            0x4844_7800,
            0x4844_7800,
        ],
    ),
    vector(
        "T12",
        128,
        &[(0, 31, 0x57, 0x38), (32, 32, 0x7E, 0x7E)],
        [
            0x4844_7800,
            0x4844_7800,
            0x4844_7800,
            0x4844_7800,
            0x4844_7800,
        ],
    ),
    vector(
        "T13",
        128,
        &[(0, 0, 0x58, 0x58), (1, 127, 0x26, 0x21)],
        [
            0x4381_F410,
            0x4380_0000,
            0x4380_0000,
            0x4381_F410,
            0x4381_F410,
        ],
    ),
    vector(
        "T14",
        32,
        &[(0, 0, 0x78, 0x7E), (1, 1, 0x18, 0x1C)],
        [
            0x47E0_0001,
            0x47E0_0000,
            0x47E0_0000,
            0x47E0_0000,
            0x47E0_0000,
        ],
    ),
    vector(
        "T15",
        32,
        &[(0, 0, 0x7E, 0x7E), (1, 1, 0xFE, 0x7E), (2, 2, 0x10, 0x10)],
        [
            0x3A80_0000,
            0x0000_0000,
            0x0000_0000,
            0x0000_0000,
            0x3A80_0000,
        ],
    ),
    vector(
        "T16",
        32,
        &[(0, 31, 0x80, 0x38)],
        [
            0x0000_0000,
            0x0000_0000,
            0x0000_0000,
            0x0000_0000,
            0x0000_0000,
        ],
    ),
    vector(
        "T17",
        32,
        &[(0, 0, 0x38, 0x38), (1, 1, 0xB8, 0x38)],
        [
            0x0000_0000,
            0x0000_0000,
            0x0000_0000,
            0x0000_0000,
            0x0000_0000,
        ],
    ),
    vector(
        "T18",
        128,
        &[(0, 127, 0x7E, 0x7E)],
        [
            0x4BC4_0000,
            0x4BC4_0000,
            0x4BC4_0000,
            0x4BC4_0000,
            0x4BC4_0000,
        ],
    ),
    vector(
        "T19",
        32,
        &[(0, 0, 0x01, 0x01)],
        [
            0x3680_0000,
            0x3680_0000,
            0x3680_0000,
            0x3680_0000,
            0x3680_0000,
        ],
    ),
    vector(
        "T20",
        128,
        &[
            (0, 0, 0x58, 0x58),
            (1, 1, 0x2A, 0x2A),
            (33, 33, 0x2A, 0x2A),
            (32, 32, 0xD8, 0x58),
        ],
        [
            0x3E48_0000,
            0x3E40_0000,
            0x3E40_0000,
            0x3E48_0000,
            0x3E48_0000,
        ],
    ),
];

/// Class, hash of 4,096 results, first three, for the stream `wide`.
pub(super) const WIDE: [(DotClass, u64, [u32; 3]); 5] = [
    (
        Exact,
        0x92FB_41EA_63D3_18F3,
        [0xC6DC_C2DA, 0x4703_E7F9, 0xC827_C90A],
    ),
    (
        HopperQgmma,
        0x4055_47E2_40EA_E4BC,
        [0xC6DC_C000, 0x4703_E400, 0xC827_AC00],
    ),
    (
        AdaQmma,
        0x962B_5ED3_3B8A_0BF3,
        [0xC6DC_C000, 0x4703_E400, 0xC827_A800],
    ),
    (
        BlackwellF25,
        0xD8EA_ADAC_BAC8_7D42,
        [0xC6DC_C2DA, 0x4703_E7F9, 0xC827_C908],
    ),
    (
        HmmaEmulated,
        0x6386_70A4_AB77_D3CE,
        [0xC6DC_C2DA, 0x4703_E7FA, 0xC827_C909],
    ),
];

/// Class, hash of 4,096 results, first three, for the stream `narrow`.
pub(super) const NARROW: [(DotClass, u64, [u32; 3]); 5] = [
    (
        Exact,
        0xCC04_022E_EF1C_D1F4,
        [0xC268_EA00, 0x41E0_9800, 0xC0C7_8800],
    ),
    (
        BlackwellF25,
        0xCC04_022E_EF1C_D1F4,
        [0xC268_EA00, 0x41E0_9800, 0xC0C7_8800],
    ),
    (
        HmmaEmulated,
        0xCC04_022E_EF1C_D1F4,
        [0xC268_EA00, 0x41E0_9800, 0xC0C7_8800],
    ),
    (
        HopperQgmma,
        0x091D_D514_36C4_9305,
        [0xC268_E400, 0x41E0_9800, 0xC0C7_7800],
    ),
    (
        AdaQmma,
        0xD3D8_B7B9_7DC3_3948,
        [0xC268_E800, 0x41E0_9800, 0xC0C7_7800],
    ),
];
