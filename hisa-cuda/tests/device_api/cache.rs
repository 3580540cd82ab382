//! The pooled cache that grows with the sequence, and the indexer on it.

use crate::device::{Numbers, Resident, Tensors, bits, host, zeros};
use cudarc::driver::{CudaStream, DeviceRepr};
use hisa_cuda::incremental::PooledCache;
use hisa_cuda::stages::{Input, KeySlices};
use hisa_cuda::{Device, DeviceSlice, DeviceSliceMut, Error, Scoring, Sizes, hisa};
use hisa_ref::error::ParamError;
use hisa_ref::{E4M3, HisaParams, Keys, Strictness, incremental};
use ndarray::{Array1, Array2, Axis};
use std::sync::Arc;

/// A cache on the device, and what it is to hold.
struct Pair<'d> {
    device: &'d Device,
    stream: Arc<CudaStream>,
    cache: PooledCache,
    expected: incremental::PooledCache,
    codes: Array2<E4M3>,
    scales: Array1<f32>,
}

impl<'d> Pair<'d> {
    fn new(device: &'d Device, (b, d): (usize, usize), capacity: usize) -> Self {
        let stream = device.stream().unwrap();
        Self {
            cache: PooledCache::new(device, &stream, (b, d), capacity).unwrap(),
            expected: incremental::PooledCache::new(b, d).unwrap(),
            codes: Array2::from_elem((0, d), E4M3::ZERO),
            scales: Array1::zeros(0),
            device,
            stream,
        }
    }

    fn truncate(&mut self, len: usize) {
        self.cache.truncate(self.device, len).unwrap();
        self.expected.truncate(len).unwrap();
        let rows: Vec<usize> = (0..len).collect();
        self.codes = self.codes.select(Axis(0), &rows);
        self.scales = self.scales.select(Axis(0), &rows);
    }

    /// Writes these rows of `from`.
    fn write(&mut self, position: usize, from: &Tensors, rows: &[usize]) {
        let k = from.k.select(Axis(0), rows);
        let scale = from.k_scale.select(Axis(0), rows);
        let codes = [&bits(k.as_slice().unwrap())[..], &[0]].concat();
        let codes = self.stream.clone_htod(&codes).unwrap();
        let scales = [scale.as_slice().unwrap(), &[0.0]].concat();
        let scales = self.stream.clone_htod(&scales).unwrap();
        let slices = KeySlices {
            codes: DeviceSlice::of(&codes, &self.stream),
            scales: DeviceSlice::of(&scales, &self.stream),
        };
        let (device, count) = (self.device, rows.len());
        let written = match position == self.cache.len() {
            true => self.cache.append(device, slices, count),
            false => self.cache.write(device, position, (slices, count)),
        };
        written.unwrap();
        let keys = Keys::new(k.view(), scale.view(), Strictness::Strict).unwrap();
        self.expected.write(position, &keys).unwrap();
        for (at, (key, &scale)) in (position..).zip(k.rows().into_iter().zip(&scale)) {
            if at < self.scales.len() {
                self.codes.row_mut(at).assign(&key);
                self.scales[at] = scale;
            } else {
                self.codes.push_row(key).unwrap();
                self.scales
                    .append(Axis(0), Array1::from_elem(1, scale).view())
                    .unwrap();
            }
        }
    }

    /// That raw keys and pooled ones have the bits of the reference.
    fn check(&self, what: &str) {
        let (stream, len, pooled) = (&self.stream, self.scales.len(), self.expected.pooled());
        assert_eq!(
            (self.cache.len(), self.expected.len()),
            (len, len),
            "{what}"
        );
        assert_eq!(self.cache.is_empty(), len == 0, "{what}");
        let compare = |kind, slices: KeySlices<'_>, codes: &Array2<E4M3>, scales: &Array1<f32>| {
            let got = download(stream, slices.codes, codes.len());
            assert_eq!(got, bits(codes.as_slice().unwrap()), "{kind} codes, {what}");
            let got = download(stream, slices.scales, scales.len());
            let got: Vec<u32> = got.into_iter().map(f32::to_bits).collect();
            let expected: Vec<u32> = scales.iter().map(|scale| scale.to_bits()).collect();
            assert_eq!(got, expected, "{kind} scales, {what}");
        };
        compare("raw", self.cache.keys(), &self.codes, &self.scales);
        compare("pooled", self.cache.pooled(), &pooled.codes, &pooled.scales);
    }
}

fn download<T: DeviceRepr + Default + Copy>(
    stream: &CudaStream,
    from: DeviceSlice<'_, T>,
    len: usize,
) -> Vec<T> {
    let mut values = vec![T::default(); len];
    stream.synchronize().unwrap();
    if len > 0 {
        let from = from.holding("what is compared", len).unwrap();
        let from = from.on(stream).unwrap();
        // SAFETY: `len` elements are held there.
        unsafe { cudarc::driver::result::memcpy_dtoh_sync(&mut values, from) }.unwrap();
    }
    values
}

