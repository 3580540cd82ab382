//! Inputs, and rows of them against the reference.

use hisa_cuda::{Host, Scoring, Sizes};
use hisa_ref::{E4M3, HisaParams, IndexerInput, Strictness, Window, Windows};
use ndarray::{Array2, Array3, ArrayView1, ArrayView2};

/// Roughly normal numbers as codes.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// The sum of four uniform numbers, scaled to variance 1.
    fn normal(&mut self) -> f32 {
        let bits = self.next();
        let parts = (0..4).map(|at| (bits >> (16 * at) & 0xFFFF) as f32 / 65_536.0 - 0.5);
        parts.sum::<f32>() * 3.0_f32.sqrt()
    }
}

/// Configuration data, in host memory.
pub(super) struct Data {
    pub(super) sizes: Sizes,
    pub(super) q: Vec<E4M3>,
    pub(super) k: Vec<E4M3>,
    pub(super) k_scale: Vec<f32>,
    pub(super) weights: Vec<f32>,
}

impl Data {
    pub(super) fn new(rows: usize, keys: usize) -> Self {
        let sizes = Sizes {
            rows,
            keys,
            heads: 64,
            head_dim: 128,
        };
        let mut numbers = Numbers(rows as u64 ^ keys as u64);
        let code = |x: f32| E4M3::encode(x, hisa_ref::Overflow::Saturating);
        let table: Vec<E4M3> = (0..1 << 16).map(|_| code(numbers.normal())).collect();
        let mut codes = |len: usize| -> Vec<E4M3> {
            let four = |bits: u64| (0..4).map(move |at| (bits >> (16 * at) & 0xFFFF) as usize);
            let draws = (0..len.div_ceil(4)).flat_map(|_| four(numbers.next()));
            draws.take(len).map(|at| table[at]).collect()
        };
        let (q, k) = (codes(sizes.query_codes()), codes(sizes.key_codes()));
        Self {
            q,
            k,
            k_scale: (0..keys).map(|_| 0.05 + numbers.normal().abs()).collect(),
            weights: (0..sizes.weights()).map(|_| numbers.normal()).collect(),
            sizes,
        }
    }

    pub(super) fn window(&self, row: usize) -> Window {
        Window {
            ks: 0,
            ke: (self.sizes.keys - self.sizes.rows + row + 1) as i32,
        }
    }
}

/// A few rows of both indexers against the reference; rows do not influence each other.
pub(super) fn validate(host: &mut Host, data: &Data) {
    let Sizes {
        rows,
        keys,
        heads,
        head_dim,
    } = data.sizes;
    let chosen: Vec<usize> = (0..4).map(|at| at * (rows - 1) / 3).collect();
    let gather = |from: &[f32], len: usize| -> Vec<f32> {
        chosen
            .iter()
            .flat_map(|row| from[row * len..(row + 1) * len].to_vec())
            .collect()
    };
    let len = heads * head_dim;
    let q = chosen
        .iter()
        .flat_map(|row| data.q[row * len..(row + 1) * len].to_vec())
        .collect();
    let q = Array3::from_shape_vec((chosen.len(), heads, head_dim), q).unwrap();
    let weights = gather(&data.weights, heads);
    let weights = Array2::from_shape_vec((chosen.len(), heads), weights).unwrap();
    let windows = chosen.iter().map(|&row| data.window(row)).collect();
    let input = IndexerInput::new(
        q.view(),
        ArrayView2::from_shape((keys, head_dim), &data.k).unwrap(),
        ArrayView1::from(&data.k_scale),
        weights.view(),
        Windows::new(windows, keys).unwrap(),
        Strictness::Strict,
    )
    .unwrap();
    let params = HisaParams::DEEPSEEK_V32;
    let expected = hisa_ref::hisa::run(&input, &params).unwrap();
    assert_eq!(
        host.hisa(&input, &params, Scoring::Exact).unwrap(),
        expected,
        "hisa"
    );
    let expected = hisa_ref::dsa::run(&input, 2048).unwrap();
    assert_eq!(
        host.dsa(&input, 2048, Scoring::Exact).unwrap(),
        expected,
        "dsa"
    );
}
