//! Shapes and values that between them take every branch.

use crate::device::{Numbers, Tensors};
use hisa_ref::{E4M3, Window, Windows};
use ndarray::Array2;

/// M, N, H, D, B, m, K.
pub(crate) type Shape = [usize; 7];

/// Warps and tiles just met and just missed, whole and broken vectors, one key and none, more
/// places than keys, rows of several chunks.
const SHAPES: [Shape; 20] = [
    [1, 1, 1, 16, 1, 1, 1],
    [2, 5, 1, 1, 2, 2, 3],
    [3, 33, 7, 17, 4, 3, 8],
    [5, 64, 8, 32, 8, 4, 16],
    [2, 65, 9, 48, 16, 2, 40],
    [4, 100, 64, 64, 7, 5, 64],
    [2, 129, 31, 100, 32, 9, 100],
    [1, 300, 64, 128, 64, 3, 128],
    [3, 256, 128, 128, 128, 2, 256],
    [2, 200, 16, 256, 50, 4, 77],
    [1, 130, 128, 256, 3, 20, 33],
    [1, 0, 4, 16, 4, 1, 4],
    [0, 10, 4, 16, 4, 1, 4],
    [2, 31, 3, 3, 1, 31, 31],
    [2, 32, 5, 24, 100, 2, 64],
    [1, 1025, 33, 80, 256, 3, 700],
    [6, 40, 4, 128, 5, 3, 9],
    [2, 90, 65, 112, 30, 2, 50],
    [1, 66, 120, 240, 33, 1, 33],
    [1, 500, 4, 64, 2, 16, 8],
];

/// Seeds of [`SHAPES`]: of the even ones ordinary numbers, of the odd ones wild ones.
const SEEDS: u64 = 10;

/// What sanitizers take seconds for, or needs values of its own: one run each.
const SPECIAL: [(Shape, Values); 13] = [
    // Blocks by the hundred, many winners: block_topk by 512 threads, chunks of masks and indices.
    ([1, 700, 8, 64, 1, 600, 512], Values::Ordinary),
    ([1, 3000, 8, 16, 1, 40, 20], Values::Ordinary),
    ([2, 513, 2, 160, 128, 64, 1000], Values::Wild),
    ([2, 77, 1, 128, 11, 7, 2048], Values::Wild),
    ([1, 2100, 2, 32, 700, 3, 2048], Values::Ordinary),
    ([1, 4500, 1, 16, 2250, 2, 4096], Values::Wild),
    // More slots than shared memory holds, more winners than registers hold: token_topk reads the
    // scores, and it and flat_topk sort by the network. Blocks wider than a warp, then smaller.
    ([1, 9000, 1, 16, 2250, 4, 5000], Values::Ordinary),
    ([1, 8200, 1, 16, 1, 8200, 200], Values::Clustered),
    // Ties at the edge of the choice of every stage, and winners that crowd one bucket.
    ([2, 3000, 1, 16, 1, 300, 150], Values::Clustered),
    ([1, 2100, 2, 32, 700, 3, 300], Values::Clustered),
    // Chunks of rows without a key, of blocks, tokens and flat scores.
    ([1, 1500, 2, 32, 2, 600, 64], Values::Early),
    ([1, 3000, 2, 16, 1, 1200, 64], Values::Early),
    // Scores and means that no interval decides.
    ([2, 64, 3, 16, 4, 8, 16], Values::NearTies),
];

/// What tensors hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    Ordinary,
    Wild,
    /// One key far above all others, which are equal.
    Clustered,
    /// Ordinary numbers; windows end a quarter into the keys.
    Early,
    /// Scores and pooled means half way between two floats, or next to that.
    NearTies,
}

/// One run of everything.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) values: Values,
    /// Bytes from the start of their allocations to codes: 0, else not a multiple of 16 or of 4.
    pub(crate) shift: usize,
    /// Whether token stages run on [`shuffled`] ids too.
    pub(crate) shuffled: bool,
}

/// All runs, in order.
pub(crate) fn cases() -> Vec<Case> {
    let ordinary = |seed| {
        SHAPES.map(|shape| Case {
            seed,
            shape,
            values: [Values::Ordinary, Values::Wild][seed as usize % 2],
            shift: match seed {
                4 | 5 => 1,
                6 => 4,
                _ => 0,
            },
            shuffled: seed % 3 == 0,
        })
    };
    let special = SPECIAL
        .iter()
        .zip(0..)
        .map(|(&(shape, values), seed)| Case {
            seed,
            shape,
            values,
            shift: 0,
            shuffled: true,
        });
    (0..SEEDS).flat_map(ordinary).chain(special).collect()
}

impl Case {
    /// The tensors of the case.
    pub(crate) fn tensors(&self, numbers: &mut Numbers) -> Tensors {
        let [m, n, h, d, ..] = self.shape;
        let mut tensors = match self.values {
            Values::Wild => Tensors::wild(numbers, [m, n, h, d]),
            _ => Tensors::new(numbers, [m, n, h, d]),
        };
        match self.values {
            Values::Clustered => cluster(&mut tensors),
            Values::NearTies => tie_nearly(&mut tensors),
            Values::Early => {
                let window = Window {
                    ks: 1,
                    ke: (n / 4) as i32,
                };
                tensors.windows = Windows::new(vec![window; m], n).unwrap();
            }
            Values::Ordinary | Values::Wild => {}
        }
        tensors
    }
}

