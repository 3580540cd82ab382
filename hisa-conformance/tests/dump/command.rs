//! The command itself: exit status, one line on stderr, and files that appear whole or not.

use super::{i32s, valid, with};
use hisa_conformance::dump::{OutputDump, write_atomic};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn hisa(words: &str, folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hisa"));
    command
        .current_dir(folder)
        .args(words.split(' '))
        .output()
        .unwrap()
}

/// Exit status and stderr without its line end.
fn ended(words: &str, folder: &Path) -> (Option<i32>, String) {
    let output = hisa(words, folder);
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), stderr.trim_end().to_owned())
}

fn folder_with_input() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let metadata = BTreeMap::from([("block_size".to_owned(), "2".to_owned())]);
    write_atomic(&path, &valid(), &metadata).unwrap();
    (folder, path)
}

#[test]
fn what_eval_writes_check_accepts() {
    let (folder, _) = folder_with_input();
    let names = |path: &str| OutputDump::read(&folder.path().join(path)).unwrap().names();
    for (indexer, count) in [("hisa", 8), ("dsa", 3), ("block-sparse", 6)] {
        let with = format!("--indexer {indexer} --topk 3");
        let eval = format!("eval --input x.safetensors --out y.safetensors {with} --all");
        assert_eq!(ended(&eval, folder.path()), (Some(0), String::new()));
        assert_eq!(names("y.safetensors").len(), count, "{indexer}");
        let check = format!("check --input x.safetensors --got y.safetensors {with}");
        let (status, said) = ended(&check, folder.path());
        assert_eq!(status, Some(0), "{said}");
        assert!(
            said.starts_with("hisa: compared value by value: "),
            "{said}"
        );
        assert!(said.ends_with(&format!("; 0 of {count} differ")), "{said}");
    }
    let eval = "eval --input x.safetensors --out y.safetensors --topk 3";
    assert_eq!(ended(eval, folder.path()), (Some(0), String::new()));
    assert_eq!(names("y.safetensors"), ["indices"]);
    let first = std::fs::read(folder.path().join("y.safetensors")).unwrap();
    ended(eval, folder.path());
    assert_eq!(
        std::fs::read(folder.path().join("y.safetensors")).unwrap(),
        first
    );
}

#[test]
fn findings_go_to_stdout_and_exit_with_1() {
    let (folder, _) = folder_with_input();
    ended(
        "eval --input x.safetensors --out y.safetensors --topk 3",
        folder.path(),
    );
    let path = folder.path().join("y.safetensors");
    let mut outputs = OutputDump::read(&path).unwrap();
    outputs.indices.as_mut().unwrap()[[0, 1]] = 0;
    outputs.to_file(&path, &BTreeMap::new()).unwrap();
    let output = hisa(
        "check --input x.safetensors --got y.safetensors --topk 3",
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(1));
    let found = "FAIL indices[0, 1]: expected -1, got 0\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), found);
    let said = "hisa: compared value by value: indices; 1 of 1 differ\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), said);
}

#[test]
fn what_cannot_run_exits_with_2_says_why_and_writes_nothing() {
    let (folder, _) = folder_with_input();
    let bad = with(&[("ks", i32s(&[0; 3])), ("ke", i32s(&[0, 4, 0]))]);
    write_atomic(
        &folder.path().join("bad.safetensors"),
        &bad,
        &BTreeMap::new(),
    )
    .unwrap();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    for (words, said) in [
        (
            "eval --input none --out y",
            "none: cannot open: No such file or directory (os error 2)",
        ),
        (
            "eval --input bad.safetensors --out y",
            "bad.safetensors: row 1: window [0, 4) is not within the keys [0, 3)",
        ),
        (
            "eval --input x.safetensors --out y --block-size 0",
            "x.safetensors: block_size is 0; it must be at least 1",
        ),
        (
            "eval --input x.safetensors --out ./x.safetensors",
            "--out and --input both lead to ./x.safetensors",
        ),
        (
            "eval --input x.safetensors --out y --topk 2147483647",
            "the outputs need 25769803764 bytes, above the limit of 8589934592; \
             indices [3, 2147483647] alone needs 25769803764",
        ),
        (
            "eval --input x.safetensors --out y --all --block-topk 1000000000",
            "the outputs need 36000049216 bytes, above the limit of 8589934592; \
             token_scores [3, 2000000000] alone needs 24000000000",
        ),
        (
            "eval --input x.safetensors --out .",
            ".: not a regular file",
        ),
        (
            "check --input x.safetensors --got x.safetensors",
            "x.safetensors: none of the outputs of hisa is there; \
             expected at least one of codes, scale, pooled_k, pooled_scale, block_scores, \
             block_mask, block_ids, token_scores, slots, indices, flat_scores",
        ),
    ] {
        assert_eq!(
            ended(words, folder.path()),
            (Some(2), format!("hisa: {said}")),
            "{words}"
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
}

#[test]
fn a_truncated_file_is_one_line_on_stderr() {
    let (folder, path) = folder_with_input();
    let cut = std::fs::read(&path).unwrap()[..100].to_vec();
    std::fs::write(&path, cut).unwrap();
    let check = "check --input x.safetensors --got x.safetensors";
    let (status, said) = ended(check, folder.path());
    assert_eq!(status, Some(2));
    let start = "hisa: x.safetensors: the header is declared as ";
    assert!(
        said.starts_with(start) && said.ends_with("bytes, but only 92 follow"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn bad_usage_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    for words in ["eval", "check --input x", "run --cases -1", "bench gpu"] {
        assert_eq!(ended(words, folder.path()).0, Some(2), "{words}");
    }
}
