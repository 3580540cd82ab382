//! Inputs: windows, tensors and contradictions between them.

use super::{f32s, i32s, i64s, read, tensor, u8s, valid, with};
use hisa_conformance::dump::error::WindowsProblem;
use hisa_conformance::dump::{Data, DumpError, RunParams, Tensor, TensorError};
use hisa_ref::error::{ParamError, ShapeError, ValueError, WindowError};
use hisa_ref::{E4M3, Error, Window};
use std::collections::BTreeMap;

#[test]
fn the_smallest_input_reads() {
    let dump = read(&valid(), &[]).unwrap();
    assert_eq!(*dump.params(), RunParams::default());
    let at = |ks, ke| Window { ks, ke };
    assert_eq!(dump.windows().rows(), [at(0, 1), at(1, 2), at(1, 3)]);
    assert_eq!(dump.q().dim(), (3, 2, 4));
    assert_eq!(dump.q()[[2, 1, 3]].to_bits(), 23);
    assert_eq!(dump.k_scale()[1].to_bits(), (-0.0f32).to_bits());
    assert!(dump.x().is_none());
    assert_eq!(dump.as_input().unwrap().keys().len(), 3);
}

#[test]
fn three_ways_to_give_windows_and_no_mixture() {
    let cu = i64s(&[0, 1, 3]);
    let (ks, ke) = (i32s(&[0, 0, 0]), i32s(&[1, 2, 3]));
    for ways in [
        vec![("cu_seqlens", cu.clone())],
        vec![("cu_seqlens", i32s(&[0, 1, 3]))],
        vec![
            ("cu_seqlens_q", cu.clone()),
            ("cu_seqlens_k", i32s(&[0, 1, 3])),
        ],
        vec![("ks", ks.clone()), ("ke", ke.clone())],
    ] {
        read(&with(&ways), &[]).unwrap();
    }
    let several = |found: &[&'static str]| WindowsProblem::Several {
        found: found.to_vec(),
    };
    let half = |found, missing| WindowsProblem::Half { found, missing };
    for (ways, expected, words) in [
        (
            vec![],
            WindowsProblem::None,
            "no windows; expected either cu_seqlens, or",
        ),
        (
            vec![("cu_seqlens", cu.clone()), ("ks", ks.clone())],
            several(&["cu_seqlens", "ks"]),
            "given by cu_seqlens, ks, which is more than one way",
        ),
        (
            vec![("cu_seqlens_k", cu.clone()), ("ks", ks.clone()), ("ke", ke)],
            several(&["cu_seqlens_k", "ks", "ke"]),
            "cu_seqlens_k, ks, ke",
        ),
        (vec![("ks", ks)], half("ks", "ke"), "given by ks without ke"),
        (
            vec![("cu_seqlens_k", cu)],
            half("cu_seqlens_k", "cu_seqlens_q"),
            "cu_seqlens_k without cu_seqlens_q",
        ),
    ] {
        let error = read(&with(&ways), &[]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let DumpError::Windows { problem, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(problem, expected);
    }
}

#[test]
fn wrong_tensors_are_refused_by_name() {
    let f8 = tensor(&[3], Data::F8E4M3(vec![E4M3::ZERO; 3].into()));
    let bf16 = tensor(&[3, 2], Data::Bf16(vec![0; 6].into()));
    let rows = |name: &'static str, tensor| {
        vec![("ks", i32s(&[0; 3])), ("ke", i32s(&[0; 3])), (name, tensor)]
    };
    for (name, extra, words) in [
        (
            "q",
            vec![("q", u8s(&[3, 8]))],
            "has shape [3, 8]; expected [M, H, D]",
        ),
        (
            "q",
            vec![("q", i32s(&[1, 2, 3]))],
            "is I32; accepted: U8, F8_E4M3",
        ),
        (
            "k",
            vec![("k", u8s(&[12]))],
            "has shape [12]; expected [N, D]",
        ),
        (
            "k_scale",
            vec![("k_scale", f8)],
            "is F8_E4M3; accepted: F32",
        ),
        ("weights", vec![("weights", bf16)], "is BF16; accepted: F32"),
        ("ks", rows("ks", i64s(&[0; 3])), "is I64; accepted: I32"),
        ("ke", rows("ke", u8s(&[3])), "is U8; accepted: I32"),
        (
            "cu_seqlens",
            vec![("cu_seqlens", f32s(&[2], &[0.0, 3.0]))],
            "is F32; accepted: I32, I64",
        ),
        (
            "cu_seqlens",
            vec![("cu_seqlens", tensor(&[1, 2], Data::I32(vec![0, 3].into())))],
            "has shape [1, 2]; expected [S + 1]",
        ),
        (
            "x",
            vec![("cu_seqlens", i32s(&[0, 3])), ("x", i32s(&[1]))],
            "is I32; accepted: F32, BF16, U16",
        ),
    ] {
        let extra: Vec<_> = match extra.iter().any(|(name, _)| name.starts_with(['c', 'k'])) {
            true if !["k", "k_scale"].contains(&name) => extra,
            _ => [extra, vec![("cu_seqlens", i32s(&[0, 3]))]].concat(),
        };
        let error = read(&with(&extra), &[]).unwrap_err();
        assert!(
            matches!(&error, DumpError::Tensor { tensor, .. } if tensor == name),
            "{error}"
        );
        let message = format!("x.safetensors: tensor {name:?} {words}");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn missing_tensors_are_named_beside_what_is_there() {
    for name in ["q", "k", "k_scale", "weights"] {
        let mut tensors = valid();
        tensors.remove(name);
        let error = read(&tensors, &[]).unwrap_err();
        let found = tensors.keys().cloned().collect::<Vec<_>>();
        assert!(
            matches!(&error, DumpError::Tensor { problem: TensorError::Missing { found: f }, .. }
                if *f == found),
            "{error}"
        );
        let listed = found.join(", ");
        let words = format!("tensor {name:?} is missing; the file holds {listed}");
        assert!(error.to_string().ends_with(&words), "{error}");
    }
    let error = read(
        &BTreeMap::from([("ks".to_owned(), i32s(&[])), ("ke".to_owned(), i32s(&[]))]),
        &[],
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("\"q\" is missing; the file holds ke, ks")
    );
}

/// The dump is refused with the reference's own error.
fn assert_refused(extra: &[(&str, Tensor<'static>)], expected: impl Into<Error>) {
    let (error, expected) = (read(&with(extra), &[]).unwrap_err(), expected.into());
    let same = matches!(&error, DumpError::Input(error) if *error == expected);
    assert!(same, "{error}, not {expected}");
}

/// BR-53.
#[test]
fn offsets_that_do_not_describe_the_rows() {
    let argument = "cu_seqlens";
    let refused = |offsets: &[i32], error: WindowError| {
        assert_refused(&[(argument, i32s(offsets))], error);
    };
    refused(&[], WindowError::NoOffsets { argument });
    refused(&[1, 3], WindowError::FirstOffset { argument, value: 1 });
    let decreasing = WindowError::Decreasing {
        argument,
        position: 2,
        value: 1,
        previous: 2,
    };
    refused(&[0, 2, 1, 3], decreasing);
    let last = WindowError::LastOffset {
        argument,
        position: 1,
        value: 2,
        what: "M",
        expected: 3,
    };
    refused(&[0, 2], last);
    let wide = ParamError::TooLarge {
        name: argument,
        value: 1 << 32,
        limit: i32::MAX as u128,
        reason: "ids travel as int32",
    };
    assert_refused(&[(argument, i64s(&[0, 1 << 32]))], wide);
}

/// BR-61, BR-64, BR-72.
#[test]
fn windows_that_do_not_fit_rows_or_keys() {
    let refused = |ks: &[i32], ke: &[i32], error: WindowError| {
        assert_refused(&[("ks", i32s(ks)), ("ke", i32s(ke))], error);
    };
    let counts = |ks, ke| WindowError::RowCounts { ks, ke, m: 3 };
    refused(&[0; 2], &[1; 2], counts(2, 2));
    refused(&[0; 3], &[1; 4], counts(3, 4));
    let outside = |ke| WindowError::OutsideKeys {
        row: 1,
        ks: 0,
        ke,
        n: 3,
    };
    refused(&[0; 3], &[1, 4, 1], outside(4));
    refused(&[0; 3], &[1, i32::MAX, 1], outside(i64::from(i32::MAX)));
}

#[test]
fn shapes_that_do_not_fit_each_other() {
    let refused = |name, tensor, expected: ShapeError| {
        assert_refused(&[(name, tensor), ("cu_seqlens", i32s(&[0, 3]))], expected);
    };
    let dims = ShapeError::new("k", &[3, 5], "[.., D] = [.., 4]");
    refused("k", u8s(&[3, 5]), dims);
    let scales = ShapeError::new("k_scale", &[2], "[N] = [3]");
    refused("k_scale", f32s(&[2], &[1.0; 2]), scales);
    let weights = ShapeError::new("weights", &[2, 3], "[M,H] = [3, 2]");
    refused("weights", f32s(&[2, 3], &[1.0; 6]), weights);
}

#[test]
fn values_are_refused_in_strict_mode_only() {
    let extra = [
        ("k_scale", f32s(&[3], &[1.0, -1.0, 1.0])),
        ("cu_seqlens", i32s(&[0, 3])),
    ];
    let negative = ValueError {
        argument: "k_scale",
        index: vec![1],
        value: -1.0,
        rule: "a scale must be finite and not negative",
    };
    assert_refused(&extra, negative);
    read(&with(&extra), &[("strict", "false")]).unwrap();
}

/// A row of no heads takes no byte, so M is not bounded by the file: it must not be believed.
#[test]
fn a_short_file_cannot_ask_for_a_long_list_of_windows() {
    const HUGE: usize = i32::MAX as usize;
    let tensors = with(&[
        ("q", tensor(&[HUGE, 0, 4], Data::U8(vec![].into()))),
        ("weights", tensor(&[HUGE, 0], Data::F32(vec![].into()))),
        ("cu_seqlens_q", i64s(&[0, HUGE as i64])),
        ("cu_seqlens_k", i64s(&[0, 3])),
    ]);
    let error = read(&tensors, &[]).unwrap_err();
    let expected = ParamError::Zero { name: "H" }.into();
    assert!(
        matches!(&error, DumpError::Input(error) if *error == expected),
        "{error}"
    );
}

/// BR-54: no rows, no keys, both.
#[test]
fn empty_tensors_are_inputs_like_any_other() {
    for (m, n) in [(0, 3), (3, 0), (0, 0)] {
        let tensors = with(&[
            ("q", u8s(&[m, 2, 4])),
            ("weights", f32s(&[m, 2], &vec![1.0; m * 2])),
            ("k", u8s(&[n, 4])),
            ("k_scale", f32s(&[n], &vec![1.0; n])),
            ("ks", i32s(&vec![0; m])),
            ("ke", i32s(&vec![0; m])),
        ]);
        let dump = read(&tensors, &[]).unwrap();
        let shape = (dump.q().dim().0, dump.k().nrows(), dump.windows().len());
        assert_eq!(shape, (m, n, m));
    }
}
