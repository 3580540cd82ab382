//! Stages 6 to 8, on ids in any order.

use crate::device::{Numbers, Tensors, assert_same};
use crate::inputs::shuffled;
use crate::{Run, Work};
use cudarc::driver::CudaSlice;
use hisa_cuda::stages::*;
use hisa_cuda::{Blocks, DeviceSlice, DeviceSliceMut, Scoring};
use hisa_ref::{HisaParams, stages};
use ndarray::{Array2, Axis};

/// What the three stages are to give.
pub(crate) struct Expected {
    token_scores: Array2<f32>,
    slots: Array2<i32>,
    indices: Array2<i32>,
}

impl Work<'_> {
    /// On the ids of the trace.
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            token_scores: self.trace.token_scores.clone(),
            slots: self.trace.slots.clone(),
            indices: self.trace.indices.clone(),
        }
    }
}

impl Expected {
    /// On other ids.
    pub(crate) fn of(tensors: &Tensors, params: &HisaParams, ids: &Array2<i32>) -> Self {
        let (input, windows) = (tensors.input(), &tensors.windows);
        let (b, k) = (params.block_size(), params.topk_tokens());
        let (queries, keys) = (input.queries(), input.keys());
        let scores = stages::token_scores::run(queries, keys, windows, ids.view(), b);
        let token_scores = scores.unwrap();
        let slots = stages::token_topk::run(token_scores.view(), ids.view(), windows, b, k);
        let slots = slots.unwrap();
        let indices = stages::index_map::run(slots.view(), ids.view(), windows, b);
        Self {
            token_scores,
            slots,
            indices: indices.unwrap(),
        }
    }
}

impl Run<'_> {
    /// Stages 6 to 8. Ids that stand for no block may be any.
    pub(crate) fn token_stages(&self, work: &Work<'_>, ids: &Array2<i32>, expected: &Expected) {
        let (sizes, k) = (work.sizes, work.params.topk_tokens());
        let (rows, keys) = (sizes.rows, sizes.keys);
        let blocks = Blocks::new(work.params.block_size(), ids.ncols()).unwrap();
        let input = work.input(&self.stream);
        let on_device = self.upload(ids.as_slice().unwrap());
        let block_ids = DeviceSlice::of(&on_device, &self.stream);
        let mut scores = self.raw(rows * blocks.slots());
        for scoring in [Scoring::TensorCores, Scoring::Exact] {
            let args = token_scores::Args {
                queries: input.queries,
                keys: input.keys,
                block_ids,
                windows: input.windows,
                sizes,
                blocks,
                scoring,
                scores: DeviceSliceMut::of(&mut scores, &self.stream),
            };
            token_scores::launch(self.device, &self.stream, &args).unwrap();
            self.check_token_scores(work, ids, &scores, (scoring, expected));
        }
        let mut slots = self.raw(rows * k);
        let args = token_topk::Args {
            token_scores: DeviceSlice::of(&scores, &self.stream),
            block_ids,
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
            block_ids,
            windows: input.windows,
            rows,
            keys,
            blocks,
            topk: k,
            indices: DeviceSliceMut::of(&mut indices, &self.stream),
        };
        index_map::launch(self.device, &self.stream, &args).unwrap();
        let (slots, indices) = (
            self.matrix(&slots, (rows, k)),
            self.matrix(&indices, (rows, k)),
        );
        assert_eq!(slots, expected.slots, "slots, {}, ids {ids:?}", work.what);
        assert_eq!(indices, expected.indices, "{}, ids {ids:?}", work.what);
    }

    fn check_token_scores(
        &self,
        work: &Work<'_>,
        ids: &Array2<i32>,
        scores: &CudaSlice<f32>,
        (scoring, expected): (Scoring, &Expected),
    ) {
        let b = work.params.block_size();
        let got = self.matrix(scores, (work.sizes.rows, ids.ncols() * b));
        let what = format!("token_scores, {}", work.what);
        if scoring == Scoring::Exact {
            assert_same(&what, &got, &expected.token_scores);
            return;
        }
        let input = work.tensors.input();
        self.assert_model(&what, &got, (input.queries(), input.keys()), |row, slot| {
            let block = usize::try_from(ids[(row, slot / b)]).ok()?;
            let key = block * b + slot % b;
            let window = work.tensors.windows.rows()[row].keys();
            window.contains(&key).then_some(key)
        });
    }
}

/// Needs no GPU: keys in another order of blocks are the same keys.
#[test]
fn the_reference_takes_every_case_and_its_shuffled_ids() {
    for case in crate::inputs::cases() {
        let [_, n, .., b, kept, k] = case.shape;
        let mut numbers = Numbers(case.seed);
        let tensors = case.tensors(&mut numbers);
        let params = HisaParams::new(b, kept, k).unwrap();
        let trace = hisa_ref::hisa::trace(&tensors.input(), &params).unwrap();
        let mut ids = trace.block_ids.clone();
        ids.invert_axis(Axis(1));
        let ids = ids.as_standard_layout().into_owned();
        let inverted = Expected::of(&tensors, &params, &ids);
        assert_eq!(inverted.indices, trace.indices, "{case:?}");
        let (given, plain) = shuffled(&mut numbers, &ids, n.div_ceil(b) as i32);
        assert_eq!(given.dim(), plain.dim());
        Expected::of(&tensors, &params, &plain);
    }
}
