//! The emulator itself: kernels that are right, and kernels that are wrong in one way each.

use crate::emulator::{AMPERE, Arg, Launch, Unit, have_compiler, in_place, input, output};
use crate::values::{Draw, Taste};
use hisa_ref::E4M3;
use hisa_ref::model::tensor_core::dot_of_unit;
use hisa_ref::model::{Chain, DotClass, Grouping, Operand, Unit as Matrix};

fn unit(defines: &[&str]) -> Unit {
    let text = include_str!("../emulator/selftest.cu").to_owned();
    Unit::with("selftest.cu", &[("selftest.cu", text)], defines)
}

fn one(block: usize, shared: usize) -> Launch {
    let grid = [1, 1];
    Launch {
        grid,
        block,
        shared,
    }
}

/// What the emulator says of an entry that writes `threads` u32.
fn refusal(entry: &str, threads: usize, shared: usize) -> String {
    let mut out = vec![0u32; threads];
    unit(&[])
        .launch(entry, one(threads, shared), &mut [output(&mut out)])
        .unwrap_err()
}

#[test]
fn sums_over_a_block() {
    if !have_compiler() {
        return;
    }
    let x: Vec<u32> = (0..700).collect();
    let mut out = [0u32; 7];
    let launch = Launch {
        grid: [7, 1],
        ..one(64, 0)
    };
    let mut args = [input(&x), output(&mut out), Arg::scalar(100i64)];
    unit(&[]).launch("block_sums", launch, &mut args).unwrap();
    for (row, sum) in out.iter().enumerate() {
        assert_eq!(*sum, x[100 * row..100 * (row + 1)].iter().sum::<u32>());
    }
}

/// How threads are switched on processors other than x86-64.
#[test]
fn ucontext_switches_threads_too() {
    if !have_compiler() {
        return;
    }
    let unit = unit(&["EMULATOR_UCONTEXT"]);
    let x: Vec<u32> = (0..100).collect();
    let mut sum = [0u32];
    let mut args = [input(&x), output(&mut sum), Arg::scalar(100i64)];
    unit.launch("block_sums", one(64, 0), &mut args).unwrap();
    let mut args = [input(&x[1..]), output(&mut sum), Arg::scalar(100i64)];
    let fault = unit.launch("block_sums", one(64, 0), &mut args);
    assert!(
        fault
            .unwrap_err()
            .contains("0 bytes past the end of tensor 0")
    );
    assert_eq!(sum, [4950]);
}

#[test]
fn warp_intrinsics_give_what_cuda_says() {
    if !have_compiler() {
        return;
    }
    let mut out = [0i32; 64 * 8];
    unit(&[])
        .launch("warp_intrinsics", one(64, 0), &mut [output(&mut out)])
        .unwrap();
    for (thread, got) in out.chunks_exact(8).enumerate() {
        let lane = thread as i32 % 32;
        let down = if lane % 8 < 6 { lane + 2 } else { lane };
        let up = if lane < 2 { lane } else { lane - 2 };
        let thirds = 0x4924_9249;
        let expected = [
            (lane + 5) % 32,
            lane ^ 3,
            up,
            down,
            thirds,
            1,
            0,
            lane / 4 * 4 + 1,
        ];
        assert_eq!(got, expected, "thread {thread}");
    }
}

#[test]
fn wrong_barriers_are_errors() {
    if !have_compiler() {
        return;
    }
    let lost = refusal("missing_barrier", 128, 512);
    assert!(lost.contains("depends on the schedule"), "{lost}");
    let early = refusal("early_exit", 64, 0);
    assert!(early.contains("__syncthreads at selftest.cu:"), "{early}");
    assert!(early.contains("ended"), "{early}");
    let lonely = refusal("lonely_lane", 64, 0);
    assert!(
        lonely.contains("deadlock") && lonely.contains("__ballot_sync"),
        "{lonely}"
    );
    assert!(
        lonely.contains("thread 33 of block (0, 0) has ended"),
        "{lonely}"
    );
    let two = refusal("two_barriers", 64, 0);
    assert!(two.contains("others wait in __syncthreads"), "{two}");
}

#[test]
fn shared_memory_holds_poison() {
    if !have_compiler() {
        return;
    }
    let message = refusal("unwritten_shared", 64, 0);
    assert!(message.contains("depends on the schedule"), "{message}");
    let message = refusal("missing_barrier", 128, 256);
    assert!(
        message.contains("past the end of dynamic shared memory"),
        "{message}"
    );
}

#[test]
fn memory_beside_tensors_is_guarded() {
    if !have_compiler() {
        return;
    }
    let unit = unit(&[]);
    let x = [7u32; 10];
    let beside = |read: i64, write: i64| {
        let mut out = [0u32; 3];
        let mut args = [
            input(&x),
            output(&mut out),
            Arg::scalar(read),
            Arg::scalar(write),
        ];
        unit.launch("beside", one(32, 0), &mut args)
    };
    assert!(
        beside(9, 0).unwrap_err().contains("depends on"),
        "two outputs were not written"
    );
    for (read, write, said) in [
        (10, 0, "0 bytes past the end of tensor 0 (40 bytes)"),
        (-1, 0, "4 bytes before tensor 0"),
        (0, 3, "0 bytes past the end of tensor 1 (12 bytes)"),
        (0, -1, "bytes beside tensor 1 were written"),
        (1 << 40, 0, "near no tensor"),
    ] {
        let message = beside(read, write).unwrap_err();
        assert!(message.contains(said), "{message}");
        assert!(message.starts_with("beside: "), "{message}");
    }
    let mut out = [0u32];
    let message = unit.launch(
        "write_input",
        one(32, 0),
        &mut [input(&x), output(&mut out)],
    );
    assert!(message.unwrap_err().contains("a write to input tensor 0"));
}

