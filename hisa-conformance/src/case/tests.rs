use super::*;
use crate::generate::values::PRESETS;
use hisa_ref::Strictness;

const EXAMPLE: &str = "hisa:M=3,N=3,H=2,D=32,B=16,m=2,K=8,rank=bf16/cu=0.1.1.3/v=normal/seed=0x91";

fn parse(address: &str) -> Case {
    address.parse().unwrap()
}

fn problem(address: &str) -> (usize, AddressProblem) {
    let AddressError { at, problem } = address.parse::<Case>().unwrap_err();
    (at, problem)
}

#[test]
fn addresses_print_and_parse_back() {
    let sizes = "hisa:M=4,N=9,H=2,D=8,B=4,m=1,K=3,rank=f32";
    for rest in [
        "cu=0.1.1.3/v=normal/seed=0x91",
        "cu=/v=ties/seed=0x0",
        "cu=1.-4/v=ties/seed=0xffffffffffffffff",
        "cuq=0.4,cuk=0.9/v=real/seed=0x1",
        "cuq=0.4,stride=2/v=real/seed=0x1",
        "cuq=0.2.4,cuk=0.3.9,stride=2,pos=7.0,cp=1of2,pad=2/v=real/seed=0x1",
        "win=/v=all/seed=0x1",
        "win=0:3x2.5:-3.pad/q=e0,k=e0,s=prog:40000000x2.3f800000+1.perm,w=minus,x=zeros/seed=0x2",
        "win=padx4/q=basis,k=blocks:3f800000u40x2p,s=own,w=first,x=bf16/seed=0x2",
        "win=0:1x4/v=normal/q.0._.3=7f,k.8.7=01,s._=ff800000,w.3.1=00000000,x.0.0=7fc00000/\
         seed=0x2",
    ] {
        let address = format!("{sizes}/{rest}");
        let case = parse(&address);
        assert_eq!(case.to_string(), address);
        assert_eq!(parse(&case.to_string()), case);
        let unsafe_in_shells = |c: char| c.is_whitespace() || "\"'`$&|;<>()[]{}*?!#~\\".contains(c);
        assert!(!address.contains(unsafe_in_shells));
    }
    assert_eq!(parse(EXAMPLE).to_string(), EXAMPLE);
}

#[test]
fn other_spellings_are_the_same_case() {
    let short = "hisa:seed=145,cu=0.1.1.3/K=8/m=2,B=16,D=32,H=2,N=3,M=3";
    assert_eq!(parse(short), parse(EXAMPLE));
    let spelled = EXAMPLE.replace("v=normal", "q=normal,k=normal,s=random,w=normal,x=normal");
    assert_eq!(parse(&spelled), parse(EXAMPLE));
    let windows = |win: &str| parse(&format!("hisa:M=2,N=3,H=2,D=32,B=16,m=2,K=8/win={win}"));
    assert_eq!(windows("2147483647:0.2147483647:0"), windows("padx2"));
}

#[test]
fn errors_name_the_place_and_the_mistake() {
    use AddressProblem as P;
    assert_eq!(problem("hisb:M=1"), (0, P::Scheme));
    assert_eq!(
        problem("hisa:M=1,oops"),
        (
            9,
            P::Field {
                field: "oops".into()
            }
        )
    );
    assert_eq!(
        problem("hisa:M=1/Q=1"),
        (9, P::UnknownKey { key: "Q".into() })
    );
    assert_eq!(
        problem("hisa:M=1/M=1"),
        (9, P::RepeatedKey { key: "M".into() })
    );
    assert_eq!(problem("hisa:M=1"), (8, P::MissingKey { key: "N" }));
    let value = |address: &str| match problem(address) {
        (at, P::Value { key, got, .. }) => (at, key, got),
        other => panic!("{other:?}"),
    };
    assert_eq!(value("hisa:M=-1"), (7, "M".into(), "-1".into()));
    assert_eq!(value("hisa:M=01"), (7, "M".into(), "01".into()));
    let sizes = "hisa:M=1,N=1,H=1,D=8,B=1,m=1,K=1";
    let at = sizes.len() + 1;
    assert_eq!(
        value(&format!("{sizes}/cu=0.x.1")),
        (at + 5, "cu".into(), "x.1".into())
    );
    assert_eq!(
        value(&format!("{sizes}/win=0:1.2")),
        (at + 8, "win".into(), "2".into())
    );
    assert_eq!(
        value(&format!("{sizes}/cu=0.1/v=none")),
        (at + 9, "v".into(), "none".into())
    );
    assert_eq!(
        value(&format!("{sizes}/cu=0.1/k.0=7f")),
        (at + 11, "k.0".into(), "7f".into())
    );
    assert_eq!(
        value(&format!("{sizes}/cu=0.1/cp=1")),
        (at + 10, "cp".into(), "1".into())
    );
    let program = format!("{sizes}/cu=0.1/q=e0,k=e0,s=prog:1.z,w=one,x=normal");
    assert_eq!(value(&program), (at + 26, "s".into(), "z".into()));
}

