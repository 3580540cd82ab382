//! The GPU of the tests, and numbers to run it on.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::print_stderr, reason = "skips are said aloud")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits};
use hisa_cuda::stages::{Input, KeySlices, QuerySlices, WindowSlices};
use hisa_cuda::{DeviceSlice, Error, Host, numerics};
use hisa_ref::model::DotClass;
use hisa_ref::{E4M3, IndexerInput, Keys, Queries, Strictness, Window, Windows, model};
use ndarray::{Array1, Array2, Array3};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One test at a time: some fill the device.
static DEVICE: Mutex<()> = Mutex::new(());

/// A GPU for this test alone; nothing, said aloud, where there is none. One that cannot be used
/// fails the test.
pub(crate) fn host(test: &str) -> Option<(Host, MutexGuard<'static, ()>)> {
    let guard = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    match Host::open(0) {
        Ok(host) => Some((host, guard)),
        Err(reason) => {
            assert!(is_absence(&reason), "{test}: {reason}");
            let required = std::env::var_os("HISA_REQUIRE_GPU").unwrap_or_default();
            assert!(
                required.is_empty(),
                "{test}: HISA_REQUIRE_GPU is set, and {reason}"
            );
            eprintln!("SKIPPED {test}: {reason}");
            None
        }
    }
}

/// Whether something is not there, rather than there and failing.
const fn is_absence(error: &Error) -> bool {
    matches!(
        error,
        Error::NoDriver { .. }
            | Error::DriverSymbol { .. }
            | Error::NoDevice { .. }
            | Error::DeviceTooOld { .. }
            | Error::NoNvrtc { .. }
    )
}

/// The model of the dots of tensor cores; nothing, said aloud, where the GPU has none.
pub(crate) fn class(test: &str, host: &Host) -> Option<DotClass> {
    let arch = host.device().limits().arch;
    let class = numerics::class(arch);
    if class.is_none() {
        eprintln!("SKIPPED {test}: no model for {arch}");
    }
    class
}

/// What tensor cores make of one row and one key, by their model.
pub(crate) fn model_score(
    class: DotClass,
    queries: &Queries<'_>,
    keys: &Keys<'_>,
    (row, key): (usize, usize),
) -> f32 {
    let heads = queries.row(row).chunks_exact(queries.head_dim());
    let dots: Vec<f32> = heads
        .map(|head| model::dot(class, head, keys.key(key)))
        .collect();
    let scale = keys.scales()[key];
    numerics::EPILOGUE.score(&dots, queries.row_weights(row), scale)
}

/// SplitMix64.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// From 0 to `end`, not included.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Sum of four uniform numbers around 0.
    pub(crate) fn bell(&mut self) -> f32 {
        let bits = self.next();
        let parts = (0..4).map(|at| (bits >> (16 * at) & 0xFFFF) as f32 / 65_536.0 - 0.5);
        2.0 * parts.sum::<f32>()
    }

    /// A code that is not NaN, of moderate size.
    pub(crate) fn code(&mut self) -> E4M3 {
        let bits = self.next();
        let magnitude = 0x20 + (bits & 0x1F) as u8;
        E4M3::from_bits(magnitude | (bits >> 8 & 0x80) as u8)
    }

    /// Any code.
    pub(crate) fn any_code(&mut self) -> E4M3 {
        E4M3::from_bits(self.next() as u8)
    }
}

/// The tensors of one input.
pub(crate) struct Tensors {
    pub(crate) q: Array3<E4M3>,
    pub(crate) k: Array2<E4M3>,
    pub(crate) k_scale: Array1<f32>,
    pub(crate) weights: Array2<f32>,
    pub(crate) windows: Windows,
}

impl Tensors {
    /// Ordinary numbers with a causal window at the end of the keys.
    pub(crate) fn new(numbers: &mut Numbers, [m, n, h, d]: [usize; 4]) -> Self {
        let first = n.saturating_sub(m);
        let window = |row: usize| Window {
            ks: 0,
            ke: (first + row + 1).min(n) as i32,
        };
        Self {
            q: Array3::from_shape_simple_fn((m, h, d), || numbers.code()),
            k: Array2::from_shape_simple_fn((n, d), || numbers.code()),
            k_scale: Array1::from_shape_simple_fn(n, || 0.01 + numbers.bell().abs()),
            weights: Array2::from_shape_simple_fn((m, h), || numbers.bell()),
            windows: Windows::new((0..m).map(window).collect(), n).unwrap(),
        }
    }

