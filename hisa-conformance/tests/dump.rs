//! Dumps: what is refused, with which words, and what survives a round trip bit for bit.

use hisa_conformance::dump::error::WindowsProblem;
use hisa_conformance::dump::size::{check_output_bytes, planned_outputs};
use hisa_conformance::dump::{
    Data, Dtype, DumpError, FILE_BYTES_MAX, HEADER_BYTES_MAX, HeaderError, Indexer, InputDump,
    METADATA_KEY, Options, OutputDump, RunParams, Tensor, TensorError, TensorFile, input, to_bytes,
    write_atomic,
};
use hisa_ref::error::{ParamError, ShapeError, ValueError, WindowError};
use hisa_ref::{E4M3, Error, HisaParams, Rank, Strictness, Window};
use ndarray::{Array1, Array2};
use std::collections::BTreeMap;
use std::path::Path;

type Tensors = BTreeMap<String, Tensor<'static>>;

/// A file with this header text and data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn open(bytes: &[u8]) -> Result<TensorFile<std::io::Cursor<&[u8]>>, DumpError> {
    TensorFile::from_bytes(Path::new("x.safetensors"), bytes)
}

fn damage(bytes: &[u8]) -> HeaderError {
    match open(bytes) {
        Err(DumpError::Header { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

fn read(tensors: &Tensors, metadata: &[(&str, &str)]) -> Result<InputDump, DumpError> {
    let entries = metadata.iter();
    let metadata = entries
        .map(|&(key, value)| (key.into(), value.into()))
        .collect();
    let bytes = to_bytes(tensors, &metadata).unwrap();
    InputDump::from_file(&mut open(&bytes)?, &Options::default())
}

fn tensor(shape: &[usize], data: Data<'static>) -> Tensor<'static> {
    Tensor::new(shape, data).unwrap()
}

fn u8s(shape: &[usize]) -> Tensor<'static> {
    let len = shape.iter().product::<usize>() as u8;
    tensor(shape, Data::U8((0..len).map(|at| at % 0x7E).collect()))
}

fn f32s(shape: &[usize], values: &[f32]) -> Tensor<'static> {
    tensor(shape, Data::F32(values.to_vec().into()))
}

fn i32s(values: &[i32]) -> Tensor<'static> {
    tensor(&[values.len()], Data::I32(values.to_vec().into()))
}

fn i64s(values: &[i64]) -> Tensor<'static> {
    tensor(&[values.len()], Data::I64(values.to_vec().into()))
}

/// M = 3 rows, H = 2, D = 4, N = 3 keys, with the windows left out.
fn no_windows() -> Tensors {
    BTreeMap::from([
        ("q".to_owned(), u8s(&[3, 2, 4])),
        ("k".to_owned(), u8s(&[3, 4])),
        ("k_scale".to_owned(), f32s(&[3], &[1.0, -0.0, 0.5])),
        (
            "weights".to_owned(),
            f32s(&[3, 2], &[1.0, -1.0, 0.25, 2.0, 0.0, -0.5]),
        ),
    ])
}

fn with(extra: &[(&str, Tensor<'static>)]) -> Tensors {
    let mut tensors = no_windows();
    for (name, tensor) in extra {
        tensors.insert((*name).to_owned(), tensor.clone());
    }
    tensors
}

fn valid() -> Tensors {
    with(&[("cu_seqlens", i32s(&[0, 1, 1, 3]))])
}

const A8: &str = r#""a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;

#[test]
fn damaged_headers_are_refused_by_name_and_number() {
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        let header =
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#);
        file(&header, &[0; 8])
    };
    let pair = |offsets: &str| {
        let header =
            format!(r#"{{{A8},"b":{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}}}"#);
        file(&header, &[0; 12])
    };
    let long = "n".repeat(300);
    let named = format!(r#"{{"{long}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}}"#);
    let rank9 = "[1,1,1,1,1,1,1,1,1]";
    let strings = r#"{"__metadata__":{"k":"1","k":"2"}}"#;
    type Expected = fn(&HeaderError) -> bool;
    let table: &[(Vec<u8>, Expected, &str)] = &[
        (
            vec![],
            |e| matches!(e, HeaderError::TooShort { bytes: 0 }),
            "holds 0 bytes",
        ),
        (
            vec![1; 7],
            |e| matches!(e, HeaderError::TooShort { bytes: 7 }),
            "holds 7 bytes",
        ),
        (
            file("{}", &[])[..9].to_vec(),
            |e| {
                matches!(
                    e,
                    HeaderError::Truncated {
                        bytes: 2,
                        present: 1
                    }
                )
            },
            "declared as 2 bytes, but only 1 follow",
        ),
        (
            vec![0xFF; 16],
            |e| {
                matches!(
                    e,
                    HeaderError::Truncated {
                        bytes: u64::MAX,
                        present: 8
                    }
                )
            },
            "declared as 18446744073709551615 bytes",
        ),
        (
            file("", &[]),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "does not begin with {",
        ),
        (
            file(" {}", &[]),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "begin with {",
        ),
        (
            file("[]", &[]),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "begin with {",
        ),
        (
            file("{", &[]),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "line 1 column 1",
        ),
        (
            file("{}x", &[]),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "column 3",
        ),
        (
            file(r#"{"a":1}"#, &[]),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "integer `1`",
        ),
        (
            file(r#"{"__metadata__":{"k":1}}"#, &[]),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "expected a string",
        ),
        (
            entry("F32", "[-2]", "[0,8]"),
            |e| matches!(e, HeaderError::NotJson { .. }),
            "integer `-2`",
        ),
        (
            file(&format!("{{{A8},{A8}}}"), &[0; 8]),
            |e| matches!(e, HeaderError::Duplicate { name } if name == "a"),
            "names \"a\" twice",
        ),
        (
            file(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]),
            |e| matches!(e, HeaderError::Duplicate { name } if name == METADATA_KEY),
            "\"__metadata__\" twice",
        ),
        (
            file(strings, &[]),
            |e| matches!(e, HeaderError::DuplicateMetadata { key } if key == "k"),
            "metadata names \"k\" twice",
        ),
        (
            file(&named, &[]),
            |e| {
                matches!(
                    e,
                    HeaderError::NameTooLong {
                        bytes: 300,
                        limit: 256,
                        ..
                    }
                )
            },
            "takes 300 bytes, above the limit of 256",
        ),
        (
            entry("E4M3", "[8]", "[0,8]"),
            |e| {
                matches!(e, HeaderError::UnknownDtype { tensor, dtype }
                if tensor == "a" && dtype == "E4M3")
            },
            "tensor \"a\" has the unknown dtype \"E4M3\"",
        ),
        (
            entry("U8", rank9, "[0,1]"),
            |e| {
                matches!(
                    e,
                    HeaderError::Rank {
                        rank: 9,
                        limit: 8,
                        ..
                    }
                )
            },
            "9 dimensions, above the limit of 8",
        ),
        (
            entry("F32", "[4294967296,4294967296]", "[0,8]"),
            |e| {
                matches!(
                    e,
                    HeaderError::Overflow {
                        dtype: Dtype::F32,
                        ..
                    }
                )
            },
            "[4294967296, 4294967296], more F32",
        ),
        (
            entry("F32", "[4294967296,0,4294967296]", "[0,0]"),
            |e| matches!(e, HeaderError::Overflow { .. }),
            "[4294967296, 0, 4294967296]",
        ),
        (
            entry("F4", "[3]", "[0,8]"),
            |e| {
                matches!(
                    e,
                    HeaderError::PartialByte {
                        dtype: Dtype::F4,
                        ..
                    }
                )
            },
            "shape [3], which does not fill whole bytes as F4",
        ),
        (
            entry("F32", "[2]", "[8,0]"),
            |e| {
                matches!(
                    e,
                    HeaderError::Backwards {
                        begin: 8,
                        end: 0,
                        ..
                    }
                )
            },
            "ends at offset 0, before its begin 8",
        ),
        (
            entry("F32", "[3]", "[0,8]"),
            |e| {
                matches!(
                    e,
                    HeaderError::Size {
                        needed: 12,
                        span: 8,
                        ..
                    }
                )
            },
            "F32 [3], 12 bytes, but its offsets span 8",
        ),
        (
            entry("U8", "[1000000000000]", "[0,1000000000000]"),
            |e| {
                matches!(
                    e,
                    HeaderError::PastEnd {
                        end: 1_000_000_000_000,
                        present: 8,
                        ..
                    }
                )
            },
            "offset 1000000000000, but the file holds 8 bytes",
        ),
        (
            pair("[6,10]"),
            |e| {
                matches!(e, HeaderError::Overlap { begin: 6, end: 8, tensor, other }
                if tensor == "b" && other == "a")
            },
            "\"b\" begins at offset 6, inside \"a\", which ends at 8",
        ),
        (
            pair("[0,4]"),
            |e| {
                matches!(
                    e,
                    HeaderError::Overlap {
                        begin: 0,
                        end: 4,
                        ..
                    }
                )
            },
            "\"a\" begins at offset 0, inside \"b\"",
        ),
        (
            entry("U8", "[4]", "[4,8]"),
            |e| {
                matches!(
                    e,
                    HeaderError::Gap {
                        begin: 4,
                        expected: 0,
                        ..
                    }
                )
            },
            "begins at offset 4; the bytes from 0",
        ),
        (
            file(&format!("{{{A8}}}"), &[0; 9]),
            |e| matches!(e, HeaderError::Trailing { end: 8, present: 9 }),
            "end at offset 8, but the file holds 9",
        ),
    ];
    for (bytes, expected, words) in table {
        let error = damage(bytes);
        assert!(expected(&error), "{words}: {error:?}");
        let message = open(bytes).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
        assert!(message.starts_with("x.safetensors: "), "{message}");
    }
}

#[test]
fn a_header_beyond_its_cap_is_refused_before_it_is_parsed() {
    let bytes = file(&" ".repeat(HEADER_BYTES_MAX as usize + 1), &[]);
    let error = damage(&bytes);
    let limit = HEADER_BYTES_MAX;
    assert_eq!(
        error,
        HeaderError::TooLarge {
            bytes: limit + 1,
            limit
        }
    );
}

#[test]
fn a_file_beyond_its_cap_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse.safetensors");
    let sparse = std::fs::File::create(&path).unwrap();
    if sparse.set_len(FILE_BYTES_MAX + 1).is_err() {
        return; // A file system without sparse files cannot hold the case.
    }
    let error = TensorFile::open(&path).unwrap_err();
    let limit = FILE_BYTES_MAX;
    assert!(
        matches!(&error, DumpError::Header { problem: HeaderError::FileTooLarge { bytes, .. }, .. }
            if *bytes == limit + 1),
        "{error}"
    );
}

#[test]
fn paths_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.safetensors");
    let error = TensorFile::open(&missing).unwrap_err();
    assert!(
        matches!(&error, DumpError::Io { action: "open", source, .. }
            if source.kind() == std::io::ErrorKind::NotFound)
    );
    assert!(
        error
            .to_string()
            .contains("none.safetensors: cannot open: "),
        "{error}"
    );
    let error = TensorFile::open(folder.path()).unwrap_err();
    assert!(matches!(&error, DumpError::NotAFile { file } if file == folder.path()));
}

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

/// BR-53, BR-61, BR-64, BR-72 and shapes: the reference's own errors come through.
#[test]
fn contradictions_carry_the_reference_error() {
    let cu = |values: &[i32]| vec![("cu_seqlens", i32s(values))];
    let rows = |ks: &[i32], ke: &[i32]| vec![("ks", i32s(ks)), ("ke", i32s(ke))];
    let argument = "cu_seqlens";
    let (position, value, previous) = (2, 1, 2);
    let decreasing = WindowError::Decreasing {
        argument,
        position,
        value,
        previous,
    };
    let what = "M";
    let last = WindowError::LastOffset {
        argument,
        position: 1,
        value: 2,
        what,
        expected: 3,
    };
    let table: Vec<(Vec<(&str, Tensor<'_>)>, Error)> = vec![
        (cu(&[]), WindowError::NoOffsets { argument }.into()),
        (
            cu(&[1, 3]),
            WindowError::FirstOffset { argument, value: 1 }.into(),
        ),
        (cu(&[0, 2, 1, 3]), decreasing.into()),
        (cu(&[0, 2]), last.into()),
        (
            rows(&[0; 2], &[1; 2]),
            WindowError::RowCounts { ks: 2, ke: 2, m: 3 }.into(),
        ),
        (
            rows(&[0; 3], &[1; 4]),
            WindowError::RowCounts { ks: 3, ke: 4, m: 3 }.into(),
        ),
        (
            rows(&[0; 3], &[1, i32::MAX, 1]),
            WindowError::OutsideKeys {
                row: 1,
                ks: 0,
                ke: i64::from(i32::MAX),
                n: 3,
            }
            .into(),
        ),
        (
            vec![("cu_seqlens", i64s(&[0, 1 << 32]))],
            ParamError::TooLarge {
                name: argument,
                value: 1 << 32,
                limit: i32::MAX as u128,
                reason: "ids travel as int32",
            }
            .into(),
        ),
        (
            [cu(&[0, 3]), vec![("k", u8s(&[3, 5]))]].concat(),
            ShapeError::new("k", &[3, 5], "[.., D] = [.., 4]").into(),
        ),
        (
            [cu(&[0, 3]), vec![("k_scale", f32s(&[2], &[1.0; 2]))]].concat(),
            ShapeError::new("k_scale", &[2], "[N] = [3]").into(),
        ),
        (
            [cu(&[0, 3]), vec![("weights", f32s(&[2, 3], &[1.0; 6]))]].concat(),
            ShapeError::new("weights", &[2, 3], "[M,H] = [3, 2]").into(),
        ),
        (
            [
                cu(&[0, 3]),
                vec![("k_scale", f32s(&[3], &[1.0, -1.0, 1.0]))],
            ]
            .concat(),
            ValueError {
                argument: "k_scale",
                index: vec![1],
                value: -1.0,
                rule: "a scale must be finite and not negative",
            }
            .into(),
        ),
    ];
    for (extra, expected) in table {
        let error = read(&with(&extra), &[]).unwrap_err();
        assert!(
            matches!(&error, DumpError::Input(error) if *error == expected),
            "{error}"
        );
    }
    let negative = with(&[
        ("k_scale", f32s(&[3], &[-1.0; 3])),
        ("cu_seqlens", i32s(&[0, 3])),
    ]);
    read(&negative, &[("strict", "false")]).unwrap();
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

#[test]
fn parameters_come_from_the_file_and_yield_to_the_options() {
    let metadata = [
        ("block_size", "2"),
        ("block_topk", "3"),
        ("topk_tokens", "5"),
        ("indexer", "block_sparse"),
        ("rank", "f32"),
        ("strict", "false"),
        ("format", "pt"),
    ];
    let params = *read(&valid(), &metadata).unwrap().params();
    let hisa = HisaParams::new(2, 3, 5).unwrap().with_rank(Rank::F32);
    let (indexer, strictness) = (Indexer::BlockSparse, Strictness::Permissive);
    assert_eq!(
        params,
        RunParams {
            indexer,
            hisa,
            strictness
        }
    );
    let options = Options {
        indexer: Some(Indexer::Dsa),
        topk_tokens: Some(7),
        strictness: Some(Strictness::Strict),
        ..Options::default()
    };
    let own = params.metadata();
    let overridden = RunParams::read(Path::new("x"), &own, &options).unwrap();
    let hisa = HisaParams::new(2, 3, 7).unwrap().with_rank(Rank::F32);
    let (indexer, strictness) = (Indexer::Dsa, Strictness::Strict);
    assert_eq!(
        overridden,
        RunParams {
            indexer,
            hisa,
            strictness
        }
    );
    assert_eq!(
        RunParams::read(Path::new("x"), &own, &Options::default()).unwrap(),
        params
    );
}

#[test]
fn unreadable_parameters_are_quoted() {
    let long = "9".repeat(1000);
    for (key, value, allowed) in [
        ("block_size", "-1", "whole numbers from 1"),
        ("block_topk", "8.0", "whole numbers from 1"),
        ("topk_tokens", long.as_str(), "whole numbers from 1"),
        ("rank", "f16", "bf16, f32"),
        ("indexer", "flat\n", "hisa, dsa, block-sparse"),
        ("strict", "True", "true, false"),
    ] {
        let error = read(&valid(), &[(key, value)]).unwrap_err();
        assert!(
            matches!(&error, DumpError::Param { name, .. } if *name == key),
            "{error}"
        );
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("x.safetensors: metadata {key} is \"")),
            "{message}"
        );
        assert!(
            message.ends_with(&format!("; allowed: {allowed}")),
            "{message}"
        );
        assert!(message.len() < 120 && !message.contains('\n'), "{message}");
    }
    for (key, name) in [("block_size", "block_size"), ("topk_tokens", "topk_tokens")] {
        let error = read(&valid(), &[(key, "0")]).unwrap_err();
        let expected = ParamError::Zero { name }.into();
        assert!(
            matches!(&error, DumpError::Input(error) if *error == expected),
            "{error}"
        );
    }
}

/// BR-110: the same codes and values through each dtype that carries them.
#[test]
fn twin_dtypes_carry_the_same_bits() {
    let bits: Vec<u8> = (0..=255).collect();
    let codes: Vec<E4M3> = bits.iter().map(|&bits| E4M3::from_bits(bits)).collect();
    let words: Vec<u16> = vec![0x3F80, 0x8000, 0x7FC1, 0xFF80];
    let floats: Vec<f32> = words
        .iter()
        .map(|&w| f32::from_bits(u32::from(w) << 16))
        .collect();
    let read = |codes: Data<'static>, x: Data<'static>| {
        let k = tensor(&[1, 256], codes);
        let tensors = BTreeMap::from([
            (
                "q".to_owned(),
                tensor(&[0, 1, 256], Data::U8(vec![].into())),
            ),
            ("weights".to_owned(), f32s(&[0, 1], &[])),
            ("k".to_owned(), k),
            ("k_scale".to_owned(), f32s(&[1], &[1.0])),
            ("ks".to_owned(), i32s(&[])),
            ("ke".to_owned(), i32s(&[])),
            ("x".to_owned(), tensor(&[2, 2], x)),
        ]);
        let dump = read(&tensors, &[("strict", "false")]).unwrap();
        let x: Vec<u32> = dump
            .x()
            .unwrap()
            .iter()
            .map(|value| value.to_bits())
            .collect();
        (
            dump.k()
                .iter()
                .map(|code| code.to_bits())
                .collect::<Vec<u8>>(),
            x,
        )
    };
    let expected: Vec<u32> = words.iter().map(|&word| u32::from(word) << 16).collect();
    let by_words = read(
        Data::U8(bits.clone().into()),
        Data::U16(words.clone().into()),
    );
    assert_eq!(by_words, (bits, expected));
    assert_eq!(
        by_words,
        read(Data::F8E4M3(codes.clone().into()), Data::Bf16(words.into()))
    );
    assert_eq!(
        by_words,
        read(Data::F8E4M3(codes.into()), Data::F32(floats.into()))
    );
}

/// BR-109, BR-110: every bit survives, at every alignment of the data.
#[test]
fn bits_survive_at_any_alignment() {
    let patterns = [
        0x7FC0_0000,
        0x7F80_0001,
        0xFFC1_2345,
        0x8000_0000,
        0,
        1,
        0xFF80_0000,
    ];
    for padding in 0..8 {
        let name = "n".repeat(1 + padding);
        let spaces = " ".repeat(padding);
        let header = format!(
            r#"{{"{name}":{{"dtype":"U8","shape":[{padding}],"data_offsets":[0,{padding}]}},
            "f":{{"dtype":"F32","shape":[7],"data_offsets":[{padding},{}]}},
            "e":{{"dtype":"I64","shape":[3,0],"data_offsets":[{padding},{padding}]}}}}{spaces}"#,
            padding + 28
        );
        let mut data = vec![9; padding];
        data.extend(patterns.iter().flat_map(|bits: &u32| bits.to_le_bytes()));
        let bytes = file(&header, &data);
        let mut file = open(&bytes).unwrap();
        let read = file.tensor("f", Data::DTYPES).unwrap();
        let Data::F32(values) = read.data() else {
            panic!("{read:?}")
        };
        assert!(values.iter().map(|value| value.to_bits()).eq(patterns));
        let empty = file.tensor("e", Data::DTYPES).unwrap();
        assert_eq!((empty.shape(), empty.data().len()), (&[3, 0][..], 0));
    }
}

#[test]
fn dtypes_nobody_reads_are_refused_by_name() {
    let header = r#"{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#;
    let bytes = file(header, &[0; 8]);
    let error = open(&bytes).unwrap().tensor("a", Data::DTYPES).unwrap_err();
    let words = "tensor \"a\" is F64; accepted: U8, F8_E4M3, F32, I32, I64, BF16, U16";
    assert_eq!(error.to_string(), format!("x.safetensors: {words}"));
}

fn outputs() -> OutputDump {
    let nan = f32::from_bits(0xFFC1_2345);
    let scores = Array2::from_shape_vec((2, 2), vec![nan, -0.0, f32::NEG_INFINITY, 1e-45]);
    let ids = Array2::from_shape_vec((2, 2), vec![0, -1, i32::MAX, 1]).unwrap();
    OutputDump {
        pooled_k: Some(Array2::from_elem((2, 4), E4M3::NAN)),
        pooled_scale: Some(Array1::from_vec(vec![nan, -0.0])),
        // A transposed view must come out in its logical order.
        block_scores: Some(scores.unwrap().reversed_axes()),
        block_ids: Some(ids.clone()),
        indices: Some(ids),
        flat_scores: Some(Array2::zeros((0, 5))),
        ..OutputDump::default()
    }
}

fn bits_of(dump: &OutputDump) -> Vec<u8> {
    to_bytes(&dump.tensors(), &BTreeMap::new()).unwrap()
}

#[test]
fn outputs_survive_bit_for_bit_and_other_readers_agree() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.safetensors");
    let metadata = RunParams::default().metadata();
    outputs().to_file(&path, &metadata).unwrap();
    let back = OutputDump::read(&path).unwrap();
    assert_eq!(bits_of(&back), bits_of(&outputs()));
    assert!(back.wide_ids.is_empty());
    let written = std::fs::read(&path).unwrap();
    assert_eq!(written, to_bytes(&outputs().tensors(), &metadata).unwrap());
    let theirs = safetensors::SafeTensors::deserialize(&written).unwrap();
    assert_eq!(theirs.len(), 6);
    let scores = theirs.tensor("block_scores").unwrap();
    let expected = [0xFFC1_2345u32, 0xFF80_0000, 0x8000_0000, 1];
    assert!(scores.data().chunks(4).eq(expected.map(u32::to_le_bytes)));
}

