//! `docs/AUDIT.md`: what stands behind every clause of the specification.
//!
//! Evidence is read from the sources: an example names its clause, and so do a check, a fixture
//! and the doc comment of a test or of a function of an oracle (`SPEC 5.1 to 5.4 and V.3`). After
//! a change, `HISA_BLESS=1 cargo test -p hisa-conformance --test audit` writes the page anew.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod citation;
mod evidence;
mod page;

use evidence::Evidence;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR"));
    conformance.parent().unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_says_what_the_sources_say() {
    let page = page::text(&evidence::all());
    if std::env::var_os("HISA_BLESS").is_some_and(|value| !value.is_empty()) {
        std::fs::write(root().join("docs/AUDIT.md"), page).unwrap();
        return;
    }
    let known = read("docs/AUDIT.md");
    let different = known
        .lines()
        .zip(page.lines())
        .find(|(old, new)| old != new);
    assert!(
        known == page,
        "docs/AUDIT.md is out of date, first at {different:?}; \
         HISA_BLESS=1 cargo test -p hisa-conformance --test audit writes it anew"
    );
}

#[test]
fn every_clause_has_something_that_runs() {
    let without: Vec<String> = evidence::all()
        .into_iter()
        .filter(|clause| !clause.runs())
        .map(|clause| clause.number)
        .collect();
    assert!(without.is_empty(), "clauses without evidence: {without:?}");
}

#[test]
fn every_clause_of_a_stage_has_been_thought_through_twice() {
    let stages = evidence::all().into_iter().filter(Evidence::has_values);
    let without: Vec<String> = stages
        .filter(|clause| clause.oracle.is_empty())
        .map(|clause| clause.number)
        .collect();
    assert!(without.is_empty(), "clauses no oracle cites: {without:?}");
}

#[test]
fn what_is_cited_is_there() {
    let spec = evidence::clauses();
    let known: BTreeSet<&str> = spec.iter().map(|(number, _)| number.as_str()).collect();
    let mut cited = 0;
    for (place, clauses) in evidence::citations() {
        for clause in clauses {
            assert!(known.contains(clause.as_str()), "{place} cites {clause}");
            cited += 1;
        }
    }
    assert!(cited > 150, "only {cited} citations were found");
}

/// SPEC 11.1.
#[test]
fn dialects_have_names_of_their_own_and_models_are_among_them() {
    let spec = read("docs/SPEC.md");
    let table = spec.split("| stage | name | departure |").nth(1).unwrap();
    let mut names = BTreeSet::new();
    let mut stage = "";
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if !cells[1].is_empty() {
            stage = cells[1];
        }
        for name in cells[2]
            .split(',')
            .map(|name| name.trim().trim_matches('`'))
        {
            assert!(names.insert((stage, name)), "{stage}: {name} stands twice");
        }
    }
    for class in hisa_ref::model::DotClass::ALL {
        let named = names.iter().any(|(_, name)| *name == class.name());
        // Left by a group of accumulating steps shorter than the row: a form of the class itself.
        let form = class.name().strip_suffix("-unchained");
        let form = form.is_some_and(|base| names.iter().any(|(_, name)| *name == base));
        assert!(named || form, "{} is not in SPEC 11.1", class.name());
    }
}
