//! The regression corpus: it replays cleanly, and it is append-only.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::backend::oracle::Oracle;
use hisa_conformance::backend::reference::Reference;
use hisa_conformance::check;
use hisa_conformance::dump::write::file_digest;
use hisa_conformance::generate::{by_name, corpus};
use hisa_conformance::problem::Problem;
use hisa_conformance::save;
use hisa_conformance::summary::{Source, Summary};
use hisa_conformance::worker::judge::judge_all;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/regressions")
}

/// Digest and name of every file saved by value.
fn manifest() -> (String, BTreeMap<String, String>) {
    let text = std::fs::read_to_string(folder().join("manifest.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entries = lines.map(|line| {
        let (digest, rest) = line.split_once("  ").unwrap();
        let (name, comment) = rest.split_once("  # ").unwrap();
        assert!(!comment.is_empty(), "{name}");
        (name.to_owned(), digest.to_owned())
    });
    let entries = entries.collect();
    (text, entries)
}

/// FNV-1a (64 bits) of the first lines, each with its line break.
fn digest(text: &str, lines: usize) -> u64 {
    let head: String = text.split_inclusive('\n').take(lines).collect();
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    head.bytes().fold(0xCBF2_9CE4_8422_2325, step)
}

fn assert_clean(problem: &Problem, name: &str) {
    let (mut reference, mut summary) = (Reference::new(), Summary::default());
    let source = Source {
        generator: "corpus".to_owned(),
        index: 0,
    };
    let case = (&source, name);
    judge_all(
        problem,
        case,
        &mut reference,
        &mut Oracle::new(),
        &mut summary,
    );
    assert_eq!(summary.findings, [], "{name}");
    let passed: u64 = summary.tallies.iter().map(|tally| tally.passed).sum();
    assert!(passed > 20, "{name}: {passed} checks passed");
}

#[test]
fn addresses_replay_cleanly_on_the_reference() {
    for generated in by_name("corpus", 0, 0).unwrap().iter() {
        let problem = Problem::new(&generated.case).unwrap();
        assert_clean(&problem, &generated.case.to_string());
    }
}

#[test]
fn saved_files_replay_cleanly_on_the_reference() {
    let (_, entries) = manifest();
    for name in entries.keys() {
        let (problem, origin) = save::read(&folder().join(name)).unwrap();
        assert!(check::position(origin.check.as_ref().unwrap()).is_some());
        assert_clean(&problem, name);
    }
}

#[test]
fn the_manifest_lists_every_file_with_its_bytes() {
    let (_, entries) = manifest();
    for (name, digest) in &entries {
        let found = file_digest(&folder().join(name)).unwrap();
        assert_eq!(*digest, format!("{found:016x}"), "{name} was changed");
        assert!(name.contains(&digest[..12]), "{name}");
    }
    let files = std::fs::read_dir(folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let saved: Vec<String> = names
        .filter(|name| name.ends_with(".safetensors"))
        .collect();
    assert!(saved.len() >= 3);
    for name in saved {
        assert!(entries.contains_key(&name), "{name} is not in manifest.txt");
    }
}

/// Lines pinned below. Whoever adds lines may raise both numbers; nobody may change a line.
const ADDRESS_LINES: (usize, u64) = (23, 0xB298_AFE5_7F89_58BE);
const MANIFEST_LINES: (usize, u64) = (5, 0x9D88_31B4_66C4_A611);

#[test]
fn old_lines_are_never_changed_or_removed() {
    let (manifest, _) = manifest();
    for (text, (lines, pinned)) in [
        (corpus::ADDRESSES, ADDRESS_LINES),
        (manifest.as_str(), MANIFEST_LINES),
    ] {
        assert!(text.lines().count() >= lines, "lines were removed");
        let found = digest(text, lines);
        assert_eq!(
            found, pinned,
            "one of the first {lines} lines was changed: {found:#018x}"
        );
    }
}
