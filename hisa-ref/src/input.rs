//! Tensors as the stages take them: checked once, contiguous, and from then on trusted.

use crate::error::{ParamError, Result, ShapeError, ValueError, WindowError};
use crate::fp8::E4M3;
use crate::params::{HEAD_DIM_MAX, HEADS_MAX, INDEX_MAX, Strictness, check_limit};
use crate::ragged::Windows;
use ndarray::{Array, ArrayView1, ArrayView2, ArrayView3, CowArray, Ix1, Ix2, Ix3};

/// Keys with one scale each: raw `k` `[N,D]` and `k_scale` `[N]`, or their pooled counterparts.
#[derive(Debug, Clone)]
pub struct Keys<'a> {
    codes: CowArray<'a, E4M3, Ix2>,
    scales: CowArray<'a, f32, Ix1>,
}

impl<'a> Keys<'a> {
    /// `k` is `[N,D]` e4m3, `k_scale` `[N]` f32. Views of any layout are taken.
    ///
    /// # Errors
    /// [`ShapeError`] where the lengths differ, [`ParamError`] for D = 0 or a size past its
    /// limit, and in strict mode [`ValueError`] for the first NaN code, then the first
    /// non-finite or negative scale (`-0.0` is accepted).
    pub fn new(
        k: ArrayView2<'a, E4M3>,
        k_scale: ArrayView1<'a, f32>,
        strictness: Strictness,
    ) -> Result<Self> {
        let keys = Self::shaped(k, k_scale)?;
        if strictness == Strictness::Strict {
            keys.check_codes()?;
            keys.check_scales()?;
        }
        Ok(keys)
    }

    fn shaped(k: ArrayView2<'a, E4M3>, k_scale: ArrayView1<'a, f32>) -> Result<Self> {
        let (n, d) = k.dim();
        check_head_dim(d)?;
        check_limit("N", n, INDEX_MAX, "ids travel as int32")?;
        if k_scale.len() != n {
            return Err(ShapeError::new("k_scale", k_scale.shape(), format!("[N] = [{n}]")).into());
        }
        Ok(Self {
            codes: standard("k", k)?,
            scales: standard("k_scale", k_scale)?,
        })
    }

    fn check_codes(&self) -> Result<()> {
        first_nan_code("k", self.codes(), &[self.len(), self.head_dim()])
    }

    fn check_scales(&self) -> Result<()> {
        let rule = "a scale must be finite and not negative";
        first_value("k_scale", self.scales(), &[self.len()], rule, |s| {
            s.is_finite() && s >= 0.0
        })
    }

    /// Number of keys, N.
    #[must_use]
    pub fn len(&self) -> usize {
        self.codes.nrows()
    }

    /// True where there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Head dimension, D.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.codes.ncols()
    }

    /// All codes, row-major `[N,D]`.
    #[must_use]
    pub fn codes(&self) -> &[E4M3] {
        contiguous(&self.codes)
    }

    /// All scales, `[N]`.
    #[must_use]
    pub fn scales(&self) -> &[f32] {
        contiguous(&self.scales)
    }

    /// The D codes of one key.
    #[must_use]
    pub fn key(&self, index: usize) -> &[E4M3] {
        let d = self.head_dim();
        &self.codes()[index * d..(index + 1) * d]
    }
}

/// Query rows: `q` `[M,H,D]` and the head weights `weights` `[M,H]`.
#[derive(Debug, Clone)]
pub struct Queries<'a> {
    codes: CowArray<'a, E4M3, Ix3>,
    weights: CowArray<'a, f32, Ix2>,
}

impl<'a> Queries<'a> {
    /// `q` is `[M,H,D]` e4m3, `weights` `[M,H]` f32 of either sign. Views of any layout are taken.
    ///
    /// # Errors
    /// [`ShapeError`] where M or H differ, [`ParamError`] for H = 0, D = 0 or a size past its
    /// limit, and in strict mode [`ValueError`] for the first NaN code, then the first
    /// non-finite weight.
    pub fn new(
        q: ArrayView3<'a, E4M3>,
        weights: ArrayView2<'a, f32>,
        strictness: Strictness,
    ) -> Result<Self> {
        let queries = Self::shaped(q, weights)?;
        if strictness == Strictness::Strict {
            queries.check_codes()?;
            queries.check_weights()?;
        }
        Ok(queries)
    }

