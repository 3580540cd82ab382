//! Findings, a card each.

use crate::report::{Report, words};
use crate::summary::Finding;
use maud::{Markup, html};

/// All findings kept, and how many there are.
pub(super) fn section(report: &Report) -> Markup {
    let summary = &report.summary;
    let hidden = summary
        .findings_total
        .saturating_sub(summary.findings.len() as u64);
    html! {
        @if !summary.findings.is_empty() {
            section aria-labelledby="findings" {
                h2 id="findings" { "Findings" }
                @for finding in &summary.findings { (card(report, finding)) }
                @if hidden > 0 {
                    p { (words::count(hidden, "more finding")) ", not kept." }
                }
            }
        }
    }
}

fn card(report: &Report, finding: &Finding) -> Markup {
    let known = finding.expected.is_some();
    html! {
        article class=(if known { "card known" } else { "card fail" }) {
            h3 {
                span.tag { (if known { "known" } else { "FAIL" }) }
                (words::plain(report.id(finding.check)))
                span.clause { "SPEC " (words::plain(report.clause(finding.check))) }
            }
            dl {
                @for (name, text) in words::fields(report, finding) {
                    dt { (name) }
                    @if matches!(name, "replay" | "case") {
                        dd { code { (text) } }
                    } @else {
                        dd { (text) }
                    }
                }
                @if finding.shrunk.is_some() {
                    dt { "found" }
                    dd { code { (words::plain(&finding.case)) } }
                }
            }
        }
    }
}
