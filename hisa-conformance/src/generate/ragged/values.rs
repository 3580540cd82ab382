//! What the tensors of a random case hold.

use crate::generate::programmed::{Program, Segment, Step};
use crate::generate::stream::Stream;
use crate::generate::values::{
    CodeKind, Codes, PRESETS, RowKind, ScaleKind, Scales, Values, WeightKind, preset,
};

/// The presets that most faults hide behind.
const FAVOURED: [&str; 6] = ["zeros", "ties", "plateau", "pooltie", "nan", "special"];

/// Of twelve: a preset in five, a favoured one in one, programmed scores in three, any mix of
/// strict kinds in three.
pub(super) fn values(stream: &mut Stream, block_size: usize) -> Values {
    match stream.below(12) {
        0..5 => PRESETS[stream.below(PRESETS.len() as u32) as usize].values(),
        5 => preset(stream.pick(&FAVOURED))
            .unwrap_or(&PRESETS[0])
            .values(),
        6 | 7 => {
            let program = token_program(stream, block_size);
            Values::scores(program, stream.one_in(4))
        }
        8 => Values::blocks(block_program(stream)),
        _ => mix(stream),
    }
}

fn mix(stream: &mut Stream) -> Values {
    let mut codes = || loop {
        let kind = stream.pick(CodeKind::ALL);
        if !matches!(
            kind,
            CodeKind::All | CodeKind::Nan | CodeKind::Basis | CodeKind::Zero
        ) {
            return kind;
        }
    };
    let (q, k) = (codes(), codes());
    // The last kind of each of these lists is the permissive one.
    let strict = |all: usize| all as u32 - 1;
    Values {
        q,
        k: Codes::Kind(k),
        s: Scales::Kind(ScaleKind::ALL[stream.below(strict(ScaleKind::ALL.len())) as usize]),
        w: WeightKind::ALL[stream.below(strict(WeightKind::ALL.len())) as usize],
        x: RowKind::ALL[stream.below(strict(RowKind::ALL.len())) as usize],
    }
}

/// One to three runs of related scores.
fn token_program(stream: &mut Stream, block_size: usize) -> Program {
    let mut segments = Vec::new();
    for _ in 0..stream.between(1, 3) {
        let any = stream.float(-20, 40).to_bits();
        let bits = stream.pick(&[
            0x3F80_0000,
            0x3F7F_FFF0,
            0x3F80_8000,
            0,
            1,
            0x007F_FFF8,
            any,
        ]);
        let step = match stream.below(6) {
            0 => Step::Constant,
            1 => Step::Random(stream.pick(&[2, 4, 0x400, 0x1_0000])),
            _ => Step::Ladder(stream.pick(&[1, 1, 2, 0x100, 0x1_0000])),
        };
        let repeat = stream.pick(&[1, 1, 2, block_size as u32]);
        let count = Some(stream.between(1, 40));
        segments.push(Segment {
            bits,
            step,
            repeat,
            count,
            shuffled: stream.one_in(2),
        });
    }
    if let Some(last) = segments.last_mut() {
        last.count = None;
    }
    Program {
        segments,
        shuffled: stream.one_in(2),
    }
}

/// Neighbouring block scores, most of them within a few units of bf16.
fn block_program(stream: &mut Stream) -> Program {
    let base = stream.float(-8, 16).to_bits();
    let bits = stream.pick(&[base, 0x3F80_0000, 0x3F80_7FF8, 0x3F81_7FF8]);
    let step = match stream.below(3) {
        0 => Step::Random(stream.pick(&[4, 0x1_0000, 0x4_0000])),
        _ => Step::Ladder(stream.pick(&[1, 0x1000, 0x4000, 0x8000, 0x1_0000])),
    };
    let repeat = stream.pick(&[1, 1, 3]);
    let row = Segment {
        bits,
        step,
        repeat,
        count: None,
        shuffled: stream.one_in(2),
    };
    let zeros = Segment::new(0, Step::Constant, stream.between(1, 3));
    let segments = if stream.one_in(4) {
        vec![zeros, row]
    } else {
        vec![row]
    };
    Program {
        segments,
        shuffled: stream.one_in(2),
    }
}
