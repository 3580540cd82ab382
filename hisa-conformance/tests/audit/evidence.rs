//! What stands behind each clause.

use super::citation::{clauses as cited, functions};
use super::{read, root};
use hisa_conformance::backend::mutant::MUTANTS;
use hisa_conformance::check::CHECKS;
use std::path::{Path, PathBuf};

/// All that is known of a clause.
pub(crate) struct Evidence {
    pub(crate) number: String,
    /// Its first words in italics.
    pub(crate) title: String,
    /// Examples of the specification; a test runs each.
    pub(crate) examples: Vec<String>,
    /// Tests whose doc comment cites it.
    pub(crate) tests: Vec<String>,
    /// Checks that hold a backend to it, and how many planted faults each catches.
    pub(crate) checks: Vec<(String, usize)>,
    /// Functions of the oracle in Rust.
    pub(crate) oracle: Vec<String>,
    /// Whether the oracle in Python cites it.
    pub(crate) fractions: bool,
    /// Golden fixtures.
    pub(crate) fixtures: Vec<String>,
}

impl Evidence {
    /// Whether anything that runs in CI looks at it.
    pub(crate) fn runs(&self) -> bool {
        !(self.examples.is_empty() && self.tests.is_empty() && self.checks.is_empty())
    }

    /// Whether it says what a stage or an indexer computes; clauses of errors are for callers,
    /// and the oracle takes valid input only.
    pub(crate) fn has_values(&self) -> bool {
        let stage = self.number.split('.').next().unwrap().parse::<u32>();
        let told = !self.title.starts_with("Errors") && !self.title.starts_with("Block ids");
        stage.is_ok_and(|stage| stage <= 8) && told
    }
}

/// Number and title of every clause, in order.
pub(crate) fn clauses() -> Vec<(String, String)> {
    let spec = read("docs/SPEC.md");
    let heads = spec
        .lines()
        .filter_map(|line| line.strip_prefix("**")?.split_once("**"));
    let clauses = heads.filter(|(number, _)| number.ends_with(|last: char| last.is_ascii_digit()));
    let title = |rest: &str| {
        let marked = rest.trim().split(['*', '`']).nth(1).unwrap_or("");
        marked.trim_end_matches('.').to_owned()
    };
    clauses
        .map(|(number, rest)| (number.to_owned(), title(rest)))
        .collect()
}

/// Rust sources under a folder, in order of their paths.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "rs") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// `hisa-ref/tests/definitions.rs` and a function, as `hisa-ref definitions::function`.
fn place(path: &Path, function: &str) -> String {
    let path = path.strip_prefix(root()).unwrap().with_extension("");
    let parts: Vec<String> = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let modules = parts[2..]
        .iter()
        .filter(|part| *part != "mod" && *part != "main");
    let modules: Vec<&str> = modules.map(String::as_str).collect();
    format!("{} {}::{function}", parts[0], modules.join("::"))
}

/// Tests and functions of the oracle, with the clauses they cite.
fn cited_by(folders: &[&str], wanted: impl Fn(bool) -> bool) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for path in folders.iter().flat_map(|folder| sources(folder)) {
        let text = std::fs::read_to_string(&path).unwrap();
        let functions = functions(&text);
        for function in functions.iter().filter(|function| wanted(function.is_test)) {
            let clauses = cited(&function.comment);
            if !clauses.is_empty() {
                found.push((place(&path, function.name), clauses));
            }
        }
    }
    found
}

fn tests() -> Vec<(String, Vec<String>)> {
    let crates = ["hisa-ref", "hisa-cuda", "hisa-conformance"];
    let folders = crates.map(|name| [format!("{name}/src"), format!("{name}/tests")]);
    let folders: Vec<&str> = folders.iter().flatten().map(String::as_str).collect();
    cited_by(&folders, |is_test| is_test)
}

fn oracle() -> Vec<(String, Vec<String>)> {
    cited_by(&["hisa-conformance/src/oracle"], |is_test| !is_test)
}

/// Every citation and where it stands.
pub(crate) fn citations() -> Vec<(String, Vec<String>)> {
    let mut all = tests();
    all.extend(oracle());
    all.extend(fixtures());
    all.push(("fraction_oracle.py".to_owned(), fractions()));
    all
}

/// What the oracle in Python cites: clause numbers in its comments and docstrings.
fn fractions() -> Vec<String> {
    let source = read("hisa-conformance/ports/fraction_oracle.py");
    let told = source.lines().filter_map(|line| {
        let docstring = line.split_once("\"\"\"").map(|(_, words)| words);
        docstring.or_else(|| line.split_once("# ").map(|(_, words)| words))
    });
    let known = clauses();
    let is_clause = |word: &&str| known.iter().any(|(number, _)| number == word);
    let words = told.flat_map(|words| words.split([' ', ',', ':', ';', '(', ')', '\"']));
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(is_clause).map(str::to_owned).collect()
}

/// Ids of fixtures with the clauses that the manifest gives them.
fn fixtures() -> Vec<(String, Vec<String>)> {
    let manifest: serde_json::Value =
        serde_json::from_str(&read("fixtures/manifest.json")).unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let cases = manifest["cases"].as_array().unwrap().iter();
    let of = |case: &serde_json::Value| {
        case["clauses"]
            .as_array()
            .unwrap()
            .iter()
            .map(word)
            .collect()
    };
    cases.map(|case| (word(&case["id"]), of(case))).collect()
}

/// Names of the examples, with their clauses.
fn examples() -> Vec<(String, Vec<String>)> {
    let spec = read("docs/SPEC.md");
    let blocks = spec.split("```json example").skip(1);
    let parse = |block: &str| {
        let json = block.split("```").next().unwrap();
        let example: serde_json::Value = serde_json::from_str(json).unwrap();
        let word = |key: &str| example[key].as_str().unwrap().to_owned();
        (word("name"), vec![word("clause")])
    };
    blocks.map(parse).collect()
}

/// The evidence for every clause, in the order of the specification.
pub(crate) fn all() -> Vec<Evidence> {
    let (examples, tests, oracle, fixtures) = (examples(), tests(), oracle(), fixtures());
    let fractions = fractions();
    let evidence = clauses().into_iter().map(|(number, title)| {
        let citing = |list: &[(String, Vec<String>)]| {
            let citing = list.iter().filter(|(_, clauses)| clauses.contains(&number));
            citing.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let checks = CHECKS.iter().filter(|check| check.clause == number);
        let caught = |id: &str| {
            MUTANTS
                .iter()
                .filter(|mutant| mutant.caught_by == id)
                .count()
        };
        Evidence {
            title,
            examples: citing(&examples),
            tests: citing(&tests),
            checks: checks
                .map(|check| (check.id(), caught(&check.id())))
                .collect(),
            oracle: citing(&oracle),
            fractions: fractions.contains(&number),
            fixtures: citing(&fixtures),
            number,
        }
    });
    evidence.collect()
}