#[test]
fn wide_ids_are_taken_where_they_fit_and_named() {
    let wide = |values: &[i64]| {
        let ids = tensor(&[1, values.len()], Data::I64(values.to_vec().into()));
        let bytes = to_bytes(
            &BTreeMap::from([("block_ids".to_owned(), ids)]),
            &BTreeMap::new(),
        );
        OutputDump::from_file(&mut open(&bytes.unwrap()).unwrap())
    };
    let dump = wide(&[-1, i64::from(i32::MAX)]).unwrap();
    assert_eq!(dump.wide_ids, ["block_ids"]);
    assert_eq!(dump.block_ids.unwrap().as_slice().unwrap(), [-1, i32::MAX]);
    for value in [1 << 31, i64::MIN, 1 << 32] {
        let error = wide(&[0, value]).unwrap_err();
        let problem = TensorError::IdRange { position: 1, value };
        assert!(
            matches!(&error, DumpError::Tensor { problem: p, .. } if *p == problem),
            "{error}"
        );
        assert!(error.to_string().contains(&value.to_string()), "{error}");
    }
}

/// BR-70: a width or kind of number is never read as another.
#[test]
fn outputs_of_another_dtype_are_refused() {
    for (name, wrong, words) in [
        ("indices", u8s(&[1, 4]), "is U8; accepted: I32, I64"),
        ("slots", f32s(&[1, 1], &[0.0]), "is F32; accepted: I32, I64"),
        (
            "block_scores",
            tensor(&[1, 1], Data::Bf16(vec![0].into())),
            "is BF16; accepted: F32",
        ),
        (
            "pooled_k",
            f32s(&[1, 1], &[0.0]),
            "is F32; accepted: U8, F8_E4M3",
        ),
        ("indices", i32s(&[1]), "has shape [1]; expected [M, K]"),
    ] {
        let bytes = to_bytes(
            &BTreeMap::from([(name.to_owned(), wrong)]),
            &BTreeMap::new(),
        );
        let error = OutputDump::from_file(&mut open(&bytes.unwrap()).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("x.safetensors: tensor {name:?} {words}")
        );
    }
}

