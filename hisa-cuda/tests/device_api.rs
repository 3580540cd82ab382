//! The device API on a GPU: graphs, borrowed streams, sizes past 32 bits, errors.
//! Without a GPU every test says so and passes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod device;

use cudarc::driver::{CudaSlice, CudaStream, sys};
use device::{Numbers, Resident, Tensors, bits, host, zeros};
use hisa_cuda::stages::{Input, KeySlices};
use hisa_cuda::stages::{block_pool, token_scores, token_topk};
use hisa_cuda::{Blocks, Device, DeviceSlice, DeviceSliceMut, Error, Scoring, Sizes, hisa};
use hisa_ref::{HisaParams, Keys, Strictness, incremental};
use ndarray::Axis;
use std::sync::Arc;

const SIZES: Sizes = Sizes {
    rows: 33,
    keys: 1000,
    heads: 8,
    head_dim: 64,
};

/// Runs a plan on a stream of the caller's, directly or as a captured graph.
#[test]
fn a_captured_run_gives_the_bits_of_a_direct_one_on_changed_inputs() {
    let Some((host, _guard)) = host("graph") else {
        return;
    };
    let device = host.device();
    let stream = device.stream().unwrap();
    let params = HisaParams::new(16, 8, 64).unwrap();
    let plan = hisa::Plan::new(device, SIZES, &params, Scoring::Exact).unwrap();
    let Sizes {
        rows,
        keys,
        heads,
        head_dim,
    } = SIZES;
    let shape = [rows, keys, heads, head_dim];
    let first = Tensors::new(&mut Numbers(1), shape);
    let mut resident = Resident::new(&stream, &first);
    let mut workspace = zeros::<u8>(&stream, plan.workspace_bytes());
    let mut indices = zeros::<i32>(&stream, rows * 64);
    stream.synchronize().unwrap();

    stream
        .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        .unwrap();
    run(
        device,
        &stream,
        &plan,
        &resident,
        &mut workspace,
        &mut indices,
    );
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();

    for seed in [1, 2, 3] {
        let tensors = Tensors::new(&mut Numbers(seed), shape);
        let fresh = Resident::new(&stream, &tensors);
        stream.memcpy_dtod(&fresh.q, &mut resident.q).unwrap();
        stream.memcpy_dtod(&fresh.k, &mut resident.k).unwrap();
        stream
            .memcpy_dtod(&fresh.k_scale, &mut resident.k_scale)
            .unwrap();
        stream
            .memcpy_dtod(&fresh.weights, &mut resident.weights)
            .unwrap();
        stream.memset_zeros(&mut indices).unwrap();
        graph.launch().unwrap();
        let got = stream.clone_dtoh(&indices).unwrap();
        let expected = hisa_ref::hisa::run(&tensors.input(), &params).unwrap();
        assert_eq!(got, expected.into_raw_vec_and_offset().0, "seed {seed}");
    }
}

fn run(
    device: &Device,
    stream: &CudaStream,
    plan: &hisa::Plan,
    resident: &Resident,
    workspace: &mut CudaSlice<u8>,
    indices: &mut CudaSlice<i32>,
) {
    let mut workspace = DeviceSliceMut::of(workspace, stream);
    let mut indices = DeviceSliceMut::of(indices, stream);
    let input = resident.slices(stream);
    plan.run(device, stream, &input, &mut workspace, &mut indices)
        .unwrap();
}

