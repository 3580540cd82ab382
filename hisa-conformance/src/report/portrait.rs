//! Small pictures of one problem on one backend: where infinities stand, and what was chosen.

use crate::backend::{Buffers, Guarded};
use crate::check::CHECKS;
use crate::op::Op;
use crate::problem::Problem;
use crate::trial::Trial;
use hisa_ref::Stage;
use serde::{Deserialize, Serialize};

/// Most rows of a picture.
pub const ROWS_MAX: usize = 64;
/// Most columns of a picture.
pub const COLUMNS_MAX: usize = 160;

/// Pictures of the problem behind a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Portrait {
    /// Id of the check that failed.
    pub check: String,
    /// The pictures.
    pub pictures: Vec<Picture>,
}

/// One picture. Grids are strings, one per row, one character per cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Picture {
    /// Scores by class: `.` finite, `-` minus infinity, `+` plus infinity, `n` NaN, blank where
    /// SPEC leaves the value open.
    Mask {
        /// What part of which tensor.
        frame: Frame,
        /// The classes of the true scores.
        expected: Vec<String>,
        /// Those of the backend.
        got: Vec<String>,
        /// `!` another class, `~` another finite value, `=` the same, blank as above.
        difference: Vec<String>,
    },
    /// Chosen ids: blank cannot be chosen, `.` not chosen, `o` chosen by both, `m` missing, `x`
    /// chosen and should not be.
    Selection {
        /// What part of which tensor.
        frame: Frame,
        /// The cells.
        cells: Vec<String>,
        /// Ids written in the rows shown that lie outside the picture's tensor, -1 aside.
        outside: u64,
    },
}

/// The part of a tensor that a picture shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the tensor.
    pub tensor: String,
    /// What a column is: `key`, `slot` or `block`.
    pub column_is: String,
    /// First row shown.
    pub row: usize,
    /// First column shown.
    pub column: usize,
    /// Rows shown.
    pub rows: usize,
    /// Columns shown.
    pub columns: usize,
    /// Rows there are.
    pub rows_total: usize,
    /// Columns there are.
    pub columns_total: usize,
    /// Row and column of the first difference.
    pub first: [usize; 2],
}

impl Frame {
    /// Whether it shows less than everything.
    #[must_use]
    pub const fn is_cropped(&self) -> bool {
        self.rows < self.rows_total || self.columns < self.columns_total
    }
}

impl Picture {
    /// The part shown.
    #[must_use]
    pub const fn frame(&self) -> &Frame {
        match self {
            Self::Mask { frame, .. } | Self::Selection { frame, .. } => frame,
        }
    }
}

/// Pictures of the job of a check. `None` where the job has none, gave nothing, or differs
/// nowhere in them.
pub fn portrait(trial: &mut Trial<'_>, check: usize) -> Option<Portrait> {
    let check = CHECKS.get(check)?;
    let (problem, truth) = (trial.problem, trial.truth);
    let expected = truth.of(check.op).ok()?;
    let got = trial.outputs(check.op).ok()?;
    let scene = Scene {
        problem,
        made: truth.chain(),
        op: check.op,
    };
    let pictures: Vec<Picture> = [scene.mask(expected, got), scene.selection(expected, got)]
        .into_iter()
        .flatten()
        .collect();
    (!pictures.is_empty()).then(|| Portrait {
        check: check.id(),
        pictures,
    })
}

/// What decides which cells count.
struct Scene<'a> {
    problem: &'a Problem,
    made: &'a Buffers,
    op: Op,
}