fn cluster(tensors: &mut Tensors) {
    let positive = |code: E4M3| E4M3::from_bits(code.to_bits() & 0x7F);
    tensors.q.mapv_inplace(positive);
    let first: Vec<E4M3> = tensors
        .k
        .row(0)
        .iter()
        .map(|&code| positive(code))
        .collect();
    for mut key in tensors.k.rows_mut() {
        key.iter_mut()
            .zip(&first)
            .for_each(|(to, &code)| *to = code);
    }
    tensors.weights.fill(1.0);
    tensors.k_scale.fill(1.0);
    let far = tensors.k_scale.len() / 8;
    tensors.k_scale[far] = 1e30;
}

/// Every dot is 1.5. Where the scale is 2, a score is 3 + 1.5 * 2^-22, between two floats of the
/// spacing 2^-22. Four scales add up to 3 + 2^-23, of the same spacing, and two numbers that no f64
/// holds beside it.
fn tie_nearly(tensors: &mut Tensors) {
    const ONE: E4M3 = E4M3::from_bits(0x38);
    const ONE_AND_A_HALF: E4M3 = E4M3::from_bits(0x3C);
    let above_one = 1.0 + f32::EPSILON;
    tensors.q.fill(E4M3::ZERO);
    tensors.weights.fill(0.0);
    for row in 0..tensors.weights.nrows() {
        tensors.q[(row, 0, 0)] = ONE_AND_A_HALF;
        tensors.weights[(row, 0)] = above_one;
    }
    tensors.k.fill(ONE);
    for (key, scale) in tensors.k_scale.iter_mut().enumerate() {
        *scale = [above_one, 2.0, 1e-45, 1e-45][key % 4];
    }
}

/// Ids in an order that does not ascend where there are two, some of them replaced by ids that
/// stand for no block. The second array has -1 for those: the reference refuses the others.
pub(crate) fn shuffled(
    numbers: &mut Numbers,
    ids: &Array2<i32>,
    blocks: i32,
) -> (Array2<i32>, Array2<i32>) {
    let (mut ids, mut plain) = (ids.clone(), ids.clone());
    for (mut ids, mut plain) in ids.rows_mut().into_iter().zip(plain.rows_mut()) {
        for at in (1..ids.len()).rev() {
            ids.swap(at, numbers.below(at + 1));
        }
        let held: Vec<i32> = ids.iter().copied().filter(|&id| id >= 0).collect();
        if held.is_sorted() {
            let last = ids.len() - 1;
            (0..ids.len() / 2).for_each(|at| ids.swap(at, last - at));
        }
        plain.assign(&ids);
        for at in 0..ids.len() {
            // Neither end, so that a -1 stands between others.
            if at > 0 && at + 1 < ids.len() && numbers.below(5) == 0 {
                ids[at] = numbers.pick(&[-1, -1, -2, i32::MIN, blocks, i32::MAX]);
                plain[at] = -1;
            }
        }
    }
    (ids, plain)
}

#[test]
fn the_set_is_of_its_known_size() {
    assert_eq!(cases().len(), 213);
}

#[test]
fn shuffled_ids_descend_somewhere_and_have_a_hole() {
    let ids = Array2::from_shape_fn((50, 6), |(_, at)| at as i32 * 2);
    let (given, plain) = shuffled(&mut Numbers(1), &ids, 12);
    assert!(plain.iter().filter(|&&id| id == -1).count() > 20);
    for (given, plain) in given.rows().into_iter().zip(plain.rows()) {
        for (&given, &plain) in given.iter().zip(plain) {
            assert!(given == plain || plain == -1 && !(0..12).contains(&given));
        }
    }
    // As token_topk sees it: -1 is the largest id.
    let descends = |ids: Vec<u32>| !ids.is_sorted();
    let two = Array2::from_shape_fn((20, 2), |(_, at)| at as i32);
    let (two, _) = shuffled(&mut Numbers(2), &two, 2);
    for row in given.rows().into_iter().chain(two.rows()) {
        assert!(descends(row.iter().map(|&id| id as u32).collect()), "{row}");
    }
}

#[test]
fn near_ties_are_between_floats() {
    let case = Case {
        seed: 0,
        shape: [1, 8, 2, 16, 4, 1, 1],
        values: Values::NearTies,
        shift: 0,
        shuffled: false,
    };
    let tensors = case.tensors(&mut Numbers(1));
    let halfway = |value: f64| {
        let bits = value.to_bits() << 12 >> 12;
        bits & ((1 << 29) - 1) == 1 << 28
    };
    let weight = f64::from(tensors.weights[(0, 0)]);
    assert!(halfway(1.5 * weight * f64::from(tensors.k_scale[1])));
    assert!(halfway(
        f64::from(tensors.k_scale[0]) + f64::from(tensors.k_scale[1])
    ));
    assert!(tensors.k_scale[2] > 0.0);
}