#[test]
fn a_cache_in_steps_holds_what_the_reference_holds() {
    let Some((host, _guard)) = host("cache") else {
        return;
    };
    let (b, d, n) = (7, 48, 100);
    let tensors = Tensors::new(&mut Numbers(11), [1, n, 1, d]);
    let mut pair = Pair::new(host.device(), (b, d), n);
    let mut numbers = Numbers(12);
    for step in 0..60 {
        let position = numbers.below(pair.cache.len() + 1);
        if numbers.below(4) == 0 {
            pair.truncate(position);
            pair.check(&format!("step {step}, rolled back"));
        }
        let other = numbers.below(pair.cache.len() + 1);
        let position = numbers.pick(&[pair.cache.len(), other]);
        let count = numbers.below(9).min(n - position);
        let rows: Vec<usize> = (0..count).map(|_| numbers.below(n)).collect();
        pair.write(position, &tensors, &rows);
        pair.check(&format!("step {step}"));
    }
    pair.write(0, &tensors, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    refusals(&mut pair, (d, n));
    pair.check("after refusals");
}

/// What a cache of `n` keys refuses, by name; nothing changes.
fn refusals(pair: &mut Pair<'_>, (d, n): (usize, usize)) {
    pair.truncate(5);
    let (device, cache) = (pair.device, &mut pair.cache);
    let beyond = |what| {
        let (position, len) = (6, 5);
        Error::Input(
            ParamError::CachePosition {
                what,
                position,
                len,
            }
            .into(),
        )
    };
    let refused = cache.write(device, 6, (unread(1 << 20, 1 << 20), 1));
    assert_eq!(refused, Err(beyond("write position")));
    assert_eq!(cache.truncate(device, 6), Err(beyond("roll-back length")));
    let full = Error::Unsupported {
        name: "keys of the cache",
        value: n + 1,
        limit: n,
    };
    let keys = unread(1 << 20, 1 << 20);
    assert_eq!(cache.append(device, keys, n - 4), Err(full.clone()));
    assert_eq!(cache.write(device, 0, (keys, n + 1)), Err(full));
    let short = |tensor, len, needed| {
        Err(Error::Length {
            tensor,
            len,
            needed,
        })
    };
    let refused = cache.append(device, unread(2 * d - 1, 2), 2);
    assert_eq!(refused, short("k", 2 * d - 1, 2 * d));
    let refused = cache.append(device, unread(2 * d, 1), 2);
    assert_eq!(refused, short("k_scale", 1, 2));
}

/// Keys that a refused call never reads.
fn unread(codes: usize, scales: usize) -> KeySlices<'static> {
    // SAFETY: never followed.
    unsafe {
        KeySlices {
            codes: DeviceSlice::from_raw(0, codes),
            scales: DeviceSlice::from_raw(0, scales),
        }
    }
}

/// A few rows over many keys, as in decoding: keys come by pieces and are rolled back, and the
/// indexer reads what the cache has pooled.
#[test]
fn the_indexer_on_a_cache_has_the_bits_of_the_reference() {
    let Some((host, _guard)) = host("pooled") else {
        return;
    };
    let (b, heads, d, n) = (64, 16, 128, 9000);
    let params = HisaParams::new(b, 12, 256).unwrap();
    let source = Tensors::new(&mut Numbers(21), [1, n, 1, d]);
    let mut pair = Pair::new(host.device(), (b, d), n);
    let mut numbers = Numbers(22);
    let steps = [
        (0, 5000),
        (5000, 1),
        (5001, 3),
        (5004, 3000),
        (3333, 700),
        (4033, 1),
    ];
    for (from, count) in steps {
        if from < pair.cache.len() {
            pair.truncate(from);
        }
        let rows: Vec<usize> = (0..count).map(|_| numbers.below(n)).collect();
        pair.write(from, &source, &rows);
        for m in [1, 3] {
            let mut tensors = Tensors::new(&mut numbers, [m, from + count, heads, d]);
            tensors.k = pair.codes.clone();
            tensors.k_scale = pair.scales.clone();
            let expected = hisa_ref::hisa::run(&tensors.input(), &params).unwrap();
            let expected = expected.into_raw_vec_and_offset().0;
            let what = format!("{m} rows over {} keys", from + count);
            let (pooled, whole) = on_cache(&pair, &tensors, &params, Scoring::Exact);
            assert_eq!((&pooled, &whole), (&expected, &expected), "{what}");
            let (pooled, whole) = on_cache(&pair, &tensors, &params, Scoring::TensorCores);
            assert_eq!(pooled, whole, "{what}");
        }
    }
}

/// The indices on the pooled keys of the cache, and on its raw keys pooled anew.
fn on_cache(
    pair: &Pair<'_>,
    tensors: &Tensors,
    params: &HisaParams,
    scoring: Scoring,
) -> (Vec<i32>, Vec<i32>) {
    let (rows, heads, head_dim) = tensors.q.dim();
    let sizes = Sizes {
        rows,
        keys: pair.cache.len(),
        heads,
        head_dim,
    };
    let (device, stream) = (pair.device, &pair.stream);
    let plan = hisa::Plan::new(device, sizes, params, scoring).unwrap();
    let resident = Resident::new(stream, tensors);
    let input = Input {
        keys: pair.cache.keys(),
        ..resident.slices(stream)
    };
    let run = |bytes, pooled| {
        let mut space = zeros::<u8>(stream, bytes);
        let mut space = DeviceSliceMut::of(&mut space, stream);
        let mut out = zeros::<i32>(stream, rows * params.topk_tokens());
        let mut indices = DeviceSliceMut::of(&mut out, stream);
        let ran = match pooled {
            Some(pooled) => {
                plan.run_pooled(device, stream, (&input, pooled), &mut space, &mut indices)
            }
            None => plan.run(device, stream, &input, &mut space, &mut indices),
        };
        ran.unwrap();
        stream.clone_dtoh(&out).unwrap()
    };
    let pooled = pair.cache.pooled();
    (
        run(plan.pooled_workspace_bytes(), Some(pooled)),
        run(plan.workspace_bytes(), None),
    )
}
