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

/// What `hisa check` says of outputs of the reference after `change`.
fn judged(change: impl FnOnce(&mut OutputDump)) -> (Option<i32>, String, String) {
    let (folder, _) = folder_with_input();
    let params = "--topk 3 --block-topk 3";
    let eval = format!("eval --input x.safetensors --out y.safetensors --all {params}");
    assert_eq!(ended(&eval, folder.path()).0, Some(0));
    let path = folder.path().join("y.safetensors");
    let mut outputs = OutputDump::read(&path).unwrap();
    change(&mut outputs);
    outputs.to_file(&path, &BTreeMap::new()).unwrap();
    let check = format!("check --input x.safetensors --got y.safetensors {params}");
    let output = hisa(&check, folder.path());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn ids_of_no_block_are_findings_even_as_padding() {
    for padding in [-7, 123_456, 2] {
        let (status, found, _) = judged(|outputs| {
            let ids = outputs.block_ids.as_mut().unwrap();
            let slot = ids.iter_mut().find(|id| **id == -1).unwrap();
            *slot = padding;
        });
        assert_eq!(status, Some(1), "{padding}");
        assert!(
            found.contains(&format!("ids below 2, got {padding}")),
            "{found}"
        );
    }
}

#[test]
fn what_was_not_compared_is_said() {
    let (status, found, said) = judged(|outputs| {
        let ids = outputs.block_ids.take().unwrap();
        outputs.block_ids = Some(ids.slice_axis(ndarray::Axis(1), (..1).into()).to_owned());
        outputs.slots.as_mut().unwrap().fill(0);
    });
    assert_eq!(status, Some(1));
    assert!(found.starts_with("FAIL block_ids shape"), "{found}");
    assert!(
        said.contains("block_ids has the wrong shape: token_scores, slots"),
        "{said}"
    );
    assert!(said.contains("; 1 of 6 differ"), "{said}");
}

#[test]
fn misspelt_names_and_other_parameters_are_noted() {
    let (folder, _) = folder_with_input();
    let eval = "eval --input x.safetensors --out y.safetensors --topk 3";
    ended(eval, folder.path());
    let path = folder.path().join("y.safetensors");
    let outputs = OutputDump::read(&path).unwrap();
    let mut tensors = outputs.tensors();
    tensors.insert("block_score".to_owned(), i32s(&[1]));
    let metadata = BTreeMap::from([("topk_tokens".to_owned(), "5".to_owned())]);
    write_atomic(&path, &tensors, &metadata).unwrap();
    let check = "check --input x.safetensors --got y.safetensors --topk 3";
    let (status, said) = ended(check, folder.path());
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("not compared, no such output: block_score"),
        "{said}"
    );
    let other = "y.safetensors was made with topk_tokens 5; it is judged with 3";
    assert!(said.contains(other), "{said}");
}

#[test]
fn parameters_that_an_indexer_does_not_read_refuse_nothing() {
    let (folder, _) = folder_with_input();
    for with in [
        "--indexer block-sparse --block-size 100000000 --topk 3",
        "--indexer dsa --block-size 100000000 --block-topk 100 --topk 3",
        "--indexer dsa --block-size 0 --topk 3",
    ] {
        let eval = format!("eval --input x.safetensors --out y.safetensors {with}");
        let (status, said) = ended(&eval, folder.path());
        let too_large = said.contains("the outputs need");
        assert!(status == Some(0) || too_large, "{with}: {said}");
    }
}

#[cfg(unix)]
#[test]
fn the_mode_of_a_replaced_file_is_kept() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, _) = folder_with_input();
    let path = folder.path().join("y.safetensors");
    std::fs::write(&path, b"old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let eval = "eval --input x.safetensors --out y.safetensors --topk 3";
    assert_eq!(ended(eval, folder.path()).0, Some(0));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_case_can_be_replayed_by_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let address = "hisa:M=3,N=3,H=2,D=32,B=2,m=2,K=8,rank=bf16/cu=0.1.1.3/v=normal/seed=0x91";
    let output = hisa(&format!("replay {address}"), folder.path());
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("token_scores  pass: runs shape mask scores"),
        "{text}"
    );
    let (status, said) = ended("replay hisa:M=3", folder.path());
    assert_eq!(status, Some(2), "{said}");
    let refused = address.replace("cu=0.1.1.3", "cu=0.2.1.3");
    let (status, said) = ended(&format!("replay {refused}"), folder.path());
    assert_eq!(status, Some(2));
    assert!(
        said.starts_with("hisa: cu_seqlens[2] is 1, below its predecessor 2"),
        "{said}"
    );
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
        let (status, said) = ended(words, folder.path());
        assert_eq!(status, Some(2), "{words}");
        assert!(
            said.starts_with("hisa: ") && said.lines().count() == 1,
            "{said}"
        );
    }
    let said = ended("check --input x", folder.path()).1;
    let expected = "hisa: the following required arguments were not provided: --got <FILE>";
    assert_eq!(said, expected);
    assert_eq!(ended("--help", folder.path()).0, Some(0));
}
