//! Memory that runs out.

use robocache::cuda::{DeviceBuffer, gpu};

use crate::calls::{kind, on_gpu, told};
use crate::harness::{Fake, Scenario, process, say, set};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("count allocations", count_allocations), ("out of memory once", out_of_memory_once), ("fill", fill)];

/// Everything of the driver and of NVRTC that can run out of memory.
const FUNCTIONS: [(&str, i32); 8] = [
    ("cuDevicePrimaryCtxRetain", 2),
    ("cuMemAlloc_v2", 2),
    ("cuMemHostAlloc", 2),
    ("cuModuleLoadData", 2),
    ("cuModuleGetFunction", 2),
    ("cuLaunchKernel", 2),
    ("cuCtxSynchronize", 2),
    ("nvrtcCompileProgram", 1),
];

fn count_allocations() {
    on_gpu(0).unwrap();
    let fake = Fake::open();
    for (function, _) in FUNCTIONS {
        say(&fake.calls(function).to_string());
    }
}

/// Bytes of the claims and the letter of the reports.
const REPORTS: u64 = 64 + 72;

/// Whichever allocation of a call fails, the call says so, nothing stays behind, and the next works.
#[test]
fn any_allocation_may_fail_88() {
    let counts = process("count allocations").run();
    for ((function, code), count) in FUNCTIONS.into_iter().zip(counts) {
        let count: u64 = count.parse().unwrap();
        assert!(count > 0, "{function} is never called");
        for n in 1..=count {
            process("out of memory once").set("FAKE_CUDA_FAIL", &format!("{function}:{code}:{n}")).run();
        }
    }
}

fn out_of_memory_once() {
    let first = on_gpu(0);
    assert_eq!(kind(&first), "out_of_memory", "{}", told(first));
    assert_eq!(on_gpu(0).unwrap(), [0.0; 2]);
    let fake = Fake::open();
    let kept = fake.live_bytes();
    assert_eq!(kept, REPORTS, "only the claims and the letter of the reports stay");
    on_gpu(0).unwrap();
    assert_eq!(fake.live_bytes(), kept);
}

/// Memory that is full, as by another process, and free again later.
#[test]
fn full_memory_is_an_error_until_there_is_some_88() {
    process("fill").set("FAKE_CUDA_MEMORY", "0").run();
}

fn fill() {
    for _ in 0..3 {
        assert_eq!(kind(&on_gpu(0)), "out_of_memory");
    }
    set("FAKE_CUDA_MEMORY", "4096");
    on_gpu(0).unwrap();
    let gpu = gpu(0, 0).unwrap();
    let text = told(DeviceBuffer::new(gpu, 1 << 20));
    assert!(text.contains("allocating 1048576 bytes: CUDA_ERROR_OUT_OF_MEMORY"), "{text}");
    let all = DeviceBuffer::new(gpu, 4096 - REPORTS as usize).unwrap();
    assert_eq!(kind(&on_gpu(0)), "out_of_memory");
    drop(all);
    on_gpu(0).unwrap();
    assert_eq!(Fake::open().live_bytes(), REPORTS);
}