impl Scene<'_> {
    /// Whether SPEC says what the job writes, or may choose, in this cell.
    fn counts(&self, column_is: &str, row: usize, column: usize) -> bool {
        let window = self.problem.inputs.windows.rows()[row];
        match column_is {
            "block" => window.blocks(self.problem.b()).contains(&column),
            "slot" => {
                let ids = self.made.i32("block_ids");
                ids.is_some_and(|ids| self.problem.visible_key(ids, row, column as i32).is_some())
            }
            _ => window.contains(column),
        }
    }

    fn mask(&self, expected: &Buffers, got: &Buffers) -> Option<Picture> {
        let (name, column_is, open) = match self.op {
            Op::Stage(Stage::BlockScores) => ("block_scores", "block", true),
            Op::Stage(Stage::BlockMask) => ("block_mask", "block", false),
            Op::Stage(Stage::TokenScores) => ("token_scores", "slot", false),
            Op::Dsa => ("flat_scores", "key", false),
            _ => return None,
        };
        let (e, g) = (expected.f32(name)?, got.f32(name)?);
        // Outside the block window, block scores are unspecified (SPEC 3).
        let blank = |row, column| open && !self.counts(column_is, row, column);
        let relation = |row: usize, column: usize| {
            if blank(row, column) {
                return ' ';
            }
            let (e, g) = (e.row(row)[column], g.row(row)[column]);
            match (class(e) == class(g), e == g) {
                (false, _) => '!',
                (true, false) if e.is_finite() => '~',
                _ => '=',
            }
        };
        let size = (e.rows(), e.columns());
        let first = find(size, |row, column| relation(row, column) == '!');
        let first = first.or_else(|| find(size, |row, column| relation(row, column) == '~'))?;
        let frame = frame(name, column_is, size, first);
        let classes = |of: &Guarded<f32>| {
            grid(&frame, |row, column| match blank(row, column) {
                true => ' ',
                false => class(of.row(row)[column]),
            })
        };
        Some(Picture::Mask {
            expected: classes(e),
            got: classes(g),
            difference: grid(&frame, relation),
            frame,
        })
    }

    fn selection(&self, expected: &Buffers, got: &Buffers) -> Option<Picture> {
        let problem = self.problem;
        let (name, column_is, columns) = match self.op {
            Op::Stage(Stage::BlockTopk) => ("block_ids", "block", problem.blocks()),
            Op::Stage(Stage::TokenTopk) => ("slots", "slot", problem.inputs.params.slots()),
            Op::Stage(Stage::IndexMap) | Op::Hisa | Op::Dsa | Op::BlockSparse => {
                ("indices", "key", problem.n())
            }
            _ => return None,
        };
        let (e, g) = (expected.i32(name)?, got.i32(name)?);
        // Indices count from the start of the row's window.
        let start = |row: usize| match column_is {
            "key" => problem.inputs.windows.rows()[row].keys().start,
            _ => 0,
        };
        let chosen = |of: &Guarded<i32>| -> Vec<Vec<bool>> {
            let row = |row: usize| {
                let mut chosen = vec![false; columns];
                for &id in of.row(row) {
                    let column = usize::try_from(id).ok().map(|id| id + start(row));
                    if let Some(place) = column.and_then(|column| chosen.get_mut(column)) {
                        *place = true;
                    }
                }
                chosen
            };
            (0..of.rows()).map(row).collect()
        };
        let (must, has) = (chosen(e), chosen(g));
        let cell = |row: usize, column: usize| {
            let counts = self.counts(column_is, row, column);
            // Padding of block ids may be any block outside the window (SPEC 5.5).
            if column_is == "block" && !counts {
                return ' ';
            }
            match (must[row][column], has[row][column]) {
                (true, true) => 'o',
                (true, false) => 'm',
                (false, true) => 'x',
                (false, false) if counts => '.',
                (false, false) => ' ',
            }
        };
        let size = (e.rows(), columns);
        let differs = |row, column| matches!(cell(row, column), 'm' | 'x');
        let frame = frame(name, column_is, size, find(size, differs)?);
        let rows = frame.row..frame.row + frame.rows;
        let strays = |row: usize| {
            let stray = move |&&id: &&i32| {
                id < -1 || usize::try_from(id).is_ok_and(|id| id + start(row) >= columns)
            };
            g.row(row).iter().filter(stray).count() as u64
        };
        Some(Picture::Selection {
            outside: rows.map(strays).sum(),
            cells: grid(&frame, cell),
            frame,
        })
    }
}

const fn class(value: f32) -> char {
    if value.is_nan() {
        'n'
    } else if value == f32::INFINITY {
        '+'
    } else if value == f32::NEG_INFINITY {
        '-'
    } else {
        '.'
    }
}

/// The first cell for which `is` holds, row by row.
fn find((rows, columns): (usize, usize), is: impl Fn(usize, usize) -> bool) -> Option<[usize; 2]> {
    (0..rows).find_map(|row| {
        let column = (0..columns).find(|&column| is(row, column))?;
        Some([row, column])
    })
}

/// A frame within the limits that holds the first difference, with some cells before it.
fn frame(
    tensor: &str,
    column_is: &str,
    (rows_total, columns_total): (usize, usize),
    first: [usize; 2],
) -> Frame {
    let from = |first: usize, total: usize, max: usize| {
        first.saturating_sub(max / 4).min(total.saturating_sub(max))
    };
    Frame {
        tensor: tensor.to_owned(),
        column_is: column_is.to_owned(),
        row: from(first[0], rows_total, ROWS_MAX),
        column: from(first[1], columns_total, COLUMNS_MAX),
        rows: rows_total.min(ROWS_MAX),
        columns: columns_total.min(COLUMNS_MAX),
        rows_total,
        columns_total,
        first,
    }
}

fn grid(frame: &Frame, cell: impl Fn(usize, usize) -> char) -> Vec<String> {
    let rows = frame.row..frame.row + frame.rows;
    let columns = frame.column..frame.column + frame.columns;
    rows.map(|row| columns.clone().map(|column| cell(row, column)).collect())
        .collect()
}
