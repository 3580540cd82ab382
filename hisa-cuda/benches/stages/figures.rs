//! A configuration on the device, and what is timed of it.

use crate::data::Data;
use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits, sys};
use hisa_cuda::stages::*;
use hisa_cuda::{Blocks, Device, DeviceSlice, DeviceSliceMut, Scoring, Sizes};
use hisa_cuda::{dsa, hisa};
use hisa_ref::{E4M3, HisaParams, Rank};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The flat indexer is timed where its scores fit this many bytes.
const FLAT_BYTES: usize = 8 << 30;

/// How long a figure is measured, besides three launches before it.
const PATIENCE: Duration = Duration::from_millis(200);

/// A configuration on the device.
pub(super) struct Bench<'d> {
    device: &'d Device,
    stream: Arc<CudaStream>,
    sizes: Sizes,
    q: CudaSlice<u8>,
    k: CudaSlice<u8>,
    k_scale: CudaSlice<f32>,
    weights: CudaSlice<f32>,
    ks: CudaSlice<i32>,
    ke: CudaSlice<i32>,
}

fn zeros<T: DeviceRepr + ValidAsZeroBits>(stream: &Arc<CudaStream>, len: usize) -> CudaSlice<T> {
    stream.alloc_zeros(len).unwrap()
}

impl<'d> Bench<'d> {
    pub(super) fn new(device: &'d Device, data: &Data) -> Self {
        let stream = device.stream().unwrap();
        let bits =
            |codes: &[E4M3]| -> Vec<u8> { codes.iter().map(|code| code.to_bits()).collect() };
        let windows = (0..data.sizes.rows).map(|row| data.window(row));
        let (ks, ke): (Vec<i32>, Vec<i32>) = windows.map(|w| (w.ks, w.ke)).unzip();
        Self {
            device,
            sizes: data.sizes,
            q: stream.clone_htod(&bits(&data.q)).unwrap(),
            k: stream.clone_htod(&bits(&data.k)).unwrap(),
            k_scale: stream.clone_htod(&data.k_scale).unwrap(),
            weights: stream.clone_htod(&data.weights).unwrap(),
            ks: stream.clone_htod(&ks).unwrap(),
            ke: stream.clone_htod(&ke).unwrap(),
            stream,
        }
    }

