//! Several runs side by side: jobs by backends.

use super::Report;
use super::matrix::{State, overall};
use super::text::TextOptions;
use super::words::plain;

/// A table with a row per judged job and a column per run, the cells those of the matrix, all
/// kinds of checks taken together; in the last row whether the run is clean.
#[must_use]
pub fn compare(reports: &[Report], options: &TextOptions) -> String {
    let names: Vec<String> = (1..)
        .zip(reports)
        .map(|(at, report)| heading(at, report))
        .collect();
    let columns: Vec<Vec<(&str, State)>> = reports.iter().map(overall).collect();
    let text = |column: &[(&str, State)], row: usize| column.get(row).map_or(State::None, |c| c.1);
    let widths: Vec<usize> = names
        .iter()
        .zip(&columns)
        .map(|(name, column)| {
            let cells = column.iter().map(|(_, state)| state.text().len());
            cells
                .max()
                .unwrap_or(0)
                .max(name.chars().count())
                .max("not clean".len())
        })
        .collect();
    let mut lines = vec![line(
        "",
        names.iter().map(|name| (name.clone(), name.clone())),
        &widths,
    )];
    let jobs = columns
        .first()
        .into_iter()
        .flatten()
        .map(|(job, _)| *job)
        .enumerate();
    for (row, job) in jobs.filter(|(_, job)| reports.iter().any(|report| report.judged(job))) {
        let cells = columns.iter().map(|column| {
            let state = text(column, row);
            (state.text(), options.paint(state, &state.text()))
        });
        lines.push(line(job, cells, &widths));
    }
    let verdicts = reports.iter().map(|report| {
        let (word, state) = match report.clean {
            true => ("clean", State::Ok),
            false => ("not clean", State::Fail(1)),
        };
        (word.to_owned(), options.paint(state, word))
    });
    lines.push(line("run", verdicts, &widths));
    lines.join("\n")
}

fn heading(at: usize, report: &Report) -> String {
    let label = match report.run.label.as_str() {
        "" => &report.run.backend,
        label => label,
    };
    let label: String = plain(label).chars().take(24).collect();
    format!("{at}:{label}")
}

/// Cells as they are and as they look.
fn line(name: &str, cells: impl Iterator<Item = (String, String)>, widths: &[usize]) -> String {
    let mut line = format!("{name:<12}");
    for ((text, painted), width) in cells.zip(widths) {
        let gap = width.saturating_sub(text.chars().count());
        line.push_str(&format!("  {painted}{:gap$}", ""));
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CHECKS;
    use crate::op::Op;
    use crate::report::RunInfo;
    use crate::summary::Summary;

    fn report(label: &str, failed: u64) -> Report {
        let mut summary = Summary::default();
        summary.cases.insert("ragged".into(), 9);
        summary.findings_total = failed;
        for (check, tally) in CHECKS.iter().zip(&mut summary.tallies) {
            match check.op {
                Op::Dsa if check.name == "guard" || check.name == "inputs" => tally.skipped = 9,
                Op::Dsa => tally.passed = 9,
                _ => tally.skipped = 9,
            }
            if check.id() == "dsa.tail" {
                tally.failed = failed;
            }
        }
        let run = RunInfo {
            label: label.to_owned(),
            ..RunInfo::default()
        };
        Report::new(run, &[Op::Dsa, Op::Hisa], summary, Vec::new(), None)
    }

    #[test]
    fn ports_stand_side_by_side() {
        let options = TextOptions {
            colour: false,
            findings_max: 1,
            all_faults: false,
        };
        let table = compare(&[report("one", 0), report("two", 3)], &options);
        let expected = "              1:one      2:two\n\
                        hisa          skip       skip\n\
                        dsa           ok         FAIL 3\n\
                        run           clean      not clean";
        assert_eq!(table, expected);
    }
}
