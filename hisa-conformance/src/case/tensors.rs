//! From a case to the arrays and types the reference takes.

use super::patch::Target;
use super::{Case, CaseError};
use crate::generate::values::{fill_k, fill_q, fill_weights, fill_x};
use hisa_ref::{E4M3, HisaParams, IndexerInput, Strictness, Windows};
use ndarray::{Array, Array1, Array2, Array3, Dimension};

/// The arrays of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensors {
    /// Query codes `[M,H,D]`.
    pub q: Array3<E4M3>,
    /// Key codes `[N,D]`.
    pub k: Array2<E4M3>,
    /// One scale per key `[N]`.
    pub k_scale: Array1<f32>,
    /// One weight per query and head `[M,H]`.
    pub weights: Array2<f32>,
}

/// Everything an indexer run needs, valid and owned.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Block size, blocks kept, tokens kept, ranking type.
    pub params: HisaParams,
    /// One window per row.
    pub windows: Windows,
    /// The arrays.
    pub tensors: Tensors,
    /// Strict, unless the arrays hold something strict mode refuses.
    pub strictness: Strictness,
}

impl Inputs {
    /// The arrays as the reference takes them.
    ///
    /// # Errors
    /// None for inputs from [`Case::inputs`]; as [`IndexerInput::new`] where a field was changed.
    pub fn indexer_input(&self) -> hisa_ref::Result<IndexerInput<'_>> {
        self.indexer_input_with(self.strictness)
    }

    /// The same with a strictness of the caller's choice.
    ///
    /// # Errors
    /// As [`IndexerInput::new`].
    pub fn indexer_input_with(&self, strictness: Strictness) -> hisa_ref::Result<IndexerInput<'_>> {
        let Tensors {
            q,
            k,
            k_scale,
            weights,
        } = &self.tensors;
        let windows = self.windows.clone();
        IndexerInput::new(
            q.view(),
            k.view(),
            k_scale.view(),
            weights.view(),
            windows,
            strictness,
        )
    }
}

impl Case {
    /// Parameters, windows and arrays.
    ///
    /// # Errors
    /// [`CaseError`]: what [`Self::check`], the parameters or the windows refuse.
    pub fn inputs(&self) -> Result<Inputs, CaseError> {
        let params = self.params()?;
        let tensors = self.tensors()?;
        let windows = self.windows()?;
        let strictness = tensors.strictness();
        Ok(Inputs {
            params,
            windows,
            tensors,
            strictness,
        })
    }

    /// The arrays alone.
    ///
    /// # Errors
    /// As [`Self::check`], and where there is no room for them.
    pub fn tensors(&self) -> Result<Tensors, CaseError> {
        self.check()?;
        let Self {
            m,
            n,
            h,
            d,
            seed,
            ref values,
            ..
        } = *self;
        let mut q = room("q", m * h * d, E4M3::ZERO)?;
        let mut k = room("k", n * d, E4M3::ZERO)?;
        let mut k_scale = room("k_scale", n, 0.0f32)?;
        let mut weights = room("weights", m * h, 0.0f32)?;
        fill_q(values, seed, (h, d), &mut q);
        fill_k(values, seed, self.block_size, (&mut k, d), &mut k_scale);
        fill_weights(values, seed, h, &mut weights);
        let shapes = self.shapes();
        for patch in &self.patches {
            let shape = shapes[patch.target as usize];
            let (code, float) = (
                E4M3::from_bits(patch.bits as u8),
                f32::from_bits(patch.bits),
            );
            match patch.target {
                Target::Q => patch.apply(shape, &mut q, code),
                Target::K => patch.apply(shape, &mut k, code),
                Target::S => patch.apply(shape, &mut k_scale, float),
                Target::W => patch.apply(shape, &mut weights, float),
                Target::X => {}
            }
        }
        Ok(Tensors {
            q: shaped((m, h, d), q),
            k: shaped((n, d), k),
            k_scale: shaped(n, k_scale),
            weights: shaped((m, h), weights),
        })
    }

    /// The rows for `quantize` `[N,D]`.
    ///
    /// # Errors
    /// As [`Self::tensors`].
    pub fn x(&self) -> Result<Array2<f32>, CaseError> {
        self.check()?;
        let mut x = room("x", self.n * self.d, 0.0f32)?;
        fill_x(&self.values, self.seed, self.d, &mut x);
        let shape = self.shapes()[Target::X as usize];
        for patch in self
            .patches
            .iter()
            .filter(|patch| patch.target == Target::X)
        {
            patch.apply(shape, &mut x, f32::from_bits(patch.bits));
        }
        Ok(shaped((self.n, self.d), x))
    }
}

impl Tensors {
    /// Permissive where a code is NaN, a scale not finite or negative, or a weight not finite.
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        let refused = self.q.iter().chain(&self.k).any(|code| code.is_nan())
            || self
                .k_scale
                .iter()
                .any(|&scale| !(scale >= 0.0 && scale.is_finite()))
            || self.weights.iter().any(|weight| !weight.is_finite());
        if refused {
            Strictness::Permissive
        } else {
            Strictness::Strict
        }
    }

    /// FNV-1a (64 bits) of the bytes of q, k, `k_scale` and weights in this order, row-major,
    /// floats little-endian. From 0xCBF29CE484222325, every byte is xored in and the result
    /// multiplied by 0x100000001B3.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hash = Fnv::default();
        hash.codes(&self.q);
        hash.codes(&self.k);
        hash.floats(&self.k_scale);
        hash.floats(&self.weights);
        hash.0
    }
}

/// The digest of [`Tensors::digest`] for the rows of [`Case::x`].
#[must_use]
pub fn digest_rows(x: &Array2<f32>) -> u64 {
    let mut hash = Fnv::default();
    hash.floats(x);
    hash.0
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }

    fn codes<D: Dimension>(&mut self, codes: &Array<E4M3, D>) {
        self.bytes(codes.iter().map(|code| code.to_bits()));
    }

    fn floats<D: Dimension>(&mut self, floats: &Array<f32, D>) {
        self.bytes(
            floats
                .iter()
                .flat_map(|float| float.to_bits().to_le_bytes()),
        );
    }
}

fn room<T: Clone>(what: &'static str, elements: usize, fill: T) -> Result<Vec<T>, CaseError> {
    let mut out = Vec::new();
    if out.try_reserve_exact(elements).is_err() {
        return Err(CaseError::Allocation { what, elements });
    }
    out.resize(elements, fill);
    Ok(out)
}

fn shaped<T, D: Dimension>(
    shape: impl Into<ndarray::StrideShape<D>>,
    elements: Vec<T>,
) -> Array<T, D> {
    Array::from_shape_vec(shape, elements)
        .unwrap_or_else(|_| unreachable!("the vector was made with this many elements"))
}
