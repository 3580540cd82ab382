//! The HTML page.

use super::samples::{self, HOSTILE};
use crate::report::{Report, html, words};
use quick_xml::events::Event;
use std::collections::BTreeSet;

/// Elements HTML leaves open.
const VOID: [&str; 2] = ["meta", "br"];

/// Text and attribute values of a page; panics where an element is not closed in turn.
fn parsed(page: &str) -> (Vec<String>, Vec<(String, String)>) {
    let body = page.strip_prefix("<!DOCTYPE html>").unwrap();
    let (before, rest) = body.split_once("<style>").unwrap();
    let (style, after) = rest.split_once("</style>").unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"));
    let document = format!("{before}{after}");
    let mut reader = quick_xml::Reader::from_str(&document);
    reader.config_mut().check_end_names = false;
    let (mut open, mut texts, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => break,
            Event::Start(start) => {
                let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
                for attribute in start.attributes() {
                    let attribute = attribute.unwrap();
                    let key = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
                    let value = String::from_utf8_lossy(&attribute.value).into_owned();
                    attributes.push((format!("{name} {key}"), value));
                }
                if !VOID.contains(&&*name) {
                    open.push(name);
                }
            }
            Event::End(end) => {
                let name = String::from_utf8_lossy(end.name().as_ref()).into_owned();
                assert_eq!(open.pop(), Some(name), "{open:?}");
            }
            Event::Text(text) => texts.push(text.xml10_content().unwrap().into_owned()),
            Event::GeneralRef(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
    (texts, attributes)
}

#[test]
fn pages_are_well_formed_and_load_nothing() {
    for (name, report) in samples::all() {
        let page = html::to_string(&report);
        let (_, attributes) = parsed(&page);
        for (key, value) in &attributes {
            let loads = ["src", "href", "action", "srcset", "style", "onclick"];
            let loads = loads.iter().any(|word| key.ends_with(&format!(" {word}")));
            assert!(!loads, "{name}: {key}={value}");
        }
        let ids: Vec<_> = attributes
            .iter()
            .filter(|(key, _)| key.ends_with(" id"))
            .collect();
        let distinct: BTreeSet<_> = ids.iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), distinct.len(), "{name}: {ids:?}");
        let labels = attributes
            .iter()
            .filter(|(key, _)| key.ends_with(" aria-labelledby"));
        for (_, label) in labels {
            assert!(
                distinct.contains(label),
                "{name}: nothing is called {label}"
            );
        }
    }
}

#[test]
fn pictures_and_tables_can_be_read_aloud() {
    for (name, report) in samples::all() {
        let page = html::to_string(&report);
        for svg in page.split("<svg ").skip(1) {
            let head = svg.split('>').next().unwrap();
            let told = head.contains("role=\"img\" aria-label=\"");
            assert!(told || head.contains("aria-hidden"), "{name}: {head}");
        }
        for head in page
            .split("<th")
            .skip(1)
            .filter(|rest| !rest.starts_with("ead"))
        {
            let head = head.split('>').next().unwrap();
            assert!(head.contains("scope="), "{name}: <th{head}>");
        }
    }
}

#[test]
fn nothing_from_outside_becomes_markup() {
    let page = html::to_string(&samples::hostile());
    parsed(&page);
    assert!(!page.contains("<script"), "a script got in");
    assert!(!page.contains(['\u{1b}', '\u{202e}', '\u{fffe}']));
    let escaped = "&lt;script&gt;alert('x')&lt;/script&gt; &amp; &quot;]]&gt;\\u{1b}[31m\\n\
                   \\u{202e}\\u{fffe}";
    assert!(
        page.matches(escaped).count() > 20,
        "{}",
        words::plain(HOSTILE)
    );
}

/// All whole numbers in the cells of a page's tables.
fn numbers(page: &str) -> BTreeSet<u64> {
    let cells = page.split("<td").skip(1);
    let cells = cells.map(|cell| cell.split("</td>").next().unwrap());
    let texts = cells.map(|cell| cell.split_once('>').unwrap().1.to_owned());
    let mut numbers = BTreeSet::new();
    for text in texts.filter(|text| !text.contains('.')) {
        let digits = text.split(|c: char| !c.is_ascii_digit());
        numbers.extend(digits.filter_map(|digits| digits.parse::<u64>().ok()));
    }
    numbers
}

/// Every number a summary holds, and sums of failures by job and kind.
fn counted(report: &Report) -> BTreeSet<u64> {
    let summary = &report.summary;
    let mut counted: BTreeSet<u64> = summary.skips.values().copied().collect();
    for tally in &summary.tallies {
        counted.extend([
            tally.passed,
            tally.failed,
            tally.not_applicable,
            tally.skipped,
        ]);
    }
    counted
}

#[test]
fn tables_show_the_numbers_of_the_summary_and_no_others() {
    for report in [samples::clean(), samples::findings(), samples::bounded()] {
        assert_eq!(numbers(&html::to_string(&report)), counted(&report));
    }
}

#[test]
fn charts_show_every_count_of_the_histograms() {
    let report = samples::bounded();
    let (texts, _) = parsed(&html::to_string(&report));
    for histogram in report.summary.measures.0.values() {
        for count in histogram.ulps.iter().chain(&histogram.shares) {
            let count = count.to_string();
            assert!(texts.contains(&count), "{count}");
        }
    }
    assert!(texts.iter().any(|text| text == "2^31 and up"));
}

#[test]
fn what_is_wrong_is_on_the_page() {
    let page = html::to_string(&samples::findings());
    for text in [
        "<h1>Not clean</h1>",
        "1913 findings",
        "1 check never exercised: hisa.nest",
        "stopped early: interrupted",
        "<td class=\"fail\">FAIL 1913</td>",
        "<td class=\"known\">known 1</td>",
        "<td class=\"never\">never</td>",
        "<td class=\"skip\">skip</td>",
        "ties go to the higher slot",
        "0x1p-20, 3.1 times that far off",
        "weights are cut to bf16 (issue 12)",
        "append: append is not offered",
        "hisa replay --backend 'my port'\\''s kernel' dump/in.safetensors",
        "1912 more findings, not kept",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(html::to_string(&samples::clean()).contains("<h1>Clean</h1>"));
    assert!(html::to_string(&samples::self_test()).contains("NOT CAUGHT"));
}

#[test]
fn damaged_pictures_do_no_harm() {
    use crate::report::portrait::Picture;
    let mut report = samples::faulty();
    for picture in &mut report.portrait.as_mut().unwrap().pictures {
        match picture {
            Picture::Mask { expected, got, .. } => {
                expected.clear();
                got[0] = "?\u{1F600}<".to_owned();
            }
            Picture::Selection { cells, frame, .. } => {
                cells.truncate(1);
                frame.rows = 0;
            }
        }
    }
    parsed(&html::to_string(&report));
}
