//! Runs captured into CUDA graphs, and replayed on other inputs.

use crate::device::{Numbers, Resident, Tensors, host, zeros};
use crate::{SHAPE, SIZES};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, sys};
use hisa_cuda::{Device, DeviceSliceMut, Scoring, block_sparse, dsa, hisa};
use hisa_ref::HisaParams;
use std::sync::Arc;

/// An indexer with all it needs to know.
enum Plan {
    Hisa(hisa::Plan),
    Dsa(dsa::Plan),
    BlockSparse(block_sparse::Plan),
}

impl Plan {
    fn all(device: &Device, params: &HisaParams, scoring: Scoring) -> [Self; 3] {
        [
            Self::Hisa(hisa::Plan::new(device, SIZES, params, scoring).unwrap()),
            Self::Dsa(dsa::Plan::new(device, SIZES, params.topk_tokens(), scoring).unwrap()),
            Self::BlockSparse(block_sparse::Plan::new(device, SIZES, params, scoring).unwrap()),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Hisa(_) => "hisa",
            Self::Dsa(_) => "dsa",
            Self::BlockSparse(_) => "block_sparse",
        }
    }

    /// Block ids, then indices, of the reference.
    fn expected(&self, tensors: &Tensors, params: &HisaParams) -> (Vec<i32>, Vec<i32>) {
        let (input, none) = (tensors.input(), Vec::new());
        match self {
            Self::Hisa(_) => {
                let indices = hisa_ref::hisa::run(&input, params).unwrap();
                (none, indices.into_raw_vec_and_offset().0)
            }
            Self::Dsa(_) => {
                let indices = hisa_ref::dsa::run(&input, params.topk_tokens()).unwrap();
                (none, indices.into_raw_vec_and_offset().0)
            }
            Self::BlockSparse(_) => {
                let trace = hisa_ref::block_sparse::trace(&input, params).unwrap();
                let (ids, indices) = (trace.block_ids, trace.indices);
                (
                    ids.into_raw_vec_and_offset().0,
                    indices.into_raw_vec_and_offset().0,
                )
            }
        }
    }
}

/// What a run writes.
struct Output {
    workspace: CudaSlice<u8>,
    block_ids: CudaSlice<i32>,
    indices: CudaSlice<i32>,
}

impl Output {
    fn of(stream: &Arc<CudaStream>, plan: &Plan, topk: usize) -> Self {
        let (bytes, kept, columns) = match plan {
            Plan::Hisa(plan) => (plan.workspace_bytes(), 0, topk),
            Plan::Dsa(plan) => (plan.workspace_bytes(), 0, topk),
            Plan::BlockSparse(plan) => {
                let blocks = plan.blocks();
                (plan.workspace_bytes(), blocks.kept(), blocks.slots())
            }
        };
        Self {
            workspace: zeros(stream, bytes),
            block_ids: zeros(stream, (SIZES.rows * kept).max(1)),
            indices: zeros(stream, SIZES.rows * columns),
        }
    }

    fn run(&mut self, device: &Device, stream: &CudaStream, plan: &Plan, input: &Resident) {
        let mut space = DeviceSliceMut::of(&mut self.workspace, stream);
        let mut ids = DeviceSliceMut::of(&mut self.block_ids, stream);
        let mut indices = DeviceSliceMut::of(&mut self.indices, stream);
        let (input, space, out) = (input.slices(stream), &mut space, &mut indices);
        let ran = match plan {
            Plan::Hisa(plan) => plan.run(device, stream, &input, space, out),
            Plan::Dsa(plan) => plan.run(device, stream, &input, space, out),
            Plan::BlockSparse(plan) => plan.run(device, stream, &input, space, (&mut ids, out)),
        };
        ran.unwrap();
    }

    /// Overwrites all with what no run leaves.
    fn spoil(&mut self, stream: &Arc<CudaStream>) {
        let spoiled = vec![i32::MIN; self.indices.len()];
        stream.memcpy_htod(&spoiled, &mut self.indices).unwrap();
        let spoiled = vec![i32::MIN; self.block_ids.len()];
        stream.memcpy_htod(&spoiled, &mut self.block_ids).unwrap();
        let spoiled = vec![0x7F_u8; self.workspace.len()];
        stream.memcpy_htod(&spoiled, &mut self.workspace).unwrap();
    }

    /// Block ids, where the indexer has any, then indices.
    fn values(&self, stream: &Arc<CudaStream>, plan: &Plan) -> (Vec<i32>, Vec<i32>) {
        let ids = match plan {
            Plan::BlockSparse(_) => stream.clone_dtoh(&self.block_ids).unwrap(),
            Plan::Hisa(_) | Plan::Dsa(_) => Vec::new(),
        };
        (ids, stream.clone_dtoh(&self.indices).unwrap())
    }
}

#[test]
fn a_captured_run_gives_the_bits_of_a_direct_one_on_changed_inputs() {
    let Some((host, _guard)) = host("graph") else {
        return;
    };
    let device = host.device();
    let stream = device.stream().unwrap();
    let params = HisaParams::new(16, 8, 64).unwrap();
    for scoring in [Scoring::Exact, Scoring::TensorCores] {
        for plan in Plan::all(device, &params, scoring) {
            replay(device, &stream, &plan, (&params, scoring));
        }
    }
}

/// Captures a run on one input and replays it on others, windows included.
fn replay(
    device: &Device,
    stream: &Arc<CudaStream>,
    plan: &Plan,
    (params, scoring): (&HisaParams, Scoring),
) {
    let mut resident = Resident::new(stream, &Tensors::new(&mut Numbers(1), SHAPE));
    let mut output = Output::of(stream, plan, params.topk_tokens());
    stream.synchronize().unwrap();
    let graph = capture(stream, || output.run(device, stream, plan, &resident));
    let mut seen = Vec::new();
    for seed in 1..5 {
        let numbers = &mut Numbers(seed);
        let mut tensors = Tensors::new(numbers, SHAPE);
        if seed > 1 {
            tensors.windows = Tensors::wild(numbers, SHAPE).windows;
        }
        let fresh = Resident::new(stream, &tensors);
        overwrite(stream, &mut resident, &fresh);
        output.spoil(stream);
        graph.launch().unwrap();
        let got = output.values(stream, plan);
        let expected = match scoring {
            Scoring::Exact => plan.expected(&tensors, params),
            Scoring::TensorCores => {
                let mut direct = Output::of(stream, plan, params.topk_tokens());
                direct.run(device, stream, plan, &fresh);
                direct.values(stream, plan)
            }
        };
        assert_eq!(got, expected, "{}, {scoring:?}, seed {seed}", plan.name());
        assert!(!seen.contains(&got), "inputs that differ give what differs");
        seen.push(got);
    }
}

fn capture(stream: &Arc<CudaStream>, run: impl FnOnce()) -> CudaGraph {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).unwrap();
    run();
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).unwrap().unwrap()
}

/// Puts another input where the graph reads.
fn overwrite(stream: &Arc<CudaStream>, to: &mut Resident, from: &Resident) {
    stream.memcpy_dtod(&from.q, &mut to.q).unwrap();
    stream.memcpy_dtod(&from.k, &mut to.k).unwrap();
    stream.memcpy_dtod(&from.k_scale, &mut to.k_scale).unwrap();
    stream.memcpy_dtod(&from.weights, &mut to.weights).unwrap();
    stream.memcpy_dtod(&from.ks, &mut to.ks).unwrap();
    stream.memcpy_dtod(&from.ke, &mut to.ke).unwrap();
}
