//! The set of runs for `compute-sanitizer`: every kernel, every branch, each tensor an allocation
//! of its own and of its exact size, outputs and workspaces never initialised.
//!
//! ```text
//! compute-sanitizer --tool memcheck   --error-exitcode 9 TEST_BINARY
//! compute-sanitizer --tool initcheck  --error-exitcode 9 TEST_BINARY
//! compute-sanitizer --tool racecheck  --error-exitcode 9 TEST_BINARY
//! compute-sanitizer --tool synccheck  --error-exitcode 9 TEST_BINARY
//! ```
//!
//! Without a GPU it says so and passes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod device;

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr};
use device::{Numbers, Resident, Tensors, assert_same, bits, host};
use hisa_cuda::stages::*;
use hisa_cuda::{Blocks, Device, DeviceSlice, DeviceSliceMut, Scoring, Sizes};
use hisa_cuda::{block_sparse, dsa, hisa};
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::trace::Trace;
use hisa_ref::{HisaParams, Overflow, Rank, Strictness};
use ndarray::Array2;
use std::sync::Arc;

/// M, N, H, D, B, m, K.
type Shape = [usize; 7];

/// Shapes that between them take every branch: warps and tiles just met and just missed, whole
/// and broken vectors, one key and none, more places than keys, rows of several chunks.
const SHAPES: [Shape; 20] = [
    [1, 1, 1, 16, 1, 1, 1],
    [2, 5, 1, 1, 2, 2, 3],
    [3, 33, 7, 17, 4, 3, 8],
    [5, 64, 8, 32, 8, 4, 16],
    [2, 65, 9, 48, 16, 2, 40],
    [4, 100, 64, 64, 7, 5, 64],
    [2, 129, 31, 100, 32, 9, 100],
    [1, 300, 64, 128, 64, 3, 128],
    [3, 256, 128, 128, 128, 2, 256],
    [2, 200, 16, 256, 50, 4, 77],
    [1, 130, 128, 256, 3, 20, 33],
    [1, 0, 4, 16, 4, 1, 4],
    [0, 10, 4, 16, 4, 1, 4],
    [2, 31, 3, 3, 1, 31, 31],
    [2, 32, 5, 24, 100, 2, 64],
    [1, 1025, 33, 80, 256, 3, 700],
    [6, 40, 4, 128, 5, 3, 9],
    [2, 90, 65, 112, 30, 2, 50],
    [1, 66, 120, 240, 33, 1, 33],
    [1, 500, 4, 64, 2, 16, 8],
];

/// Long rows and many winners, which sanitizers take seconds for.
const LARGE_SHAPES: [Shape; 6] = [
    [1, 700, 8, 64, 1, 600, 512],
    [1, 3000, 8, 16, 1, 40, 20],
    [2, 513, 2, 160, 128, 64, 1000],
    [2, 77, 1, 128, 11, 7, 2048],
    [1, 2100, 2, 32, 700, 3, 2048],
    [1, 4500, 1, 16, 2250, 2, 4096],
];

#[test]
fn every_kernel_over_the_fixed_set() {
    let Some((host, _guard)) = host("sanitizer") else {
        return;
    };
    let run = Run {
        device: host.device(),
        stream: host.device().stream().unwrap(),
    };
    let mut cases = 0;
    for seed in 0..10 {
        let large = if seed < 2 { &LARGE_SHAPES[..] } else { &[] };
        for &shape in SHAPES.iter().chain(large) {
            run.case(seed, shape);
            cases += 1;
        }
        eprintln!("{cases} cases");
    }
    assert!(cases >= 200);
}

struct Run<'d> {
    device: &'d Device,
    stream: Arc<CudaStream>,
}