    fn shaped(q: ArrayView3<'a, E4M3>, weights: ArrayView2<'a, f32>) -> Result<Self> {
        let (m, h, d) = q.dim();
        check_limit("M", m, INDEX_MAX, "ids travel as int32")?;
        if h == 0 {
            return Err(ParamError::Zero { name: "H" }.into());
        }
        check_limit("H", h, HEADS_MAX, "the head sum must fit its accumulator")?;
        check_head_dim(d)?;
        if weights.dim() != (m, h) {
            let expected = format!("[M,H] = [{m}, {h}]");
            return Err(ShapeError::new("weights", weights.shape(), expected).into());
        }
        Ok(Self {
            codes: standard("q", q)?,
            weights: standard("weights", weights)?,
        })
    }

    fn check_codes(&self) -> Result<()> {
        first_nan_code(
            "q",
            self.codes(),
            &[self.len(), self.heads(), self.head_dim()],
        )
    }

    fn check_weights(&self) -> Result<()> {
        let rule = "a weight must be finite";
        first_value(
            "weights",
            contiguous(&self.weights),
            self.weights.shape(),
            rule,
            f32::is_finite,
        )
    }

    /// Number of query rows, M.
    #[must_use]
    pub fn len(&self) -> usize {
        self.codes.dim().0
    }

    /// True where there is no query row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of heads, H.
    #[must_use]
    pub fn heads(&self) -> usize {
        self.codes.dim().1
    }

    /// Head dimension, D.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.codes.dim().2
    }

    /// Multiplications that scoring one row against `keys` keys takes: an estimate of work.
    pub(crate) fn scoring_steps(&self, keys: usize) -> usize {
        keys.saturating_mul(self.heads() * self.head_dim())
    }

    /// All codes, row-major `[M,H,D]`.
    #[must_use]
    pub fn codes(&self) -> &[E4M3] {
        contiguous(&self.codes)
    }

    /// All weights, row-major `[M,H]`.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        contiguous(&self.weights)
    }

    /// The H*D codes of one row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[E4M3] {
        let len = self.heads() * self.head_dim();
        &self.codes()[row * len..(row + 1) * len]
    }

    /// The H weights of one row.
    #[must_use]
    pub fn row_weights(&self, row: usize) -> &[f32] {
        let h = self.heads();
        &contiguous(&self.weights)[row * h..(row + 1) * h]
    }
}

/// Everything an indexer needs, checked on construction.
#[derive(Debug, Clone)]
pub struct IndexerInput<'a> {
    /// Query rows and head weights.
    pub(crate) queries: Queries<'a>,
    /// Raw keys and scales.
    pub(crate) keys: Keys<'a>,
    /// One window per query row.
    pub(crate) windows: Windows,
}

impl<'a> IndexerInput<'a> {
    /// `q` `[M,H,D]`, `k` `[N,D]`, `k_scale` `[N]`, `weights` `[M,H]`, one window per row over N
    /// keys.
    ///
    /// # Errors
    /// Shapes first; then, in strict mode, values in the order q, k, k_scale, weights, each
    /// row-major (SPEC V.7).
    pub fn new(
        q: ArrayView3<'a, E4M3>,
        k: ArrayView2<'a, E4M3>,
        k_scale: ArrayView1<'a, f32>,
        weights: ArrayView2<'a, f32>,
        windows: Windows,
        strictness: Strictness,
    ) -> Result<Self> {
        let queries = Queries::shaped(q, weights)?;
        let keys = Keys::shaped(k, k_scale)?;
        check_dims_match(&queries, &keys, "k")?;
        check_windows(&queries, keys.len(), &windows)?;
        if strictness == Strictness::Strict {
            queries.check_codes()?;
            keys.check_codes()?;
            keys.check_scales()?;
            queries.check_weights()?;
        }
        Ok(Self {
            queries,
            keys,
            windows,
        })
    }

