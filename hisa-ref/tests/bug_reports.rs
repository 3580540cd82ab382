//! Published faults of this field that concern shapes and index widths, on the reference. Those
//! about values and selection are worked examples of docs/SPEC.md and cases of the `edge`
//! generator.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Case, Kind, bits};
use hisa_ref::stages::{block_mask, block_scores, token_scores};
use hisa_ref::{E4M3, HisaParams, IndexerInput, Strictness, Window, Windows, dsa, hisa};
use ndarray::{Array1, Array2, Array3, Axis, Slice};

/// One-dimensional keys: a key's score is its scale times its code, and memory stays small.
struct Flat {
    q: Array3<E4M3>,
    k: Array2<E4M3>,
    k_scale: Array1<f32>,
    weights: Array2<f32>,
    windows: Windows,
}

impl Flat {
    fn new(rows: Vec<Window>, n: usize) -> Self {
        let one = E4M3::from_bits(0x38);
        Self {
            q: Array3::from_elem((rows.len(), 1, 1), one),
            k: Array2::from_elem((n, 1), one),
            k_scale: Array1::from_shape_fn(n, |key| 1.0 + (key * 7 % 64) as f32),
            weights: Array2::ones((rows.len(), 1)),
            windows: Windows::new(rows, n).unwrap(),
        }
    }

    fn input(&self) -> IndexerInput<'_> {
        let (q, k, w) = (self.q.view(), self.k.view(), self.weights.view());
        let scales = self.k_scale.view();
        IndexerInput::new(q, k, scales, w, self.windows.clone(), Strictness::Strict).unwrap()
    }
}

#[test]
fn br_46_br_100_br_104_every_head_dim_and_block_size() {
    for d in [1, 3, 16, 24, 32, 64, 96, 128, 256] {
        for b in [1, 2, 3, 5, 48, 100, 192] {
            let case = Case::new(d as u64 * 256 + b as u64, 3, 203, 2, d, Kind::Plain);
            let params = HisaParams::new(b, 3, 3).unwrap();
            let trace = hisa::trace(&case.input(), &params).unwrap();
            let (queries, keys, windows) = (case.queries(), case.keys(), &case.windows);
            let ids = trace.block_ids.view();
            let tokens = token_scores::scalar(&queries, &keys, windows, ids, b).unwrap();
            assert_eq!(bits(&trace.token_scores), bits(&tokens), "D={d} B={b}");
            assert_eq!(hisa::run(&case.input(), &params).unwrap(), trace.indices);
        }
    }
}

#[test]
fn br_48_views_off_by_one_element_give_the_same_answer() {
    let case = Case::new(5, 3, 20, 2, 16, Kind::Plain);
    let shifted = |tensor: &Array2<E4M3>| {
        let mut wide = Array2::from_elem((20, 17), E4M3::NAN);
        wide.slice_axis_mut(Axis(1), Slice::from(1..))
            .assign(tensor);
        wide
    };
    let wide = shifted(&case.k);
    let k = wide.slice_axis(Axis(1), Slice::from(1..));
    let (q, w, s) = (case.q.view(), case.weights.view(), case.k_scale.view());
    let input = IndexerInput::new(q, k, s, w, case.windows.clone(), case.strictness).unwrap();
    let params = HisaParams::new(3, 2, 5).unwrap();
    assert_eq!(
        hisa::run(&input, &params).unwrap(),
        hisa::run(&case.input(), &params).unwrap()
    );
}

#[test]
fn br_65_more_than_2_31_slots_in_all() {
    // M*S = 262,145 * 8192, just past 2^31. The last row must equal the same row alone.
    let (m, n) = (262_145, 400);
    let last = Window { ks: 3, ke: 400 };
    let mut rows = vec![Window { ks: 0, ke: 2 }; m];
    rows[m - 1] = last;
    let params = HisaParams::new(128, 64, 2).unwrap();
    let many = hisa::run(&Flat::new(rows, n).input(), &params).unwrap();
    let alone = hisa::run(&Flat::new(vec![last], n).input(), &params).unwrap();
    assert_eq!(many.row(m - 1), alone.row(0));
    assert_eq!(many.row(0).to_vec(), [1, 0]);
}

