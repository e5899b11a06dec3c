//! The caller's context: whatever happens in a call, it is current again afterwards.

use std::time::Duration;

use robocache::cuda::{DeviceBuffer, gpu, synchronize};

use crate::calls::{kind, on_gpu};
use crate::harness::{Fake, Scenario, process, set};

pub(crate) const SCENARIOS: &[Scenario] = &[("guard", guard), ("guard cannot be set", guard_cannot_be_set)];

/// Every function that is called with our context current.
const INSIDE: [&str; 12] = [
    "cuMemAlloc_v2:2",
    "cuMemAlloc_v2:700",
    "cuMemHostAlloc:2",
    "cuMemHostGetDevicePointer_v2:1",
    "cuMemcpyHtoD_v2:1",
    "cuMemcpyDtoH_v2:700",
    "cuModuleLoadData:200",
    "cuModuleGetFunction:500",
    "cuLaunchKernel:701",
    "cuLaunchKernel:719",
    "cuCtxSynchronize:700",
    "nvrtcCompileProgram:7",
];

#[test]
fn the_callers_context_is_current_again_after_every_error() {
    // Of another device, and none at all.
    for before in ["1", "none"] {
        let start = || process("guard").set("FAKE_CUDA_DEVICES", "2").set("BEFORE", before);
        start().set("EXPECTED", "ok").run();
        for failure in INSIDE {
            start().set("FAKE_CUDA_FAIL", failure).run();
        }
    }
}

fn guard() {
    let fake = Fake::open();
    assert_eq!(fake.init(), 0);
    let before = std::env::var("BEFORE").unwrap();
    let before = if before == "none" { 0 } else { fake.make_current(before.parse().unwrap()) };
    for _ in 0..3 {
        let result = on_gpu(0);
        assert_eq!(kind(&result) == "ok", std::env::var_os("EXPECTED").is_some(), "{result:?}");
        assert_eq!(fake.current(), before);
    }
    let _ = synchronize(Some(Duration::from_secs(5)), None);
    assert_eq!(fake.current(), before);
}

#[test]
fn a_context_that_cannot_be_set_keeps_work_off_other_devices_93() {
    process("guard cannot be set").set("FAKE_CUDA_DEVICES", "2").run();
}

/// Somebody reset the device: the call must not go on in the context of another one.
fn guard_cannot_be_set() {
    let fake = Fake::open();
    on_gpu(0).unwrap();
    let buffer = DeviceBuffer::from_slice(gpu(0, 0).unwrap(), &[1u8; 4]).unwrap();
    let other = fake.make_current(1);
    let calls = || ["cuLaunchKernel", "cuMemAlloc_v2", "cuMemFree_v2"].map(|function| fake.calls(function));
    let before = calls();
    set("FAKE_CUDA_FAIL", "cuCtxSetCurrent:201");
    assert_eq!(kind(&buffer.to_vec::<u8>()), "device_lost");
    drop(buffer);
    assert_eq!(kind(&on_gpu(0)), "device_lost");
    assert_eq!(calls(), before);
    assert_eq!(fake.current(), other);
}
