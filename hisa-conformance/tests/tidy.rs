//! House rules a machine can check: line length, leftovers, links, and names of stages.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Every file of the workspace with this ending, as path and text.
fn files(ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" || name.starts_with("mutants.out") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

#[test]
fn rust_lines_fit_and_hold_no_leftovers() {
    let sources = files(".rs");
    assert!(
        sources.len() > 40,
        "only {} files were found",
        sources.len()
    );
    // Spelled in two parts, or this file would fail itself.
    let leftovers = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    for (path, text) in sources {
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            assert!(
                line.chars().count() <= 100,
                "{place} is longer than 100 columns"
            );
            assert!(
                !leftovers.iter().any(|word| line.contains(word)),
                "{place}: {line}"
            );
        }
    }
}

#[test]
fn functions_stay_short() {
    for (path, text) in files(".rs") {
        let mut start = None;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            let is_fn = [
                "fn ",
                "pub fn ",
                "pub(crate) fn ",
                "pub(super) fn ",
                "const fn ",
            ]
            .iter()
            .any(|word| head.starts_with(word));
            if is_fn && !head.ends_with(';') {
                start = Some((number, indent));
            }
            if let Some((first, at)) = start
                && head == "}"
                && indent == at
            {
                let length = number - first + 1;
                let place = format!("{}:{}", path.display(), first + 1);
                assert!(length <= 70, "{place}: a function of {length} lines");
                start = None;
            }
        }
    }
}

#[test]
fn relative_links_of_documents_resolve() {
    let mut links = 0;
    for (path, text) in files(".md") {
        for piece in text.split("](").skip(1) {
            let target = piece.split([')', '#', ' ']).next().unwrap();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let full = path.parent().unwrap().join(target);
            assert!(full.exists(), "{} links to {target}", path.display());
        }
    }
    assert!(links > 3, "only {links} links were found");
}

#[test]
fn each_stage_has_one_file_of_its_name() {
    for stage in hisa_ref::Stage::ALL {
        let file = root().join(format!("hisa-ref/src/stages/{stage}.rs"));
        assert!(file.exists(), "{} is missing", file.display());
    }
}
