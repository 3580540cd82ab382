//! Values: every bit survives, in every dtype that carries it and at every alignment.

use super::{f32s, file, i32s, open, read, tensor};
use hisa_conformance::dump::Data;
use hisa_ref::E4M3;
use std::collections::BTreeMap;

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
