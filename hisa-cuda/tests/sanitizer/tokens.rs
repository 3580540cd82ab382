//! Stages 6 to 8, on ids in any order.

use crate::device::assert_same;
use crate::{Run, Work};
use cudarc::driver::CudaSlice;
use hisa_cuda::stages::*;
use hisa_cuda::{Blocks, DeviceSlice, DeviceSliceMut, Scoring};
use hisa_ref::stages;
use ndarray::Array2;

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

    /// On other ids.
    pub(crate) fn expected_of(&self, ids: &Array2<i32>) -> Expected {
        let (input, windows) = (self.tensors.input(), &self.tensors.windows);
        let (b, k) = (self.params.block_size(), self.params.topk_tokens());
        let (queries, keys) = (input.queries(), input.keys());
        let token_scores =
            stages::token_scores::run(queries, keys, windows, ids.view(), b).unwrap();
        let slots = stages::token_topk::run(token_scores.view(), ids.view(), windows, b, k);
        let slots = slots.unwrap();
        let indices = stages::index_map::run(slots.view(), ids.view(), windows, b).unwrap();
        Expected {
            token_scores,
            slots,
            indices,
        }
    }
}

impl Run<'_> {
    /// Stages 6 to 8. Ids that stand for no block may be any.
    pub(crate) fn token_stages(&self, work: &Work<'_>, ids: &Array2<i32>, expected: Expected) {
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
            self.check_token_scores(work, ids, &scores, (scoring, &expected));
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
