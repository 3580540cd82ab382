//! Stages 1 to 5, and the indices of whole blocks.

use crate::device::{Numbers, assert_same, bits};
use crate::{Run, Work};
use cudarc::driver::CudaSlice;
use hisa_cuda::stages::*;
use hisa_cuda::{Blocks, DeviceSlice, DeviceSliceMut, Scoring, block_sparse};
use hisa_ref::stages::quantize::{QuantizeOptions, ScaleFormat};
use hisa_ref::{Keys, Overflow, Strictness};
use ndarray::{Array1, Array2, Axis};

impl Run<'_> {
    pub(crate) fn quantize(&self, numbers: &mut Numbers, work: &Work<'_>) {
        let what = &work.what;
        let (rows, head_dim) = (numbers.below(4) + 1, numbers.pick(&[1, 7, 64, 129, 300]));
        let odd = [f32::NAN, f32::INFINITY, -0.0, 1e-45, 1e30];
        let few = work.case.seed as usize % 2;
        let x = Array2::from_shape_simple_fn((rows, head_dim), || match numbers.below(200) < few {
            true => numbers.pick(&odd),
            false => numbers.bell() * 100.0,
        });
        let format = numbers.pick(&[ScaleFormat::F32, ScaleFormat::Ue8m0]);
        let overflow = numbers.pick(&[Overflow::Saturating, Overflow::NonSaturating]);
        let narrow = numbers.below(2) == 0;
        let x = if narrow {
            x.mapv(hisa_ref::bf16::round_to_bf16)
        } else {
            x
        };
        let halves: Vec<u16> = x.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        let halves = self.upload(&halves);
        let on_device = self.upload(x.as_slice().unwrap());
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
        let got = self.vector(&codes, x.len());
        assert_eq!(got, bits(expected.codes.as_slice().unwrap()), "{what}");
        let scales = expected.scale.insert_axis(Axis(1));
        let what = format!("scale, {what}");
        assert_same(&what, &self.matrix(&scale, (rows, 1)), &scales);
    }

    /// Stages 2 to 5.
    pub(crate) fn block_stages(&self, work: &Work<'_>) {
        let (sizes, params, shift) = (work.sizes, work.params, work.case.shift);
        let b = params.block_size();
        let (all, d) = (sizes.blocks(b), sizes.head_dim);
        let input = work.input(&self.stream);
        let (mut pooled_k, mut pooled_scale) = (self.raw(shift + all * d), self.raw(all));
        let mut codes = DeviceSliceMut::of(&mut pooled_k, &self.stream);
        let pooled = block_pool::Args {
            keys: input.keys,
            len: sizes.keys,
            head_dim: d,
            block_size: b,
            first_block: 0,
            pooled_k: codes.tail(shift),
            pooled_scale: DeviceSliceMut::of(&mut pooled_scale, &self.stream),
        };
        block_pool::launch(self.device, &self.stream, &pooled).unwrap();
        let slices = KeySlices {
            codes: pooled.pooled_k.read(),
            scales: pooled.pooled_scale.read(),
        };
        let mut scores = self.raw(sizes.rows * all);
        for scoring in [Scoring::TensorCores, Scoring::Exact] {
            let args = block_scores::Args {
                queries: input.queries,
                pooled: slices,
                windows: input.windows,
                sizes,
                block_size: b,
                scoring,
                scores: DeviceSliceMut::of(&mut scores, &self.stream),
            };
            block_scores::launch(self.device, &self.stream, &args).unwrap();
            self.check_block_scores(work, &scores, scoring);
        }
        self.choose_blocks(work, &mut scores);
        let scales: Array1<f32> = self.vector(&pooled_scale, all).into();
        let codes = self.part(&pooled_k, shift..shift + all * d);
        let expected = bits(work.trace.pooled_k.as_slice().unwrap());
        assert_eq!(codes, expected, "{}", work.what);
        let expected = work.trace.pooled_scale.clone().insert_axis(Axis(1));
        assert_same(&work.what, &scales.insert_axis(Axis(1)), &expected);
    }

    fn check_block_scores(&self, work: &Work<'_>, scores: &CudaSlice<f32>, scoring: Scoring) {
        let b = work.params.block_size();
        let got = self.matrix(scores, (work.sizes.rows, work.sizes.blocks(b)));
        let what = format!("block_scores, {}", work.what);
        if scoring == Scoring::Exact {
            assert_same(&what, &got, &work.trace.block_scores);
            return;
        }
        let (codes, scales) = (&work.trace.pooled_k, &work.trace.pooled_scale);
        let keys = Keys::new(codes.view(), scales.view(), Strictness::Permissive).unwrap();
        let input = work.tensors.input();
        self.assert_model(&what, &got, (input.queries(), &keys), |row, block| {
            let keys = work.tensors.windows.rows()[row].keys();
            let seen = block * b < keys.end && keys.start < (block + 1) * b;
            (seen && !keys.is_empty()).then_some(block)
        });
    }

    /// Stages 4 and 5.
    fn choose_blocks(&self, work: &Work<'_>, scores: &mut CudaSlice<f32>) {
        let (rows, keys, b) = (work.sizes.rows, work.sizes.keys, work.params.block_size());
        let kept = work.params.block_topk();
        let windows = work.input(&self.stream).windows;
        let args = block_mask::Args {
            scores: DeviceSliceMut::of(scores, &self.stream),
            windows,
            rows,
            keys,
            block_size: b,
        };
        block_mask::launch(self.device, &self.stream, &args).unwrap();
        let got = self.matrix(scores, (rows, work.sizes.blocks(b)));
        let what = format!("block_mask, {}", work.what);
        assert_same(&what, &got, &work.trace.block_mask);
        let mut ids = self.raw(rows * kept);
        let blocks = Blocks::new(b, kept).unwrap();
        let args = block_topk::Args {
            masked: DeviceSlice::of(scores, &self.stream),
            windows,
            rows,
            keys,
            blocks,
            rank: work.params.rank(),
            block_ids: DeviceSliceMut::of(&mut ids, &self.stream),
        };
        block_topk::launch(self.device, &self.stream, &args).unwrap();
        let got = self.matrix(&ids, (rows, kept));
        assert_eq!(got, work.trace.block_ids, "{}", work.what);
        self.whole_blocks(work, &ids, blocks);
    }

    fn whole_blocks(&self, work: &Work<'_>, ids: &CudaSlice<i32>, blocks: Blocks) {
        let (rows, slots) = (work.sizes.rows, blocks.slots());
        let mut whole = self.raw(rows * slots);
        let ids = DeviceSlice::of(ids, &self.stream);
        let mut indices = DeviceSliceMut::of(&mut whole, &self.stream);
        let windows = work.input(&self.stream).windows;
        let sizes = (rows, work.sizes.keys, blocks);
        block_sparse::indices(self.device, &self.stream, ids, windows, sizes, &mut indices)
            .unwrap();
        let mut expected = Array2::from_elem((rows, slots), -1);
        for (row, mut values) in expected.rows_mut().into_iter().enumerate() {
            let window = work.tensors.windows.rows()[row].keys();
            let ids = work.trace.block_ids.row(row).to_vec();
            let ids = ids.into_iter().filter_map(|id| usize::try_from(id).ok());
            let keys = ids.flat_map(|id| id * blocks.size()..(id + 1) * blocks.size());
            let seen = keys.filter(|key| window.contains(key));
            let positions = seen.map(|key| (key - window.start) as i32);
            values
                .iter_mut()
                .zip(positions)
                .for_each(|(to, at)| *to = at);
        }
        assert_eq!(
            self.matrix(&whole, (rows, slots)),
            expected,
            "{}",
            work.what
        );
    }
}
