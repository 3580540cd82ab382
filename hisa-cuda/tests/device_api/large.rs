//! Tensors of more than 2^31 elements.

use crate::device::{Numbers, Resident, Tensors, bits, host, zeros};
use cudarc::driver::{CudaSlice, CudaStream};
use hisa_cuda::stages::{Input, block_pool, token_scores, token_topk};
use hisa_cuda::{Blocks, Device, DeviceSlice, DeviceSliceMut, Scoring, Sizes};
use hisa_ref::{Keys, Strictness};
use ndarray::Axis;
use std::sync::Arc;

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
