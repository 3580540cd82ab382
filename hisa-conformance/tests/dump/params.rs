//! Parameters: metadata, overrides, defaults, and the memory they ask for.

use super::{read, valid};
use hisa_conformance::dump::size::{check_output_bytes, planned_outputs};
use hisa_conformance::dump::{DumpError, Indexer, Options, RunParams};
use hisa_ref::error::ParamError;
use hisa_ref::{HisaParams, Rank, Strictness};
use std::path::Path;

#[test]
fn parameters_come_from_the_file_and_yield_to_the_options() {
    let metadata = [
        ("block_size", "2"),
        ("block_topk", "3"),
        ("topk_tokens", "5"),
        ("indexer", "block_sparse"),
        ("rank", "f32"),
        ("strict", "false"),
        ("format", "pt"),
    ];
    let params = *read(&valid(), &metadata).unwrap().params();
    let hisa = HisaParams::new(2, 3, 5).unwrap().with_rank(Rank::F32);
    let (indexer, strictness) = (Indexer::BlockSparse, Strictness::Permissive);
    assert_eq!(
        params,
        RunParams {
            indexer,
            hisa,
            strictness
        }
    );
    let options = Options {
        indexer: Some(Indexer::Dsa),
        topk_tokens: Some(7),
        strictness: Some(Strictness::Strict),
        ..Options::default()
    };
    let own = params.metadata();
    let overridden = RunParams::read(Path::new("x"), &own, &options).unwrap();
    let hisa = HisaParams::new(2, 3, 7).unwrap().with_rank(Rank::F32);
    let (indexer, strictness) = (Indexer::Dsa, Strictness::Strict);
    assert_eq!(
        overridden,
        RunParams {
            indexer,
            hisa,
            strictness
        }
    );
    assert_eq!(
        RunParams::read(Path::new("x"), &own, &Options::default()).unwrap(),
        params
    );
}

#[test]
fn unreadable_parameters_are_quoted() {
    let long = "9".repeat(1000);
    for (key, value, allowed) in [
        ("block_size", "-1", "whole numbers from 1"),
        ("block_topk", "8.0", "whole numbers from 1"),
        ("topk_tokens", long.as_str(), "whole numbers from 1"),
        ("rank", "f16", "bf16, f32"),
        ("indexer", "flat\n", "hisa, dsa, block-sparse"),
        ("strict", "True", "true, false"),
    ] {
        let error = read(&valid(), &[(key, value)]).unwrap_err();
        assert!(
            matches!(&error, DumpError::Param { name, .. } if *name == key),
            "{error}"
        );
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("x.safetensors: metadata {key} is \"")),
            "{message}"
        );
        assert!(
            message.ends_with(&format!("; allowed: {allowed}")),
            "{message}"
        );
        assert!(message.len() < 120 && !message.contains('\n'), "{message}");
    }
    for (key, name) in [("block_size", "block_size"), ("topk_tokens", "topk_tokens")] {
        let error = read(&valid(), &[(key, "0")]).unwrap_err();
        let expected = ParamError::Zero { name }.into();
        assert!(
            matches!(&error, DumpError::Input(error) if *error == expected),
            "{error}"
        );
    }
}

#[test]
fn outputs_are_sized_before_a_run() {
    let metadata = [
        ("block_size", "2"),
        ("block_topk", "5"),
        ("topk_tokens", "3"),
    ];
    let sizes = |indexer, all| {
        let words = [&metadata[..], &[("indexer", indexer)]].concat();
        let dump = read(&valid(), &words).unwrap();
        let planned = planned_outputs(&dump, all).into_iter();
        planned
            .map(|output| (output.name, output.shape))
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes("hisa", false), [("indices", vec![3, 3])]);
    let blocks = |m| {
        vec![
            ("pooled_k", vec![2, 4]),
            ("pooled_scale", vec![2]),
            ("block_scores", vec![3, 2]),
            ("block_mask", vec![3, 2]),
            ("block_ids", vec![3, m]),
        ]
    };
    let tokens = [
        ("token_scores", vec![3, 10]),
        ("slots", vec![3, 3]),
        ("indices", vec![3, 3]),
    ];
    assert_eq!(sizes("hisa", true), [blocks(5), tokens.to_vec()].concat());
    let flat = [
        ("flat_scores", vec![3, 3]),
        ("slots", vec![3, 3]),
        ("indices", vec![3, 3]),
    ];
    assert_eq!(sizes("dsa", true), flat);
    assert_eq!(
        sizes("block-sparse", false),
        [blocks(2), vec![("indices", vec![3, 4])]].concat()
    );

    let huge = read(&valid(), &[("topk_tokens", "2147483647")]).unwrap();
    let error = check_output_bytes(&huge, false, 8 << 30).unwrap_err();
    let words = "the outputs need 25769803764 bytes, above the limit of 8589934592; \
                 indices [3, 2147483647] alone needs 25769803764";
    assert_eq!(error.to_string(), words);
    assert_eq!(
        check_output_bytes(&huge, false, 25_769_803_764).unwrap(),
        25_769_803_764
    );
}
