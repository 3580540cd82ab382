//! Pictures of the first finding: grids of cells.

use crate::report::portrait::{Frame, Picture};
use crate::report::{Report, words};
use maud::{Markup, html};

/// Side of a cell, in the units of the picture.
const CELL: usize = 7;
/// Room for the numbers of rows and columns.
const LEFT: usize = 46;
const TOP: usize = 30;

/// A class of cells: its character, its class name, what it says.
type Legend = &'static [(char, &'static str, &'static str)];

const MASK: Legend = &[
    ('.', "finite", "finite"),
    ('-', "minus", "minus infinity"),
    ('+', "plus", "plus infinity"),
    ('n', "nan", "NaN"),
    (' ', "blank", "left open by SPEC"),
];
const DIFFERENCE: Legend = &[
    ('=', "same", "the same"),
    (
        '~',
        "value",
        "another finite value, which a bound may allow",
    ),
    ('!', "extra", "another class"),
    (' ', "blank", "left open by SPEC"),
];
const SELECTION: Legend = &[
    ('.', "same", "not chosen"),
    ('o', "both", "chosen, and must be"),
    ('m', "missing", "missing: must be chosen, is not"),
    ('x', "extra", "extra: chosen, must not be"),
    (' ', "blank", "cannot be chosen"),
];

/// All pictures there are.
pub(super) fn section(report: &Report) -> Markup {
    let Some(portrait) = &report.portrait else {
        return html! {};
    };
    html! {
        section aria-labelledby="pictures" {
            h2 id="pictures" { "Pictures of the first finding" }
            p {
                "What the job of " (words::plain(&portrait.check)) " should give, what it gave, "
                "and where the two differ. A row is a query row."
            }
            @for picture in &portrait.pictures { (panel(picture)) }
        }
    }
}

fn panel(picture: &Picture) -> Markup {
    let frame = picture.frame();
    let tensor = words::plain(&frame.tensor);
    html! {
        @match picture {
            Picture::Mask { expected, got, difference, .. } => {
                h3 { "Where infinities stand in " (tensor) }
                p { (scope(frame)) }
                (grid(frame, "expected", expected, MASK))
                (grid(frame, "got", got, MASK))
                (legend(MASK, &[expected, got]))
                (grid(frame, "difference", difference, DIFFERENCE))
                (legend(DIFFERENCE, &[difference]))
                (told(frame, difference, &[('!', "another class at"), ('~', "another value at")]))
            },
            Picture::Selection { cells, outside, .. } => {
                h3 { "What was chosen in " (tensor) }
                p { (scope(frame)) }
                (grid(frame, "must be chosen, and chosen", cells, SELECTION))
                (legend(SELECTION, &[cells]))
                (told(frame, cells, &[('m', "missing:"), ('x', "extra:")]))
                @if *outside > 0 {
                    p { (words::count(*outside, "id")) " of these rows outside the tensor." }
                }
            },
        }
    }
}

/// What part is shown.
fn scope(frame: &Frame) -> String {
    let unit = words::plain(&frame.column_is);
    let [row, column] = frame.first;
    let first = format!("First difference: row {row}, {unit} {column}.");
    if frame.is_cropped() {
        format!(
            "Rows {} to {} of {}, {unit}s {} to {} of {}, around the first difference. {first}",
            frame.row,
            (frame.row + frame.rows).saturating_sub(1),
            frame.rows_total,
            frame.column,
            (frame.column + frame.columns).saturating_sub(1),
            frame.columns_total,
        )
    } else {
        first
    }
}

/// Runs of equal cells, as column, length and character.
fn runs(line: &str) -> Vec<(usize, usize, char)> {
    let mut runs: Vec<(usize, usize, char)> = Vec::new();
    for (column, cell) in line.chars().enumerate() {
        match runs.last_mut() {
            Some((_, length, last)) if *last == cell => *length += 1,
            _ => runs.push((column, 1, cell)),
        }
    }
    runs
}

