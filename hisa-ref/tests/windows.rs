//! Windows from every description callers use (SPEC W).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_ref::error::{Error, ParamError, WindowError};
use hisa_ref::{CuSeqlens, Window, Windows};

fn cu(entries: &[i64]) -> CuSeqlens {
    CuSeqlens::new("cu_seqlens", entries).unwrap()
}

fn pairs(windows: &Windows) -> Vec<(i32, i32)> {
    windows.rows().iter().map(|w| (w.ks, w.ke)).collect()
}

/// SPEC W.4.
#[test]
fn br_50_empty_sequences_keep_their_index() {
    let windows = Windows::causal(&cu(&[0, 0, 1, 2]), 2, 2).unwrap();
    assert_eq!(pairs(&windows), [(0, 1), (1, 2)]);
    let windows = Windows::causal(&cu(&[0, 0, 2, 2, 5]), 5, 5).unwrap();
    assert_eq!(pairs(&windows), [(0, 1), (0, 2), (2, 3), (2, 4), (2, 5)]);
}

/// SPEC W.4.
#[test]
fn br_51_trailing_repeats_are_padding() {
    let padded = Windows::causal(&cu(&[0, 3, 5, 5, 5]), 5, 5).unwrap();
    assert_eq!(padded, Windows::causal(&cu(&[0, 3, 5]), 5, 5).unwrap());
}

/// SPEC W.4 and V.10.
#[test]
fn br_53_malformed_offsets_name_the_entry() {
    let refuse = |entries: &[i64]| CuSeqlens::new("cu_seqlens", entries).unwrap_err();
    let argument = "cu_seqlens";
    assert_eq!(
        refuse(&[0, 12, 8, 16]),
        WindowError::Decreasing {
            argument,
            position: 2,
            value: 8,
            previous: 12
        }
        .into()
    );
    assert_eq!(
        refuse(&[1, 4]),
        WindowError::FirstOffset { argument, value: 1 }.into()
    );
    assert_eq!(
        refuse(&[-1, 4]),
        WindowError::FirstOffset {
            argument,
            value: -1
        }
        .into()
    );
    assert_eq!(refuse(&[]), WindowError::NoOffsets { argument }.into());
    assert_eq!(
        refuse(&[0, -3]),
        WindowError::Decreasing {
            argument,
            position: 1,
            value: -3,
            previous: 0
        }
        .into()
    );
    assert!(matches!(
        refuse(&[0, 1 << 31]),
        Error::Param(ParamError::TooLarge {
            name: "cu_seqlens",
            ..
        })
    ));
    assert!(CuSeqlens::new("cu_seqlens", &[0i64, (1 << 31) - 1]).is_ok());
    assert_eq!(
        Windows::causal(&cu(&[0, 4]), 5, 5).unwrap_err(),
        WindowError::LastOffset {
            argument,
            position: 1,
            value: 4,
            what: "M",
            expected: 5
        }
        .into()
    );
    assert_eq!(
        Windows::causal(&cu(&[0, 4]), 4, 5).unwrap_err(),
        WindowError::NotSelfAttention { m: 4, n: 5 }.into()
    );
    let narrow = CuSeqlens::new("cu_seqlens", &[0i32, 1, 3]).unwrap();
    assert_eq!(narrow, cu(&[0, 1, 3]));
    assert_eq!(
        (narrow.sequences(), narrow.total(), narrow.sequence(1)),
        (2, 3, 1..3)
    );
    assert_eq!(narrow.offsets(), [0, 1, 3]);
}

/// SPEC W.5.
#[test]
fn separate_offsets_align_the_last_query_with_the_last_key() {
    let (q, k) = (cu(&[0, 2, 2, 5]), cu(&[0, 4, 6, 7]));
    let windows = Windows::causal_qk(&q, &k, 5, 7).unwrap();
    // Sequence 0: 2 queries, 4 keys. Sequence 2: 3 queries, 1 key, so two rows see nothing.
    assert_eq!(pairs(&windows), [(0, 3), (0, 4), (6, 6), (6, 6), (6, 7)]);
    assert_eq!(
        Windows::causal_qk(&q, &cu(&[0, 7]), 5, 7).unwrap_err(),
        WindowError::OffsetCounts { q: 4, k: 2 }.into()
    );
    assert!(matches!(
        Windows::causal_qk(&q, &k, 5, 8).unwrap_err(),
        Error::Window(WindowError::LastOffset {
            what: "N",
            value: 7,
            expected: 8,
            ..
        })
    ));
    assert!(matches!(
        Windows::causal_qk(&q, &k, 6, 7).unwrap_err(),
        Error::Window(WindowError::LastOffset {
            what: "M",
            value: 5,
            expected: 6,
            ..
        })
    ));
}

/// SPEC W.6.
#[test]
fn a_key_may_stand_for_several_positions() {
    // 5 positions at stride 2 make 2 keys; a row sees a key once its last position is reached.
    let q = cu(&[0, 5, 5, 8]);
    let windows = Windows::strided(&q, None, 2, &[], 8, 3).unwrap();
    let expected = [
        (0, 0),
        (0, 1),
        (0, 1),
        (0, 2),
        (0, 2),
        (2, 2),
        (2, 3),
        (2, 3),
    ];
    assert_eq!(pairs(&windows), expected);
    // A decode step: two queries at positions 6 and 7 over 4 keys of stride 2.
    let windows = Windows::strided(&cu(&[0, 2]), Some(&cu(&[0, 4])), 2, &[6], 2, 4).unwrap();
    assert_eq!(pairs(&windows), [(0, 3), (0, 4)]);
    // A position far past the keys sees them all and does not overflow.
    let windows = Windows::strided(&cu(&[0, 1]), Some(&cu(&[0, 4])), 1, &[u32::MAX], 1, 4).unwrap();
    assert_eq!(pairs(&windows), [(0, 4)]);
    let stride_one = Windows::strided(&q, None, 1, &[], 8, 8).unwrap();
    assert_eq!(stride_one, Windows::causal(&q, 8, 8).unwrap());
    assert_eq!(
        Windows::strided(&q, None, 0, &[], 8, 3).unwrap_err(),
        WindowError::KvStride.into()
    );
    let error = Windows::strided(&q, None, 2, &[1], 8, 3).unwrap_err();
    let (got, expected) = (1, 3);
    assert_eq!(error, WindowError::Positions { got, expected }.into());
    assert!(
        error.to_string().starts_with("first_positions has 1 "),
        "{error}"
    );
}

