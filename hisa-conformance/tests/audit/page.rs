//! The page.

use super::evidence::Evidence;
use std::fmt::Write;

const HEAD: &str = "# Audit

What stands behind every clause of [SPEC.md](SPEC.md). Written by a test from the sources, never by
hand; CI fails where the page is out of date, where a clause has nothing that runs, and where a
clause about values has no second implementation.

| evidence | what it is |
|---|---|
| examples | worked examples of the specification, each run against the reference |
| tests | tests whose comment cites the clause |
| checks | what holds every backend to it in `hisa run`; in brackets the faults it has to catch |
| oracle | functions of the oracle in big integers, which judges the reference in every run |
| fractions | the oracle in Python, which confirms fixtures and dumps |
| fixtures | golden data that turn on it |
";

/// All of it.
pub(crate) fn text(clauses: &[Evidence]) -> String {
    let mut page = String::from(HEAD);
    let with = |has: fn(&Evidence) -> bool| clauses.iter().filter(|clause| has(clause)).count();
    let _ = write!(
        page,
        "\n{} clauses: {} with examples, {} with tests, {} with checks, {} in the oracle, \
         {} in fractions, {} with fixtures.\n",
        clauses.len(),
        with(|clause| !clause.examples.is_empty()),
        with(|clause| !clause.tests.is_empty()),
        with(|clause| !clause.checks.is_empty()),
        with(|clause| !clause.oracle.is_empty()),
        with(|clause| clause.fractions),
        with(|clause| !clause.fixtures.is_empty()),
    );
    for clause in clauses {
        let _ = write!(page, "\n**{}** *{}*\n\n", clause.number, clause.title);
        list(&mut page, "examples", &clause.examples);
        list(&mut page, "tests", &clause.tests);
        let checks = clause.checks.iter().map(|(id, faults)| match faults {
            0 => id.clone(),
            faults => format!("{id} ({faults})"),
        });
        list(&mut page, "checks", &checks.collect::<Vec<_>>());
        list(&mut page, "oracle", &clause.oracle);
        if clause.fractions {
            page.push_str("- fractions: yes\n");
        }
        list(&mut page, "fixtures", &clause.fixtures);
    }
    page
}

fn list(page: &mut String, what: &str, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let _ = writeln!(page, "- {what}: {}", names.join(", "));
}