    /// Query rows and head weights.
    #[must_use]
    pub fn queries(&self) -> &Queries<'a> {
        &self.queries
    }

    /// Raw keys and scales.
    #[must_use]
    pub fn keys(&self) -> &Keys<'a> {
        &self.keys
    }

    /// One window per query row.
    #[must_use]
    pub fn windows(&self) -> &Windows {
        &self.windows
    }
}

/// Queries and keys agree on D.
///
/// # Errors
/// [`ShapeError`] that names `argument`.
pub fn check_dims_match(
    queries: &Queries<'_>,
    keys: &Keys<'_>,
    argument: &'static str,
) -> Result<()> {
    if queries.head_dim() == keys.head_dim() {
        return Ok(());
    }
    let expected = format!("[.., D] = [.., {}]", queries.head_dim());
    Err(ShapeError::new(argument, &[keys.len(), keys.head_dim()], expected).into())
}

/// One window per query row, over `n` keys.
///
/// # Errors
/// [`WindowError::RowCounts`], [`ShapeError`].
pub fn check_windows(queries: &Queries<'_>, n: usize, windows: &Windows) -> Result<()> {
    let (rows, m) = (windows.len(), queries.len());
    if rows != m {
        return Err(WindowError::RowCounts {
            ks: rows,
            ke: rows,
            m,
        }
        .into());
    }
    if windows.n() != n {
        return Err(
            ShapeError::new("k", &[n], format!("[N] = [{}] of the windows", windows.n())).into(),
        );
    }
    Ok(())
}

fn check_head_dim(d: usize) -> Result<()> {
    if d == 0 {
        return Err(ParamError::Zero { name: "D" }.into());
    }
    check_limit("D", d, HEAD_DIM_MAX, "a dot must stay exact in f64")
}

/// `array` in row-major order, copied only where it is not so already.
///
/// # Errors
/// [`ParamError::Allocation`]: a broadcast view can stand for more elements than memory holds.
pub(crate) fn standard<'a, T: Copy, D: ndarray::Dimension>(
    what: &'static str,
    array: impl Into<CowArray<'a, T, D>>,
) -> Result<CowArray<'a, T, D>> {
    let array = array.into();
    if array.is_standard_layout() {
        return Ok(array);
    }
    let shape = || array.shape().to_vec();
    let mut values = Vec::new();
    values
        .try_reserve_exact(array.len())
        .map_err(|_| ParamError::Allocation {
            what,
            shape: shape(),
        })?;
    values.extend(array.iter().copied());
    let copy = Array::from_shape_vec(array.raw_dim(), values)
        .unwrap_or_else(|_| unreachable!("one value per element"));
    Ok(copy.into())
}

fn contiguous<'a, T, D: ndarray::Dimension>(array: &'a CowArray<'_, T, D>) -> &'a [T] {
    array
        .as_slice()
        .unwrap_or_else(|| unreachable!("made standard on construction"))
}

fn first_nan_code(argument: &'static str, codes: &[E4M3], shape: &[usize]) -> Result<()> {
    let Some(at) = codes.iter().position(|code| code.is_nan()) else {
        return Ok(());
    };
    let (index, value) = (unravel(at, shape), codes[at].to_f32());
    Err(ValueError {
        argument,
        index,
        value,
        rule: "NaN codes are refused in strict mode",
    }
    .into())
}

/// First element that `allowed` refuses, as an error with its coordinates.
pub(crate) fn first_value(
    argument: &'static str,
    values: &[f32],
    shape: &[usize],
    rule: &'static str,
    allowed: impl Fn(f32) -> bool,
) -> Result<()> {
    let Some(at) = values.iter().position(|&value| !allowed(value)) else {
        return Ok(());
    };
    Err(ValueError {
        argument,
        index: unravel(at, shape),
        value: values[at],
        rule,
    }
    .into())
}

fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (axis, &len) in shape.iter().enumerate().rev() {
        index[axis] = at % len;
        at /= len;
    }
    index
}
