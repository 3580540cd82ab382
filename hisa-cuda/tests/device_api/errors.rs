//! What is refused, and how it is named.

use crate::SIZES;
use crate::device::{Numbers, Resident, Tensors, host, zeros};
use hisa_cuda::{Device, DeviceSliceMut, Error, Scoring, Sizes, hisa};
use hisa_ref::HisaParams;

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