    fn input(&self) -> Input<'_> {
        Input {
            queries: QuerySlices {
                q: DeviceSlice::of(&self.q, &self.stream),
                weights: DeviceSlice::of(&self.weights, &self.stream),
            },
            keys: KeySlices {
                codes: DeviceSlice::of(&self.k, &self.stream),
                scales: DeviceSlice::of(&self.k_scale, &self.stream),
            },
            windows: WindowSlices {
                ks: DeviceSlice::of(&self.ks, &self.stream),
                ke: DeviceSlice::of(&self.ke, &self.stream),
            },
        }
    }

    /// Median time of what `work` puts on the stream, in milliseconds.
    fn time(&self, mut work: impl FnMut()) -> f32 {
        for _ in 0..3 {
            work();
        }
        self.stream.synchronize().unwrap();
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = Instant::now();
        let mut times = Vec::new();
        while times.len() < 5 || start.elapsed() < PATIENCE {
            let before = self.stream.record_event(flags).unwrap();
            work();
            let after = self.stream.record_event(flags).unwrap();
            times.push(before.elapsed_ms(&after).unwrap());
        }
        times.sort_by(|a, b| a.partial_cmp(b).unwrap());
        times[times.len() / 2]
    }

    pub(super) fn stages(&self) -> Vec<(&'static str, f32)> {
        let mut figures = Vec::new();
        let (device, stream, sizes) = (self.device, &*self.stream, self.sizes);
        let Sizes {
            rows,
            keys,
            head_dim,
            ..
        } = sizes;
        let blocks = Blocks::new(128, 64).unwrap();
        let all = sizes.blocks(128);
        let input = self.input();
        let (windows, queries) = (input.windows, input.queries);
        let (mut pooled_k, mut pooled_scale) = (
            zeros::<u8>(&self.stream, all * head_dim),
            zeros::<f32>(&self.stream, all),
        );
        let args = block_pool::Args {
            keys: input.keys,
            len: keys,
            head_dim,
            block_size: 128,
            first_block: 0,
            pooled_k: DeviceSliceMut::of(&mut pooled_k, stream),
            pooled_scale: DeviceSliceMut::of(&mut pooled_scale, stream),
        };
        let work = || block_pool::launch(device, stream, &args).unwrap();
        figures.push(("block_pool", self.time(work)));
        let mut block = zeros::<f32>(&self.stream, rows * all);
        for (name, scoring) in [
            ("block_scores exact", Scoring::Exact),
            ("block_scores", Scoring::TensorCores),
        ] {
            let args = block_scores::Args {
                queries,
                pooled: KeySlices {
                    codes: args.pooled_k.read(),
                    scales: args.pooled_scale.read(),
                },
                windows,
                sizes,
                block_size: 128,
                scoring,
                scores: DeviceSliceMut::of(&mut block, stream),
            };
            let work = || block_scores::launch(device, stream, &args).unwrap();
            figures.push((name, self.time(work)));
        }
        let ids = self.chosen_blocks(&mut block, blocks, &mut figures);
        self.token_stages(&ids, blocks, &mut figures);
        self.indexers(&mut figures);
        figures
    }

    fn chosen_blocks(
        &self,
        block: &mut CudaSlice<f32>,
        blocks: Blocks,
        figures: &mut Vec<(&'static str, f32)>,
    ) -> CudaSlice<i32> {
        let (device, stream) = (self.device, &*self.stream);
        let Sizes { rows, keys, .. } = self.sizes;
        let windows = self.input().windows;
        let args = block_mask::Args {
            scores: DeviceSliceMut::of(block, stream),
            windows,
            rows,
            keys,
            block_size: 128,
        };
        let work = || block_mask::launch(device, stream, &args).unwrap();
        figures.push(("block_mask", self.time(work)));
        let mut ids = zeros::<i32>(&self.stream, rows * 64);
        let args = block_topk::Args {
            masked: DeviceSlice::of(block, stream),
            windows,
            rows,
            keys,
            blocks,
            rank: Rank::Bf16,
            block_ids: DeviceSliceMut::of(&mut ids, stream),
        };
        let work = || block_topk::launch(device, stream, &args).unwrap();
        figures.push(("block_topk", self.time(work)));
        ids
    }

    fn token_stages(
        &self,
        ids: &CudaSlice<i32>,
        blocks: Blocks,
        figures: &mut Vec<(&'static str, f32)>,
    ) {
        let (device, stream, sizes) = (self.device, &*self.stream, self.sizes);
        let Sizes { rows, keys, .. } = sizes;
        let input = self.input();
        let windows = input.windows;
        let mut scores = zeros::<f32>(&self.stream, rows * blocks.slots());
        for (name, scoring) in [
            ("token_scores exact", Scoring::Exact),
            ("token_scores", Scoring::TensorCores),
        ] {
            let args = token_scores::Args {
                queries: input.queries,
                keys: input.keys,
                block_ids: DeviceSlice::of(ids, stream),
                windows,
                sizes,
                blocks,
                scoring,
                scores: DeviceSliceMut::of(&mut scores, stream),
            };
            let work = || token_scores::launch(device, stream, &args).unwrap();
            figures.push((name, self.time(work)));
        }
        let mut slots = zeros::<i32>(&self.stream, rows * 2048);
        let args = token_topk::Args {
            token_scores: DeviceSlice::of(&scores, stream),
            block_ids: DeviceSlice::of(ids, stream),
            windows,
            rows,
            keys,
            blocks,
            topk: 2048,
            slots: DeviceSliceMut::of(&mut slots, stream),
        };
        let work = || token_topk::launch(device, stream, &args).unwrap();
        figures.push(("token_topk", self.time(work)));
        let mut indices = zeros::<i32>(&self.stream, rows * 2048);
        let args = index_map::Args {
            slots: args.slots.read(),
            block_ids: DeviceSlice::of(ids, stream),
            windows,
            rows,
            keys,
            blocks,
            topk: 2048,
            indices: DeviceSliceMut::of(&mut indices, stream),
        };
        let work = || index_map::launch(device, stream, &args).unwrap();
        figures.push(("index_map", self.time(work)));
    }

    fn indexers(&self, figures: &mut Vec<(&'static str, f32)>) {
        let (device, stream, sizes) = (self.device, &*self.stream, self.sizes);
        let input = self.input();
        let mut indices = zeros::<i32>(&self.stream, sizes.rows * 2048);
        for (name, scoring) in [
            ("hisa exact", Scoring::Exact),
            ("hisa", Scoring::TensorCores),
        ] {
            let params = HisaParams::DEEPSEEK_V32;
            let plan = hisa::Plan::new(device, sizes, &params, scoring).unwrap();
            let mut workspace = zeros::<u8>(&self.stream, plan.workspace_bytes());
            let mut workspace = DeviceSliceMut::of(&mut workspace, stream);
            let mut indices = DeviceSliceMut::of(&mut indices, stream);
            let work = || {
                plan.run(device, stream, &input, &mut workspace, &mut indices)
                    .unwrap()
            };
            figures.push((name, self.time(work)));
        }
        let bytes = sizes.rows * sizes.keys * size_of::<f32>();
        if bytes > FLAT_BYTES {
            return;
        }
        let mut scores = zeros::<f32>(&self.stream, sizes.rows * sizes.keys);
        let mut scores = DeviceSliceMut::of(&mut scores, stream);
        for (name, scoring) in [
            ("flat_scores exact", Scoring::Exact),
            ("flat_scores", Scoring::TensorCores),
        ] {
            let work = || {
                dsa::flat_scores(device, stream, &input, &sizes, scoring, &mut scores).unwrap();
            };
            figures.push((name, self.time(work)));
        }
        let shape = (sizes.rows, sizes.keys, 2048);
        let mut slots = DeviceSliceMut::of(&mut indices, stream);
        let (scores, windows) = (scores.read(), input.windows);
        let work = || {
            dsa::flat_topk(device, stream, scores, windows, shape, &mut slots).unwrap();
        };
        figures.push(("flat_topk", self.time(work)));
    }
}
