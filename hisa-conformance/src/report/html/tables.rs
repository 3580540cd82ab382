//! The tables of the page.

use crate::check::Group;
use crate::report::matrix::{State, matrix, state};
use crate::report::{Report, words};
use maud::{Markup, html};

/// The word of a state in class names.
const fn class(state: State) -> &'static str {
    match state {
        State::None => "none",
        State::Ok | State::Partly => "ok",
        State::Known(_) => "known",
        State::Skip => "skip",
        State::Never => "never",
        State::Fail(_) => "fail",
    }
}

/// Jobs by kinds of checks, with a legend of the words that occur.
pub(super) fn overview(report: &Report) -> Markup {
    let rows = matrix(report);
    let mut seen: Vec<State> = Vec::new();
    for state in rows.iter().flat_map(|(_, states)| states) {
        if !seen.iter().any(|known| known.word() == state.word()) {
            seen.push(*state);
        }
    }
    html! {
        section aria-labelledby="matrix" {
            h2 id="matrix" { "Jobs and checks" }
            div.scroll tabindex="0" role="region" aria-labelledby="matrix" {
                table.matrix {
                    thead { tr {
                        th scope="col" { "job" }
                        @for group in Group::ALL { th scope="col" { (group.name()) } }
                    } }
                    tbody {
                        @for (job, states) in &rows {
                            tr {
                                th scope="row" { (job) }
                                @for state in states {
                                    td class=(class(*state)) { (state.text()) }
                                }
                            }
                        }
                    }
                }
            }
            dl.legend {
                @for state in seen {
                    div {
                        dt class=(class(state)) { (state.word()) }
                        dd { (state.meaning()) }
                    }
                }
            }
        }
    }
}

/// What the backend does not take.
pub(super) fn skips(report: &Report) -> Markup {
    let skips = &report.summary.skips;
    html! {
        @if !skips.is_empty() {
            section aria-labelledby="skips" {
                h2 id="skips" { "Skipped" }
                p { "Checks of cases that the backend says it does not take." }
                div.scroll tabindex="0" role="region" aria-labelledby="skips" {
                    table {
                        thead { tr {
                            th.number scope="col" { "checks" }
                            th scope="col" { "job and reason" }
                        } }
                        tbody {
                            @for (why, count) in skips {
                                tr { td.number { (count) } td { (words::plain(why)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Faults made on purpose, and what caught them.
pub(super) fn self_test(report: &Report) -> Markup {
    let Some(self_test) = &report.self_test else {
        return html! {};
    };
    // What went wrong comes first.
    let (meant, other): (Vec<_>, Vec<_>) = self_test.rows.iter().partition(|row| row.as_meant());
    html! {
        section aria-labelledby="self-test" {
            h2 id="self-test" { "Self-test" }
            p {
                "Backends broken on purpose, one fault each. Each has to be caught by the check "
                "meant for it."
            }
            p { (self_test.totals()) "; " (self_test.controls()) "." }
            div.scroll tabindex="0" role="region" aria-labelledby="self-test" {
                table.faults {
                    thead { tr {
                        th scope="col" { "fault" }
                        th scope="col" { "kind" }
                        th scope="col" { "caught by" }
                        th.number scope="col" { "cases" }
                        th scope="col" { "smallest case" }
                    } }
                    tbody {
                        @for row in other.into_iter().chain(meant) { (fault(row)) }
                    }
                }
            }
        }
    }
}

fn fault(row: &crate::report::SelfTestRow) -> Markup {
    html! {
        tr {
            th scope="row" {
                (words::plain(&row.fault))
                span.about { (words::plain(&row.about)) }
            }
            td { "K" (row.kind) }
            @match &row.caught_by {
                Some(check) if row.as_meant() => td.ok { (words::plain(check)) },
                Some(check) => td.never {
                    (words::plain(check)) span.about { "meant: " (words::plain(&row.meant)) }
                },
                None => td.fail {
                    "NOT CAUGHT" span.about { "meant: " (words::plain(&row.meant)) }
                },
            }
            td.number { (row.cases) }
            td {
                @if let Some(sizes) = row.shrunk_sizes { (words::sizes(sizes)) }
                @if let Some(case) = &row.shrunk_case { code { (words::plain(case)) } }
            }
        }
    }
}

/// Every check with its counts.
pub(super) fn checks(report: &Report) -> Markup {
    html! {
        section aria-labelledby="checks" {
            h2 id="checks" { "Every check" }
            p {
                "Numbers of cases. One that says nothing about a check does not apply to it."
            }
            div.scroll tabindex="0" role="region" aria-labelledby="checks" {
                table.counts {
                    thead { tr {
                        th scope="col" { "check" }
                        th scope="col" { "SPEC" }
                        @for head in ["passed", "failed", "skipped", "does not apply"] {
                            th.number scope="col" { (head) }
                        }
                    } }
                    tbody {
                        @for (check, tally) in report.summary.tallies.iter().enumerate() {
                            tr class=(class(state(report, check))) {
                                th scope="row" { (words::plain(report.id(check))) }
                                td { (words::plain(report.clause(check))) }
                                td.number { (tally.passed) }
                                td.number { (tally.failed) }
                                td.number { (tally.skipped) }
                                td.number { (tally.not_applicable) }
                            }
                        }
                    }
                }
            }
        }
    }
}