#[test]
fn an_input_written_by_hand_reads_back_as_itself() {
    let dump = read(&valid(), &[("block_size", "2")]).unwrap();
    let input = dump.as_input().unwrap();
    let bytes = to_bytes(
        &input::tensors_of(&input).unwrap(),
        &dump.params().metadata(),
    )
    .unwrap();
    let back = InputDump::from_file(&mut open(&bytes).unwrap(), &Options::default()).unwrap();
    assert_eq!((back.q(), back.k()), (dump.q(), dump.k()));
    assert_eq!(
        (back.windows(), back.params()),
        (dump.windows(), dump.params())
    );
    assert_eq!(
        (back.k_scale(), back.weights()),
        (dump.k_scale(), dump.weights())
    );
}

#[test]
fn writing_refuses_what_could_not_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.safetensors");
    std::fs::write(&path, b"old").unwrap();
    let deep = tensor(&[1; 9], Data::U8(vec![0].into()));
    for (name, tensor, words) in [
        (
            METADATA_KEY.to_owned(),
            i32s(&[]),
            "\"__metadata__\" is reserved",
        ),
        (
            "n".repeat(300),
            i32s(&[]),
            "300 bytes, above the limit of 256",
        ),
        (
            "deep".to_owned(),
            deep,
            "9 dimensions, above the limit of 8",
        ),
    ] {
        let tensors = BTreeMap::from([(name, tensor)]);
        let error = write_atomic(&path, &tensors, &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }
    let long = BTreeMap::from([("k".to_owned(), "v".repeat(HEADER_BYTES_MAX as usize))]);
    let error = write_atomic(&path, &BTreeMap::new(), &long).unwrap_err();
    let too_large = |e: &DumpError| {
        matches!(
            e,
            DumpError::Header {
                problem: HeaderError::TooLarge { .. },
                ..
            }
        )
    };
    assert!(too_large(&error), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let problem = TensorError::Elements {
        shape: vec![2, 3],
        elements: 1,
    };
    assert_eq!(Tensor::new(&[2, 3], Data::U8(vec![0].into())), Err(problem));
    let overflow = Tensor::new(&[usize::MAX, 2], Data::U8(vec![].into()));
    assert!(overflow.is_err());
}

#[test]
fn writing_replaces_whole_files_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &Path| write_atomic(path, &valid(), &BTreeMap::new());
    let path = folder.path().join("x.safetensors");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    write(&path).unwrap();
    assert!(TensorFile::open(&path).unwrap().contains("q"));
    assert!(matches!(
        write(folder.path()),
        Err(DumpError::NotAFile { .. })
    ));
    let nowhere = folder.path().join("none").join("x.safetensors");
    assert!(matches!(
        write(&nowhere),
        Err(DumpError::Io {
            action: "write",
            ..
        })
    ));
    let under_a_file = path.join("x.safetensors");
    assert!(matches!(write(&under_a_file), Err(DumpError::Io { .. })));
    #[cfg(unix)]
    {
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        std::fs::remove_file(&link).unwrap();
        assert!(matches!(
            write(Path::new("/dev/null")),
            Err(DumpError::NotAFile { .. })
        ));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn equal_arguments_give_equal_bytes() {
    let keys = ["z", "a", "block_size", "m", "rank", "q"];
    let metadata: BTreeMap<_, _> = keys.map(|key| (key.into(), "1".into())).into();
    let bytes = to_bytes(&valid(), &metadata).unwrap();
    assert!((0..20).all(|_| to_bytes(&valid(), &metadata).unwrap() == bytes));
    assert_eq!(
        (bytes.len() - 24 - 12 - 12 - 24 - 16) % 8,
        0,
        "the data starts at a multiple of 8"
    );
    let file = open(&bytes).unwrap();
    assert_eq!(*file.metadata(), metadata);
    for name in file.names() {
        let info = file.info(name).unwrap();
        let width = info.dtype().bitsize() as u64 / 8;
        assert_eq!(info.begin() % width, 0, "{name} is aligned");
    }
}

#[test]
fn outputs_are_sized_before_a_run() {
    let metadata = [
        ("block_size", "2"),
        ("block_topk", "5"),
        ("topk_tokens", "3"),
    ];
    let sizes = |indexer, all| {
        let words = [&metadata[..], &[("indexer", indexer)]].concat();
        let dump = read(&valid(), &words).unwrap();
        let planned = planned_outputs(&dump, all).into_iter();
        planned
            .map(|output| (output.name, output.shape))
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes("hisa", false), [("indices", vec![3, 3])]);
    let blocks = |m| {
        vec![
            ("pooled_k", vec![2, 4]),
            ("pooled_scale", vec![2]),
            ("block_scores", vec![3, 2]),
            ("block_mask", vec![3, 2]),
            ("block_ids", vec![3, m]),
        ]
    };
    let tokens = [
        ("token_scores", vec![3, 10]),
        ("slots", vec![3, 3]),
        ("indices", vec![3, 3]),
    ];
    assert_eq!(sizes("hisa", true), [blocks(5), tokens.to_vec()].concat());
    let flat = [
        ("flat_scores", vec![3, 3]),
        ("slots", vec![3, 3]),
        ("indices", vec![3, 3]),
    ];
    assert_eq!(sizes("dsa", true), flat);
    assert_eq!(
        sizes("block-sparse", false),
        [blocks(2), vec![("indices", vec![3, 4])]].concat()
    );

    let huge = read(&valid(), &[("topk_tokens", "2147483647")]).unwrap();
    let error = check_output_bytes(&huge, false, 8 << 30).unwrap_err();
    let words = "the outputs need 25769803764 bytes, above the limit of 8589934592; \
                 indices [3, 2147483647] alone needs 25769803764";
    assert_eq!(error.to_string(), words);
    assert_eq!(
        check_output_bytes(&huge, false, 25_769_803_764).unwrap(),
        25_769_803_764
    );
}

/// splitmix64: the mutations are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Replaces the digits of one number in the header by another number.
fn renumber(bytes: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [&str; 10] = [
        "0",
        "1",
        "3",
        "4294967296",
        "2147483647",
        "18446744073709551615",
        "-1",
        "1e3",
        "9223372036854775807",
        "99999999999999999999",
    ];
    let end = bytes.len() - 8;
    let header = 8..end.min(8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize);
    let starts: Vec<_> = header
        .filter(|&at| bytes[at].is_ascii_digit() && !bytes[at - 1].is_ascii_digit())
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[random.below(starts.len())];
    let len = bytes[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let number = NUMBERS[random.below(NUMBERS.len())];
    bytes.splice(start..start + len, number.bytes());
    // Half of the time the header keeps an honest length, so that the number is looked at.
    if random.below(2) == 0 {
        let length = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        let honest = (length + number.len() as u64).wrapping_sub(len as u64);
        bytes[..8].copy_from_slice(&honest.to_le_bytes());
    }
}

/// Swaps one word of the header for another of the same length, so that the sizes stay honest.
fn reword(bytes: &mut [u8], random: &mut Random) {
    const WORDS: [[&str; 2]; 7] = [
        ["F32", "I32"],
        ["I32", "F32"],
        ["I32", "U32"],
        ["U8", "I8"],
        ["U16", "F16"],
        ["ks", "ke"],
        ["\"k\"", "\"q\""],
    ];
    let [from, to] = WORDS[random.below(WORDS.len())];
    let found = bytes.windows(from.len()).enumerate();
    let places: Vec<_> = found
        .filter_map(|(at, window)| (window == from.as_bytes()).then_some(at))
        .collect();
    if !places.is_empty() {
        let at = places[random.below(places.len())];
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
}

/// Changes bytes behind the header only.
fn change_data(bytes: &mut [u8], random: &mut Random) {
    let start = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    for _ in 0..=random.below(8) {
        let at = start + random.below(bytes.len() - start);
        bytes[at] = random.next() as u8;
    }
}

fn mutate(valid: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    match random.below(4) {
        0 => change_data(&mut bytes, random),
        1 => reword(&mut bytes, random),
        _ => mutate_anywhere(&mut bytes, random),
    }
    bytes
}

fn mutate_anywhere(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        if bytes.len() < 24 {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next() as u8),
            4 => bytes[random.below(8)] = random.next() as u8,
            5 => {
                let from = random.below(bytes.len());
                let len = random.below(16).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + len, at);
            }
            _ => renumber(bytes, random),
        }
    }
}

/// Whatever the bytes, an answer: no panic, and nothing larger than the file.
#[test]
fn mutated_files_never_panic_and_never_outgrow_themselves() {
    let metadata = BTreeMap::from([("block_size".to_owned(), "2".to_owned())]);
    let rows = with(&[
        ("ks", i32s(&[0, 0, 1])),
        ("ke", i32s(&[1, 2, 3])),
        ("x", u16s()),
    ]);
    let inputs = [valid(), rows].map(|tensors| to_bytes(&tensors, &metadata).unwrap());
    let files = [&inputs[0], &inputs[1], &bits_of(&outputs())].map(Clone::clone);
    let mut random = Random(20_260_328);
    let (mut opened, mut read) = (0, 0);
    for round in 0..9_000 {
        let bytes = mutate(&files[round % 3], &mut random);
        let theirs = safetensors::SafeTensors::deserialize(&bytes);
        let Ok(mut file) = open(&bytes) else { continue };
        opened += 1;
        assert!(
            theirs.is_ok(),
            "what is accepted here is a safetensors file"
        );
        let names: Vec<String> = file.names().map(str::to_owned).collect();
        let sizes = names.iter().map(|name| file.info(name).unwrap().bytes());
        assert!(sizes.sum::<u64>() < bytes.len() as u64);
        for name in &names {
            let _ = file.tensor(name, Data::DTYPES);
        }
        let _ = OutputDump::from_file(&mut file);
        if let Ok(dump) = InputDump::from_file(&mut file, &Options::default()) {
            read += 1;
            assert!(dump.windows().len() * 8 < bytes.len());
            dump.as_input().unwrap();
        }
    }
    assert!(
        opened > 3_000 && read > 500,
        "{opened} opened, {read} read: too few get past the header"
    );
}

fn u16s() -> Tensor<'static> {
    tensor(&[1, 2], Data::U16(vec![0x3F80, 0].into()))
}
