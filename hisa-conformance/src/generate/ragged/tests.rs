use super::*;
use crate::flags::{Flag, flags};

#[test]
fn a_case_depends_on_seed_and_index_alone() {
    let (short, long) = (
        Ragged { seed: 9, count: 5 },
        Ragged {
            seed: 9,
            count: 500,
        },
    );
    assert_eq!(short.case(4), long.case(4));
    assert_eq!(short.case(5), None);
    let other = Ragged { seed: 10, count: 5 };
    assert_ne!(short.case(4), other.case(4));
}

/// Least share of each kind in percent. Random data finds few faults; these find most.
const FLOORS: &[(Flag, f64)] = &[
    (Flag::EmptyWindow, 25.0),
    (Flag::PaddingRows, 15.0),
    (Flag::AllWindowsEmpty, 1.0),
    (Flag::NoKeys, 1.0),
    (Flag::NoRows, 0.5),
    (Flag::EmptySequence, 10.0),
    (Flag::EmptyThenTwo, 8.0),
    (Flag::ManySequences, 20.0),
    (Flag::SeparateOffsets, 10.0),
    (Flag::Strided, 5.0),
    (Flag::ContextParallel, 5.0),
    (Flag::StraddlingBlock, 10.0),
    (Flag::MidBlockStart, 40.0),
    (Flag::MidBlockEnd, 40.0),
    (Flag::TailOfOne, 15.0),
    (Flag::TailOneShort, 15.0),
    (Flag::BlockOfOne, 2.0),
    (Flag::BlockBeyondKeys, 5.0),
    (Flag::OneBlockKept, 10.0),
    (Flag::FewerBlocks, 30.0),
    (Flag::BlocksDropped, 30.0),
    (Flag::WindowShort, 40.0),
    (Flag::WindowExact, 10.0),
    (Flag::WindowLong, 40.0),
    (Flag::SlotsBelowTopk, 10.0),
    (Flag::OddDim, 20.0),
    (Flag::OddHeads, 15.0),
    (Flag::RankF32, 10.0),
    (Flag::NanCode, 4.0),
    (Flag::NanValue, 3.0),
    (Flag::Infinite, 3.0),
    (Flag::NegativeScale, 2.0),
    (Flag::NegativeZero, 20.0),
    (Flag::ZeroScale, 10.0),
    (Flag::ZeroKey, 3.0),
    (Flag::ZeroBlock, 5.0),
    (Flag::Subnormal, 8.0),
    (Flag::SubnormalCode, 20.0),
    (Flag::ExtremeCode, 15.0),
    (Flag::HugeScale, 3.0),
    (Flag::ZeroWeight, 15.0),
    (Flag::DuplicateKeys, 10.0),
    (Flag::PoolTie, 6.0),
    (Flag::ScaleFloor, 2.0),
    (Flag::Cancellation, 5.0),
    (Flag::Ties, 2.0),
    (Flag::ZeroPlateau, 1.0),
];

#[test]
fn special_kinds_have_their_share() {
    let count = 3000;
    let mut counts = vec![0u32; Flag::ALL.len()];
    for index in 0..count {
        let case = random_case(1, index);
        let inputs = case
            .inputs()
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        flags(&case, &inputs)
            .iter()
            .for_each(|flag| counts[flag as usize] += 1);
    }
    for &(flag, floor) in FLOORS {
        let share = 100.0 * f64::from(counts[flag as usize]) / count as f64;
        assert!(share >= floor, "{flag}: {share:.1} % is below {floor} %");
    }
}

#[test]
fn most_cases_are_small() {
    let sizes: Vec<_> = (0..1000).map(|index| random_case(2, index)).collect();
    assert!(
        sizes
            .iter()
            .all(|case| case.m <= 200 && case.n <= 300 && case.h <= 64)
    );
    let small = |case: &&Case| case.m < 64 && case.n < 64 && case.h <= 4;
    assert!(sizes.iter().filter(small).count() > 900);
    let common = |case: &&Case| [8, 16, 32, 64].contains(&case.d);
    assert!(sizes.iter().filter(common).count() > 800);
}
