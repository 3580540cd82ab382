//! The device API on a GPU: graphs, borrowed streams, caches, sizes past 32 bits, errors.
//! Without a GPU every test says so and passes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cache;
#[path = "../device/mod.rs"]
mod device;
mod errors;
mod graphs;
mod large;
mod streams;

use hisa_cuda::Sizes;

const SIZES: Sizes = Sizes {
    rows: 33,
    keys: 1000,
    heads: 8,
    head_dim: 64,
};

/// M, N, H, D of [`SIZES`].
const SHAPE: [usize; 4] = [SIZES.rows, SIZES.keys, SIZES.heads, SIZES.head_dim];
