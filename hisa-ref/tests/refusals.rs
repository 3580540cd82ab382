//! What bad input gets: a typed error with the argument, the place and the numbers (SPEC V.7).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_ref::error::{Error, ParamError, SelectionError, ShapeError, ValueError, WindowError};
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::stages::*;
use hisa_ref::{
    E4M3, IndexerInput, Keys, Overflow, Queries, Rank, Strictness, Windows, block_sparse, dsa,
};
use hisa_ref::{HisaParams, Strictness::Permissive, Strictness::Strict};
use ndarray::{Array1, Array2, Array3, ArrayD, IxDyn, array};

struct Parts {
    q: Array3<E4M3>,
    k: Array2<E4M3>,
    k_scale: Array1<f32>,
    weights: Array2<f32>,
    windows: Windows,
}

/// M = 2, H = 2, D = 3, N = 4; all ones.
fn parts() -> Parts {
    let one = E4M3::from_bits(0x38);
    Parts {
        q: Array3::from_elem((2, 2, 3), one),
        k: Array2::from_elem((4, 3), one),
        k_scale: Array1::ones(4),
        weights: Array2::ones((2, 2)),
        windows: Windows::from_rows(&[0, 1], &[4, 3], 4).unwrap(),
    }
}

impl Parts {
    fn build(&self, strictness: Strictness) -> Result<IndexerInput<'_>, Error> {
        IndexerInput::new(
            self.q.view(),
            self.k.view(),
            self.k_scale.view(),
            self.weights.view(),
            self.windows.clone(),
            strictness,
        )
    }

    fn refusal(&self) -> Error {
        self.build(Strict).unwrap_err()
    }
}

fn shape(argument: &'static str, got: &[usize], expected: &str) -> Error {
    ShapeError::new(argument, got, expected).into()
}

/// SPEC 2.8, 3.4 and V.10.
#[test]
fn shapes_are_checked_against_each_other() {
    let mut p = parts();
    assert!(p.build(Strict).is_ok());
    p.k = Array2::from_elem((4, 2), E4M3::ZERO);
    assert_eq!(p.refusal(), shape("k", &[4, 2], "[.., D] = [.., 3]"));
    p = parts();
    p.k_scale = Array1::ones(3);
    assert_eq!(p.refusal(), shape("k_scale", &[3], "[N] = [4]"));
    p = parts();
    p.weights = Array2::ones((2, 3));
    assert_eq!(p.refusal(), shape("weights", &[2, 3], "[M,H] = [2, 2]"));
    p = parts();
    p.windows = Windows::from_rows(&[0], &[4], 4).unwrap();
    assert_eq!(
        p.refusal(),
        WindowError::RowCounts { ks: 1, ke: 1, m: 2 }.into()
    );
    p = parts();
    p.windows = Windows::from_rows(&[0, 0], &[4, 4], 5).unwrap();
    assert_eq!(p.refusal(), shape("k", &[4], "[N] = [5] of the windows"));
    p = parts();
    p.q = Array3::from_elem((2, 0, 3), E4M3::ZERO);
    assert_eq!(p.refusal(), ParamError::Zero { name: "H" }.into());
    p = parts();
    p.q = Array3::from_elem((2, 2, 0), E4M3::ZERO);
    assert_eq!(p.refusal(), ParamError::Zero { name: "D" }.into());
}

/// SPEC V.7 and V.10.
#[test]
fn strict_mode_names_the_first_value_in_order() {
    let nan = E4M3::from_bits(0xFF);
    let value = |error: Error| match error {
        Error::Value(ValueError {
            argument, index, ..
        }) => (argument, index),
        other => panic!("{other}"),
    };
    let mut p = parts();
    p.weights[(1, 0)] = f32::NEG_INFINITY;
    assert_eq!(value(p.refusal()), ("weights", vec![1, 0]));
    p.k_scale[2] = -1.0;
    assert_eq!(value(p.refusal()), ("k_scale", vec![2]));
    p.k[(3, 1)] = nan;
    assert_eq!(value(p.refusal()), ("k", vec![3, 1]));
    p.q[(1, 1, 2)] = nan;
    p.q[(1, 1, 1)] = nan;
    assert_eq!(value(p.refusal()), ("q", vec![1, 1, 1]));
    assert!(p.build(Permissive).is_ok());
    let text = p.refusal().to_string();
    assert!(text.contains("q[1, 1, 1] is NaN"), "{text}");
    let mut p = parts();
    p.k_scale[0] = -0.0;
    assert!(p.build(Strict).is_ok(), "-0.0 is not a negative scale");
    for bad in [f32::NAN, f32::INFINITY, -f32::from_bits(1)] {
        p.k_scale[1] = bad;
        assert_eq!(value(p.refusal()), ("k_scale", vec![1]));
        assert!(Keys::new(p.k.view(), p.k_scale.view(), Strict).is_err());
        assert!(Keys::new(p.k.view(), p.k_scale.view(), Permissive).is_ok());
    }
    p.weights[(0, 1)] = f32::NAN;
    let queries = Queries::new(p.q.view(), p.weights.view(), Strict);
    assert_eq!(value(queries.unwrap_err()), ("weights", vec![0, 1]));
}

