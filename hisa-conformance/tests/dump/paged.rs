//! Keys in pages of a serving cache.

use super::{f32s, i32s, read, tensor, u8s, with};
use hisa_conformance::dump::{Data, DumpError, PagedProblem, Tensor};
use ndarray::arr2;

/// Three pages of two tokens and D = 4: codes are 10 times their page, plus their place in it, and
/// scales are the number of the token, counted over pages.
fn cache() -> Tensor<'static> {
    let mut bytes = Vec::new();
    for page in 0..3u8 {
        bytes.extend((0..8).map(|at| 10 * page + at));
        for token in 0..2 {
            bytes.extend(f32::from(2 * page + token).to_le_bytes());
        }
    }
    tensor(&[3, 2, 8], Data::U8(bytes.into()))
}

fn table(entries: &[i32]) -> Tensor<'static> {
    tensor(&[2, 2], Data::I32(entries.to_vec().into()))
}

/// The input of the other tests with its three keys in the cache: two of page 2 and one of page 0
/// in sequence 0, none in sequence 1.
fn paged(extra: &[(&str, Tensor<'static>)]) -> super::Tensors {
    let mut tensors = with(&[
        ("kv_cache", cache()),
        ("block_table", table(&[2, 0, 7, -1])),
        ("seq_lens", i32s(&[3, 0])),
    ]);
    tensors.remove("k");
    tensors.remove("k_scale");
    for (name, tensor) in extra {
        tensors.insert((*name).to_owned(), tensor.clone());
    }
    tensors
}

/// SPEC W.5.
#[test]
fn pages_are_strung_together_in_the_order_of_the_table() {
    let cu_q = ("cu_seqlens_q", i32s(&[0, 3, 3]));
    let cu_k = ("cu_seqlens_k", i32s(&[0, 3, 3]));
    let flat = [
        (
            "k",
            tensor(&[3, 4], Data::U8((20..28).chain(0..4).collect())),
        ),
        ("k_scale", f32s(&[3], &[4.0, 5.0, 0.0])),
        cu_q.clone(),
        cu_k.clone(),
    ];
    let expected = read(&with(&flat), &[]).unwrap();
    let four = cache().into_parts();
    let four = Tensor::new(&[3, 2, 1, 8], four.1).unwrap();
    for extra in [
        vec![cu_q.clone()],
        vec![cu_q.clone(), cu_k],
        vec![cu_q, ("kv_cache", four)],
        vec![("cu_seqlens", i32s(&[0, 3]))],
        vec![("ks", i32s(&[0, 0, 0])), ("ke", i32s(&[1, 2, 3]))],
    ] {
        let got = read(&paged(&extra), &[]).unwrap();
        assert_eq!(got.k(), expected.k());
        let codes = got.k().map(|code| code.to_bits());
        assert_eq!(
            codes,
            arr2(&[[20, 21, 22, 23], [24, 25, 26, 27], [0, 1, 2, 3]])
        );
        assert_eq!(got.k_scale(), expected.k_scale());
        assert_eq!(got.windows(), expected.windows());
    }
}

#[test]
fn caches_that_contradict_themselves_are_refused_by_entry() {
    let cu_q = ("cu_seqlens_q", i32s(&[0, 3, 3]));
    let refused = |extra: Vec<(&str, Tensor<'static>)>| {
        let mut extra = extra;
        extra.push(cu_q.clone());
        match read(&paged(&extra), &[]).unwrap_err() {
            DumpError::Paged { problem, .. } => problem,
            other => panic!("{other}"),
        }
    };
    let page = |sequence, column, entry| PagedProblem::Page {
        sequence,
        column,
        entry,
        pages: 3,
    };
    let length = |sequence, len| PagedProblem::Length {
        sequence,
        len,
        room: 4,
    };
    for (extra, expected) in [
        (vec![("block_table", table(&[2, 3, 0, 0]))], page(0, 1, 3)),
        (vec![("block_table", table(&[-1, 0, 0, 0]))], page(0, 0, -1)),
        (vec![("seq_lens", i32s(&[5, 0]))], length(0, 5)),
        (vec![("seq_lens", i32s(&[3, -1]))], length(1, -1)),
        (
            vec![("seq_lens", i32s(&[3]))],
            PagedProblem::Sequences { table: 2, lens: 1 },
        ),
        (
            vec![("k_scale", f32s(&[3], &[1.0; 3]))],
            PagedProblem::Twice { found: "k_scale" },
        ),
        (
            vec![("cu_seqlens_k", i32s(&[0, 2, 3]))],
            PagedProblem::Offsets { entry: 1 },
        ),
    ] {
        assert_eq!(refused(extra), expected);
    }
    let mut part = paged(&[cu_q]);
    part.remove("seq_lens");
    let error = read(&part, &[]).unwrap_err();
    assert!(
        error.to_string().contains("kv_cache without seq_lens"),
        "{error}"
    );
}

#[test]
fn a_cache_without_room_for_a_scale_is_refused_by_shape() {
    for shape in [[3, 2, 4], [3, 8, 0]] {
        let extra = [
            ("kv_cache", u8s(&shape)),
            ("cu_seqlens_q", i32s(&[0, 3, 3])),
        ];
        let error = read(&paged(&extra), &[]).unwrap_err().to_string();
        assert!(error.contains("expected [pages, P, D + 4]"), "{error}");
    }
}

/// One page of 64 KiB, named often enough for more keys than a file may hold.
#[test]
fn shared_pages_do_not_ask_for_more_than_a_file_holds() {
    let pages = 131_073;
    let extra = [
        (
            "kv_cache",
            tensor(&[1, 1, 65_536], Data::U8(vec![0; 65_536].into())),
        ),
        (
            "block_table",
            tensor(&[1, pages], Data::I32(vec![0; pages].into())),
        ),
        ("seq_lens", i32s(&[pages as i32])),
        ("cu_seqlens_q", i32s(&[0, 3])),
    ];
    let error = read(&paged(&extra), &[]).unwrap_err().to_string();
    assert!(error.contains("needs 8590000128 bytes"), "{error}");
}
