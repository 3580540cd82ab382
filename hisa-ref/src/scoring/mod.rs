//! The scoring rule that `block_scores`, `token_scores` and the flat indexer share (SPEC S).
//!
//! `score = RN32(scale * sum_h w[h] * max(0, sum_d q[h,d] * key[d]))`, in real numbers inside.
//!
//! [`scalar`] is the definition. The fast path packs codes as integers, computes the dots exactly,
//! adds heads in f64 with an error interval, and asks the definition where that interval does not
//! decide the last rounding: both give the same bits.
//!
//! ```
//! use hisa_ref::scoring::{PackedKeys, PackedRow};
//! use hisa_ref::{E4M3, Keys, Overflow, Queries, Strictness};
//! use ndarray::{Array1, Array2, Array3};
//!
//! let code = |x| E4M3::encode(x, Overflow::Saturating);
//! let q = Array3::from_elem((1, 2, 4), code(0.5)); // `[M,H,D]`
//! let weights = Array2::from_elem((1, 2), 1.0); // `[M,H]`
//! let k = Array2::from_elem((3, 4), code(2.0)); // `[N,D]`
//! let k_scale = Array1::from_vec(vec![1.0, 0.25, 0.0]); // `[N]`
//! let queries = Queries::new(q.view(), weights.view(), Strictness::Strict)?;
//! let keys = Keys::new(k.view(), k_scale.view(), Strictness::Strict)?;
//!
//! let packed = PackedKeys::new(&keys);
//! let mut row = PackedRow::default();
//! row.pack(&queries, 0)?;
//! let mut scores = [0.0; 2];
//! packed.score(&row, 1..3, &mut scores)?;
//! assert_eq!(scores, [2.0, 0.0]);
//! # Ok::<(), hisa_ref::Error>(())
//! ```

mod engine;
mod heads;
mod kernel;
mod keys;
mod limbs;
mod row;
pub mod scalar;
#[cfg(test)]
mod tests;

pub(crate) use engine::score_keys;
pub use keys::PackedKeys;
pub use row::PackedRow;

use crate::error::{Result, ShapeError};
use crate::input::Queries;
use crate::params::check_limit;
use std::ops::Range;

impl<'q> PackedRow<'q> {
    /// Replaces the content by row `row` of `queries`; no allocation once warm.
    ///
    /// # Errors
    /// [`crate::error::ParamError`] where `row` is not below M.
    pub fn pack(&mut self, queries: &'q Queries<'_>, row: usize) -> Result<()> {
        check_limit(
            "row + 1",
            row.saturating_add(1),
            queries.len(),
            "q holds M rows",
        )?;
        self.pack_unchecked(queries, row);
        Ok(())
    }
}

impl PackedKeys<'_> {
    /// `out[i]` becomes the score of `row` against key `range.start + i` (SPEC S).
    ///
    /// # Errors
    /// [`crate::error::ParamError`] where the range reaches beyond the N keys, [`ShapeError`]
    /// where `out` is not as long as the range or the head dimensions differ.
    pub fn score(&self, row: &PackedRow<'_>, range: Range<usize>, out: &mut [f32]) -> Result<()> {
        check_limit(
            "end of the range",
            range.end,
            self.len(),
            "there are N keys",
        )?;
        if range.len() != out.len() {
            let expected = format!("[{}] of the range", range.len());
            return Err(ShapeError::new("out", &[out.len()], expected).into());
        }
        if row.head_dim != self.head_dim() {
            let expected = format!("[H, D] with D = {}", self.head_dim());
            return Err(
                ShapeError::new("row", &[row.weights.len(), row.head_dim], expected).into(),
            );
        }
        score_keys(row, self, range, out);
        Ok(())
    }
}
