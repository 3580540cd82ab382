//! Comparison with the reference: what counts as a difference and what does not.

use super::{f32s, i32s, open, tensor};
use hisa_conformance::cli::eval::outputs;
use hisa_conformance::dump::compare::{Difference, compare};
use hisa_conformance::dump::{Data, InputDump, Options, OutputDump, to_bytes};
use hisa_ref::E4M3;
use std::collections::BTreeMap;

/// M = 2 rows of H = 1 head and D = 1 over N = 6 keys with the values 0 to 5 in blocks of 2.
/// Row 0 sees keys [1, 6), row 1 sees keys [0, 3); m = 2 blocks and K = 3 tokens are kept.
fn input(indexer: &str) -> InputDump {
    let codes = |values: &[f32]| {
        let encode = |&value| E4M3::encode(value, hisa_ref::Overflow::Saturating).to_bits();
        Data::U8(values.iter().map(encode).collect())
    };
    let keys = codes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let tensors = BTreeMap::from([
        ("q".to_owned(), tensor(&[2, 1, 1], codes(&[1.0, 2.0]))),
        ("k".to_owned(), tensor(&[6, 1], keys)),
        ("k_scale".to_owned(), f32s(&[6], &[1.0; 6])),
        ("weights".to_owned(), f32s(&[2, 1], &[1.0, 1.0])),
        ("ks".to_owned(), i32s(&[1, 0])),
        ("ke".to_owned(), i32s(&[6, 3])),
    ]);
    let words = [
        ("block_size", "2"),
        ("block_topk", "2"),
        ("topk_tokens", "3"),
        ("indexer", indexer),
    ];
    let metadata = words.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let bytes = to_bytes(&tensors, &metadata.into()).unwrap();
    InputDump::from_file(&mut open(&bytes).unwrap(), &Options::default()).unwrap()
}

/// What `change` does to the reference's own outputs, as differences.
fn changed(indexer: &str, change: impl FnOnce(&mut OutputDump)) -> Vec<Difference> {
    let input = input(indexer);
    let expected = outputs(&input, true).unwrap();
    let mut got = expected.clone();
    change(&mut got);
    compare(&input, &expected, &got)
}

fn lines(differences: &[Difference]) -> Vec<String> {
    differences.iter().map(ToString::to_string).collect()
}

#[test]
fn the_reference_equals_itself() {
    for indexer in ["hisa", "dsa", "block-sparse"] {
        assert_eq!(changed(indexer, |_| ()), [], "{indexer}");
        let short = input(indexer);
        let long = outputs(&short, true).unwrap();
        let indices = outputs(&short, false).unwrap().indices;
        assert_eq!(long.indices, indices, "{indexer}");
    }
}

#[test]
fn what_the_specification_leaves_open_is_no_difference() {
    let differences = changed("hisa", |got| {
        // Row 1 sees blocks 0 and 1 only.
        got.block_scores.as_mut().unwrap()[[1, 2]] = 7.0;
        // Blocks in another order; slots and token scores follow.
        let (ids, slots) = (got.block_ids.as_mut().unwrap(), got.slots.as_mut().unwrap());
        ids.swap([0, 0], [0, 1]);
        slots.row_mut(0).mapv_inplace(|slot| (slot + 2) % 4);
        let scores = got.token_scores.as_mut().unwrap();
        scores.swap([0, 0], [0, 2]);
        scores.swap([0, 1], [0, 3]);
    });
    assert_eq!(differences, []);
    let differences = changed("dsa", |got| {
        let score = &mut got.flat_scores.as_mut().unwrap()[[1, 0]];
        assert_eq!(score.to_bits(), 0);
        *score = -0.0;
    });
    assert_eq!(differences, []);
}

#[test]
fn one_element_is_named_with_its_bits_and_the_rest_counted() {
    let differences = changed("hisa", |got| {
        got.block_mask.as_mut().unwrap()[[0, 1]] = f32::NAN;
        let scores = got.block_scores.as_mut().unwrap();
        scores[[0, 1]] = 0.0;
        scores[[1, 0]] = 2.0;
        got.pooled_k.as_mut().unwrap()[[2, 0]] = E4M3::ZERO;
        got.indices.as_mut().unwrap()[[1, 0]] = -1;
    });
    assert_eq!(
        lines(&differences),
        [
            "FAIL pooled_k[2, 0]: expected 448 (0x7e), got 0 (0x00)",
            "FAIL block_scores[0, 1]: expected 2.5e0 (0x40200000), got 0e0 (0x00000000); \
             1 more differ",
            "FAIL block_mask[0, 1]: expected 2.5e0 (0x40200000), got NaN (0x7fc00000)",
            "FAIL indices[1, 0]: expected 2, got -1",
        ]
    );
}

#[test]
fn selections_are_compared_by_what_they_select() {
    let differences = changed("hisa", |got| {
        // Row 0 keeps its last and first block, 2 and 0.
        got.block_ids.as_mut().unwrap()[[0, 0]] = 1;
        got.slots.as_mut().unwrap()[[1, 2]] = 9;
    });
    assert_eq!(
        lines(&differences),
        [
            "FAIL block_ids[0]: expected 2 blocks, got 2 blocks without [0], with [1]",
            "FAIL slots[0, 2]: expected 1 (key 1), got 1 (key 3); 1 more differ",
        ]
    );
}

#[test]
fn shapes_come_before_values() {
    let differences = changed("dsa", |got| {
        let narrow = got.indices.take().unwrap();
        got.indices = Some(narrow.slice_move(ndarray::s![.., ..2]));
        got.flat_scores.as_mut().unwrap()[[0, 5]] = -5.0;
        got.slots.as_mut().unwrap()[[0, 0]] = 3;
    });
    assert_eq!(
        lines(&differences),
        [
            "FAIL slots[0, 0]: expected 4, got 3",
            "FAIL indices shape: expected [2, 3], got [2, 2]",
            "FAIL flat_scores[0, 5]: expected 5e0 (0x40a00000), got -5e0 (0xc0a00000)",
        ]
    );
}