/// SPEC V.7.
#[test]
fn permissive_still_checks_shapes_and_windows() {
    let mut p = parts();
    p.k_scale = Array1::ones(5);
    assert!(p.build(Permissive).is_err());
    p = parts();
    p.windows = Windows::from_rows(&[0, 0, 0], &[4, 4, 4], 4).unwrap();
    assert!(p.build(Permissive).is_err());
}

#[test]
fn any_memory_layout_is_taken() {
    let p = parts();
    let mut wide = Array2::from_elem((4, 6), E4M3::NAN);
    wide.slice_mut(ndarray::s![.., 1..4]).assign(&p.k);
    let transposed = p.k.t().as_standard_layout().into_owned();
    for view in [wide.slice(ndarray::s![.., 1..4]), transposed.t()] {
        let keys = Keys::new(view, p.k_scale.view(), Strict).unwrap();
        assert_eq!(keys.codes(), p.k.as_slice().unwrap());
        assert!(!keys.is_empty());
    }
}

/// SPEC 4.0.
#[test]
fn masking_takes_column_major_scores() {
    let windows = parts().windows;
    let rows = array![[0.5, 0.25, 0.125, 0.0], [1.0, 2.0, 3.0, 4.0]];
    let (mut standard, mut turned) = (rows.clone(), rows.t().as_standard_layout().into_owned());
    turned.swap_axes(0, 1);
    assert!(!turned.is_standard_layout());
    block_mask::run(&mut standard, &windows, 1).unwrap();
    block_mask::run(&mut turned, &windows, 1).unwrap();
    assert_eq!(turned, standard);
}

/// SPEC 1.5 to 1.7.
#[test]
fn quantize_refuses_values_and_dims() {
    let options = QuantizeOptions {
        format: ScaleFormat::F32,
        overflow: Overflow::Saturating,
        strictness: Strict,
    };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let x = array![[1.0, 2.0], [3.0, bad]];
        for result in [
            quantize::run(x.view(), options),
            quantize::scalar(x.view(), options),
        ] {
            let Err(Error::Value(error)) = result else {
                panic!("{bad} was taken")
            };
            assert_eq!((error.argument, error.index), ("x", vec![1, 1]));
        }
        let dims = quantize::run_dims(x.view().into_dyn(), &[0], options);
        assert!(dims.unwrap_err().to_string().contains("x[1, 1]"));
    }
    let x = ArrayD::<f32>::zeros(IxDyn(&[2, 3]));
    for (dims, position, dim) in [(vec![2], 0, 2), (vec![1, 1], 1, 1)] {
        assert_eq!(
            quantize::run_dims(x.view(), &dims, options).unwrap_err(),
            ParamError::Dims {
                position,
                dim,
                ndim: 2
            }
            .into()
        );
    }
}

