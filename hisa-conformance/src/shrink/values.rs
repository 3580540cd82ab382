//! Simpler values of a case: kinds in the order of simplicity, shorter programs.

use super::Search;
use crate::case::Case;
use crate::generate::programmed::{Program, Segment, Step};
use crate::generate::values::{CodeKind, Codes, RowKind, ScaleKind, Scales, Values, WeightKind};

/// Kinds of codes, the simplest first.
const CODES: [CodeKind; 19] = {
    use CodeKind::*;
    [
        Zero, E0, Few, Positive, Dup, Normal, Paired, Uniform, Zeros, Plateau, Subnormal, Extreme,
        Heavy, Amax, Cancel, PoolTie, Basis, Nan, All,
    ]
};
/// Kinds of scales, the simplest first.
const SCALES: [ScaleKind; 13] = {
    use ScaleKind::*;
    [
        One, Zero, Pow2, Ulp, Own, Block, Random, Zeros, Floor, Tiny, Huge, Wide, Special,
    ]
};
/// Kinds of weights, the simplest first.
const WEIGHTS: [WeightKind; 12] = {
    use WeightKind::*;
    [
        One, First, Minus, Positive, Normal, Bf16, Cancel, Zero, Tiny, Huge, Wide, Special,
    ]
};
/// Kinds of rows for `quantize`, the simplest first.
const ROWS: [RowKind; 7] = {
    use RowKind::*;
    [Zeros, Bf16, Normal, Small, Boundary, Heavy, Special]
};
/// Combinations tried before single kinds.
const SETS: [(CodeKind, CodeKind, ScaleKind, WeightKind, RowKind); 4] = [
    (
        CodeKind::E0,
        CodeKind::E0,
        ScaleKind::One,
        WeightKind::One,
        RowKind::Zeros,
    ),
    (
        CodeKind::Few,
        CodeKind::Few,
        ScaleKind::One,
        WeightKind::One,
        RowKind::Zeros,
    ),
    (
        CodeKind::Normal,
        CodeKind::Normal,
        ScaleKind::One,
        WeightKind::One,
        RowKind::Zeros,
    ),
    (
        CodeKind::Normal,
        CodeKind::Normal,
        ScaleKind::Random,
        WeightKind::Normal,
        RowKind::Zeros,
    ),
];

fn simpler<T: Copy + PartialEq>(order: &[T], than: Option<T>) -> Vec<T> {
    let before = order.iter().take_while(|&&kind| Some(kind) != than);
    before.copied().collect()
}

/// How far from the simplest the values are; programs are further than any kind.
fn distance(values: &Values) -> usize {
    fn place<T: PartialEq>(order: &[T], kind: &T) -> usize {
        let found = order.iter().position(|known| known == kind);
        found.unwrap_or(order.len())
    }
    let k = match &values.k {
        Codes::Kind(kind) => place(&CODES, kind),
        Codes::Blocks(_) => CODES.len(),
    };
    let s = match &values.s {
        Scales::Kind(kind) => place(&SCALES, kind),
        Scales::Program(_) => SCALES.len(),
    };
    place(&CODES, &values.q) + k + s + place(&WEIGHTS, &values.w) + place(&ROWS, &values.x)
}

pub(super) fn simplify(search: &mut Search<'_, Case>) {
    search.first_of(SETS, |best, (q, k, s, w, x)| {
        let values = Values {
            q,
            k: Codes::Kind(k),
            s: Scales::Kind(s),
            w,
            x,
        };
        (distance(&values) < distance(&best.values)).then(|| Case {
            values,
            ..best.clone()
        })
    });
    let values = search.best().values.clone();
    search.first_of(simpler(&ROWS, Some(values.x)), |best, x| {
        edit(best, |values| values.x = x)
    });
    search.first_of(simpler(&WEIGHTS, Some(values.w)), |best, w| {
        edit(best, |values| values.w = w)
    });
    let kind = match values.s {
        Scales::Kind(kind) => Some(kind),
        Scales::Program(_) => None,
    };
    search.first_of(simpler(&SCALES, kind), |best, s| {
        edit(best, |values| values.s = Scales::Kind(s))
    });
    let kind = match values.k {
        Codes::Kind(kind) => Some(kind),
        Codes::Blocks(_) => None,
    };
    search.first_of(simpler(&CODES, kind), |best, k| {
        edit(best, |values| values.k = Codes::Kind(k))
    });
    search.first_of(simpler(&CODES, Some(values.q)), |best, q| {
        edit(best, |values| values.q = q)
    });
    for place in [Place::Scales, Place::Blocks] {
        program(search, place);
    }
}

