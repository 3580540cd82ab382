//! Runs every worked example of docs/SPEC.md through the definition and the fast path of its
//! stage and compares bit for bit.
//!
//! No example can silently not run: a block that does not parse, a key or parameter that its stage
//! does not know, a missing or surplus output, and a stage without an example are all failures.

mod calls;
mod example;
mod indexers;
mod tensor;

use calls::{CALLS, Call, Outputs, Path};
use example::Example;
use hisa_ref::Stage;
use std::collections::BTreeSet;

const SPEC: &str = include_str!("../../../docs/SPEC.md");
const FENCE: &str = "```json example\n";
const EXAMPLES_MIN: usize = 70;

#[test]
fn every_example_holds_bit_for_bit() {
    let examples = parse_all(SPEC);
    let failures: Vec<String> = examples.iter().flat_map(failures_of).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_stage_and_pipeline_has_examples() {
    let examples = parse_all(SPEC);
    assert!(
        examples.len() >= EXAMPLES_MIN,
        "only {} examples were found",
        examples.len()
    );
    let shown: BTreeSet<&str> = examples.iter().map(Example::stage).collect();
    for call in CALLS {
        assert!(shown.contains(call.stage), "no example of {}", call.stage);
    }
    for stage in Stage::ALL {
        assert!(shown.contains(stage.name()), "no example of {stage}");
        let heading = format!("\n## {} {stage}\n", stage.section());
        assert!(SPEC.contains(&heading), "no heading for {stage}");
    }
}

#[test]
fn names_are_unique_and_clauses_exist() {
    let mut names = BTreeSet::new();
    for example in parse_all(SPEC) {
        assert!(
            names.insert(example.name().to_owned()),
            "{} occurs twice",
            example.name()
        );
        let clause = format!("\n**{}** ", example.clause());
        assert!(
            SPEC.contains(&clause),
            "{}: no clause {}",
            example.name(),
            example.clause()
        );
    }
}

#[test]
fn clauses_are_numbered_once_and_without_gaps() {
    let mut previous: Option<(String, usize)> = None;
    for line in SPEC.lines() {
        let Some((number, _)) = line
            .strip_prefix("**")
            .and_then(|rest| rest.split_once("** "))
        else {
            continue;
        };
        let Some((section, clause)) = number.split_once('.') else {
            continue;
        };
        let Ok(clause) = clause.parse::<usize>() else {
            continue;
        };
        match &previous {
            Some((same, before)) if same == section => {
                assert_eq!(
                    clause,
                    before + 1,
                    "clause {number} follows {same}.{before}"
                );
            }
            _ => assert!(clause <= 1, "section {section} starts with clause {number}"),
        }
        previous = Some((section.to_owned(), clause));
    }
    assert!(previous.is_some(), "no clause was found");
}

/// All example blocks, in order.
fn parse_all(spec: &str) -> Vec<Example> {
    let opened = spec.matches("```json").count();
    let blocks: Vec<&str> = spec.split(FENCE).skip(1).collect();
    assert_eq!(
        opened,
        blocks.len(),
        "a json block is not marked as an example"
    );
    blocks
        .into_iter()
        .map(|block| {
            let Some((text, _)) = block.split_once("\n```") else {
                panic!(
                    "an example block is not closed: {}",
                    &block[..block.len().min(80)]
                );
            };
            Example::parse(text)
        })
        .collect()
}

/// What is wrong with one example, a line each.
fn failures_of(example: &Example) -> Vec<String> {
    let call = Call::named(example);
    [Path::Scalar, Path::Fast]
        .into_iter()
        .flat_map(|path| {
            match (example.error(), (call.run)(example, path)) {
                (Some(expected), Err(error)) if error.to_string().contains(expected) => vec![],
                (Some(expected), Err(error)) => {
                    vec![format!("refused with {error:?}, not {expected:?}")]
                }
                (Some(expected), Ok(_)) => {
                    vec![format!("accepted; it must be refused: {expected}")]
                }
                (None, Err(error)) => vec![format!("refused: {error}")],
                (None, Ok(outputs)) => differences(example, call, &outputs),
            }
            .into_iter()
            .map(move |failure| format!("{} ({path:?}): {failure}", example.name()))
        })
        .collect()
}

fn differences(example: &Example, call: &Call, outputs: &Outputs) -> Vec<String> {
    let names = example.expected_names();
    let missing = call.outputs.iter().filter(|name| !names.contains(*name));
    let mut found: Vec<String> = missing
        .map(|name| format!("expects nothing of {name}"))
        .collect();
    for name in names {
        match outputs.iter().find(|(output, _)| *output == name) {
            None => found.push(format!("has no output {name}")),
            Some((_, got)) => {
                let expected = example.expected(name, got.kind());
                if expected != *got {
                    found.push(format!("{name} is {got}, expected {expected}"));
                }
            }
        }
    }
    found
}
