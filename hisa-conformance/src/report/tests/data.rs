//! JSON and JUnit XML.

use super::samples;
use crate::op::Op;
use crate::report::{Report, ReportError, json, junit};
use quick_xml::events::Event;
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn every_report_reads_back_bit_for_bit() {
    for (name, report) in samples::all() {
        let text = json::to_string(&report).unwrap();
        assert_eq!(json::read(&text).unwrap(), report, "{name}");
    }
}

#[test]
fn floats_that_json_lacks_survive() {
    let mut report = samples::bounded();
    report.run.elapsed = 0.1 + 0.2;
    let text = json::to_string(&report).unwrap();
    assert!(text.contains("\"share_max\": \"inf\""), "{text}");
    assert_eq!(json::read(&text).unwrap(), report);
    report.run.elapsed = f64::NAN;
    let back = json::read(&json::to_string(&report).unwrap()).unwrap();
    assert!(back.run.elapsed.is_nan());
}

#[test]
fn what_is_no_report_is_refused() {
    let mut value: serde_json::Value =
        serde_json::from_str(&json::to_string(&samples::clean()).unwrap()).unwrap();
    value["checks"].as_array_mut().unwrap().pop();
    let refused = json::read(&value.to_string()).unwrap_err();
    assert!(matches!(refused, ReportError::Checks { .. }), "{refused}");
    value["schema"] = 2.into();
    let refused = json::read(&value.to_string()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the report has schema 2; this program reads up to 1"
    );
    assert!(matches!(json::read("{}"), Err(ReportError::Json(_))));
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    json::write(&samples::clean(), &path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(json::read(&text).unwrap(), samples::clean());
    let refused = json::write(&samples::clean(), Path::new("/")).unwrap_err();
    assert_eq!(refused.to_string(), "/: not a regular file");
    let absent = folder.path().join("absent/report.xml");
    assert!(matches!(
        junit::write(&samples::clean(), &absent),
        Err(ReportError::File(_))
    ));
}

/// What became of each case of a document, by class and name.
fn outcomes(xml: &str) -> BTreeMap<String, String> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let (mut outcomes, mut case, mut depth) = (BTreeMap::new(), String::new(), 0);
    loop {
        let start = match reader.read_event().unwrap() {
            Event::Eof => break,
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            Event::Start(start) => {
                depth += 1;
                start
            }
            Event::Empty(start) => start,
            Event::Text(text) => {
                text.xml10_content().unwrap();
                continue;
            }
            _ => continue,
        };
        let of = |name: &str| {
            let found = start.try_get_attribute(name).unwrap();
            found.map(|found| String::from_utf8_lossy(&found.value).into_owned())
        };
        let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
        for attribute in start.attributes() {
            attribute.unwrap();
        }
        match &*name {
            "testcase" => {
                case = format!("{}.{}", of("classname").unwrap(), of("name").unwrap());
                outcomes.insert(case.clone(), "success".to_owned());
            }
            "failure" | "error" | "skipped" => {
                let message = of("message").unwrap();
                outcomes.insert(case.clone(), format!("{name}: {message}"));
            }
            _ => {}
        }
    }
    assert_eq!(depth, 0, "every element is closed");
    outcomes
}

#[test]
fn junit_has_a_case_per_check_with_its_outcome() {
    let report = samples::findings();
    let outcomes = outcomes(&junit::to_string(&report).unwrap());
    for info in &report.checks {
        assert!(outcomes.contains_key(&info.id), "{}", info.id);
    }
    assert_eq!(outcomes.len(), report.checks.len() + 1);
    for (case, outcome) in [
        ("run.clean", "error: not clean"),
        (
            "token_topk.selection",
            "failure: SPEC 7.2: 1913 cases failed",
        ),
        ("token_topk.order", "success"),
        ("token_scores.scores", "skipped: 1 case failed, all known"),
        ("append.values", "skipped: append is not offered"),
        ("hisa.nest", "error: not exercised"),
    ] {
        assert_eq!(outcomes[case], outcome, "{case}");
    }
    let xml = junit::to_string(&report).unwrap();
    assert!(xml.contains("cause   ties go to the higher slot"), "{xml}");
}

#[test]
fn an_unclean_run_is_never_green() {
    for (name, report) in samples::all() {
        let outcomes = outcomes(&junit::to_string(&report).unwrap());
        let red = |outcome: &String| outcome.starts_with("failure") || outcome.starts_with("error");
        assert_eq!(outcomes.values().any(red), !report.clean, "{name}");
    }
    let outcomes = outcomes(&junit::to_string(&samples::self_test()).unwrap());
    let missed = outcomes
        .iter()
        .find(|(_, outcome)| outcome.contains("not caught"));
    assert!(missed.is_some(), "{outcomes:?}");
}

#[test]
fn each_thing_that_makes_a_run_unclean_does() {
    let clean = samples::clean();
    assert!(clean.clean);
    let rebuilt = |change: &dyn Fn(&mut Report)| {
        let mut report = clean.clone();
        change(&mut report);
        Report::new(
            report.run,
            &Op::ALL,
            report.summary,
            Vec::new(),
            report.self_test,
        )
    };
    let unclean = [
        rebuilt(&|report| report.summary.findings_total = 1),
        rebuilt(&|report| report.summary.tallies[3].passed = 0),
        rebuilt(&|report| report.run.stopped = Some("interrupted".to_owned())),
        rebuilt(&|report| report.summary.cases.clear()),
        rebuilt(&|report| report.self_test = samples::self_test().self_test),
    ];
    for report in unclean {
        assert!(!report.clean);
        assert_eq!(report.reasons.is_empty(), report.clean);
    }
    let known = rebuilt(&|report| {
        (report.summary.findings_total, report.summary.expected_total) = (3, 3);
    });
    assert!(known.clean, "{:?}", known.reasons);
}