fn edit(case: &Case, edit: impl FnOnce(&mut Values)) -> Option<Case> {
    let mut case = case.clone();
    edit(&mut case.values);
    Some(case)
}

/// Where a program stands.
#[derive(Clone, Copy)]
enum Place {
    Scales,
    Blocks,
}

impl Place {
    fn of(self, case: &Case) -> Option<&Program> {
        match (self, &case.values.s, &case.values.k) {
            (Self::Scales, Scales::Program(program), _)
            | (Self::Blocks, _, Codes::Blocks(program)) => Some(program),
            _ => None,
        }
    }

    fn edit(self, case: &Case, edit: impl FnOnce(&mut Program)) -> Option<Case> {
        let mut program = self.of(case)?.clone();
        edit(&mut program);
        let mut case = case.clone();
        match self {
            Self::Scales => case.values.s = Scales::Program(program),
            Self::Blocks => case.values.k = Codes::Blocks(program),
        }
        Some(case)
    }
}

/// Most segments that are simplified one by one.
const SEGMENTS_SIMPLIFIED: usize = 32;
/// 1, 0 and 2.
const SIMPLE_BITS: [u32; 3] = [0x3F80_0000, 0, 0x4000_0000];

fn program(search: &mut Search<'_, Case>, place: Place) {
    let segments = |best: &Case| place.of(best).map_or(0, |program| program.segments.len());
    search.change(|best| place.edit(best, |program| program.shuffled = false));
    search.drop_parts(segments, |best, gone| {
        if gone.len() == segments(best) {
            return None;
        }
        place.edit(best, |program| drop(program.segments.drain(gone)))
    });
    for index in 0..segments(search.best()).min(SEGMENTS_SIMPLIFIED) {
        segment(search, place, index);
    }
}

fn segment(search: &mut Search<'_, Case>, place: Place, index: usize) {
    let at = |best: &Case| place.of(best)?.segments.get(index).copied();
    let set = |best: &Case, segment: Segment| {
        at(best)?;
        place.edit(best, |program| program.segments[index] = segment)
    };
    search.change(|best| {
        let shuffled = false;
        set(
            best,
            Segment {
                shuffled,
                ..at(best)?
            },
        )
    });
    search.change(|best| {
        set(
            best,
            Segment {
                repeat: 1,
                ..at(best)?
            },
        )
    });
    let steps = match at(search.best()).map(|segment| segment.step) {
        None | Some(Step::Constant) => vec![],
        Some(Step::Ladder(1)) => vec![Step::Constant],
        Some(_) => vec![Step::Constant, Step::Ladder(1)],
    };
    search.first_of(steps, |best, step| set(best, Segment { step, ..at(best)? }));
    let count = |best: &Case| Some(at(best)?.count? as usize);
    search.lower(
        1,
        |best| count(best).unwrap_or(1),
        |best, value| {
            let count = Some(u32::try_from(value).ok()?);
            set(best, Segment { count, ..at(best)? })
        },
    );
    let bits = at(search.best()).map(|segment| segment.bits);
    let simpler = SIMPLE_BITS
        .into_iter()
        .take_while(|&simple| Some(simple) != bits);
    search.first_of(simpler, |best, bits| {
        set(best, Segment { bits, ..at(best)? })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_kind_has_a_place_in_its_order() {
        assert_eq!(HashSet::from(CODES).len(), CodeKind::ALL.len());
        assert_eq!(HashSet::from(SCALES).len(), ScaleKind::ALL.len());
        assert_eq!(HashSet::from(WEIGHTS).len(), WeightKind::ALL.len());
        assert_eq!(HashSet::from(ROWS).len(), RowKind::ALL.len());
    }
}