/// SPEC 2.8, 3.4, 4.4, 5.6, 6.4, 7.3, 8.3 and V.9.
#[test]
fn stages_refuse_zero_sizes_and_wrong_shapes() {
    let p = parts();
    let input = p.build(Strict).unwrap();
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    let zero = |name| Error::from(ParamError::Zero { name });
    assert_eq!(block_pool::run(keys, 0).unwrap_err(), zero("block_size"));
    let pooled = block_pool::run(keys, 2).unwrap();
    let pooled = pooled.as_keys().unwrap();
    assert_eq!(
        block_scores::run(queries, &pooled, windows, 0).unwrap_err(),
        zero("block_size")
    );
    let error = block_scores::run(queries, &pooled, windows, 1).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Shape(ShapeError {
                argument: "pooled_k",
                ..
            })
        ),
        "{error}"
    );
    let mut scores = Array2::zeros((2, 2));
    assert_eq!(
        block_mask::run(&mut scores, windows, 0).unwrap_err(),
        zero("block_size")
    );
    let error = block_mask::run(&mut scores, windows, 1).unwrap_err();
    assert_eq!(error, shape("block_scores", &[2, 2], "[M,Nb] = [2, 4]"));
    let mut short = Array2::zeros((1, 2));
    let error = block_mask::run(&mut short, windows, 2).unwrap_err();
    assert_eq!(error, WindowError::RowCounts { ks: 2, ke: 2, m: 1 }.into());
    let topk = |b, m| block_topk::run(scores.view(), windows, b, m, Rank::F32).unwrap_err();
    assert_eq!(topk(0, 1), zero("block_size"));
    assert_eq!(topk(2, 0), zero("block_topk"));
    assert!(matches!(
        topk(2, 1 << 30),
        Error::Param(ParamError::TooLarge { .. })
    ));
    assert_eq!(topk(1, 1), shape("block_mask", &[2, 2], "[M,Nb] = [2, 4]"));
    let none = Array2::<i32>::zeros((2, 0));
    let error = token_scores::run(queries, keys, windows, none.view(), 2).unwrap_err();
    assert_eq!(error, zero("block_topk"));
    let ids = array![[0, 1], [0, 1]];
    let tokens = Array2::<f32>::zeros((2, 4));
    let error = index_map::run(none.view(), ids.view(), windows, 2).unwrap_err();
    assert_eq!(error, zero("topk_tokens"));
    let error = index_map::run(ids.view(), none.view(), windows, 2).unwrap_err();
    assert_eq!(error, zero("block_topk"));
    let topk = |b, k| token_topk::run(tokens.view(), ids.view(), windows, b, k).unwrap_err();
    assert_eq!(topk(0, 1), zero("block_size"));
    assert_eq!(topk(2, 0), zero("topk_tokens"));
    assert_eq!(topk(3, 1), shape("token_scores", &[2, 4], "[M,S] = [2, 6]"));
    assert_eq!(dsa::run(&input, 0).unwrap_err(), zero("topk_tokens"));
    let huge = HisaParams::new(1 << 20, 1, (1 << 31) - 1).unwrap();
    assert!(matches!(
        block_sparse::run(&input, &huge).unwrap_err(),
        Error::Param(ParamError::TooLarge { .. })
    ));
}

/// SPEC 6.3, 6.4, 7.3 and 8.3.
#[test]
fn block_ids_are_checked_wherever_they_come_in() {
    let p = parts();
    let input = p.build(Strict).unwrap();
    let (queries, keys, windows) = (input.queries(), input.keys(), input.windows());
    let cases = [
        (
            array![[0, 1], [0, 2]],
            SelectionError::BlockId {
                row: 1,
                column: 1,
                id: 2,
                blocks: 2,
            },
        ),
        (
            array![[0, 1], [-2, 1]],
            SelectionError::BlockId {
                row: 1,
                column: 0,
                id: -2,
                blocks: 2,
            },
        ),
        (
            array![[1, 1], [0, 1]],
            SelectionError::DuplicateBlock {
                row: 0,
                column: 1,
                first: 0,
                id: 1,
            },
        ),
    ];
    let (tokens, slots) = (Array2::<f32>::zeros((2, 4)), array![[-1], [-1]]);
    for (ids, expected) in cases {
        let expected = Error::from(expected);
        let ids = ids.view();
        assert_eq!(
            token_scores::run(queries, keys, windows, ids, 2).unwrap_err(),
            expected
        );
        assert_eq!(
            token_scores::scalar(queries, keys, windows, ids, 2).unwrap_err(),
            expected
        );
        assert_eq!(
            token_topk::run(tokens.view(), ids, windows, 2, 1).unwrap_err(),
            expected
        );
        assert_eq!(
            index_map::run(slots.view(), ids, windows, 2).unwrap_err(),
            expected
        );
    }
    // -1 may stand anywhere, and repeat.
    let ids = array![[-1, 0], [-1, -1]];
    assert!(token_scores::run(queries, keys, windows, ids.view(), 2).is_ok());
}