#[test]
fn errors_name_missing_and_clashing_keys() {
    use AddressProblem as P;
    let sizes = "hisa:M=1,N=1,H=1,D=8,B=1,m=1,K=1";
    assert_eq!(
        problem(sizes).1,
        P::MissingKey {
            key: "exactly one of cu, cuq and win"
        }
    );
    assert_eq!(
        problem(&format!("{sizes}/cuq=0.1")).1,
        P::MissingKey {
            key: "cuk or stride"
        }
    );
    for clash in [
        "cu=0.1/win=0:1",
        "cu=0.1/cuk=0.1",
        "cuq=0.1/cuk=0.1/pos=0",
        "cu=0/v=all/w=one",
    ] {
        assert!(
            matches!(problem(&format!("{sizes}/{clash}")).1, P::Conflict { .. }),
            "{clash}"
        );
    }
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    for address in [
        "hisa:M=4194305,N=1,H=1,D=1,B=1,m=1,K=1/win=padx1",
        "hisa:M=1,N=268435457,H=1,D=1,B=1,m=1,K=1/win=pad",
        "hisa:M=1,N=268435456,H=1,D=65536,B=1,m=1,K=1/win=pad",
        "hisa:M=1,N=1,H=65537,D=1,B=1,m=1,K=1/win=pad",
        "hisa:M=1,N=1,H=1,D=65537,B=1,m=1,K=1/win=pad",
        "hisa:M=4194304,N=1,H=1024,D=2,B=1,m=1,K=1/win=pad",
        "hisa:M=4194304,N=1,H=1,D=1,B=1,m=1,K=1025/win=pad",
        "hisa:M=3,N=1,H=1,D=1,B=9223372036854775808,m=3,K=1/win=pad",
        "hisa:M=4194304,N=1,H=1,D=1,B=1,m=1,K=1/cuq=0,cuk=0,cp=0of17",
        "hisa:M=1,N=1,H=1,D=1,B=1,m=1,K=1/win=pad/k.1.0=00",
        "hisa:M=1,N=1,H=1,D=1,B=1,m=1,K=1/win=pad/q=basis,k=blocks:0,s=own,w=first,x=zeros",
        "hisa:M=1,N=1,H=0,D=1,B=1,m=1,K=1/win=pad",
    ] {
        assert!(
            matches!(problem(address).1, AddressProblem::Case(_)),
            "{address}"
        );
    }
    let long = "hisa:M=1,N=1,H=1,D=1,B=1,m=1,K=1/win=padx4194304.padx4194304";
    assert!(matches!(problem(long).1, AddressProblem::TooMany { .. }));
    let long = format!("hisa:{}", "M".repeat(address::ADDRESS_BYTES_MAX));
    assert!(matches!(problem(&long).1, AddressProblem::TooLong { .. }));
    let score = "hisa:M=1,N=9,H=1,D=8,B=1,m=1,K=1/win=pad/q=basis,s=own,w=first,x=zeros,k=blocks:";
    for program in [
        "00000001",
        "7f800000",
        "00000000+1",
        "3f800000+40000000x4",
        "bf800000",
    ] {
        let problem = problem(&format!("{score}{program}")).1;
        assert!(
            matches!(problem, AddressProblem::Case(CaseError::BlockScore { .. })),
            "{program}"
        );
    }
}

#[test]
fn malformed_metadata_has_an_address_and_a_typed_error() {
    let refused = |rest: &str| {
        let case = parse(&format!("hisa:{rest}"));
        matches!(case.inputs(), Err(CaseError::Refused(_)))
    };
    assert!(refused("M=16,N=16,H=1,D=8,B=4,m=1,K=1/cu=0.12.8.16"));
    assert!(refused("M=4,N=4,H=1,D=8,B=4,m=1,K=1/cu=1.4"));
    assert!(refused("M=0,N=0,H=1,D=8,B=4,m=1,K=1/cu="));
    assert!(refused("M=3,N=4,H=1,D=8,B=4,m=1,K=1/win=0:1x2"));
    assert!(refused("M=1,N=6,H=1,D=8,B=4,m=1,K=1/win=0:8"));
    assert!(refused("M=1,N=6,H=1,D=8,B=0,m=1,K=1/win=0:1"));
    assert!(refused("M=1,N=6,H=1,D=8,B=1,m=0,K=1/win=0:1"));
    assert!(refused("M=1,N=6,H=1,D=8,B=1,m=1,K=0/win=0:1"));
    assert!(refused("M=1,N=6,H=1,D=8,B=65536,m=32768,K=1/win=0:1"));
    assert!(refused("M=3,N=3,H=1,D=8,B=4,m=1,K=1/cu=0.6/cp=0of2"));
}

