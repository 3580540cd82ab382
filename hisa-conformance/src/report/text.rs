//! The report for a terminal: at most 100 columns, but for addresses and what a backend says.

use super::matrix::{State, matrix, state};
use super::{Report, SelfTest, SelfTestRow, words};
use crate::check::Group;
use crate::measure::Histogram;
use crate::summary::Finding;
use anstyle::{AnsiColor, Style};
use std::io::IsTerminal;

/// How the text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Whether verdicts are coloured.
    pub colour: bool,
    /// Findings shown in full; all are counted.
    pub findings_max: usize,
    /// Whether every fault of the self-test has its line, or only those that went wrong.
    pub all_faults: bool,
}

impl TextOptions {
    /// Colour where standard output is a terminal and `NO_COLOR` is unset or empty.
    #[must_use]
    pub fn for_stdout(findings_max: usize) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colour: std::io::stdout().is_terminal() && !unwanted,
            findings_max,
            all_faults: false,
        }
    }

    pub(super) fn paint(self, state: State, text: &str) -> String {
        let style = match state {
            State::Fail(_) => AnsiColor::Red.on_default().bold(),
            State::Never | State::Known(_) => AnsiColor::Yellow.on_default(),
            State::Ok | State::Partly => AnsiColor::Green.on_default(),
            State::None | State::Skip => Style::new().dimmed(),
        };
        if self.colour {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Columns of a line.
const WIDTH: usize = 100;

/// The whole report: what was run, findings, matrix, scores, skips, self-test, and last the
/// verdict.
#[must_use]
pub fn render(report: &Report, options: &TextOptions) -> String {
    let mut parts = vec![head(report)];
    let summary = &report.summary;
    let shown = summary.findings.iter().take(options.findings_max);
    parts.extend(shown.map(|one| finding(report, one, options)));
    let shown = summary.findings.len().min(options.findings_max) as u64;
    let hidden = summary.findings_total.saturating_sub(shown);
    if hidden > 0 {
        parts.push(format!(
            "{} not shown",
            words::count(hidden, "more finding")
        ));
    }
    if summary.total_cases() > 0 {
        parts.push(table(report, options));
        parts.push(format!("cases         {}", words::cases(report)));
        parts.extend(departures(report, options));
        parts.extend(scores(report));
        parts.extend(skips(report));
    }
    if let Some(self_test) = &report.self_test {
        parts.push(self_tests(self_test, options));
    }
    parts.push(verdict(report, options));
    parts.join("\n\n") + "\n"
}

fn head(report: &Report) -> String {
    let run = &report.run;
    let mut first = format!(
        "hisa {}: {} against {}, arithmetic {}",
        report.version, run.backend, run.basis, run.arithmetic
    );
    if let Some(shard) = &run.shard {
        first.push_str(&format!(", shard {shard}"));
    }
    let second = format!(
        "seed {}, effort {}, {}, {} UTC",
        run.seed,
        run.effort,
        words::parallel(run.jobs),
        run.date
    );
    format!("{}\n{}", words::plain(&first), words::plain(&second))
}

/// One finding, a line per field.
#[must_use]
pub fn finding(report: &Report, finding: &Finding, options: &TextOptions) -> String {
    let (word, state) = match finding.expected {
        None => ("FAIL", State::Fail(1)),
        Some(_) => ("KNOWN", State::Known(1)),
    };
    let mut out = format!(
        "{} {}  SPEC {}",
        options.paint(state, word),
        report.id(finding.check),
        report.clause(finding.check)
    );
    for (name, text) in words::fields(report, finding) {
        out.push_str(&format!("\n  {name:<7} {text}"));
    }
    out
}

/// Jobs by kinds of checks.
#[must_use]
pub fn table(report: &Report, options: &TextOptions) -> String {
    let rows = matrix(report);
    let text = |state: &State| state.text();
    let word = |state: &State| state.word().to_owned();
    let shown = laid_out(&rows, options, text);
    if shown.iter().all(|(width, _)| *width <= WIDTH) {
        return lines(shown);
    }
    // Too many digits for the terminal; the list of failing checks has them.
    lines(laid_out(&rows, options, word))
}

fn lines(shown: Vec<(usize, String)>) -> String {
    let lines: Vec<String> = shown.into_iter().map(|(_, line)| line).collect();
    lines.join("\n")
}

type Rows = [(&'static str, [State; Group::ALL.len()])];

/// The lines of the matrix, each with its width without colours.
fn laid_out(
    rows: &Rows,
    options: &TextOptions,
    text: impl Fn(&State) -> String,
) -> Vec<(usize, String)> {
    let names = Group::ALL.map(Group::name);
    let widths = std::array::from_fn::<usize, { Group::ALL.len() }, _>(|column| {
        let cells = rows.iter().map(|(_, states)| text(&states[column]).len());
        cells.max().unwrap_or(0).max(names[column].len())
    });
    let mut head = format!("{:<12}", "");
    for (name, width) in names.iter().zip(widths) {
        head.push_str(&format!("  {name:<width$}"));
    }
    let full = 12 + widths.iter().map(|width| width + 2).sum::<usize>();
    let mut lines = vec![(full, head.trim_end().to_owned())];
    for (name, states) in rows {
        let mut line = format!("{name:<12}");
        for (at, (state, width)) in states.iter().zip(widths).enumerate() {
            let word = text(state);
            let last = at + 1 == states.len();
            let gap = if last { 0 } else { width - word.len() };
            let painted = options.paint(*state, &word);
            line.push_str(&format!("  {painted}{:gap$}", ""));
        }
        lines.push((full, line));
    }
    lines
}

/// The checks that do not just pass, each with its counts.
fn departures(report: &Report, options: &TextOptions) -> Option<String> {
    let mut lines = Vec::new();
    for (check, tally) in report.summary.tallies.iter().enumerate() {
        let state = state(report, check);
        let (id, clause) = (report.id(check), report.clause(check));
        let rest = match state {
            State::Fail(_) | State::Known(_) => {
                let (failed, judged) = (tally.failed, tally.failed + tally.passed);
                let known = match tally.expected {
                    0 => String::new(),
                    known => format!(", {known} of them known"),
                };
                format!("{failed} of {judged} cases failed{known}")
            }
            State::Never => "no case exercised it".to_owned(),
            _ => continue,
        };
        let word = options.paint(state, &format!("{:<5}", state.word()));
        lines.push(format!("{word} {id:<24} SPEC {clause:<5} {rest}"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// How far off scores are, one line per tensor; one line for all where none is.
fn scores(report: &Report) -> Option<String> {
    let all = &report.summary.measures.0;
    let measured: Vec<_> = all.iter().filter(|(_, h)| h.values > 0).collect();
    if measured.is_empty() {
        return None;
    }
    if measured.iter().all(|(_, h)| words::is_exact(h)) {
        let values: u64 = measured.iter().map(|(_, h)| h.values).sum();
        return Some(format!("f32 values    {values}, all equal"));
    }
    let name_width = measured.iter().map(|(name, _)| name.len()).max();
    let width = name_width.unwrap_or(0);
    let line = |(name, histogram): &(&String, &Histogram)| {
        let (name, said) = (words::plain(name), words::histogram(histogram));
        format!("{name:<width$}  {said}")
    };
    Some(measured.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn skips(report: &Report) -> Option<String> {
    let skips = &report.summary.skips;
    let line = |(why, count): (&String, &u64)| format!("skipped {count:>8}  {}", words::plain(why));
    let lines: Vec<String> = skips.iter().map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn self_tests(self_test: &SelfTest, options: &TextOptions) -> String {
    let (totals, controls) = (self_test.totals(), self_test.controls());
    let totals = format!("self-test: {totals}\n           {controls}");
    let wanted = |row: &&SelfTestRow| options.all_faults || !row.as_meant();
    let shown: Vec<&SelfTestRow> = self_test.rows.iter().filter(wanted).collect();
    if shown.is_empty() {
        return totals;
    }
    format!("{}\n{totals}", faults(&shown, options))
}

/// Planted faults and what became of them, a line each.
#[must_use]
pub fn faults(shown: &[&SelfTestRow], options: &TextOptions) -> String {
    let mut rows = vec![["fault", "kind", "caught by", "cases", "shrunk"].map(str::to_owned)];
    for row in shown {
        let caught = match &row.caught_by {
            None => format!("NOT CAUGHT (meant: {})", row.meant),
            Some(check) if *check == row.meant => check.clone(),
            Some(check) => format!("{check} (meant: {})", row.meant),
        };
        let shrunk = row.shrunk_sizes.map(words::sizes).unwrap_or_default();
        let (kind, cases) = (format!("K{}", row.kind), row.cases.to_string());
        rows.push([row.fault.clone(), kind, caught, cases, shrunk].map(|cell| words::plain(&cell)));
    }
    let widths = std::array::from_fn::<usize, 5, _>(|column| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max();
        widest.unwrap_or(0)
    });
    let mut lines = Vec::new();
    for (at, [fault, kind, caught, cases, shrunk]) in rows.iter().enumerate() {
        let [w0, w1, w2, w3, _] = widths;
        let state = match at.checked_sub(1).map(|at| shown[at]) {
            Some(row) if row.caught_by.is_none() => State::Fail(1),
            Some(row) if !row.as_meant() => State::Never,
            _ => State::None,
        };
        let caught = format!("{caught:<w2$}");
        let caught = match state {
            State::None => caught,
            _ => options.paint(state, &caught),
        };
        let line = format!("{fault:<w0$}  {kind:<w1$}  {caught}  {cases:>w3$}  {shrunk}");
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

/// The last line: clean or not, and the totals.
fn verdict(report: &Report, options: &TextOptions) -> String {
    let (word, state) = if report.clean {
        ("clean", State::Ok)
    } else {
        ("NOT CLEAN", State::Fail(1))
    };
    let mut line = options.paint(state, word);
    line.push_str(": ");
    let summary = &report.summary;
    if summary.total_cases() > 0 {
        let cases = words::count(summary.total_cases(), "case");
        line.push_str(&format!("{cases}, "));
    }
    let findings = words::count(summary.findings_total, "finding");
    line.push_str(&findings);
    if summary.expected_total > 0 {
        line.push_str(&format!(", {} of them known", summary.expected_total));
    }
    line.push_str(&format!(", {} s", words::seconds(report.run.elapsed)));
    for reason in &report.reasons {
        line.push_str(&format!("\n  because {}", words::plain(reason)));
    }
    line
}

/// The verdicts on a single case: one paragraph per job, with the checks by what they came to.
#[must_use]
pub fn verdicts(report: &Report, options: &TextOptions) -> String {
    let mut lines = Vec::new();
    for (job, _) in matrix(report) {
        let of_job = |&check: &usize| report.checks[check].job == job;
        let checks: Vec<usize> = (0..report.checks.len()).filter(of_job).collect();
        let mut line = format!("{job:<12}");
        let mut column = line.len();
        for (kind, word) in VERDICTS {
            let of_kind = checks.iter().filter(|&&check| kind(&state(report, check)));
            let names = of_kind.map(|&check| {
                let id = report.id(check);
                id.split_once('.').map_or(id, |(_, name)| name)
            });
            for (at, name) in names.enumerate() {
                let name = if at == 0 {
                    format!("{word}: {name}")
                } else {
                    name.to_owned()
                };
                if column + 2 + name.len() > WIDTH {
                    line.push_str(&format!("\n{:12}", ""));
                    column = 12;
                }
                column += 1 + name.len() + usize::from(at == 0);
                let painted = paint_word(&name, options);
                line.push_str(if at == 0 { "  " } else { " " });
                line.push_str(&painted);
            }
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

fn paint_word(name: &str, options: &TextOptions) -> String {
    match name.strip_prefix("FAIL") {
        Some(rest) => options.paint(State::Fail(1), "FAIL") + rest,
        None => name.to_owned(),
    }
}

type Kind = fn(&State) -> bool;
const VERDICTS: [(Kind, &str); 5] = [
    (|state| matches!(state, State::Fail(_)), "FAIL"),
    (|state| matches!(state, State::Known(_)), "known"),
    (|state| matches!(state, State::Ok), "pass"),
    (|state| matches!(state, State::Skip), "skip"),
    (|state| matches!(state, State::Never), "does not apply"),
];
