use super::*;

fn of(address: &str) -> Flags {
    let case: Case = address.parse().unwrap();
    flags(&case, &case.inputs().unwrap())
}

#[test]
fn names_come_back_and_sentences_are_sentences() {
    for &flag in Flag::ALL {
        assert_eq!(Flag::from_name(flag.name()), Some(flag));
        assert!(flag.about().ends_with('.'), "{flag}");
    }
    assert_eq!(Flag::from_name("None"), None);
}

#[test]
fn sets_print_in_order() {
    let set = Flags::of(&[Flag::Ties, Flag::NoRows]);
    assert_eq!(set.to_string(), "NoRows Ties");
    assert!(set.contains(Flag::Ties) && !set.contains(Flag::NoKeys));
    assert!(Flags::NONE.is_empty());
}

#[test]
fn windows_set_their_flags() {
    let set = of("hisa:M=4,N=9,H=3,D=8,B=4,m=1,K=3/win=1:2.3:3.0:9.pad");
    for flag in [
        Flag::EmptyWindow,
        Flag::PaddingRows,
        Flag::MidBlockStart,
        Flag::MidBlockEnd,
        Flag::SingleKeyWindow,
        Flag::TailOfOne,
        Flag::BlocksDropped,
        Flag::WindowShort,
        Flag::WindowLong,
        Flag::OneBlockKept,
        Flag::OddHeads,
        Flag::OddDim,
    ] {
        assert!(set.contains(flag), "{flag}");
    }
    assert!(!set.contains(Flag::AllWindowsEmpty) && !set.contains(Flag::EmptySequence));
    let set = of("hisa:M=3,N=3,H=1,D=16,B=2,m=1,K=4/cu=0.0.1.3");
    assert!(set.contains(Flag::EmptyThenTwo) && set.contains(Flag::StraddlingBlock));
    let set = of("hisa:M=2,N=2,H=1,D=16,B=2,m=1,K=4/cu=0.1.1.2");
    assert!(set.contains(Flag::EmptySequence) && !set.contains(Flag::EmptyThenTwo));
}

#[test]
fn values_set_their_flags() {
    let base = "hisa:M=3,N=40,H=4,D=16,B=4,m=9,K=3/win=0:40x3/seed=5/v=";
    let expected = [
        ("ties", Flag::Ties),
        ("dup", Flag::DuplicateKeys),
        ("plateau", Flag::ZeroPlateau),
        ("zeros", Flag::ZeroBlock),
        ("nan", Flag::NanCode),
        ("special", Flag::NanValue),
        ("special", Flag::NegativeScale),
        ("huge", Flag::HugeScale),
        ("tiny", Flag::Subnormal),
        ("extreme", Flag::ExtremeCode),
        ("subnormal", Flag::SubnormalCode),
        ("zeroweight", Flag::ZeroWeight),
        ("pooltie", Flag::PoolTie),
        ("floor", Flag::ScaleFloor),
        ("cancel", Flag::Cancellation),
    ];
    for (preset, flag) in expected {
        assert!(
            of(&format!("{base}{preset}")).contains(flag),
            "{preset} {flag}"
        );
    }
}