/// SPEC 6.1.
#[test]
fn br_66_block_131072_of_128_keys() {
    let n = 16_777_217;
    let rows = vec![Window { ks: 0, ke: 5 }, Window { ks: n - 300, ke: n }];
    let flat = Flat::new(rows, n as usize);
    let params = HisaParams::new(128, 2, 300).unwrap();
    let indices = hisa::run(&flat.input(), &params).unwrap();
    // 300 keys touch four blocks; the two kept ones hold 212 + 1 of them less the first's part.
    let first_block = (n as usize - 300) / 128;
    let in_first = (first_block + 1) * 128 - (n as usize - 300);
    let valid = indices.row(1).iter().filter(|&&id| id >= 0).count();
    assert_eq!(valid, in_first + 1);
    assert!(
        indices.row(1).iter().any(|&id| id == 299),
        "the very last key is there"
    );
    assert!(indices.iter().all(|&id| (-1..300).contains(&id)));
}

#[test]
fn br_67_br_68_46341_rows_and_keys() {
    let n = 46_341;
    let rows = (0..n)
        .map(|row| Window {
            ks: (row - 2).max(0),
            ke: row + 1,
        })
        .collect();
    let flat = Flat::new(rows, n as usize);
    let indices = dsa::run(&flat.input(), 3).unwrap();
    assert!(indices.iter().all(|&id| (-1..3).contains(&id)));
    let mut last = indices.row(n as usize - 1).to_vec();
    last.sort_unstable();
    assert_eq!(last, [0, 1, 2]);
    let mut scores = Array2::zeros((n as usize, 363));
    block_mask::run(&mut scores, &flat.windows, 128).unwrap();
    let finite = scores
        .row(n as usize - 1)
        .iter()
        .filter(|s| **s != f32::NEG_INFINITY)
        .count();
    assert_eq!((finite, scores[(n as usize - 1, 362)]), (1, f32::INFINITY));
}

/// SPEC 10.10.
#[test]
fn br_97_twenty_repeats_give_the_same_bits() {
    let case = Case::new(9, 128, 512, 16, 64, Kind::Plain);
    let (queries, windows) = (case.queries(), &case.windows);
    let pooled = hisa_ref::stages::block_pool::run(&case.keys(), 4).unwrap();
    let run = || block_scores::run(&queries, &pooled.as_keys().unwrap(), windows, 4).unwrap();
    let first = bits(&run());
    assert!((0..20).all(|_| bits(&run()) == first));
}

#[test]
fn br_101_heads_of_zero_weight_change_nothing() {
    for heads in [1, 8, 16, 31, 32, 33, 64, 128] {
        let case = Case::new(heads as u64, 3, 24, heads, 8, Kind::Plain);
        let params = HisaParams::new(4, 3, 6).unwrap();
        let mut wider = case.clone();
        let extra = Case::new(77, 3, 24, 5, 8, Kind::Plain);
        wider.q = ndarray::concatenate(Axis(1), &[case.q.view(), extra.q.view()]).unwrap();
        let zeros = Array2::zeros((3, 5));
        wider.weights =
            ndarray::concatenate(Axis(1), &[case.weights.view(), zeros.view()]).unwrap();
        let (got, expected) = (
            hisa::trace(&wider.input(), &params).unwrap(),
            hisa::trace(&case.input(), &params).unwrap(),
        );
        assert_eq!(
            bits(&got.token_scores),
            bits(&expected.token_scores),
            "H={heads}"
        );
        assert_eq!(got.indices, expected.indices, "H={heads}");
    }
}

/// SPEC V.9 and 8.2.
#[test]
fn br_54_zero_sizes_give_empty_or_padded_results() {
    for (m, n) in [(0, 0), (0, 5), (3, 0)] {
        let case = Case::new(1, m, n, 2, 8, Kind::Plain);
        let params = HisaParams::new(4, 2, 3).unwrap();
        let indices = hisa::run(&case.input(), &params).unwrap();
        assert_eq!(indices, Array2::from_elem((m, 3), -1));
        let trace = hisa::trace(&case.input(), &params).unwrap();
        assert_eq!(trace.block_scores.dim(), (m, n.div_ceil(4)));
        assert_eq!(trace.token_scores.dim(), (m, 8));
        assert_eq!(dsa::run(&case.input(), 3).unwrap(), indices);
    }
}
