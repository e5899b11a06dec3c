//! Devices that are not there or cannot be used, mixed devices, captures and findings.

use robocache::cuda::{DeviceBuffer, gpu, probe, synchronize};
use robocache::ops::Resample;
use robocache::{Context, DType, TensorRef, prepare};

use crate::calls::{assert_cpu_works, assert_refused, kind, on_gpu, on_stream, told};
use crate::harness::{Fake, Scenario, process, say, set};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("one of two devices", one_of_two_devices),
    ("mixed devices", mixed_devices),
    ("capture", capture),
    ("findings", findings),
    ("warm calls", warm_calls),
    ("threads", threads),
];

/// Settings, the kind of the error, and parts of its text.
type Refusal<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);

#[test]
fn devices_that_are_not_there_or_too_old_are_refused_87() {
    let cases: &[Refusal<'_>] = &[
        (&[("FAKE_CUDA_DEVICES", "0")], "no_device", &["sees no device"]),
        (&[("FAKE_CUDA_DEVICES", "hidden")], "no_device", &["cuda:0: not found"]),
        (&[("CUDA_VISIBLE_DEVICES", "")], "no_device", &["is CUDA_VISIBLE_DEVICES empty?"]),
        (&[("ORDINAL", "5")], "no_device", &["cuda:5: not found: CUDA_ERROR_INVALID_DEVICE"]),
        (&[("ORDINAL", "99")], "invalid_argument", &["cuda:99 is not a device"]),
        (&[("FAKE_CUDA_COMPUTE_MODE", "2")], "no_device", &["cuda:0: its compute mode is \"prohibited\""]),
        (&[("FAKE_CUDA_CAPABILITY", "7.5")], "no_device", &["Fake GPU has compute capability 7.5, 8.0 or newer"]),
        (&[("FAKE_CUDA_CAPABILITY", "15.0")], "no_device", &["NVRTC 12.0", "does not compile for sm_150"]),
        (&[("FAKE_NVRTC_ARCHS", "80,86")], "no_device", &["does not compile for sm_90"]),
        (&[("FAKE_CUDA_FAIL", "cuDeviceGetAttribute:999")], "no_device", &["cuda:0: cannot be described"]),
        (&[("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:101")], "no_device", &["cuda:0 cannot be opened"]),
        (&[("FAKE_CUDA_FAIL", "cuCtxSetCurrent:201:1")], "no_device", &["cuda:0 cannot be opened"]),
        (&[("FAKE_CUDA_FAIL", "cuMemHostGetDevicePointer_v2:1")], "no_device", &["reports cannot be set up"]),
    ];
    for (settings, kind, parts) in cases {
        assert_refused(kind, parts, |process| process.set_all(settings));
    }
}

#[test]
fn a_device_that_is_refused_does_not_hide_another_87() {
    let modes = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_COMPUTE_MODE", "2,0")];
    assert!(process("one of two devices").set_all(&modes).run()[0].contains("prohibited"));
    let capabilities = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_CAPABILITY", "7.5,9.0")];
    assert!(process("one of two devices").set_all(&capabilities).run()[0].contains("7.5"));
}

