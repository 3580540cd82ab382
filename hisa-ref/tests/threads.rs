//! The same bits for every number of threads, in debug and in release.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Case, KINDS, Kind, digest};
use hisa_ref::trace::Trace;
use hisa_ref::{HisaParams, dsa, hisa};

fn bytes(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut floats = |values: &mut dyn Iterator<Item = &f32>| {
        values.for_each(|value| bytes.extend(value.to_bits().to_le_bytes()));
    };
    floats(&mut trace.pooled_scale.iter());
    floats(&mut trace.block_scores.iter());
    floats(&mut trace.block_mask.iter());
    floats(&mut trace.token_scores.iter());
    bytes.extend(trace.pooled_k.iter().map(|code| code.to_bits()));
    for ids in [&trace.block_ids, &trace.slots, &trace.indices] {
        ids.iter().for_each(|id| bytes.extend(id.to_le_bytes()));
    }
    bytes
}

/// SPEC 10.10.
#[test]
fn br_15_any_number_of_threads_gives_the_same_bits() {
    // Large enough that every stage is split over threads.
    let case = Case::new(3, 96, 700, 8, 64, Kind::AllFinite);
    let params = HisaParams::new(16, 12, 100).unwrap();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let input = case.input();
            let trace = hisa::trace(&input, &params).unwrap();
            assert_eq!(hisa::run(&input, &params).unwrap(), trace.indices);
            (bytes(&trace), dsa::run(&input, 100).unwrap())
        })
    };
    let one = run(1);
    for threads in [2, 3, 16] {
        assert_eq!(run(threads), one, "{threads} threads");
    }
}

/// Digests of whole traces. They hold in every build profile and on every machine; a change is a
/// change of the specification.
#[test]
fn traces_have_their_pinned_bits() {
    let pinned = [
        (Kind::Plain, 0xBE7F_1817_7C9A_B366),
        (Kind::AllFinite, 0x6BD7_E0E7_2EFB_6C33),
        (Kind::Ties, 0x3BFE_8B44_2DCE_CE7C),
        (Kind::Special, 0x1FE7_718A_B35E_A13A),
    ];
    let params = HisaParams::new(8, 5, 24).unwrap();
    let digests = KINDS.map(|kind| {
        let case = Case::new(100 + kind as u64, 40, 150, 5, 48, kind);
        (
            kind,
            digest(bytes(&hisa::trace(&case.input(), &params).unwrap())),
        )
    });
    assert_eq!(digests, pinned);
}