fn grid(frame: &Frame, what: &str, lines: &[String], legend: Legend) -> Markup {
    let unit = words::plain(&frame.column_is);
    let columns = lines.iter().map(|line| line.chars().count()).max();
    // Small pictures get larger cells.
    let columns = columns.unwrap_or(0);
    let cell = if columns <= 32 { 2 * CELL } else { CELL };
    let (width, height) = (columns * cell, lines.len() * cell);
    let full = (LEFT + width.max(140) + 8, TOP + height + 4);
    let name = format!("{}, {what}; the differences follow as text", frame.tensor);
    let step = if columns <= 32 { 4 } else { 16 };
    html! {
        figure.grid {
            figcaption { (what) }
            div.scroll tabindex="0" role="region" aria-label=(what) {
                svg role="img" aria-label=(words::plain(&name))
                    viewBox=(format!("0 0 {} {}", full.0, full.1))
                    width=(full.0) height=(full.1) {
                    text.axis x=(LEFT) y="11" { (unit) " \u{2192}" }
                    text.axis x=(LEFT - 6) y="24" text-anchor="end" { "row \u{2193}" }
                    @for column in (0..columns).step_by(step) {
                        text x=(LEFT + column * cell) y="24" { (frame.column + column) }
                    }
                    rect.frame x=(LEFT) y=(TOP) width=(width) height=(height) {}
                    @for (row, line) in lines.iter().enumerate() {
                        @if row % step.min(8) == 0 {
                            text x=(LEFT - 6) y=(TOP + row * cell + cell / 2 + 4)
                                text-anchor="end" { (frame.row + row) }
                        }
                        @for (column, length, character) in runs(line) {
                            @if let Some((_, class, _)) = named(legend, character) {
                                rect class=(class) x=(LEFT + column * cell) y=(TOP + row * cell)
                                    width=(length * cell) height=(cell) {}
                            }
                        }
                    }
                    (lattice(cell, columns, lines.len()))
                }
            }
        }
    }
}

/// Lines between the cells, so that single cells can be told apart.
fn lattice(cell: usize, columns: usize, rows: usize) -> Markup {
    let (right, bottom) = (LEFT + columns * cell, TOP + rows * cell);
    let mut path = String::new();
    for column in 1..columns {
        path.push_str(&format!("M{} {TOP}V{bottom}", LEFT + column * cell));
    }
    for row in 1..rows {
        path.push_str(&format!("M{LEFT} {}H{right}", TOP + row * cell));
    }
    let class = if columns <= 32 {
        "lattice"
    } else {
        "lattice fine"
    };
    html! { path class=(class) d=(path) {} }
}

fn named(legend: Legend, character: char) -> Option<&'static (char, &'static str, &'static str)> {
    legend.iter().find(|(known, ..)| *known == character)
}

/// The classes that occur.
fn legend(legend: Legend, grids: &[&Vec<String>]) -> Markup {
    let occurs = |character: char| {
        let mut lines = grids.iter().flat_map(|lines| lines.iter());
        lines.any(|line| line.contains(character))
    };
    html! {
        ul.key {
            @for (character, class, text) in legend {
                @if occurs(*character) {
                    li {
                        svg width="14" height="14" aria-hidden="true" {
                            rect.frame x="0" y="0" width="14" height="14" {}
                            rect class=(class) x="0" y="0" width="14" height="14" {}
                        }
                        (text)
                    }
                }
            }
        }
    }
}

/// Rows told in words, and cells of a kind told in one row.
const ROWS_TOLD: usize = 8;
const CELLS_TOLD: usize = 12;

/// The differences in words: the text alternative of the pictures.
fn told(frame: &Frame, lines: &[String], kinds: &[(char, &str)]) -> Markup {
    let mut rows = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        let mut parts = Vec::new();
        for (character, word) in kinds {
            let cells = line
                .chars()
                .enumerate()
                .filter(|(_, cell)| cell == character);
            let cells: Vec<String> = cells
                .map(|(at, _)| (frame.column + at).to_string())
                .collect();
            let more = cells.len().saturating_sub(CELLS_TOLD);
            if !cells.is_empty() {
                let mut part = format!("{word} {}", cells[..cells.len() - more].join(", "));
                if more > 0 {
                    part.push_str(&format!(" and {more} more"));
                }
                parts.push(part);
            }
        }
        if !parts.is_empty() {
            rows.push(format!("row {}: {}", frame.row + row, parts.join("; ")));
        }
    }
    let more = rows.len().saturating_sub(ROWS_TOLD);
    html! {
        p { "Differences by " (words::plain(&frame.column_is)) ":" }
        ul.told {
            @for row in rows.iter().take(ROWS_TOLD) { li { (row) } }
            @if more > 0 { li { "and in " (words::count(more as u64, "more row")) } }
        }
    }
}