#[test]
fn a_borrowed_stream_is_used_and_left_alone() {
    let Some((host, _guard)) = host("stream") else {
        return;
    };
    let device = host.device();
    let owner = device.stream().unwrap();
    // SAFETY: the owner outlives what is borrowed from it.
    let stream = unsafe { device.context().wrap_borrowed_stream(owner.cu_stream()) };
    let params = HisaParams::new(16, 8, 64).unwrap();
    let plan = hisa::Plan::new(device, SIZES, &params, Scoring::Exact).unwrap();
    let shape = [SIZES.rows, SIZES.keys, SIZES.heads, SIZES.head_dim];
    let tensors = Tensors::new(&mut Numbers(5), shape);
    let resident = Resident::new(&stream, &tensors);
    let mut workspace = zeros::<u8>(&stream, plan.workspace_bytes());
    let mut indices = zeros::<i32>(&stream, SIZES.rows * 64);
    run(
        device,
        &stream,
        &plan,
        &resident,
        &mut workspace,
        &mut indices,
    );
    drop(stream);
    owner.synchronize().unwrap();
    let got = owner.clone_dtoh(&indices).unwrap();
    let expected = hisa_ref::hisa::run(&tensors.input(), &params).unwrap();
    assert_eq!(got, expected.into_raw_vec_and_offset().0);
}

/// BR-65, BR-66: q, k and token scores beyond 2^31 elements. The last row reads the last block and
/// has to come out as it does alone.
#[test]
fn rows_and_blocks_past_two_to_the_31_are_where_they_belong() {
    let Some((host, _guard)) = host("large") else {
        return;
    };
    let device = host.device();
    let stream = device.stream().unwrap();
    let (rows, keys, heads, head_dim, b) = (262_145, 16_777_300, 64, 128, 128);
    let sizes = Sizes {
        rows,
        keys,
        heads,
        head_dim,
    };
    let blocks = Blocks::new(b, 64).unwrap();
    assert!(sizes.query_codes() > 1 << 31 && sizes.key_codes() > 1 << 31);
    assert!(rows * blocks.slots() > 1 << 31);

    let small = Tensors::new(&mut Numbers(7), [1, 2 * b, heads, head_dim]);
    let mut large = large_input(&stream, &sizes, &small);
    let last = (keys / b) as i32;
    let ids: Vec<i32> = (0..64).map(|at| last - 63 + at).collect();
    let mut block_ids = zeros::<i32>(&stream, rows * 64);
    stream
        .memcpy_htod(&ids, &mut block_ids.slice_mut((rows - 1) * 64..))
        .unwrap();
    let window = [keys as i32 - 2 * b as i32, keys as i32];
    stream
        .memcpy_htod(&window[..1], &mut large.ks.slice_mut(rows - 1..))
        .unwrap();
    stream
        .memcpy_htod(&window[1..], &mut large.ke.slice_mut(rows - 1..))
        .unwrap();

    for scoring in [Scoring::Exact, Scoring::TensorCores] {
        let all = choose(
            device,
            &stream,
            &large.slices(&stream),
            (&block_ids, sizes),
            scoring,
        );
        let alone = Sizes { rows: 1, ..sizes };
        let input = large.slices(&stream).from_row(rows - 1, &sizes);
        let mut last_ids = zeros::<i32>(&stream, 64);
        stream.memcpy_htod(&ids, &mut last_ids).unwrap();
        let row = choose(device, &stream, &input, (&last_ids, alone), scoring);
        assert_eq!(all[all.len() - 64..], row[..], "{scoring:?}");
        assert!(row.iter().all(|&slot| slot >= 0), "{scoring:?}: {row:?}");
    }
    pooled_tail(device, &stream, &large, &sizes, &small);
}

/// The keys and the query of `small` at the very end of tensors of `sizes`.
fn large_input(stream: &Arc<CudaStream>, sizes: &Sizes, small: &Tensors) -> Resident {
    let mut large = Resident {
        q: zeros(stream, sizes.query_codes()),
        k: zeros(stream, sizes.key_codes()),
        k_scale: zeros(stream, sizes.keys),
        weights: zeros(stream, sizes.weights()),
        ks: zeros(stream, sizes.rows),
        ke: zeros(stream, sizes.rows),
    };
    let resident = Resident::new(stream, small);
    let tail = |len: usize, part: usize| len - part..;
    let put = |from: &CudaSlice<u8>, to: &mut CudaSlice<u8>| {
        let range = tail(to.len(), from.len());
        stream.memcpy_dtod(from, &mut to.slice_mut(range)).unwrap();
    };
    put(&resident.q, &mut large.q);
    put(&resident.k, &mut large.k);
    let put = |from: &CudaSlice<f32>, to: &mut CudaSlice<f32>| {
        let range = tail(to.len(), from.len());
        stream.memcpy_dtod(from, &mut to.slice_mut(range)).unwrap();
    };
    put(&resident.k_scale, &mut large.k_scale);
    put(&resident.weights, &mut large.weights);
    large
}

