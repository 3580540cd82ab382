use super::*;
use crate::check::{CHECKS, position};
use hisa_cuda::toolchain::{Arch, Nvrtc};
use std::collections::BTreeSet;

#[test]
fn the_table_is_sane() {
    let names: BTreeSet<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), FAULTS.len(), "a name stands twice");
    assert!(FAULTS.len() >= 40, "{} faults", FAULTS.len());
    for kind in 1..=17 {
        assert!(FAULTS.iter().any(|fault| fault.kind == kind), "K{kind}");
    }
    for op in Op::ALL.into_iter().filter(|&op| op != Op::Windows) {
        assert!(FAULTS.iter().any(|fault| fault.op == op), "{op}");
    }
    for fault in FAULTS {
        let check = position(fault.caught_by).map(|check| CHECKS[check].op);
        assert_eq!(check, Some(fault.op), "{}", fault.name);
        assert!(fault.about.ends_with('.'), "{}", fault.name);
        assert_eq!(named(fault.name), Some(fault));
    }
    assert_eq!(named("none"), None, "the name of the kernels as they are");
}

#[test]
fn every_change_is_made_exactly_once() {
    let wrong: Vec<String> = FAULTS
        .iter()
        .filter_map(|fault| match fault.source() {
            Ok(source) => {
                (source == Source::of(fault.unit)).then(|| format!("{}: no change", fault.name))
            }
            Err(error) => Some(format!("{}: {error}", fault.name)),
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Where there is NVRTC, `HISA_NVRTC` or another: a fault that does not compile is none.
#[test]
fn every_changed_source_compiles() {
    let nvrtc = match Nvrtc::load() {
        Ok(nvrtc) => nvrtc,
        Err(reason) => {
            let value = std::env::var_os("HISA_REQUIRE_NVRTC").unwrap_or_default();
            assert!(value.is_empty(), "HISA_REQUIRE_NVRTC is set, and {reason}");
            eprintln!("SKIPPED: no NVRTC: {reason}");
            return;
        }
    };
    let hopper = Arch::from_capability("any", 9, 0).unwrap();
    let wrong: Vec<String> = FAULTS
        .iter()
        .filter_map(|fault| {
            let compiled = nvrtc.compile(&fault.source().unwrap(), hopper);
            Some(format!("{}: {}", fault.name, compiled.err()?))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
