//! Data of the host that streams through GPUs, and what becomes of it when they fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use robocache::cuda::{DeviceBuffer, gpu, synchronize};
use robocache::ops::Resample;
use robocache::plan::{Budget, Way};
use robocache::{Context, Error, ErrorKind, Result, TensorMut, TensorRef, prepare};

use crate::calls::{assert_cpu_works, kind, told};
use crate::harness::{Fake, Scenario, process, say, set};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("count of streaming", count_of_streaming),
    ("streaming out of memory once", out_of_memory_once),
    ("streaming loss", loss),
    ("streaming with little", with_little),
    ("streaming without any", without_any),
    ("streaming through several", through_several),
    ("streaming interrupted", interrupted),
    ("streaming finding", finding),
];

const ROWS: usize = 12;
const SAMPLES: usize = 64;
const TARGETS: usize = 32;

/// A call in parts of `chunk` rows, through `devices`. The fake computes nothing: what comes back is 0.
fn stream(way: &Way, context: Context<'_>) -> Result<Vec<f32>> {
    let values = vec![1.0f32; ROWS * SAMPLES * 4];
    let times: Vec<i64> = (0..SAMPLES as i64).collect();
    let targets: Vec<i64> = (0..(ROWS * TARGETS) as i64).map(|target| target % 50).collect();
    let op = Resample::new(
        TensorRef::from_slice(&values, &[ROWS, SAMPLES, 4])?,
        TensorRef::from_slice(&times, &[SAMPLES])?,
        TensorRef::from_slice(&targets, &[ROWS, TARGETS])?,
    );
    let context = Context { way: Some(way), ..context };
    let prepared = prepare(&op, &context)?;
    assert_eq!(prepared.outputs().len(), 1, "the pipeline has its own memory to work in");
    let mut out = vec![7.0f32; ROWS * TARGETS * 4];
    prepared.run(&mut [TensorMut::from_slice(&mut out, &[ROWS, TARGETS, 4])?], &context)?;
    Ok(out)
}

fn through(devices: &[u32], chunk: usize) -> Way {
    Way { devices: devices.to_vec(), chunk: Some(chunk), ..Way::default() }
}

fn call() -> Result<Vec<f32>> {
    stream(&through(&[0], 2), Context::default())
}

/// Everything of the driver that streaming can run out of memory in.
const FUNCTIONS: [&str; 8] = [
    "cuMemAlloc_v2",
    "cuMemHostAlloc",
    "cuStreamCreate",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuModuleLoadData",
    "cuLaunchKernel",
    "cuStreamSynchronize",
];

fn count_of_streaming() {
    assert_eq!(call().unwrap(), [0.0; ROWS * TARGETS * 4]);
    let fake = Fake::open();
    for function in FUNCTIONS {
        say(&fake.calls(function).to_string());
    }
}

/// Whichever allocation, copy or launch fails, smaller parts do it or the call says so, and nothing stays behind.
#[test]
fn any_allocation_of_a_stream_may_fail_88() {
    let counts = process("count of streaming").run();
    for (function, count) in FUNCTIONS.into_iter().zip(counts) {
        let count: u64 = count.parse().unwrap();
        assert!(count > 0, "{function} is never called");
        for n in 1..=count {
            process("streaming out of memory once").set("FAKE_CUDA_FAIL", &format!("{function}:2:{n}")).run();
        }
    }
}

fn out_of_memory_once() {
    let first = call();
    assert!(["ok", "out_of_memory"].contains(&kind(&first)), "{}", told(first));
    set("FAKE_CUDA_FAIL", "");
    let fake = Fake::open();
    assert_eq!(call().unwrap(), [0.0; ROWS * TARGETS * 4]);
    let kept = fake.live_bytes();
    for _ in 0..3 {
        call().unwrap();
        assert_eq!(fake.live_bytes(), kept, "calls do not grow");
    }
    assert_cpu_works();
}

/// Whichever launch or wait finds the device lost, that is said once and for all, and the CPU goes on.
#[test]
fn any_step_of_a_stream_may_lose_the_device_89() {
    for (function, counts) in
        [("cuLaunchKernel", 1..=6), ("cuStreamSynchronize", 1..=7), ("cuMemcpyDtoHAsync_v2", 1..=6)]
    {
        for n in counts {
            process("streaming loss").set("FAKE_CUDA_FAIL", &format!("{function}:719:{n}")).run();
        }
    }
}