/// `slots` of stages 6 and 7.
fn choose(
    device: &Device,
    stream: &Arc<CudaStream>,
    input: &Input<'_>,
    (block_ids, sizes): (&CudaSlice<i32>, Sizes),
    scoring: Scoring,
) -> Vec<i32> {
    let blocks = Blocks::new(128, 64).unwrap();
    let mut scores = zeros::<f32>(stream, sizes.rows * blocks.slots());
    let mut slots = zeros::<i32>(stream, sizes.rows * 64);
    let args = token_scores::Args {
        queries: input.queries,
        keys: input.keys,
        block_ids: DeviceSlice::of(block_ids, stream),
        windows: input.windows,
        sizes,
        blocks,
        scoring,
        scores: DeviceSliceMut::of(&mut scores, stream),
    };
    token_scores::launch(device, stream, &args).unwrap();
    let args = token_topk::Args {
        token_scores: DeviceSlice::of(&scores, stream),
        block_ids: DeviceSlice::of(block_ids, stream),
        windows: input.windows,
        rows: sizes.rows,
        keys: sizes.keys,
        blocks,
        topk: 64,
        slots: DeviceSliceMut::of(&mut slots, stream),
    };
    token_topk::launch(device, stream, &args).unwrap();
    stream.clone_dtoh(&slots).unwrap()
}

/// The last two blocks, pooled among all, are those of their keys alone.
fn pooled_tail(
    device: &Device,
    stream: &Arc<CudaStream>,
    large: &Resident,
    sizes: &Sizes,
    small: &Tensors,
) {
    let (b, d) = (128, sizes.head_dim);
    let blocks = sizes.blocks(b);
    let mut pooled_k = zeros::<u8>(stream, blocks * d);
    let mut pooled_scale = zeros::<f32>(stream, blocks);
    let args = block_pool::Args {
        keys: large.slices(stream).keys,
        len: sizes.keys,
        head_dim: d,
        block_size: b,
        first_block: 0,
        pooled_k: DeviceSliceMut::of(&mut pooled_k, stream),
        pooled_scale: DeviceSliceMut::of(&mut pooled_scale, stream),
    };
    block_pool::launch(device, stream, &args).unwrap();
    let got = stream
        .clone_dtoh(&pooled_k.slice((blocks - 1) * d..))
        .unwrap();
    let tail = sizes.keys - (blocks - 1) * b;
    let first = small.k.nrows() - tail;
    let rows: Vec<usize> = (first..small.k.nrows()).collect();
    let (codes, scales) = (
        small.k.select(Axis(0), &rows),
        small.k_scale.select(Axis(0), &rows),
    );
    let keys = Keys::new(codes.view(), scales.view(), Strictness::Strict).unwrap();
    let expected = hisa_ref::stages::block_pool::run(&keys, b).unwrap();
    assert_eq!(got, bits(expected.codes.as_slice().unwrap()));
}

