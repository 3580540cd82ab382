//! Pictures of real runs.

use super::samples::{self, Faulty, faulty_problem};
use crate::backend::reference::Reference;
use crate::backend::{Backend, Capabilities, Failure, Job, Outputs, basis_of};
use crate::check::position;
use crate::op::Op;
use crate::problem::Problem;
use crate::report::portrait::{COLUMNS_MAX, Picture, ROWS_MAX, portrait};
use crate::trial::Trial;
use crate::truth::Truth;
use hisa_ref::Stage;

#[test]
fn pictures_show_where_a_fault_is() {
    let report = samples::faulty();
    let pictures = &report.portrait.as_ref().unwrap().pictures;
    let [
        Picture::Mask {
            frame,
            expected,
            got,
            difference,
        },
        selection,
    ] = &pictures[..]
    else {
        panic!("{pictures:?}")
    };
    // The fault begins in row 100 with its last key.
    assert_eq!((&*frame.tensor, &*frame.column_is), ("flat_scores", "key"));
    assert_eq!(frame.first, [100, 100]);
    assert_eq!((frame.rows_total, frame.columns_total), (300, 300));
    assert_eq!((frame.rows, frame.columns), (ROWS_MAX, COLUMNS_MAX));
    let (row, column) = (100 - frame.row, 100 - frame.column);
    let cell = |grid: &[String], row: usize, column: usize| grid[row].as_bytes()[column] as char;
    assert_eq!(cell(expected, row, column), '.');
    assert_eq!(cell(got, row, column), '-');
    assert_eq!(cell(difference, row, column), '!');
    assert_eq!(cell(difference, row, column - 1), '=');
    assert_eq!(cell(expected, row, column + 1), '-');
    // Further to the left there is nothing to see: the window starts at key 60.
    assert_eq!((frame.column, cell(expected, row, 0)), (60, '.'));
    let Picture::Selection {
        frame,
        cells,
        outside,
    } = selection
    else {
        panic!("{selection:?}")
    };
    assert_eq!((&*frame.tensor, *outside), ("indices", 0));
    let all: String = cells.concat();
    assert!(
        all.contains('o') && all.contains('m') && all.contains('x'),
        "{cells:#?}"
    );
    // The finding of `dsa.selection` says that row 162 lacks id 101. Ids count from the first key
    // of the window, 60.
    assert_eq!(frame.first, [162, 161]);
    assert_eq!(cell(cells, 162 - frame.row, 161 - frame.column), 'm');
}

#[test]
fn a_faultless_backend_has_no_portrait() {
    let (_, problem) = faulty_problem();
    let mut basis = basis_of("faulty");
    let truth = Truth::new(&problem, basis.as_mut());
    let (mut right, mut wrong) = (Reference::new(), Faulty(Reference::new()));
    for id in [
        "dsa.mask",
        "dsa.selection",
        "hisa.selection",
        "block_topk.selection",
    ] {
        let mut trial = Trial::new(&problem, &truth, &mut right);
        assert_eq!(portrait(&mut trial, position(id).unwrap()), None, "{id}");
    }
    let mut trial = Trial::new(&problem, &truth, &mut wrong);
    assert!(portrait(&mut trial, position("dsa.mask").unwrap()).is_some());
    let no_picture = position("quantize.values").unwrap();
    assert_eq!(portrait(&mut trial, no_picture), None);
    assert_eq!(portrait(&mut trial, usize::MAX), None);
}

/// The reference, with one change to what it writes.
struct Altered(Reference, fn(Op, &mut Outputs) -> Option<()>);

impl Backend for Altered {
    fn name(&self) -> &'static str {
        "altered"
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn run(&mut self, job: &mut Job<'_>, out: &mut Outputs) -> Result<(), Failure> {
        self.0.run(job, out)?;
        let _ = (self.1)(job.op, out);
        Ok(())
    }
}

/// Pictures of a check of a backend that changes one output of one job.
fn altered(problem: &Problem, id: &str, alter: fn(Op, &mut Outputs) -> Option<()>) -> Vec<Picture> {
    let mut basis = basis_of("altered");
    let truth = Truth::new(problem, basis.as_mut());
    let mut backend = Altered(Reference::new(), alter);
    let mut trial = Trial::new(problem, &truth, &mut backend);
    let portrait = portrait(&mut trial, position(id).unwrap());
    portrait.map_or(Vec::new(), |portrait| portrait.pictures)
}

#[test]
fn slots_and_blocks_are_drawn_by_their_own_numbers() {
    let (_, problem) = faulty_problem();
    // Row 299 has 240 keys in 9 blocks of 4, so 36 slots, of which it takes 24.
    let pictures = altered(&problem, "token_topk.selection", |op, out| {
        let slots = out.tensors.i32_mut("slots")?;
        let at = slots.body().len() - slots.columns();
        let row = slots.row(299).to_vec();
        let other = (0..36).find(|slot| !row.contains(slot))?;
        assert_eq!(op, Op::Stage(Stage::TokenTopk));
        slots.body_mut()[at] = other;
        Some(())
    });
    let [Picture::Selection { frame, cells, .. }] = &pictures[..] else {
        panic!("{pictures:?}")
    };
    assert_eq!((&*frame.column_is, frame.columns_total), ("slot", 36));
    assert_eq!((frame.row, frame.rows, frame.first[0]), (236, 64, 299));
    let last = cells.last().unwrap();
    let count = |cell: char| last.chars().filter(|&found| found == cell).count();
    assert_eq!(['o', 'm', 'x', '.', ' '].map(count), [23, 1, 1, 11, 0]);
}

#[test]
fn what_spec_leaves_open_is_no_difference() {
    let (_, problem) = faulty_problem();
    // Row 0 sees block 0 alone; what is scored for block 70 is nobody's business.
    let open = altered(&problem, "block_scores.scores", |_, out| {
        out.tensors.f32_mut("block_scores")?.body_mut()[70] = f32::NAN;
        Some(())
    });
    assert_eq!(open, []);
    let judged = altered(&problem, "block_scores.scores", |_, out| {
        out.tensors.f32_mut("block_scores")?.body_mut()[0] = f32::NAN;
        Some(())
    });
    let [
        Picture::Mask {
            got, difference, ..
        },
    ] = &judged[..]
    else {
        panic!("{judged:?}")
    };
    assert_eq!((&got[0][..2], &difference[0][..2]), ("n ", "! "));
    // Ids of blocks outside the window are padding, in any order.
    let padding = altered(&problem, "block_topk.selection", |_, out| {
        out.tensors.i32_mut("block_ids")?.body_mut()[8] = 74;
        Some(())
    });
    assert_eq!(padding, []);
}
