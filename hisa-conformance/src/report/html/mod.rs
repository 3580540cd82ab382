//! One self-contained page: nothing is loaded, nothing needs a script.
//!
//! Charts and pictures are SVG made here and not by a plotting crate. Those write colours as
//! attributes, so a page could not follow the reader's dark or light scheme, and give a picture
//! neither a title nor a text alternative.

mod charts;
mod findings;
mod pictures;
mod tables;

use super::{Report, ReportError, sink, words};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::path::Path;

const STYLE: &str = include_str!("style.css");

/// The page.
#[must_use]
pub fn to_string(report: &Report) -> String {
    let title = format!("hisa: {}", words::plain(&report.run.backend));
    let run = report.summary.total_cases() > 0;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (header(report, run))
                main {
                    @if run { (tables::overview(report)) }
                    (findings::section(report))
                    (pictures::section(report))
                    (charts::section(report))
                    (tables::skips(report))
                    (tables::self_test(report))
                    @if run { (tables::checks(report)) }
                    (how_to_read())
                }
            }
        }
    };
    page.into_string()
}

/// Writes the page to `path`, complete or not at all; `-` is standard output.
///
/// # Errors
/// [`ReportError`] where it cannot be written.
pub fn write(report: &Report, path: &Path) -> Result<(), ReportError> {
    sink::write(path, &to_string(report))
}

/// The verdict, and what was run.
fn header(report: &Report, run: bool) -> Markup {
    let summary = &report.summary;
    let mut said = Vec::new();
    if run {
        let cases = words::count(summary.total_cases(), "case");
        said.push(format!("{cases}: {}", words::cases(report)));
    }
    let (all, known) = (summary.findings_total, summary.expected_total);
    if known > 0 {
        said.push(format!(
            "{}, {known} of them known",
            words::count(all, "finding")
        ));
    } else if run && all == 0 {
        said.push(words::count(all, "finding"));
    } // and else they stand below, among the reasons
    html! {
        header class=(if report.clean { "clean" } else { "unclean" }) {
            p.name { "Conformance of " b { (words::plain(&report.run.backend)) } }
            h1 { (if report.clean { "Clean" } else { "Not clean" }) }
            @for line in said { p { (line) } }
            @if !report.reasons.is_empty() {
                p { "What keeps it from being clean:" }
                ul { @for reason in &report.reasons { li { (words::plain(reason)) } } }
            }
            (facts(report))
        }
    }
}

fn facts(report: &Report) -> Markup {
    let run = &report.run;
    let elapsed = format!("{} s", words::seconds(run.elapsed));
    let parallel = words::parallel(run.jobs);
    let date = format!("{} UTC", run.date);
    let version = format!("hisa {}", report.version);
    let rows = [
        ("Judged by", Some(&run.basis)),
        ("Arithmetic", Some(&run.arithmetic)),
        ("Effort", Some(&run.effort)),
        ("Seed", Some(&run.seed)),
        ("Shard", run.shard.as_ref()),
        ("Time", Some(&elapsed)),
        ("In parallel", Some(&parallel)),
        ("Ended", Some(&date)),
        ("Tool", Some(&version)),
    ];
    html! {
        dl.facts {
            @for (name, value) in rows {
                @if let Some(value) = value {
                    div { dt { (name) } dd { (words::plain(value)) } }
                }
            }
        }
    }
}

fn how_to_read() -> Markup {
    html! {
        section aria-labelledby="how" {
            h2 id="how" { "How to read this page" }
            p {
                "Every value of the specification is a real-number result rounded once, so there "
                "is one right answer. A backend is held to it: bit for bit where its declared "
                "arithmetic is exact, and else within an error bound that follows from that "
                "arithmetic. No tolerance is tuned."
            }
            p {
                "Each stage is judged alone, on the true results of the stages before it, so that "
                "a fault shows in one row. The indexers in the last rows are judged end to end, "
                "where a fault of a stage shows again. Start with the first row that fails."
            }
            p {
                "A run is clean when it has no finding that is not known, no check that no case "
                "exercised, and came to its end. To see a finding again, paste its replay line "
                "into a shell: it builds the same bytes from the address, on any machine."
            }
        }
    }
}
