//! The whole indexers, in workspaces that nobody has written to.

use crate::{Run, Work};
use cudarc::driver::CudaSlice;
use hisa_cuda::{DeviceSliceMut, Scoring, block_sparse, dsa, hisa};

impl Run<'_> {
    pub(crate) fn indexers(&self, work: &Work<'_>) {
        let (rows, k, what) = (work.sizes.rows, work.params.topk_tokens(), &work.what);
        for scoring in [Scoring::TensorCores, Scoring::Exact] {
            let indices = self.hisa(work, scoring);
            let flat = self.dsa(work, scoring);
            if scoring == Scoring::Exact {
                assert_eq!(
                    self.matrix(&indices, (rows, k)),
                    work.trace.indices,
                    "{what}"
                );
                let expected = hisa_ref::dsa::run(&work.tensors.input(), k).unwrap();
                assert_eq!(self.matrix(&flat, (rows, k)), expected, "dsa, {what}");
            }
        }
        self.block_sparse(work);
    }

    fn hisa(&self, work: &Work<'_>, scoring: Scoring) -> CudaSlice<i32> {
        let plan = hisa::Plan::new(self.device, work.sizes, &work.params, scoring).unwrap();
        let mut space = self.raw::<u8>(plan.workspace_bytes());
        let mut space = DeviceSliceMut::of(&mut space, &self.stream);
        let mut out = self.raw::<i32>(work.sizes.rows * work.params.topk_tokens());
        let mut indices = DeviceSliceMut::of(&mut out, &self.stream);
        let input = work.input(&self.stream);
        plan.run(self.device, &self.stream, &input, &mut space, &mut indices)
            .unwrap();
        out
    }

    fn dsa(&self, work: &Work<'_>, scoring: Scoring) -> CudaSlice<i32> {
        let k = work.params.topk_tokens();
        let plan = dsa::Plan::new(self.device, work.sizes, k, scoring).unwrap();
        let mut space = self.raw::<u8>(plan.workspace_bytes());
        let mut space = DeviceSliceMut::of(&mut space, &self.stream);
        let mut out = self.raw::<i32>(work.sizes.rows * k);
        let mut indices = DeviceSliceMut::of(&mut out, &self.stream);
        let input = work.input(&self.stream);
        plan.run(self.device, &self.stream, &input, &mut space, &mut indices)
            .unwrap();
        out
    }

    /// Exact scores alone: the scorers of its blocks are those of `hisa`.
    fn block_sparse(&self, work: &Work<'_>) {
        let (rows, params, what) = (work.sizes.rows, &work.params, &work.what);
        let exact = Scoring::Exact;
        let plan = block_sparse::Plan::new(self.device, work.sizes, params, exact).unwrap();
        let (kept, slots) = (plan.blocks().kept(), plan.blocks().slots());
        let mut space = self.raw::<u8>(plan.workspace_bytes());
        let mut space = DeviceSliceMut::of(&mut space, &self.stream);
        let (mut ids, mut out) = (self.raw::<i32>(rows * kept), self.raw::<i32>(rows * slots));
        let input = work.input(&self.stream);
        plan.run(
            self.device,
            &self.stream,
            &input,
            &mut space,
            (
                &mut DeviceSliceMut::of(&mut ids, &self.stream),
                &mut DeviceSliceMut::of(&mut out, &self.stream),
            ),
        )
        .unwrap();
        let trace = hisa_ref::block_sparse::trace(&work.tensors.input(), params).unwrap();
        assert_eq!(self.matrix(&ids, (rows, kept)), trace.block_ids, "{what}");
        let got = self.matrix(&out, (rows, slots));
        assert_eq!(got, trace.indices, "block_sparse, {what}");
    }
}
