//! Pictures of real runs.

use super::samples::{self, Faulty, faulty_problem};
use crate::backend::basis_of;
use crate::backend::reference::Reference;
use crate::check::position;
use crate::report::portrait::{COLUMNS_MAX, Picture, ROWS_MAX, portrait};
use crate::trial::Trial;
use crate::truth::Truth;

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
