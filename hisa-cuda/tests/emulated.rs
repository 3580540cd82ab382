//! The kernels on the CPU, from their real sources, against the reference bit for bit.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a test may panic and print; helpers serve several kernels"
)]

mod emulator;

use emulator::{Arg, Launch, Unit, have_compiler, input, output};

fn selftest() -> Unit {
    let text = include_str!("emulator/selftest.cu");
    Unit::from_text("selftest.cu", text, &[])
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
        block: 64,
        shared: 0,
    };
    let mut args = [input(&x), output(&mut out), Arg::scalar(100i64)];
    selftest().launch("block_sums", launch, &mut args).unwrap();
    for (row, sum) in out.iter().enumerate() {
        assert_eq!(*sum, x[100 * row..100 * (row + 1)].iter().sum::<u32>());
    }
}
