//! Cases made to fit what a port takes.

use super::{Stand, cases, port, stderr};
use hisa_conformance::backend::limits::{Limits, Sizes};
use hisa_conformance::case::Case;
use hisa_conformance::generate::fit::{fit, fitted};
use hisa_conformance::generate::{NAMES, by_name};

fn limits(text: &str) -> Limits {
    let limits: Limits = serde_json::from_str(text).unwrap();
    limits.check().unwrap();
    limits
}

fn is_within(case: &Case, limits: &Limits) -> bool {
    let takes = |sizes: &Sizes, value| sizes.takes(value);
    takes(&limits.heads, case.h)
        && takes(&limits.dims, case.d)
        && case.d.is_multiple_of(limits.dims_multiple)
        && takes(&limits.block_size, case.block_size)
        && takes(&limits.rows, case.m)
        && takes(&limits.keys, case.n)
        && takes(&limits.topk, case.topk_tokens)
        && takes(&limits.blocks, case.block_topk)
}

/// Nearly every case fits nearly any limits, and is then a case like any other.
#[test]
fn cases_are_fitted_and_their_addresses_build_them() {
    for text in [
        r#"{"H":[32,64],"D":[128]}"#,
        r#"{"H":8,"D_multiple":16,"B":[64,128],"m":[4,16],"K":[64]}"#,
        r#"{"M":16,"N":100}"#,
        r#"{"M":[1,8],"N":[256]}"#,
        r#"{"H":1,"D":8,"B":1,"M":1,"N":1,"K":1,"m":1}"#,
        r#"{"H":[3],"D":[24],"B":[5],"M":[7],"N":[31],"K":[2],"m":[9]}"#,
    ] {
        let limits = limits(text);
        let (mut all, mut within, mut offsets) = (0, 0, 0);
        for (name, count) in [("ragged", 300), ("edge", 0), ("exhaustive", 0)] {
            let generator = by_name(name, 7, count).unwrap();
            for index in (0..generator.len()).step_by(if name == "exhaustive" { 97 } else { 1 }) {
                let case = fitted(generator.as_ref(), index, &limits).unwrap().case;
                all += 1;
                if !is_within(&case, &limits) {
                    // Then it is the case as it was, for the backend to refuse.
                    assert_eq!(case, generator.case(index).unwrap().case);
                    continue;
                }
                within += 1;
                offsets += u64::from(case.windows.source.query_offsets().is_some());
                assert_eq!(
                    case.to_string().parse::<Case>().as_ref(),
                    Ok(&case),
                    "{case}"
                );
                assert_eq!(fit(&case, &limits).as_ref(), Some(&case), "{case}");
                if name == "ragged" && index % 10 == 0 {
                    let inputs = case
                        .inputs()
                        .unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert_eq!(inputs.tensors.q.dim(), (case.m, case.h, case.d));
                    inputs.indexer_input().unwrap();
                }
            }
        }
        assert!(within * 100 >= all * 95, "{text}: {within} of {all}");
        // Packed sequences have as many rows as keys.
        let packed = limits.keys != Sizes::Only(vec![256]) && limits.rows != Sizes::Only(vec![7]);
        assert!(
            offsets > 20 || !packed,
            "{text}: {offsets} of {all} keep their offsets"
        );
    }
}

#[test]
fn cases_within_the_limits_are_left_alone() {
    let limits = limits(r#"{"H":1024,"N":268435456}"#);
    for name in NAMES {
        let generator = by_name(name, 1, 20).unwrap();
        for index in 0..generator.len().min(40) {
            let same = generator.case(index);
            assert_eq!(fitted(generator.as_ref(), index, &limits), same);
        }
    }
}

/// A port that takes few sizes is judged on all cases, and its findings are within its limits.
#[test]
fn a_port_with_limits_is_judged_within_them() {
    let stand = Stand::new();
    let (output, report) = stand.fuzz(&port("limits", 4), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(cases(&report), 9);
    let skips = report["summary"]["skips"].as_object().unwrap();
    let beyond = skips
        .keys()
        .find(|why| why.contains("above") || why.contains("one of"));
    assert_eq!(beyond, None, "{skips:?}");
    stand.assert_clean();
}