impl Run<'_> {
    /// Memory nothing was written to.
    fn raw<T: DeviceRepr>(&self, len: usize) -> CudaSlice<T> {
        // SAFETY: whether somebody reads it before it is written is what the sanitizer finds out.
        unsafe { self.stream.alloc(len.max(1)) }.unwrap()
    }

    fn matrix<T: DeviceRepr>(&self, from: &CudaSlice<T>, shape: (usize, usize)) -> Array2<T> {
        let len = shape.0 * shape.1;
        let values = match len {
            0 => Vec::new(),
            _ => self.stream.clone_dtoh(&from.slice(..len)).unwrap(),
        };
        Array2::from_shape_vec(shape, values).unwrap()
    }

    fn case(&self, seed: u64, shape: Shape) {
        let [m, n, h, d, b, kept, k] = shape;
        let mut numbers = Numbers(seed * 1000 + n as u64);
        let tensors = match seed % 2 {
            0 => Tensors::new(&mut numbers, [m, n, h, d]),
            _ => Tensors::wild(&mut numbers, [m, n, h, d]),
        };
        let rank = [Rank::Bf16, Rank::F32][seed as usize / 2 % 2];
        let params = HisaParams::new(b, kept, k).unwrap().with_rank(rank);
        let what = format!("seed {seed}, {shape:?}");
        let trace = hisa_ref::hisa::trace(&tensors.input(), &params).unwrap();
        let resident = Resident::new(&self.stream, &tensors);
        let sizes = Sizes {
            rows: m,
            keys: n,
            heads: h,
            head_dim: d,
        };
        self.quantize(&mut numbers, &what);
        self.block_stages(&resident, sizes, &params, (&trace, &what));
        self.token_stages(&resident, sizes, &params, (&trace, &what));
        self.indexers(&resident, sizes, &params, (&tensors, &what));
    }

    fn quantize(&self, numbers: &mut Numbers, what: &str) {
        let (rows, head_dim) = (numbers.below(4) + 1, numbers.pick(&[1, 7, 64, 129, 300]));
        let x = Array2::from_shape_simple_fn((rows, head_dim), || numbers.bell() * 100.0);
        let format = numbers.pick(&[ScaleFormat::F32, ScaleFormat::Ue8m0]);
        let overflow = numbers.pick(&[Overflow::Saturating, Overflow::NonSaturating]);
        let narrow = numbers.below(2) == 0;
        let x = if narrow {
            x.mapv(hisa_ref::bf16::round_to_bf16)
        } else {
            x
        };
        let halves: Vec<u16> = x.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        let halves = self.stream.clone_htod(&halves).unwrap();
        let on_device = self.stream.clone_htod(x.as_slice().unwrap()).unwrap();
        let (mut codes, mut scale) = (self.raw(x.len()), self.raw(rows));
        let args = quantize::Args {
            x: match narrow {
                true => quantize::RowSlice::Bf16(DeviceSlice::of(&halves, &self.stream)),
                false => quantize::RowSlice::F32(DeviceSlice::of(&on_device, &self.stream)),
            },
            rows,
            head_dim,
            format,
            overflow,
            codes: DeviceSliceMut::of(&mut codes, &self.stream),
            scale: DeviceSliceMut::of(&mut scale, &self.stream),
        };
        quantize::launch(self.device, &self.stream, &args).unwrap();
        let options = QuantizeOptions {
            format,
            overflow,
            strictness: Strictness::Permissive,
        };
        let expected = hisa_ref::stages::quantize::run(x.view(), options).unwrap();
        let got = self.stream.clone_dtoh(&codes).unwrap();
        assert_eq!(got, bits(expected.codes.as_slice().unwrap()), "{what}");
    }

    /// Stages 2 to 5.
    fn block_stages(
        &self,
        resident: &Resident,
        sizes: Sizes,
        params: &HisaParams,
        (trace, what): (&Trace, &str),
    ) {
        let (b, kept) = (params.block_size(), params.block_topk());
        let (all, d, rows) = (sizes.blocks(b), sizes.head_dim, sizes.rows);
        let input = resident.slices(&self.stream);
        let (mut pooled_k, mut pooled_scale) = (self.raw(all * d), self.raw(all));
        let pooled = block_pool::Args {
            keys: input.keys,
            len: sizes.keys,
            head_dim: d,
            block_size: b,
            first_block: 0,
            pooled_k: DeviceSliceMut::of(&mut pooled_k, &self.stream),
            pooled_scale: DeviceSliceMut::of(&mut pooled_scale, &self.stream),
        };
        block_pool::launch(self.device, &self.stream, &pooled).unwrap();
        let mut scores = self.raw(rows * all);
        for scoring in [Scoring::TensorCores, Scoring::Exact] {
            let args = block_scores::Args {
                queries: input.queries,
                pooled: KeySlices {
                    codes: pooled.pooled_k.read(),
                    scales: pooled.pooled_scale.read(),
                },
                windows: input.windows,
                sizes,
                block_size: b,
                scoring,
                scores: DeviceSliceMut::of(&mut scores, &self.stream),
            };
            block_scores::launch(self.device, &self.stream, &args).unwrap();
        }
        let got = self.matrix(&scores, (rows, all));
        assert_same(what, &got, &trace.block_scores);
        let args = block_mask::Args {
            scores: DeviceSliceMut::of(&mut scores, &self.stream),
            windows: input.windows,
            rows,
            keys: sizes.keys,
            block_size: b,
        };
        block_mask::launch(self.device, &self.stream, &args).unwrap();
        let mut ids = self.raw(rows * kept);
        let blocks = Blocks::new(b, kept).unwrap();
        let args = block_topk::Args {
            masked: DeviceSlice::of(&scores, &self.stream),
            windows: input.windows,
            rows,
            keys: sizes.keys,
            blocks,
            rank: params.rank(),
            block_ids: DeviceSliceMut::of(&mut ids, &self.stream),
        };
        block_topk::launch(self.device, &self.stream, &args).unwrap();
        assert_eq!(self.matrix(&ids, (rows, kept)), trace.block_ids, "{what}");
        self.whole_blocks(&ids, input.windows, (rows, sizes.keys, blocks));
    }

    fn whole_blocks(
        &self,
        ids: &CudaSlice<i32>,
        windows: WindowSlices<'_>,
        sizes: (usize, usize, Blocks),
    ) {
        let mut whole = self.raw(sizes.0 * sizes.2.slots());
        let ids = DeviceSlice::of(ids, &self.stream);
        let indices = DeviceSliceMut::of(&mut whole, &self.stream);
        block_sparse::indices(self.device, &self.stream, ids, windows, sizes, &indices).unwrap();
    }

    /// Stages 6 to 8.
    fn token_stages(
        &self,
        resident: &Resident,
        sizes: Sizes,
        params: &HisaParams,
        (trace, what): (&Trace, &str),
    ) {
        let (b, kept, k) = (
            params.block_size(),
            params.block_topk(),
            params.topk_tokens(),
        );
        let (rows, keys) = (sizes.rows, sizes.keys);
        let blocks = Blocks::new(b, kept).unwrap();
        let input = resident.slices(&self.stream);
        let ids = trace.block_ids.as_slice().unwrap();
        let ids = self.stream.clone_htod(&[ids, &[-1]].concat()).unwrap();
        let mut scores = self.raw(rows * blocks.slots());
        for scoring in [Scoring::TensorCores, Scoring::Exact] {
            let args = token_scores::Args {
                queries: input.queries,
                keys: input.keys,
                block_ids: DeviceSlice::of(&ids, &self.stream),
                windows: input.windows,
                sizes,
                blocks,
                scoring,
                scores: DeviceSliceMut::of(&mut scores, &self.stream),
            };
            token_scores::launch(self.device, &self.stream, &args).unwrap();
        }
        let got = self.matrix(&scores, (rows, blocks.slots()));
        assert_same(what, &got, &trace.token_scores);
        let mut slots = self.raw(rows * k);
        let args = token_topk::Args {
            token_scores: DeviceSlice::of(&scores, &self.stream),
            block_ids: DeviceSlice::of(&ids, &self.stream),
            windows: input.windows,
            rows,
            keys,
            blocks,
            topk: k,
            slots: DeviceSliceMut::of(&mut slots, &self.stream),
        };
        token_topk::launch(self.device, &self.stream, &args).unwrap();
        let mut indices = self.raw(rows * k);
        let args = index_map::Args {
            slots: args.slots.read(),
            block_ids: DeviceSlice::of(&ids, &self.stream),
            windows: input.windows,
            rows,
            keys,
            blocks,
            topk: k,
            indices: DeviceSliceMut::of(&mut indices, &self.stream),
        };
        index_map::launch(self.device, &self.stream, &args).unwrap();
        assert_eq!(self.matrix(&indices, (rows, k)), trace.indices, "{what}");
    }

    fn indexers(
        &self,
        resident: &Resident,
        sizes: Sizes,
        params: &HisaParams,
        (tensors, what): (&Tensors, &str),
    ) {
        let (rows, k) = (sizes.rows, params.topk_tokens());
        let input = resident.slices(&self.stream);
        let reference = tensors.input();
        for scoring in [Scoring::TensorCores, Scoring::Exact] {
            let plan = hisa::Plan::new(self.device, sizes, params, scoring).unwrap();
            let mut space = self.raw::<u8>(plan.workspace_bytes());
            let mut space = DeviceSliceMut::of(&mut space, &self.stream);
            let mut out = self.raw::<i32>(rows * k);
            let mut indices = DeviceSliceMut::of(&mut out, &self.stream);
            let (device, stream) = (self.device, &*self.stream);
            plan.run(device, stream, &input, &mut space, &mut indices)
                .unwrap();
            let plan = dsa::Plan::new(self.device, sizes, k, scoring).unwrap();
            let mut space = self.raw::<u8>(plan.workspace_bytes());
            let mut space = DeviceSliceMut::of(&mut space, &self.stream);
            let mut flat = self.raw::<i32>(rows * k);
            let mut indices = DeviceSliceMut::of(&mut flat, &self.stream);
            plan.run(device, stream, &input, &mut space, &mut indices)
                .unwrap();
            if scoring == Scoring::Exact {
                let expected = hisa_ref::hisa::run(&reference, params).unwrap();
                assert_eq!(self.matrix(&out, (rows, k)), expected, "{what}");
                let expected = hisa_ref::dsa::run(&reference, k).unwrap();
                assert_eq!(self.matrix(&flat, (rows, k)), expected, "{what}");
            }
        }
    }
}
