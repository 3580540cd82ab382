//! Every stage and indexer on a GPU, in the configurations of docs/BENCHMARKS.md.
//!
//! ```text
//! cargo bench -p hisa-cuda --bench stages [-- CONFIG ...]
//! ```
//!
//! Rows of every configuration are compared with the reference before anything is timed. A figure
//! is the median time between two events of the device, in milliseconds: that of a stage around
//! one launch, that of `hisa` around a run of its seven kernels, tile by tile.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench prints its figures"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up must not run"
)]

mod data;
mod figures;

use data::{Data, validate};
use figures::Bench;
use hisa_cuda::Host;

/// A name, M and N; H = 64, D = 128, B = 128, m = 64, K = 2048, causal.
const CONFIGS: [(&str, usize, usize); 5] = [
    ("A", 1024, 65_536),
    ("B", 1024, 131_072),
    ("C", 4096, 4096),
    ("D", 8192, 8192),
    ("E", 32_768, 32_768),
];

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let mut host = match Host::open(0) {
        Ok(host) => host,
        Err(reason) => {
            eprintln!("SKIPPED: {reason}");
            return;
        }
    };
    let device = host.device();
    println!("{:?}", device.limits());
    for (name, rows, keys) in CONFIGS {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            run(&mut host, name, rows, keys);
        }
    }
}

fn run(host: &mut Host, name: &str, rows: usize, keys: usize) {
    let data = Data::new(rows, keys);
    validate(host, &data);
    let bench = Bench::new(host.device(), &data);
    println!("\n{name}: M = {rows}, N = {keys}, milliseconds");
    for (what, time) in bench.stages() {
        println!("  {what:<28} {time:>9.4}");
    }
}