fn one_of_two_devices() {
    let gpus = probe().unwrap();
    assert_eq!(gpus.iter().map(|gpu| gpu.ordinal).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((gpus[1].capability, gpus[1].multiprocessors, gpus[1].memory), ((9, 0), 132, 1 << 30));
    assert_eq!((&*gpus[1].name, &*gpus[1].driver, &gpus[1].refusal), ("Fake GPU", "12.0", &None));
    say(gpus[0].refusal.as_deref().unwrap());
    assert_eq!(kind(&on_gpu(0)), "no_device");
    assert_eq!(on_gpu(1).unwrap(), [0.0; 2]);
}

#[test]
fn data_on_two_devices_is_refused_24_25() {
    process("mixed devices").set("FAKE_CUDA_DEVICES", "2").run();
}

fn mixed_devices() {
    let host =
        (TensorRef::from_slice(&[0.0f32; 2], &[2, 1]).unwrap(), TensorRef::from_slice(&[0i64, 1], &[2]).unwrap());
    let context = Context::default();
    let [first, second] = [0, 1].map(|ordinal| gpu(ordinal, 0).unwrap());
    let values = DeviceBuffer::from_slice(first, &[0.0f32; 2]).unwrap();
    let times = [first, second].map(|gpu| DeviceBuffer::from_slice(gpu, &[0i64, 1]).unwrap());
    let values = values.view(&[2, 1], DType::F32).unwrap();
    let [near, far] = [0, 1].map(|index| times[index].view(&[2], DType::I64).unwrap());
    for (op, part) in [
        (Resample::new(values, host.1, near), "times: lives on cpu, values on cuda:0"),
        (Resample::new(values, near, host.1), "targets: lives on cpu, values on cuda:0"),
        (Resample::new(host.0, near, near), "times: lives on cuda:0, values on cpu"),
        (Resample::new(values, far, near), "times: lives on cuda:1, values on cuda:0"),
    ] {
        let text = told(prepare(&op, &context));
        assert!(text.starts_with("invalid_argument: ") && text.contains(part), "{part}: {text}");
    }
    // Outputs elsewhere than the data.
    let op = Resample::new(values, near, near);
    let prepared = prepare(&op, &context).unwrap();
    let mut elsewhere = DeviceBuffer::new(second, 8).unwrap();
    let text = told(prepared.run(&mut [elsewhere.view_mut(&[2, 1], DType::F32).unwrap()], &context));
    assert!(text.contains("out: lives on cuda:1, the data on cuda:0"), "{text}");
    let mut elsewhere = [0.0f32; 2];
    let elsewhere = robocache::TensorMut::from_slice(&mut elsewhere, &[2, 1]).unwrap();
    let text = told(prepared.run(&mut [elsewhere], &context));
    assert!(text.contains("out: lives on cpu, the data on cuda:0"), "{text}");
    // Nothing of this was queued, and both devices work.
    let fake = Fake::open();
    assert_eq!(fake.calls("cuLaunchKernel"), 0);
    assert_eq!([on_gpu(0).unwrap(), on_gpu(1).unwrap()], [[0.0; 2]; 2]);
    assert_eq!(fake.calls("cuLaunchKernel"), 2);
}

#[test]
fn a_first_call_inside_a_capture_names_warmup_102() {
    process("capture").run();
}

fn capture() {
    let fake = Fake::open();
    // A framework captures, so it has a context.
    let context = fake.make_current(0);
    let (allocations, stream) = (fake.calls("cuMemAlloc_v2"), 0x5000);
    let refused = |what: &str| {
        let text = told(on_stream(0, stream));
        assert!(text.starts_with("unsupported: ") && text.contains("rc.warmup"), "{what}: {text}");
    };
    set("FAKE_CUDA_CAPTURING", "1");
    refused("on a stream that is captured");
    set("FAKE_CUDA_CAPTURING", "0");
    set("FAKE_CUDA_FAIL", "cuStreamIsCapturing:906");
    refused("while another stream is captured");
    // Either would have broken the capture.
    assert_eq!((fake.calls("cuMemAlloc_v2"), fake.calls("cuModuleLoadData")), (allocations, 0));
    set("FAKE_CUDA_FAIL", "");

    // A device that is open, but has not loaded the kernel.
    let gpu = gpu(0, stream).unwrap();
    let buffer = DeviceBuffer::from_slice(gpu, &[0i64, 1]).unwrap();
    let mut out = DeviceBuffer::new(gpu, 8).unwrap();
    let stamps = buffer.view(&[2], DType::I64).unwrap();
    let mut op = Resample::new(buffer.view(&[2, 1], DType::F32).unwrap(), stamps, stamps);
    op.check = false;
    let context_of_call = Context { stream, ..Context::default() };
    let prepared = prepare(&op, &context_of_call).unwrap();
    let mut views = [out.view_mut(&[2, 1], DType::F32).unwrap()];
    set("FAKE_CUDA_CAPTURING", "1");
    assert_eq!(kind(&prepared.run(&mut views, &context_of_call)), "unsupported");
    assert_eq!(kind(&prepared.warm_up(&mut views)), "unsupported");
    set("FAKE_CUDA_CAPTURING", "0");
    prepared.warm_up(&mut views).unwrap();
    assert_eq!(fake.calls("cuLaunchKernel"), 0, "warming up computes nothing");
    set("FAKE_CUDA_CAPTURING", "1");
    prepared.run(&mut views, &context_of_call).unwrap();
    assert_eq!(fake.calls("cuLaunchKernel"), 1);
    assert_eq!(fake.current(), context);
}

#[test]
fn what_kernels_find_is_told_once_by_a_later_call() {
    // Of op 1 (resample), int64 stamps, a row that decreases.
    let finding = format!("{}:3:17:5:9", 1u64 << 32 | 1);
    let told = |settings: &[(&str, &str)]| process("findings").set("FINDING", &finding).set_all(settings).run();
    let text = "invalid_argument: resample: times: row 3 decreases at index 17 (5 after 9)";
    let lines = told(&[]);
    assert!(lines[0].starts_with(text) && lines[0].contains("running call 2 of 2 on cuda:0"), "{lines:?}");
    assert_eq!(lines[1..], ["ok"]);
    let lines = told(&[("ROBOCACHE_BLOCKING", "1")]);
    assert!(lines[0].starts_with(text), "{lines:?}");
    assert_eq!(lines[1..], ["ok"]);
}

fn findings() {
    on_gpu(0).unwrap();
    set("FAKE_CUDA_FINDING", &std::env::var("FINDING").unwrap());
    say(&told(on_gpu(0)));
    set("FAKE_CUDA_FINDING", "");
    say(&told(on_gpu(0)));
    assert_cpu_works();
    synchronize(None, None).unwrap();
}

#[test]
fn a_warm_call_allocates_loads_and_waits_for_nothing() {
    process("warm calls").run();
}

fn warm_calls() {
    let fake = Fake::open();
    let gpu = gpu(0, 0).unwrap();
    let (values, mut out) = (DeviceBuffer::new(gpu, 8).unwrap(), DeviceBuffer::new(gpu, 8).unwrap());
    let times = DeviceBuffer::from_slice(gpu, &[0i64, 1]).unwrap();
    let stamps = times.view(&[2], DType::I64).unwrap();
    let op = Resample::new(values.view(&[2, 1], DType::F32).unwrap(), stamps, stamps);
    let mut call = || {
        let context = Context::default();
        let prepared = prepare(&op, &context).unwrap();
        prepared.run(&mut [out.view_mut(&[2, 1], DType::F32).unwrap()], &context).unwrap();
    };
    call();
    let waiting = [
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuModuleLoadData",
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2",
        "cuDevicePrimaryCtxRetain",
        "nvrtcCompileProgram",
    ];
    let before = waiting.map(|function| fake.calls(function));
    for _ in 0..10 {
        call();
    }
    assert_eq!(waiting.map(|function| fake.calls(function)), before);
    assert_eq!(fake.calls("cuLaunchKernel"), 11);
}

#[test]
fn threads_that_come_at_once_open_and_compile_once() {
    process("threads").set("FAKE_NVRTC_SECONDS", "0.2").run();
}

fn threads() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..3).for_each(|_| assert_eq!(on_gpu(0).unwrap(), [0.0; 2])));
        }
    });
    let fake = Fake::open();
    let once = ["cuInit", "cuDevicePrimaryCtxRetain", "cuMemHostAlloc", "nvrtcCompileProgram", "cuModuleLoadData"];
    assert_eq!(once.map(|function| fake.calls(function)), [1; 5]);
    assert_eq!(fake.calls("cuLaunchKernel"), 24);
}