    /// Anything permissive mode takes, ties included, and windows anywhere.
    pub(crate) fn wild(numbers: &mut Numbers, [m, n, h, d]: [usize; 4]) -> Self {
        let mut tensors = Self::new(numbers, [m, n, h, d]);
        let odd = [
            0.0,
            -0.0,
            1e-45,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
            -1.0,
            1e-30,
            1e30,
        ];
        let few = numbers.below(3);
        let value = |numbers: &mut Numbers| match numbers.below(12) {
            0 if few > 0 => numbers.pick(&odd),
            1..=6 => 1.0,
            _ => numbers.bell().abs(),
        };
        tensors.k_scale.mapv_inplace(|_| value(numbers));
        tensors.weights.mapv_inplace(|_| value(numbers));
        if few == 2 {
            tensors.k.mapv_inplace(|_| numbers.any_code());
            tensors.q.mapv_inplace(|_| numbers.any_code());
        }
        let window = |_| {
            let (a, b) = (numbers.below(n + 1), numbers.below(n + 1));
            Window {
                ks: a.min(b) as i32,
                ke: a.max(b) as i32,
            }
        };
        tensors.windows = Windows::new((0..m).map(window).collect(), n).unwrap();
        tensors
    }

    pub(crate) fn input(&self) -> IndexerInput<'_> {
        IndexerInput::new(
            self.q.view(),
            self.k.view(),
            self.k_scale.view(),
            self.weights.view(),
            self.windows.clone(),
            Strictness::Permissive,
        )
        .unwrap()
    }
}

/// That two arrays have the same bits. SPEC V.4 and V.8 fix the zero and the NaN too.
#[track_caller]
pub(crate) fn assert_same(what: &str, got: &Array2<f32>, expected: &Array2<f32>) {
    assert_each(what, got, expected, |a, b| a.to_bits() == b.to_bits());
}

/// The same, but that a NaN may be any: of scores of tensor cores, whose model says where a NaN
/// comes out and not with which payload.
#[track_caller]
pub(crate) fn assert_same_but_nan_payloads(what: &str, got: &Array2<f32>, expected: &Array2<f32>) {
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    assert_each(what, got, expected, same);
}

/// Names the first place where two arrays differ.
#[track_caller]
fn assert_each(
    what: &str,
    got: &Array2<f32>,
    expected: &Array2<f32>,
    same: impl Fn(f32, f32) -> bool,
) {
    assert_eq!(got.dim(), expected.dim(), "{what}");
    let mut pairs = got.indexed_iter().zip(expected);
    if let Some(((place, a), b)) = pairs.find(|((_, a), b)| !same(**a, **b)) {
        let (a_bits, b_bits) = (a.to_bits(), b.to_bits());
        panic!("{what} at {place:?}: got {a:e} ({a_bits:#x}), expected {b:e} ({b_bits:#x})");
    }
}

/// An input on the device.
pub(crate) struct Resident {
    pub(crate) q: CudaSlice<u8>,
    pub(crate) k: CudaSlice<u8>,
    pub(crate) k_scale: CudaSlice<f32>,
    pub(crate) weights: CudaSlice<f32>,
    pub(crate) ks: CudaSlice<i32>,
    pub(crate) ke: CudaSlice<i32>,
}

pub(crate) fn bits(codes: &[E4M3]) -> Vec<u8> {
    codes.iter().map(|code| code.to_bits()).collect()
}

impl Resident {
    pub(crate) fn new(stream: &Arc<CudaStream>, tensors: &Tensors) -> Self {
        let windows = tensors.windows.rows();
        let (ks, ke): (Vec<i32>, Vec<i32>) = windows.iter().map(|w| (w.ks, w.ke)).unzip();
        Self {
            q: stream
                .clone_htod(&bits(tensors.q.as_slice().unwrap()))
                .unwrap(),
            k: stream
                .clone_htod(&bits(tensors.k.as_slice().unwrap()))
                .unwrap(),
            k_scale: stream
                .clone_htod(tensors.k_scale.as_slice().unwrap())
                .unwrap(),
            weights: stream
                .clone_htod(tensors.weights.as_slice().unwrap())
                .unwrap(),
            ks: stream.clone_htod(&ks).unwrap(),
            ke: stream.clone_htod(&ke).unwrap(),
        }
    }

    pub(crate) fn slices<'a>(&'a self, stream: &'a CudaStream) -> Input<'a> {
        Input {
            queries: QuerySlices {
                q: DeviceSlice::of(&self.q, stream),
                weights: DeviceSlice::of(&self.weights, stream),
            },
            keys: KeySlices {
                codes: DeviceSlice::of(&self.k, stream),
                scales: DeviceSlice::of(&self.k_scale, stream),
            },
            windows: WindowSlices {
                ks: DeviceSlice::of(&self.ks, stream),
                ke: DeviceSlice::of(&self.ke, stream),
            },
        }
    }
}

pub(crate) fn zeros<T: DeviceRepr + ValidAsZeroBits>(
    stream: &Arc<CudaStream>,
    len: usize,
) -> CudaSlice<T> {
    stream.alloc_zeros(len).unwrap()
}
