use super::*;
use crate::backend::by_name;

#[test]
fn devices_are_numbers() {
    let of = |text: &str| ordinal(Some(OsString::from(text)));
    assert_eq!(of("3"), Ok(3));
    assert_eq!(of(""), Ok(0));
    let error = of("x").unwrap_err();
    assert_eq!(error.to_string(), "HISA_DEVICE is \"x\", not a number");
    assert!(!error.is_absence());
    assert_eq!(ordinal(None), Ok(0));
}

#[test]
fn a_missing_gpu_is_an_absence_and_a_failing_one_is_not() {
    let absent = hisa_cuda::Error::NoDevice {
        ordinal: 0,
        devices: 0,
    };
    assert!(Opening::from(absent.clone()).is_absence());
    assert_eq!(
        Opening::from(absent.clone()).to_string(),
        absent.to_string()
    );
    let failing = hisa_cuda::Error::Driver {
        call: "opening the device".to_owned(),
        reason: "CUDA_ERROR_ECC_UNCORRECTABLE".to_owned(),
    };
    assert!(!Opening::from(failing).is_absence());
}

#[test]
fn names_that_mean_nothing_are_unknown_and_others_say_what_is_missing() {
    for name in ["cuda:", "cuda:f32", "cuda-fault:", "cuda-fault:no such"] {
        let error = by_name(name).map(|_| ()).unwrap_err();
        assert_eq!(error, crate::backend::unknown(name), "{name}");
    }
    let Err(reason) = available() else {
        return; // there is a GPU
    };
    for name in [
        "cuda",
        "cuda:exact",
        "cuda-fault:none",
        "cuda-fault:map-absolute",
    ] {
        let error = by_name(name).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, format!("backend {name}: {reason}"));
    }
}

#[test]
fn what_is_declared_follows_the_matrix_unit() {
    let text = |scoring, class| declared(scoring, class).to_string();
    assert_eq!(text(Scoring::Exact, None), Numerics::default().to_string());
    let hopper = text(Scoring::TensorCores, Some(DotClass::HopperHgmmaF16));
    assert!(
        hopper.contains("model") && hopper.contains("hopper-hgmma-f16"),
        "{hopper}"
    );
    let unmeasured = text(Scoring::TensorCores, None);
    assert!(
        !unmeasured.contains("model") && unmeasured.contains("ampere"),
        "{unmeasured}"
    );
}

#[test]
fn limits_are_skips_refusals_are_refusals_and_the_rest_are_errors() {
    let unsupported = hisa_cuda::Error::Unsupported {
        name: "topk_tokens",
        value: 9000,
        limit: 8192,
    };
    let skip = Failure::Unsupported("topk_tokens above 8192".to_owned());
    assert_eq!(Failure::from(unsupported), skip);
    let full = hisa_cuda::Error::OutOfMemory {
        what: "staged tensors".to_owned(),
        bytes: Some(1 << 40),
    };
    let skip = Failure::Unsupported(full.to_string());
    assert_eq!(Failure::from(full), skip);
    let refused = hisa_ref::params::check_size("D", 0).unwrap_err();
    let failure = Failure::from(hisa_cuda::Error::Input(refused.clone()));
    assert_eq!(failure, Failure::Refused(refused.to_string()));
    let fault = hisa_cuda::Error::Driver {
        call: "waiting for the device".to_owned(),
        reason: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
    };
    assert!(matches!(Failure::from(fault), Failure::Error(_)));
}

#[test]
fn only_the_job_that_lost_the_device_fails() {
    let lost = Lost {
        op: Op::Dsa,
        why: "an illegal address".to_owned(),
    };
    assert!(matches!(lost.refuse(Op::Dsa), Failure::Error(_)));
    assert!(matches!(lost.refuse(Op::Hisa), Failure::Unsupported(_)));
}
