//! Streams that belong to somebody else.

use crate::device::{Numbers, Resident, Tensors, host, zeros};
use crate::{SHAPE, SIZES};
use cudarc::driver::CudaStream;
use hisa_cuda::{Device, DeviceSliceMut, Scoring, hisa};
use hisa_ref::HisaParams;
use std::sync::Arc;

#[test]
fn a_borrowed_stream_is_used_and_left_alone() {
    let Some((host, _guard)) = host("stream") else {
        return;
    };
    let device = host.device();
    let owner = device.stream().unwrap();
    let params = HisaParams::new(16, 8, 64).unwrap();
    let plan = hisa::Plan::new(device, SIZES, &params, Scoring::Exact).unwrap();
    let tensors = Tensors::new(&mut Numbers(5), SHAPE);
    let expected = hisa_ref::hisa::run(&tensors.input(), &params).unwrap();
    let expected = expected.into_raw_vec_and_offset().0;
    // SAFETY: the owner outlives what is borrowed from it.
    let stream = unsafe { device.context().wrap_borrowed_stream(owner.cu_stream()) };
    assert_eq!(indices(device, &stream, &plan, &tensors), expected);
    // All memory taken on it is given back; nothing but this handle is left of it.
    assert_eq!(Arc::strong_count(&stream), 1);
    drop(stream);
    assert_eq!(indices(device, &owner, &plan, &tensors), expected);
    owner.synchronize().unwrap();
}

/// One run, in memory that is taken and given back on the stream.
fn indices(
    device: &Device,
    stream: &Arc<CudaStream>,
    plan: &hisa::Plan,
    tensors: &Tensors,
) -> Vec<i32> {
    let resident = Resident::new(stream, tensors);
    let mut workspace = zeros::<u8>(stream, plan.workspace_bytes());
    let mut out = zeros::<i32>(stream, SIZES.rows * 64);
    let mut space = DeviceSliceMut::of(&mut workspace, stream);
    let mut indices = DeviceSliceMut::of(&mut out, stream);
    let input = resident.slices(stream);
    plan.run(device, stream, &input, &mut space, &mut indices)
        .unwrap();
    stream.clone_dtoh(&out).unwrap()
}