fn loss() {
    let lost = call();
    assert_eq!(kind(&lost), "device_lost", "{}", told(lost));
    set("FAKE_CUDA_FAIL", "");
    for _ in 0..3 {
        assert_eq!(kind(&call()), "device_lost");
        assert_cpu_works();
    }
}

/// Where there is room for one part only, the call runs with it; where there is none for a part, with smaller ones.
#[test]
fn little_memory_is_enough() {
    process("streaming with little").set("FAKE_CUDA_MEMORY", "40000").run();
}

fn with_little() {
    let way = through(&[0], ROWS);
    let parts = AtomicUsize::new(0);
    let progress = |_: usize, all: usize| parts.store(all, Ordering::Relaxed);
    let context = Context { progress: Some(&progress), ..Context::default() };
    assert_eq!(stream(&way, context).unwrap(), [0.0; ROWS * TARGETS * 4]);
    assert!(parts.load(Ordering::Relaxed) > 1, "in parts that fit");
    let automatic = Way { devices: vec![0], budget: Some(Budget::Auto), ..Way::default() };
    assert_eq!(stream(&automatic, Context::default()).unwrap(), [0.0; ROWS * TARGETS * 4]);
    let bounded = |bytes| Way { devices: vec![0], budget: Some(Budget::Bytes(bytes)), ..Way::default() };
    stream(&bounded(12_000), Context::default()).unwrap();
    let refused = stream(&bounded(100), Context::default()).unwrap_err();
    assert_eq!((refused.kind(), refused.argument_name()), (ErrorKind::InvalidArgument, Some("max_memory")));
}

/// What was asked, what is free.
#[test]
fn no_memory_at_all_is_said() {
    process("streaming without any").run();
}

fn without_any() {
    call().unwrap();
    let device = gpu(0, 0).unwrap();
    let all = DeviceBuffer::new(device, device.free_bytes().unwrap() as usize - 300).unwrap();
    let error = call().unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{text}");
    assert!(text.contains("KiB on the GPU, of which ") && text.contains(" are free"), "{text}");
    assert_cpu_works();
    drop(all);
    call().unwrap();
    synchronize(None, None).unwrap();
}

/// All devices take parts, also one that is named twice; the threads' own device is as before.
#[test]
fn several_devices_share_the_parts() {
    process("streaming through several").set("FAKE_CUDA_DEVICES", "3").run();
}

fn through_several() {
    let fake = Fake::open();
    let before = fake.make_current(1);
    for devices in [&[0, 1, 2][..], &[2, 0], &[1, 1], &[0, 0, 0]] {
        assert_eq!(stream(&through(devices, 1), Context::default()).unwrap(), [0.0; ROWS * TARGETS * 4]);
        assert_eq!(fake.current(), before);
    }
    let unknown = stream(&through(&[0, 7], 1), Context::default());
    assert_eq!(kind(&unknown), "no_device", "{}", told(unknown));
    assert_eq!(fake.current(), before);
}

#[test]
fn a_stream_ends_soon_after_it_is_asked_to() {
    process("streaming interrupted").run();
}

fn interrupted() {
    call().unwrap();
    let began = Instant::now();
    let interrupt = || true;
    let slow = |_: usize, _: usize| std::thread::sleep(Duration::from_millis(20));
    let context = Context { interrupt: Some(&interrupt), progress: Some(&slow), ..Context::default() };
    let ended = stream(&through(&[0], 1), context);
    // It may be done before it is asked.
    assert!(["ok", "interrupted"].contains(&kind(&ended)), "{}", told::<Vec<f32>>(ended));
    assert!(began.elapsed() < Duration::from_millis(500));
    call().unwrap();
}

/// The guilty call raises what its kernels found, with the row of the whole batch.
#[test]
fn bad_data_is_raised_by_the_call_itself() {
    let finding = format!("{}:1:17:5:9", 1u64 << 32 | 1);
    process("streaming finding").set("FAKE_CUDA_FINDING", &finding).run();
}

fn finding() {
    let error: Error = call().unwrap_err();
    assert!(error.to_string().contains("times: row 1 decreases at index 17 (5 after 9)"), "{error}");
    set("FAKE_CUDA_FINDING", "");
    call().unwrap();
}