#[test]
fn the_reference_takes_every_preset() {
    for preset in PRESETS {
        let mut case = parse("hisa:M=5,N=37,H=3,D=16,B=4,m=3,K=8/win=0:37x5/seed=3");
        case.values = preset.values();
        let inputs = case.inputs().unwrap();
        let permissive = inputs.strictness == Strictness::Permissive;
        assert_eq!(permissive, preset.is_permissive(), "{}", preset.name);
        inputs.indexer_input().unwrap();
        assert_eq!(case.x().unwrap().dim(), (37, 16));
    }
}

#[test]
fn patches_reach_their_elements() {
    let case = parse(
        "hisa:M=2,N=3,H=2,D=4,B=4,m=1,K=3/win=0:3x2\
         /q.1._.0=7e,k.2.3=01,s.0=7f800000,w._.1=80000000,x.1.1=3f800000",
    );
    let inputs = case.inputs().unwrap();
    assert_eq!(inputs.tensors.q[[1, 0, 0]].to_bits(), 0x7E);
    assert_eq!(inputs.tensors.q[[1, 1, 0]].to_bits(), 0x7E);
    assert_eq!(inputs.tensors.k[[2, 3]].to_bits(), 0x01);
    assert!(inputs.tensors.k_scale[0].is_infinite());
    assert!(
        inputs
            .tensors
            .weights
            .column(1)
            .iter()
            .all(|w| w.to_bits() == 0x8000_0000)
    );
    assert_eq!(case.x().unwrap()[[1, 1]], 1.0);
    assert_eq!(inputs.strictness, Strictness::Permissive);
    assert!(inputs.indexer_input_with(Strictness::Strict).is_err());
}

#[test]
fn cutting_a_case_leaves_the_remaining_bytes_alone() {
    let whole = parse("hisa:M=6,N=40,H=4,D=16,B=4,m=3,K=8/win=0:9x6/v=pooltie/seed=7");
    let mut cut = Case {
        m: 3,
        n: 12,
        h: 2,
        ..whole.clone()
    };
    cut.windows.source = WindowSource::Rows(vec![Window { ks: 0, ke: 9 }; 3]);
    let (whole, cut) = (whole.tensors().unwrap(), cut.tensors().unwrap());
    assert!(cut.q.indexed_iter().all(|(at, code)| whole.q[at] == *code));
    assert!(cut.k.indexed_iter().all(|(at, code)| whole.k[at] == *code));
    assert!(
        cut.k_scale
            .indexed_iter()
            .all(|(at, scale)| whole.k_scale[at] == *scale)
    );
    assert!(
        cut.weights
            .indexed_iter()
            .all(|(at, weight)| whole.weights[at] == *weight)
    );
}

#[test]
fn windows_can_be_written_row_by_row() {
    let case = parse("hisa:M=3,N=3,H=1,D=8,B=2,m=1,K=2/cu=0.1.3");
    let rows = case.to_rows().unwrap();
    assert!(rows.to_string().contains("/win=0:1.1:2.1:3/"));
    assert_eq!(rows.windows().unwrap(), case.windows().unwrap());
}

#[test]
fn stray_patches_can_be_dropped() {
    let mut case = parse("hisa:M=1,N=3,H=1,D=8,B=2,m=1,K=2/win=0:2/k.2.0=01,k.1.0=02");
    case.n = 2;
    assert!(matches!(case.check(), Err(CaseError::Patch { .. })));
    case.drop_stray_patches();
    assert!(case.check().is_ok());
    assert_eq!(case.patches.len(), 1);
}

/// Digests of arrays and of quantize rows. They may never change: an address in an old report has
/// to mean the same bytes for ever.
#[test]
fn bytes_are_pinned() {
    let sizes = "hisa:M=5,N=37,H=3,D=24,B=4,m=3,K=8/win=0:37x5";
    let mut found = Vec::new();
    for (index, preset) in PRESETS.iter().enumerate() {
        let case = parse(&format!("{sizes}/v={}/seed={index}", preset.name));
        let digests = (
            case.tensors().unwrap().digest(),
            digest_rows(&case.x().unwrap()),
        );
        found.push((preset.name, digests.0, digests.1));
    }
    for values in [
        "q=e0,k=e0,s=prog:3f800000+1x16p.3f900000u400x9.40000000.perm,w=minus,x=zeros",
        "q=basis,k=blocks:3f808001.3f808000x2.3f800000u100p,s=own,w=first,x=small",
        "q=zero,k=zero,s=one,w=one,x=zeros/q._._.0=38,k._.0=38,s.5=7fc00001",
    ] {
        let case = parse(&format!("{sizes}/{values}/seed=0xfedcba9876543210"));
        let digests = (
            case.tensors().unwrap().digest(),
            digest_rows(&case.x().unwrap()),
        );
        found.push((values, digests.0, digests.1));
    }
    assert_eq!(found, PINNED);
}