#[test]
fn undefined_behaviour_is_an_error() {
    if !have_compiler() {
        return;
    }
    let unit = unit(&[]);
    let x: Vec<u8> = (0..64).collect();
    let mut out = [0u32];
    let mut load = |at: i64| {
        let mut args = [input(&x), output(&mut out), Arg::scalar(at)];
        unit.launch("wide_load", one(32, 0), &mut args)
    };
    load(16).unwrap();
    assert!(load(4).unwrap_err().contains("misaligned"));
    assert_eq!(out[0], 0x1F1E_1D1C);
    let mut shift = |by: i32| {
        unit.launch(
            "shift",
            one(32, 0),
            &mut [output(&mut out), Arg::scalar(by)],
        )
    };
    shift(31).unwrap();
    assert!(shift(32).unwrap_err().contains("shift by more bits"));
}

#[test]
fn arguments_are_checked() {
    if !have_compiler() {
        return;
    }
    let unit = unit(&[]);
    let mut out = [0u32];
    let message = unit.launch(
        "shift",
        one(32, 0),
        &mut [output(&mut out), Arg::scalar(0i64)],
    );
    assert!(
        message
            .unwrap_err()
            .contains("argument 1 is of another type")
    );
    let message = unit.launch(
        "shift",
        one(32, 0),
        &mut [input(&[0u32]), Arg::scalar(0i32)],
    );
    assert!(
        message
            .unwrap_err()
            .contains("argument 0 is of another type")
    );
    let message = unit.launch(
        "shift",
        one(33, 0),
        &mut [output(&mut out), Arg::scalar(0i32)],
    );
    assert!(message.unwrap_err().contains("whole warps"));
    let mut args = [input(&[0u32]), output(&mut out), Arg::scalar(1i64)];
    let message = unit.launch("block_sums", one(288, 0), &mut args);
    assert!(message.unwrap_err().contains("launch bounds are 256"));
    assert!(
        unit.launch("none", one(32, 0), &mut [])
            .unwrap_err()
            .contains("no such entry")
    );
}

#[test]
fn copies_arrive_when_they_are_waited_for() {
    if !have_compiler() {
        return;
    }
    let unit = unit(&[]);
    let x: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let mut out = vec![0u8; 1024];
    let mut copies = |wait: i32| {
        let mut args = [input(&x), output(&mut out), Arg::scalar(wait)];
        unit.launch("copies", one(64, 1024), &mut args).unwrap();
        out == x
    };
    assert!(copies(1));
    assert!(!copies(0));
}

/// One instruction of a unit of the reference, from a fresh accumulator.
fn tile(unit: &Unit, class: DotClass, taste: Taste, draw: &mut Draw) {
    let keys: Vec<E4M3> = (0..16 * 16).map(|_| draw.code(taste)).collect();
    let queries: Vec<E4M3> = (0..8 * 16).map(|_| draw.code(taste)).collect();
    let mut c = [0f32; 16 * 8];
    let (a, b) = (crate::values::codes(&keys), crate::values::codes(&queries));
    unit.launch(
        "tile_f16",
        one(32, 0),
        &mut [input(&a), input(&b), in_place(&mut c)],
    )
    .unwrap();
    let matrix: Matrix = class.unit().unwrap();
    assert_eq!((matrix.operand, matrix.chain), (Operand::F16, Chain::Whole));
    assert_eq!(matrix.grouping, Grouping::Contiguous);
    for (row, key) in keys.chunks_exact(16).enumerate() {
        for (column, query) in queries.chunks_exact(16).enumerate() {
            let expected = dot_of_unit(&matrix, query, key);
            let got = c[8 * row + column];
            assert_eq!(got.to_bits(), expected.to_bits(), "{row}, {column}");
        }
    }
}

#[test]
fn f16_tiles_are_those_of_the_model() {
    if !have_compiler() {
        return;
    }
    let units = [
        (unit(&[]), DotClass::HopperHgmmaF16),
        (unit(&AMPERE), DotClass::AmpereHmmaF16),
    ];
    let mut draw = Draw::new(1);
    for (unit, class) in &units {
        for taste in crate::values::TASTES {
            for _ in 0..20 {
                tile(unit, *class, taste, &mut draw);
            }
        }
    }
}

#[test]
fn f64_tiles_are_products() {
    if !have_compiler() {
        return;
    }
    let a: Vec<f64> = (0..32).map(|i| f64::from(i * i % 7)).collect();
    let b: Vec<f64> = (0..32).map(|i| f64::from(i * 3 % 11)).collect();
    let mut c = vec![1f64; 64];
    let mut args = [input(&a), input(&b), in_place(&mut c)];
    unit(&[]).launch("tile_f64", one(32, 0), &mut args).unwrap();
    for row in 0..8 {
        for column in 0..8 {
            let dot: f64 = (0..4).map(|k| a[4 * row + k] * b[8 * k + column]).sum();
            assert_eq!(c[8 * row + column], 1.0 + dot, "{row}, {column}");
        }
    }
}
