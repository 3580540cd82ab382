//! Phrases that more than one kind of report uses.

use super::Report;
use crate::measure::{Histogram, SHARES};
use crate::summary::{Finding, Shrunk};

/// `1 finding`, `2 findings`.
#[must_use]
pub fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// `2 cases at a time`.
#[must_use]
pub fn parallel(jobs: usize) -> String {
    format!("{} at a time", count(jobs as u64, "case"))
}

/// Seconds, with a decimal where they are few.
#[must_use]
pub fn seconds(elapsed: f64) -> String {
    if elapsed < 100.0 {
        format!("{elapsed:.1}")
    } else {
        format!("{elapsed:.0}")
    }
}

/// Names of backends and messages of ports may hold line breaks, terminal controls and marks
/// that turn the direction of text or are no characters; reports may not.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        let hidden = matches!(
            character,
            '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FFFE}' | '\u{FFFF}'
        );
        if character.is_control() || hidden {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// An argument as a POSIX shell has to be given it.
#[must_use]
pub fn shell(argument: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(safe) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// `M=1 N=4 H=1 D=8`.
#[must_use]
pub fn sizes([m, n, h, d]: [usize; 4]) -> String {
    format!("M={m} N={n} H={h} D={d}")
}

/// Cases by generator: `9 edge, 3 ragged`.
#[must_use]
pub fn cases(report: &Report) -> String {
    let parts = report.summary.cases.iter();
    let parts: Vec<String> = parts
        .map(|(name, n)| format!("{n} {}", plain(name)))
        .collect();
    parts.join(", ")
}

/// The fields of a finding as word and text, in the order of reading.
#[must_use]
pub fn fields(report: &Report, finding: &Finding) -> Vec<(&'static str, String)> {
    let shrunk = finding.shrunk.as_ref();
    let detail = shrunk.map_or(&finding.detail, |shrunk| &shrunk.detail);
    let mut fields = vec![
        ("at", plain(&detail.at)),
        ("want", plain(&detail.expected)),
        ("got", plain(&detail.got)),
    ];
    let optional = [
        ("bound", &detail.bound),
        ("cause", &detail.cause),
        ("known", &finding.expected),
    ];
    for (word, text) in optional {
        fields.extend(text.as_ref().map(|text| (word, plain(text))));
    }
    let said = detail.stderr.iter();
    fields.extend(said.map(|line| ("stderr", plain(line))));
    if !finding.flags.is_empty() {
        fields.push(("flags", plain(&finding.flags.join(" "))));
    }
    if detail.more > 0 {
        fields.push(("more", format!("{} more of this kind", detail.more)));
    }
    fields.push(("case", case(finding, shrunk)));
    let saved = finding.saved.as_ref();
    fields.extend(saved.map(|path| ("saved", plain(path))));
    fields.push(("replay", plain(&report.replay(finding))));
    fields
}

/// The case and where it came from.
fn case(finding: &Finding, shrunk: Option<&Shrunk>) -> String {
    let source = format!("{} {}", finding.source.generator, finding.source.index);
    plain(&match shrunk {
        Some(shrunk) => format!(
            "{} ({}, shrunk from {source})",
            shrunk.case,
            sizes(shrunk.sizes)
        ),
        None => format!("{} ({source})", finding.case),
    })
}

/// The distances that entry `bucket` of [`Histogram::ulps`] counts.
#[must_use]
pub fn ulps_label(bucket: usize) -> String {
    match bucket {
        0 => "0".to_owned(),
        1 => "1".to_owned(),
        2..=13 => format!("{} to {}", 1u64 << (bucket - 1), (1u64 << bucket) - 1),
        _ => format!("2^{} and up", bucket - 1),
    }
}

/// The shares of the bound that entry `bucket` of [`Histogram::shares`] counts.
#[must_use]
pub fn share_label(bucket: usize) -> String {
    if bucket < SHARES {
        format!("{} to {} %", bucket * 10, bucket * 10 + 10)
    } else {
        "100 % and up".to_owned()
    }
}

/// A share of a bound in percent, rounded up, so that only what is inside looks inside.
#[must_use]
pub fn share(share: f64) -> String {
    if !share.is_finite() {
        "beyond any bound".to_owned()
    } else if share < 1e4 {
        format!("{:.1} % of the bound", (share * 1000.0).ceil() / 10.0)
    } else {
        format!("{share:.1e} times the bound")
    }
}

/// Whether a histogram shows any distance, or a bound to hold it against.
#[must_use]
pub const fn is_exact(histogram: &Histogram) -> bool {
    histogram.ulps_max == 0 && histogram.shares.is_empty()
}

/// A histogram in a line.
#[must_use]
pub fn histogram(histogram: &Histogram) -> String {
    let equal = histogram.ulps.first().copied().unwrap_or(0);
    let farthest = if histogram.ulps_max == u64::from(u32::MAX) {
        "NaN on one side".to_owned() // see `measure::ulps`
    } else {
        format!("at most {}", count(histogram.ulps_max, "ulp"))
    };
    let mut line = format!("{} values, {equal} equal, {farthest}", histogram.values);
    if !histogram.shares.is_empty() {
        line.push_str(", ");
        line.push_str(&share(histogram.share_max));
    }
    line
}
