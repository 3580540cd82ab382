//! Inputs that the host would refuse: kernels may answer anything, and touch nothing else.

use crate::emulator::{Arg, Launch, Unit, have_compiler, in_place, input, output};
use crate::scorers::Rule;
use crate::values::Draw;

/// Numbers of any kind: small, negative, or next to the ends of i32.
fn numbers(draw: &mut Draw, count: usize) -> Vec<i32> {
    let mut number = || match draw.below(4) {
        0 => draw.bits() as i32,
        1 => draw.pick(&[i32::MIN, i32::MIN + 1, -1, i32::MAX - 1, i32::MAX]),
        _ => draw.below(40) as i32,
    };
    (0..count).map(|_| number()).collect()
}

const ROWS: usize = 4;
const KEYS: usize = 20;

/// Launches once at either end of the pages; results may differ, as ids may stand twice.
fn launch(unit: &Unit, entry: &str, shared: usize, args: &mut [Arg<'_>]) {
    let launch = Launch {
        grid: [ROWS, 1],
        block: 128,
        shared,
    };
    for seed in [0, 3, 2, 1] {
        unit.launch_once(entry, launch, args, seed).unwrap();
    }
}

/// Ids, windows and scores of nonsense. B = 3, seven blocks, five columns of ids, topk 6.
struct Nonsense {
    ks: Vec<i32>,
    ke: Vec<i32>,
    ids: Vec<i32>,
    slots: Vec<i32>,
    floats: Vec<f32>,
    codes: Vec<u8>,
}

fn each(check: impl Fn(&Nonsense)) {
    if !have_compiler() {
        return;
    }
    let mut draw = Draw::new(77);
    for _ in 0..60 {
        check(&Nonsense {
            ks: numbers(&mut draw, ROWS),
            ke: numbers(&mut draw, ROWS),
            ids: numbers(&mut draw, ROWS * 5),
            slots: numbers(&mut draw, ROWS * 6),
            floats: (0..200)
                .map(|_| f32::from_bits(draw.bits() as u32))
                .collect(),
            codes: (0..200).map(|_| draw.bits() as u8).collect(),
        });
    }
}

fn sizes<const N: usize>(sizes: [i64; N]) -> [Arg<'static>; N] {
    sizes.map(Arg::scalar)
}

#[test]
fn block_stages_stand_any_windows() {
    each(|of| {
        let mut masked = of.floats[..ROWS * 7].to_vec();
        let mut args = vec![in_place(&mut masked), input(&of.ks), input(&of.ke)];
        args.extend(sizes([KEYS as i64, 7, 3]));
        launch(&Unit::kernel("block_mask.cu"), "block_mask", 0, &mut args);
        let mut ids = [0i32; ROWS * 5];
        let mut args = vec![input(&of.floats[..ROWS * 7]), input(&of.ks), input(&of.ke)];
        args.push(output(&mut ids));
        args.extend(sizes([KEYS as i64, 7, 3, 5]));
        args.push(Arg::scalar(1i32));
        launch(&Unit::kernel("block_topk.cu"), "block_topk", 0, &mut args);
    });
}

#[test]
fn token_selection_stands_any_ids() {
    each(|of| {
        let mut slots = [0i32; ROWS * 6];
        let mut args = vec![
            input(&of.floats[..ROWS * 15]),
            input(&of.ids),
            input(&of.ks),
        ];
        args.extend([input(&of.ke), output(&mut slots)]);
        args.extend(sizes([KEYS as i64, 3, 5, 6]));
        let cached = if of.slots[0] & 1 == 0 { 15 } else { 0 };
        args.extend([Arg::scalar(8i32), Arg::scalar(cached)]);
        let shared = 64 + 4 * cached as usize;
        launch(
            &Unit::kernel("token_topk.cu"),
            "token_topk",
            shared,
            &mut args,
        );
        let mut indices = [0i32; ROWS * 6];
        let mut args = vec![
            input(&of.slots),
            input(&of.ids),
            input(&of.ks),
            input(&of.ke),
        ];
        args.push(output(&mut indices));
        args.extend(sizes([KEYS as i64, 3, 5, 6]));
        launch(&Unit::kernel("index_map.cu"), "index_map", 0, &mut args);
        let mut flat = [0i32; ROWS * 6];
        let mut args = vec![
            input(&of.floats[..ROWS * KEYS]),
            input(&of.ks),
            input(&of.ke),
        ];
        args.push(output(&mut flat));
        args.extend(sizes([KEYS as i64, 6]));
        args.push(Arg::scalar(8i32));
        launch(&Unit::kernel("dsa.cu"), "flat_topk", 64, &mut args);
    });
}

#[test]
fn block_sparse_stands_any_ids() {
    each(|of| {
        let mut indices = [0i32; ROWS * 15];
        let mut args = vec![
            input(&of.ids),
            input(&of.ks),
            input(&of.ke),
            output(&mut indices),
        ];
        args.extend(sizes([KEYS as i64, 3, 5]));
        let unit = Unit::kernel("block_sparse.cu");
        launch(&unit, "block_sparse_indices", 0, &mut args);
    });
}

#[test]
fn token_scores_stand_any_ids() {
    each(|of| {
        for rule in [Rule::Exact, Rule::Mma] {
            let mut scores = [0f32; ROWS * 15];
            let mut args = vec![
                input(&of.codes[..ROWS * 3 * 2]),
                input(&of.floats[..ROWS * 2]),
            ];
            args.extend([
                input(&of.codes[..KEYS * 3]),
                input(&of.floats[..KEYS]),
                input(&of.ids),
            ]);
            args.extend([input(&of.ks), input(&of.ke), output(&mut scores)]);
            args.extend([
                Arg::scalar(KEYS as i64),
                Arg::scalar(2i32),
                Arg::scalar(3i32),
            ]);
            args.extend(sizes([3, 5]));
            let entry = format!("token_scores_{}", rule.name());
            let unit = Unit::kernel("token_scores.cu");
            launch(&unit, &entry, rule.shared(2, 3, 128), &mut args);
        }
    });
}