/// SPEC 8.3.
#[test]
fn slots_are_checked_one_by_one() {
    let windows = Windows::from_rows(&[0, 1], &[4, 3], 4).unwrap();
    let ids = array![[0, 1], [-1, 1]];
    let cases = [
        (
            array![[0, 4], [2, -1]],
            SelectionError::Slot {
                row: 0,
                column: 1,
                slot: 4,
                slots: 4,
            },
        ),
        (
            array![[-2, 0], [2, -1]],
            SelectionError::Slot {
                row: 0,
                column: 0,
                slot: -2,
                slots: 4,
            },
        ),
        (
            array![[0, 3], [2, 1]],
            SelectionError::SlotInNoBlock {
                row: 1,
                column: 1,
                slot: 1,
                block: 0,
            },
        ),
        (
            array![[0, 3], [-1, 3]],
            SelectionError::SlotOutsideWindow {
                row: 1,
                column: 1,
                slot: 3,
                key: 3,
                ks: 1,
                ke: 3,
            },
        ),
    ];
    for (slots, expected) in cases {
        let expected = Error::from(expected);
        assert_eq!(
            index_map::run(slots.view(), ids.view(), &windows, 2).unwrap_err(),
            expected
        );
        assert_eq!(
            index_map::scalar(slots.view(), ids.view(), &windows, 2).unwrap_err(),
            expected
        );
    }
    let kept = index_map::run(array![[0, 3], [-1, 2]].view(), ids.view(), &windows, 2).unwrap();
    assert_eq!(kept, array![[0, 3], [-1, 1]]);
}

/// SPEC V.9.
#[test]
fn products_that_overflow_are_refused_before_allocation() {
    let largest = (1usize << 31) - 1;
    assert!(HisaParams::new(1, largest, largest).is_ok());
    assert!(HisaParams::new(2, largest, largest).is_err());
    assert!(HisaParams::new(largest, 1, 1).is_ok());
    assert!(HisaParams::new(largest + 1, 1, 1).is_err());
}

#[test]
fn index_map_refuses_a_k_that_no_run_has() {
    let windows = Windows::from_rows(&[0, 1], &[4, 3], 4).unwrap();
    let (slots, ids) = (Array2::<i32>::zeros((2, 0)), array![[0, 1], [0, 1]]);
    let none = Windows::from_rows(&[], &[], 4).unwrap();
    let (wide, no_ids) = (Array2::<i32>::zeros((0, 1 << 31)), Array2::zeros((0, 1)));
    let name = "topk_tokens";
    for stage in [index_map::run, index_map::scalar] {
        let error = stage(slots.view(), ids.view(), &windows, 2).unwrap_err();
        assert_eq!(error, ParamError::Zero { name }.into(), "SPEC V.9");
        let error = stage(wide.view(), no_ids.view(), &none, 2).unwrap_err();
        assert!(matches!(
            error,
            Error::Param(ParamError::TooLarge {
                name: "topk_tokens",
                ..
            })
        ));
    }
}

/// SPEC 1.7.
#[test]
fn quantize_takes_empty_tensors_of_any_length() {
    let options = QuantizeOptions {
        format: ScaleFormat::F32,
        overflow: Overflow::Saturating,
        strictness: Strict,
    };
    let none = Array2::<f32>::zeros((0, 1 << 62));
    for stage in [quantize::run, quantize::scalar] {
        assert!(stage(none.view(), options).unwrap().scale.is_empty());
    }
}

/// Broadcast views repeat one element without holding it: copying one must not abort.
#[test]
fn views_larger_than_memory_are_refused() {
    let (rows, d) = ((1usize << 31) - 1, 1 << 16);
    let refused = |error: Error, tensor| match error {
        Error::Param(ParamError::Allocation { what, .. }) => assert_eq!(what, tensor),
        other => panic!("{other}"),
    };
    let (code, one) = (array![[E4M3::ZERO]], array![1.0f32]);
    let k = code.broadcast((rows, d)).unwrap();
    let scale = one.broadcast(rows).unwrap();
    refused(Keys::new(k, scale, Strict).unwrap_err(), "k");
    let q = code.broadcast((1 << 20, 1 << 16, 1 << 16)).unwrap();
    let weights = one.broadcast((1 << 20, 1 << 16)).unwrap();
    refused(Queries::new(q, weights, Strict).unwrap_err(), "q");
    let options = QuantizeOptions {
        format: ScaleFormat::F32,
        overflow: Overflow::Saturating,
        strictness: Strict,
    };
    let x = one.broadcast((rows, d)).unwrap();
    refused(quantize::run(x, options).unwrap_err(), "x");
    let dims = quantize::run_dims(x.into_dyn(), &[0], options);
    refused(dims.unwrap_err(), "x");
    let windows = Windows::from_rows(&[0; 1 << 16], &[1; 1 << 16], rows).unwrap();
    let scores = one.broadcast((1 << 16, rows)).unwrap();
    let error = block_topk::run(scores, &windows, 1, 1, Rank::F32).unwrap_err();
    refused(error, "block_mask");
}
