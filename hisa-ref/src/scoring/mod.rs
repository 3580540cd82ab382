//! The scoring rule that `block_scores`, `token_scores` and the flat indexer share (SPEC S).
//!
//! `score = RN32(scale * sum_h w[h] * max(0, sum_d q[h,d] * key[d]))`, in real numbers inside.
//!
//! [`scalar`] is the definition. The fast path packs codes as integers, computes the dots exactly,
//! adds heads in f64 with an error interval, and asks the definition where that interval does not
//! decide the last rounding: both give the same bits.

pub mod scalar;
