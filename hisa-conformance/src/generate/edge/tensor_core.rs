//! Vectors that are hard on matrix units, as cases: what a class loses shows in scores.
//!
//! The numbers are those of the vectors in the tests of `hisa_ref::model`. Keys 0 and 2 are the
//! vector, key 1 its first product alone, so that a loss makes it tie with them, and key 3 is zero.

use super::{Generated, commented};
use crate::case::{Case, Patch, Target};

/// Codes of query and key from one k to another.
type Run = (u32, u32, u8, u8);

struct Vector {
    id: &'static str,
    d: usize,
    runs: &'static [Run],
}

const fn vector(id: &'static str, d: usize, runs: &'static [Run]) -> Vector {
    Vector { id, d, runs }
}

const VECTORS: &[Vector] = &[
    vector("T1", 32, &[(0, 0, 0x58, 0x58), (1, 1, 0x20, 0x20)]),
    vector("T2", 32, &[(0, 0, 0x58, 0x58), (1, 1, 0xA0, 0x20)]),
    vector("T3", 32, &[(0, 0, 0x58, 0x58), (1, 1, 0x3F, 0x3F)]),
    vector("T4", 32, &[(0, 0, 0x58, 0x58), (1, 1, 0x2A, 0x2A)]),
    vector(
        "T5b",
        32,
        &[(0, 0, 0x59, 0x50), (1, 1, 0xD9, 0x50), (2, 2, 0x20, 0x18)],
    ),
    vector(
        "T6",
        32,
        &[(0, 0, 0x01, 0x7E), (1, 1, 0x81, 0x7E), (2, 2, 0x08, 0x08)],
    ),
    vector("T7", 32, &[(0, 1, 0x38, 0x38), (2, 2, 0x08, 0x04)]),
    vector("T9", 32, &[(0, 0, 0x38, 0x38), (1, 31, 0x04, 0x04)]),
    vector("T10", 32, &[(0, 15, 0x20, 0x20), (16, 16, 0x58, 0x58)]),
    vector("T11", 128, &[(0, 0, 0x7E, 0x7E), (32, 63, 0x57, 0x38)]),
    vector("T12", 128, &[(0, 31, 0x57, 0x38), (32, 32, 0x7E, 0x7E)]),
    vector("T13", 128, &[(0, 0, 0x58, 0x58), (1, 127, 0x26, 0x21)]),
    vector("T14", 32, &[(0, 0, 0x78, 0x7E), (1, 1, 0x18, 0x1C)]),
    vector(
        "T15",
        32,
        &[(0, 0, 0x7E, 0x7E), (1, 1, 0xFE, 0x7E), (2, 2, 0x10, 0x10)],
    ),
    vector("T18", 128, &[(0, 127, 0x7E, 0x7E)]),
    vector("T19", 32, &[(0, 0, 0x01, 0x01)]),
    vector(
        "T20",
        128,
        &[
            (0, 0, 0x58, 0x58),
            (1, 1, 0x2A, 0x2A),
            (33, 33, 0x2A, 0x2A),
            (32, 32, 0xD8, 0x58),
        ],
    ),
];

/// Sizes and values around a vector.
const FRAME: &str = "hisa:M=1,N=4,H=1,D=32,B=1,m=3,K=2/win=0:4/q=zero,k=zero,s=one,w=one,x=normal";

pub(super) fn cases() -> Vec<Generated> {
    VECTORS.iter().filter_map(case).collect()
}

fn case(vector: &Vector) -> Option<Generated> {
    let mut case: Case = FRAME.parse().ok()?;
    case.d = vector.d;
    let patch = |target, index, bits: u8| Patch {
        target,
        index,
        bits: bits.into(),
    };
    for &(first, last, q, k) in vector.runs {
        for at in first..=last {
            case.patches
                .push(patch(Target::Q, [None, None, Some(at)], q));
            for key in [0, 2] {
                case.patches
                    .push(patch(Target::K, [Some(key), Some(at), None], k));
            }
        }
    }
    let &(_, _, _, k) = vector.runs.first()?;
    case.patches
        .push(patch(Target::K, [Some(1), Some(0), None], k));
    let comment = format!(
        "vector {} of the matrix units, next to its first product",
        vector.id
    );
    Some(commented(case, &[], comment))
}