const PINNED: &[(&str, u64, u64)] = &[
    ("normal", 0x0A21_96CA_F19F_8F70, 0x25B0_3A90_D416_F664),
    ("real", 0x7DE8_D48B_B229_C1AE, 0x5091_F6F2_71E1_92DA),
    ("pow2", 0x493A_FBE7_6367_1A31, 0x0BB2_5E37_9B77_42E4),
    ("heavy", 0xBDC5_4AC5_CFE8_94C7, 0x322E_1A0C_01DC_0C54),
    ("uniform", 0x4048_1F0D_A2F1_A059, 0x6F28_94E5_5F38_5F09),
    ("zeros", 0x0356_79F6_F516_7634, 0xD199_C90F_D7CE_153F),
    ("ties", 0x2C7B_822B_BF18_29A5, 0xFC89_48F9_1860_B77D),
    ("dup", 0xA8AA_4A53_8743_0DBE, 0xDD6B_A948_3EED_8746),
    ("plateau", 0x563C_102F_7353_30AE, 0x24DF_B78B_2650_16A1),
    ("ulp", 0xF5CD_CC3F_64B6_10FB, 0xD094_364C_FAE2_8AB4),
    ("extreme", 0x3653_4C07_1A25_F1BB, 0x39B9_DBDD_617C_BE22),
    ("subnormal", 0x8F32_67BF_68B8_6D9D, 0xD18F_5BD0_CBD2_0347),
    ("cancel", 0x0D0C_F948_5C04_7BA1, 0x7543_8C7B_202F_8E79),
    ("tiny", 0xE368_CCD1_30F2_CF4E, 0x8E47_EF3A_4091_E732),
    ("huge", 0x39C3_5141_BE84_DB5C, 0xA823_5A93_BDC6_772C),
    ("wide", 0x8D69_78D7_F1D0_D5FE, 0x6D69_36BF_C175_B509),
    ("zeroscale", 0x2EB9_C599_7B62_422C, 0xE7E3_8C24_5887_E606),
    ("allzero", 0xCD16_01FF_B8BF_3DBD, 0xC023_DF42_8FFC_E40D),
    ("zeroweight", 0xB591_3E37_B9DC_1742, 0x3A6F_66E2_1E97_21DA),
    ("bf16weight", 0xB1E7_8906_0D51_0904, 0x4A14_62F0_AFCF_E0ED),
    ("pooltie", 0x8158_94C6_F940_8D30, 0x39E0_9272_413D_8B70),
    ("pooltie2", 0xFFCB_77A6_E870_DD8A, 0x12BB_93E4_77B3_72D4),
    ("floor", 0x6139_C425_1609_98A6, 0xF1F3_FE0A_0625_542F),
    ("nan", 0x7C5D_F236_A4BA_47F1, 0xA603_5A42_9D80_9BEF),
    ("nanq", 0x058B_E145_5E41_C2C3, 0x14A9_BEE9_8D8F_D05F),
    ("all", 0x76CD_EAA0_41B0_9D3F, 0xFDFD_E5A4_86F3_BCCF),
    ("special", 0x85A7_0743_A55F_A5CE, 0x84B4_BA34_5B98_66ED),
    ("specialw", 0xE153_27CD_F22C_CD16, 0x97D6_BB30_6B03_8C68),
    (
        "q=e0,k=e0,s=prog:3f800000+1x16p.3f900000u400x9.40000000.perm,w=minus,x=zeros",
        0x6A95_6C96_6EFE_C1AA,
        0xB866_FE5D_9578_0436,
    ),
    (
        "q=basis,k=blocks:3f808001.3f808000x2.3f800000u100p,s=own,w=first,x=small",
        0xA4E7_CDFE_D6E8_E3CF,
        0x087B_6C3A_E16C_5230,
    ),
    (
        "q=zero,k=zero,s=one,w=one,x=zeros/q._._.0=38,k._.0=38,s.5=7fc00001",
        0x9342_BB69_B3B9_CD54,
        0xB866_FE5D_9578_0436,
    ),
];