#[test]
fn a_cache_in_steps_holds_what_the_reference_holds() {
    let Some((host, _guard)) = host("cache") else {
        return;
    };
    let device = host.device();
    let stream = device.stream().unwrap();
    let (b, d, n) = (7, 48, 100);
    let tensors = Tensors::new(&mut Numbers(11), [1, n, 1, d]);
    let mut cache = hisa_cuda::incremental::PooledCache::new(device, &stream, (b, d), n).unwrap();
    let mut expected = incremental::PooledCache::new(b, d).unwrap();
    let mut numbers = Numbers(12);
    for _ in 0..60 {
        let position = numbers.below(cache.len() + 1);
        if numbers.below(4) == 0 {
            cache.truncate(device, position).unwrap();
            expected.truncate(position).unwrap();
        }
        let other = numbers.below(cache.len() + 1);
        let position = numbers.pick(&[cache.len(), other]);
        let count = numbers.below(9).min(n - position);
        let rows: Vec<usize> = (0..count).map(|_| numbers.below(n)).collect();
        let (k, scale) = (
            tensors.k.select(Axis(0), &rows),
            tensors.k_scale.select(Axis(0), &rows),
        );
        let codes = stream
            .clone_htod(&[&bits(k.as_slice().unwrap())[..], &[0]].concat())
            .unwrap();
        let scales = stream
            .clone_htod(&[scale.as_slice().unwrap(), &[0.0]].concat())
            .unwrap();
        let keys = KeySlices {
            codes: DeviceSlice::of(&codes, &stream),
            scales: DeviceSlice::of(&scales, &stream),
        };
        cache.write(device, position, (keys, count)).unwrap();
        expected
            .write(
                position,
                &Keys::new(k.view(), scale.view(), Strictness::Strict).unwrap(),
            )
            .unwrap();
        let pooled = expected.pooled();
        let got = download(&stream, cache.pooled().codes, pooled.codes.len());
        assert_eq!(got, bits(pooled.codes.as_slice().unwrap()));
    }
    assert!(cache.write(device, n, (cache_keys(), 1)).is_err());
}

/// Keys that a refused call never reads.
fn cache_keys() -> KeySlices<'static> {
    // SAFETY: never followed.
    unsafe {
        KeySlices {
            codes: DeviceSlice::from_raw(0, 1 << 20),
            scales: DeviceSlice::from_raw(0, 1 << 20),
        }
    }
}

fn download(stream: &CudaStream, from: DeviceSlice<'_, u8>, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.synchronize().unwrap();
    if len > 0 {
        // SAFETY: `len` bytes are held there.
        unsafe { cudarc::driver::result::memcpy_dtoh_sync(&mut bytes, from.pointer()) }.unwrap();
    }
    bytes
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let Some((host, _guard)) = host("errors") else {
        return;
    };
    let device = host.device();
    let stream = device.stream().unwrap();
    let wide = Sizes {
        heads: 129,
        ..SIZES
    };
    let params = HisaParams::new(16, 8, 64).unwrap();
    let refused = hisa::Plan::new(device, wide, &params, Scoring::Exact);
    assert!(matches!(
        refused,
        Err(Error::Unsupported {
            name: "H",
            value: 129,
            limit: 128
        })
    ));
    let many = HisaParams::new(16, 1024, 8193).unwrap();
    let refused = hisa::Plan::new(device, SIZES, &many, Scoring::Exact);
    assert!(matches!(
        refused,
        Err(Error::Unsupported {
            name: "topk_tokens",
            ..
        })
    ));
    let refused = hisa_cuda::incremental::PooledCache::new(device, &stream, (1, 256), 1 << 30);
    assert!(
        matches!(refused, Err(Error::OutOfMemory { .. })),
        "{refused:?}"
    );
    let plan = hisa::Plan::new(device, SIZES, &params, Scoring::Exact).unwrap();
    let tensors = Tensors::new(&mut Numbers(1), [33, 1000, 8, 64]);
    let resident = Resident::new(&stream, &tensors);
    let mut short = zeros::<u8>(&stream, plan.workspace_bytes() - 1);
    let mut indices = zeros::<i32>(&stream, 33 * 64);
    let refused = plan.run(
        device,
        &stream,
        &resident.slices(&stream),
        &mut DeviceSliceMut::of(&mut short, &stream),
        &mut DeviceSliceMut::of(&mut indices, &stream),
    );
    assert!(matches!(
        refused,
        Err(Error::Length {
            tensor: "workspace",
            ..
        })
    ));
    let absent = Device::open(99);
    assert!(matches!(absent, Err(Error::NoDevice { ordinal: 99, .. })));
}
