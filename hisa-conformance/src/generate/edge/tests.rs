use super::*;
use crate::flags::flags;
use std::collections::BTreeSet;

#[test]
fn every_line_of_the_tables_parses() {
    for table in [reports::TABLE, large::TABLE] {
        for line in table {
            let parsed = line.address.parse::<Case>();
            parsed.unwrap_or_else(|error| panic!("{}: {error}", line.address));
        }
    }
}

/// Reports whose trigger is an input to the indexer or to `quantize`. The others are about host
/// tools, checkers or faults of a device, and belong to other tests.
const WITH_INPUT: &[u16] = &[
    1, 2, 5, 7, 8, 10, 11, 12, 13, 15, 17, 18, 20, 21, 23, 24, 25, 27, 28, 30, 32, 33, 34, 36, 37,
    40, 41, 42, 44, 45, 46, 48, 49, 50, 51, 53, 54, 55, 57, 59, 61, 64, 65, 66, 67, 68, 72, 73, 75,
    76, 78, 79, 81, 82, 85, 87, 88, 89, 91, 92, 93, 96, 97, 100, 101, 104, 112,
];

#[test]
fn every_report_with_an_input_has_a_case() {
    let (edge, large) = (Edge::new(), Large::new());
    let generated = edge.cases.iter().chain(&large.cases);
    let rejected = rejected();
    let numbers: BTreeSet<u16> = generated
        .flat_map(|generated| generated.reports)
        .chain(rejected.iter().flat_map(|rejected| rejected.reports))
        .copied()
        .collect();
    assert!(
        numbers.iter().copied().eq(WITH_INPUT.iter().copied()),
        "{numbers:?}"
    );
}

#[test]
fn every_corner_can_be_built() {
    let mut seen = Flags::NONE;
    for Generated {
        case,
        flags: declared,
        ..
    } in &Edge::new().cases
    {
        let inputs = case
            .inputs()
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        inputs.indexer_input().unwrap();
        seen = seen.union(*declared).union(flags(case, &inputs));
        if case.n * case.d < 100_000 {
            seen = seen.union(crate::flags::flags_of_x(&case.x().unwrap()));
        }
    }
    let missing: Vec<_> = Flag::ALL
        .iter()
        .filter(|&&flag| !seen.contains(flag))
        .collect();
    assert_eq!(missing, [&Flag::Large]);
}

#[test]
fn reports_name_the_inputs_they_describe() {
    let find = |number: u16| {
        let mut lines = reports::TABLE
            .iter()
            .filter(|line| line.reports.contains(&number));
        lines.next().unwrap().address.parse::<Case>().unwrap()
    };
    let scales = |number| find(number).tensors().unwrap().k_scale.to_vec();
    let mut row = scales(2);
    row.sort_by(|a, b| b.partial_cmp(a).unwrap());
    assert!(row[..100].iter().all(|&score| score == 2.0) && row[5100] == 0.5);
    assert!(
        row[100..5100]
            .iter()
            .all(|&score| (1.0..1.001).contains(&score))
    );
    assert!(
        scales(24)[3..54]
            .iter()
            .filter(|score| score.is_finite())
            .count()
            == 3
    );
    assert_eq!(scales(17).iter().filter(|score| score.is_nan()).count(), 6);
    let k = find(91).tensors().unwrap();
    let dot = |key: usize| -> f32 {
        (0..32)
            .map(|d| k.q[[0, 0, d]].to_f32() * k.k[[key, d]].to_f32())
            .sum()
    };
    assert_eq!([dot(0), dot(1)], [120.0, 60.0]);
    let k = find(85).tensors().unwrap();
    assert_eq!([k.k[[0, 1]].to_f32(), k.k[[1, 1]].to_f32()], [16.0, 18.0]);
    assert_eq!(k.k_scale[0], 0.015);
}
