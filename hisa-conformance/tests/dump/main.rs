//! Dumps: what is refused, with which words, and what survives a round trip bit for bit.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod command;
mod compare;
mod header;
mod input;
mod mutations;
mod output;
mod paged;
mod params;
mod values;
mod write;

use hisa_conformance::dump::{
    Data, DumpError, InputDump, Options, OutputDump, Tensor, TensorFile, to_bytes,
};
use hisa_ref::E4M3;
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
