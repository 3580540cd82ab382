//! Outputs: round trips, and what somebody else's file may hold.

use super::{bits_of, f32s, i32s, open, outputs, read, tensor, u8s, valid};
use hisa_conformance::dump::{
    Data, DumpError, InputDump, Options, OutputDump, RunParams, TensorError, input, to_bytes,
};
use std::collections::BTreeMap;

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