/// SPEC W.7.
#[test]
fn context_parallel_ranks_hold_mirrored_chunks() {
    let global = Windows::causal(&cu(&[0, 3, 8]), 8, 8).unwrap();
    let held = |rank| pairs(&global.context_parallel(rank, 2).unwrap());
    let all = pairs(&global);
    assert_eq!(held(0), [&all[0..2], &all[6..8]].concat());
    assert_eq!(held(1), [&all[2..4], &all[4..6]].concat());
    assert_eq!(global.context_parallel(0, 1).unwrap(), global);
    assert_eq!(
        global.context_parallel(0, 3).unwrap_err(),
        ParamError::ContextParallelSplit { rows: 8, ranks: 3 }.into()
    );
    for (rank, ranks) in [(2, 2), (0, 0)] {
        assert_eq!(
            global.context_parallel(rank, ranks).unwrap_err(),
            ParamError::ContextParallelRank { rank, ranks }.into()
        );
    }
    assert!(global.context_parallel(0, usize::MAX).is_err());
}

/// SPEC W.1.
#[test]
fn rows_are_empty_whatever_their_numbers() {
    let windows =
        Windows::from_rows(&[i32::MAX, 5, 3, i32::MIN], &[0, -7, 3, i32::MIN], 2).unwrap();
    for window in windows.rows() {
        assert!(window.is_empty());
        assert_eq!(
            (window.len(), window.keys(), window.blocks(4)),
            (0, 0..0, 0..0)
        );
        assert!(!window.contains(3));
    }
    let one = Windows::from_rows(&[0], &[1], 1).unwrap();
    let one = one.padded_to(3).unwrap();
    assert_eq!(pairs(&one), [(0, 1), (i32::MAX, 0), (i32::MAX, 0)]);
    assert_eq!(one.clone().padded_to(2).unwrap(), one);
    for m in [1 << 31, usize::MAX] {
        assert!(matches!(
            one.clone().padded_to(m).unwrap_err(),
            Error::Param(ParamError::TooLarge { name: "M", .. })
        ));
    }
    assert!(!one.is_empty() && Windows::new(vec![], 0).unwrap().is_empty());
}

/// SPEC W.2.
#[test]
fn br_61_br_64_rows_must_fit_the_keys() {
    let refuse = |ks: &[i32], ke: &[i32], n| Windows::from_rows(ks, ke, n).unwrap_err();
    assert_eq!(
        refuse(&[0, 1], &[3], 4),
        WindowError::RowCounts { ks: 2, ke: 1, m: 2 }.into()
    );
    assert_eq!(
        refuse(&[0, 2], &[1, 8], 6),
        WindowError::OutsideKeys {
            row: 1,
            ks: 2,
            ke: 8,
            n: 6
        }
        .into()
    );
    assert_eq!(
        refuse(&[-1], &[1], 6),
        WindowError::OutsideKeys {
            row: 0,
            ks: -1,
            ke: 1,
            n: 6
        }
        .into()
    );
    assert_eq!(
        refuse(&[i32::MIN], &[i32::MAX], 6),
        WindowError::OutsideKeys {
            row: 0,
            ks: -(1 << 31),
            ke: (1 << 31) - 1,
            n: 6
        }
        .into()
    );
    assert!(Windows::from_rows(&[0], &[6], 6).is_ok());
    assert!(Windows::new(vec![], 1 << 31).is_err());
}

/// SPEC W.3.
#[test]
fn br_72_block_windows_do_not_overflow() {
    let window = Window {
        ks: i32::MAX - 1,
        ke: i32::MAX,
    };
    assert_eq!(window.blocks(128), (1 << 24) - 1..1 << 24);
    assert_eq!(window.blocks(usize::MAX), 0..1);
    assert_eq!(Window { ks: 3, ke: 9 }.blocks(4), 0..3);
    assert_eq!(Window { ks: 4, ke: 8 }.blocks(4), 1..2);
    assert_eq!(Window { ks: 3, ke: 9 }.len(), 6);
    let seen: Vec<usize> = (0..12)
        .filter(|&key| Window { ks: 3, ke: 9 }.contains(key))
        .collect();
    assert_eq!(seen, [3, 4, 5, 6, 7, 8]);
}

#[test]
fn br_96_windows_follow_the_offsets_they_are_given() {
    let mut offsets = [0i64, 1, 4];
    let first = Windows::causal(&cu(&offsets), 4, 4).unwrap();
    offsets[1] = 3;
    let second = Windows::causal(&cu(&offsets), 4, 4).unwrap();
    assert_eq!(pairs(&first), [(0, 1), (1, 2), (1, 3), (1, 4)]);
    assert_eq!(pairs(&second), [(0, 1), (0, 2), (0, 3), (3, 4)]);
}
