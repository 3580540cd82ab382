//! How far off scores are: bar charts.

use crate::measure::{Histogram, SHARES};
use crate::report::{Report, words};
use maud::{Markup, html};

/// One bar: label, count, and whether it is beyond the bound.
struct Bar {
    label: String,
    count: u64,
    beyond: bool,
}

/// Charts of every tensor that is off anywhere; a sentence where none is.
pub(super) fn section(report: &Report) -> Markup {
    let all = &report.summary.measures.0;
    let measured: Vec<_> = all.iter().filter(|(_, h)| h.values > 0).collect();
    let off: Vec<_> = measured
        .iter()
        .filter(|(_, h)| !words::is_exact(h))
        .collect();
    let equal: Vec<_> = measured
        .iter()
        .filter(|(_, h)| words::is_exact(h))
        .collect();
    html! {
        @if !measured.is_empty() {
            section aria-labelledby="scores" {
                h2 id="scores" { "How far off scores are" }
                @if !off.is_empty() {
                    p {
                        "Values by their distance from the true one, in representable f32 "
                        "(ulps), and by their error as a share of the bound. Bars grow with the "
                        "logarithm of the number of values, which stands behind each. A NaN on one "
                        "side only counts as 2^32 - 1 ulps."
                    }
                }
                @for (name, histogram) in off { (tensor(name, histogram)) }
                @if !equal.is_empty() {
                    p {
                        "Equal to the true value everywhere: "
                        @for (at, (name, histogram)) in equal.iter().enumerate() {
                            @if at > 0 { ", " }
                            (words::plain(name)) " (" (histogram.values) " values)"
                        }
                        "."
                    }
                }
            }
        }
    }
}

fn tensor(name: &str, histogram: &Histogram) -> Markup {
    let name = words::plain(name);
    html! {
        h3 { (name) }
        p { (words::histogram(histogram)) "." }
        div.charts {
            (chart(&format!("{name}: distance in ulps"), "ulps off", &ulps(histogram)))
            @if !histogram.shares.is_empty() {
                (chart(
                    &format!("{name}: error as a share of the bound"),
                    "share of bound",
                    &shares(histogram),
                ))
            }
        }
    }
}

/// The distances that occur, with 0 in any case.
fn ulps(histogram: &Histogram) -> Vec<Bar> {
    let counts = histogram.ulps.iter().enumerate();
    let occurring = counts.filter(|&(bucket, &count)| count > 0 || bucket == 0);
    occurring
        .map(|(bucket, &count)| Bar {
            label: words::ulps_label(bucket),
            count,
            beyond: false,
        })
        .collect()
}

/// Every tenth of the bound up to the last that occurs.
fn shares(histogram: &Histogram) -> Vec<Bar> {
    let counts = histogram.shares.iter().enumerate();
    counts
        .map(|(bucket, &count)| Bar {
            label: words::share_label(bucket),
            count,
            beyond: bucket >= SHARES,
        })
        .collect()
}

/// Columns of the picture, in its own units: labels, bars, counts.
const LABELS: f64 = 104.0;
const BARS: f64 = 230.0;
const COUNTS: f64 = 96.0;
const ROW: usize = 20;

fn chart(title: &str, axis: &str, bars: &[Bar]) -> Markup {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    // A count of 1 gets a bar too.
    let length = |count: u64| match count {
        0 => 0.0,
        _ => BARS * (1.0 + count as f64).ln() / (1.0 + most as f64).ln(),
    };
    let (width, height) = (LABELS + BARS + COUNTS, ROW * (bars.len() + 1) + 4);
    let parts = bars
        .iter()
        .map(|bar| format!("{}: {}", bar.label, bar.count));
    let told = format!("{title}. {}.", parts.collect::<Vec<_>>().join("; "));
    html! {
        figure.chart {
            svg role="img" aria-label=(told) viewBox=(format!("0 0 {width} {height}"))
                width=(width) height=(height) {
                text.axis x=(LABELS - 8.0) y="13" text-anchor="end" { (axis) }
                text.axis x=(LABELS) y="13" { "values, logarithmic" }
                @for (at, bar) in bars.iter().enumerate() {
                    @let top = ROW * (at + 1);
                    @let end = LABELS + length(bar.count);
                    text x=(LABELS - 8.0) y=(top + 14) text-anchor="end" { (bar.label) }
                    rect class=(if bar.beyond { "bar beyond" } else { "bar" })
                        x=(LABELS) y=(top + 3) height=(ROW - 6)
                        width=(format!("{:.1}", length(bar.count))) {}
                    text.count x=(format!("{:.1}", end + 6.0)) y=(top + 14) { (bar.count) }
                }
            }
        }
    }
}
