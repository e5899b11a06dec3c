//! Devices that are lost: bad accesses, destroyed contexts, work that never ends.

use std::time::{Duration, Instant};

use robocache::cuda::{DeviceBuffer, gpu, synchronize};

use crate::calls::{assert_cpu_works, kind, on_gpu, told};
use crate::harness::{Fake, Scenario, process, say, set};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("loss", loss),
    ("loss of one of two", loss_of_one_of_two),
    ("reset", reset),
    ("hang", hang),
    ("hang of one of two", hang_of_one_of_two),
    ("interrupted wait", interrupted_wait),
    ("idle without time", idle_without_time),
];

/// Codes after which a context is of no use, wherever they come from.
#[test]
fn a_lost_device_stays_lost_and_the_cpu_goes_on_89_93() {
    for code in ["700", "716", "719", "709", "201", "214", "999"] {
        for function in ["cuLaunchKernel", "cuCtxSynchronize", "cuMemcpyDtoH_v2", "cuMemAlloc_v2", "cuCtxSetCurrent"] {
            let said = process("loss").set("FAILURE", &format!("{function}:{code}")).run();
            let text = &said[0];
            assert!(text.contains("cuda:0 is lost until the process ends: "), "{function} {code}: {text}");
            assert!(text.contains("CUDA_ERROR_"), "{text}");
        }
    }
}

fn loss() {
    let device = gpu(0, 0).unwrap();
    let buffer = DeviceBuffer::from_slice(device, &[1.0f32; 4]).unwrap();
    on_gpu(0).unwrap();
    set("FAKE_CUDA_FAIL", &std::env::var("FAILURE").unwrap());
    let lost = on_gpu(0);
    assert_eq!(kind(&lost), "device_lost");
    say(&told(lost));
    // The latch counts, not what the driver says now.
    set("FAKE_CUDA_FAIL", "");
    let launches = Fake::open().calls("cuLaunchKernel");
    for _ in 0..3 {
        assert_eq!(kind(&on_gpu(0)), "device_lost");
        assert_eq!(kind(&synchronize(None, None)), "device_lost");
        assert_cpu_works();
    }
    assert_eq!(Fake::open().calls("cuLaunchKernel"), launches, "nothing is queued on a lost device");
    drop(buffer);
}

/// A driver does not look before it follows the handles of a context that is gone.
#[test]
fn a_device_that_another_library_reset_is_lost_before_it_is_touched_93() {
    process("reset").set("FIRST", "call").run();
    process("reset").set("FIRST", "synchronize").run();
}

fn reset() {
    on_gpu(0).unwrap();
    let buffer = DeviceBuffer::from_slice(gpu(0, 0).unwrap(), &[1u8; 4]).unwrap();
    let fake = Fake::open();
    let touching = ["cuCtxSetCurrent", "cuLaunchKernel", "cuMemAlloc_v2", "cuMemFree_v2", "cuCtxSynchronize"];
    let before = touching.map(|function| fake.calls(function));
    set("FAKE_CUDA_RESET", "1");
    // The driver is asked once a millisecond at most.
    std::thread::sleep(Duration::from_millis(5));
    let by_call = std::env::var("FIRST").unwrap() == "call";
    let text = if by_call { told(on_gpu(0)) } else { told(synchronize(None, None)) };
    assert!(text.starts_with("device_lost: ") && text.contains("destroyed by another library"), "{text}");
    set("FAKE_CUDA_RESET", "");
    assert_eq!([kind(&on_gpu(0)), kind(&synchronize(None, None))], ["device_lost"; 2]);
    set("FAKE_CUDA_RESET", "1");
    drop(buffer);
    assert_eq!(touching.map(|function| fake.calls(function)), before);
    assert_cpu_works();
}

#[test]
fn the_loss_of_a_device_leaves_the_others_alone_89() {
    process("loss of one of two").set("FAKE_CUDA_DEVICES", "2").run();
}

fn loss_of_one_of_two() {
    on_gpu(1).unwrap();
    set("FAKE_CUDA_FAIL", "cuLaunchKernel:700");
    assert_eq!(kind(&on_gpu(0)), "device_lost");
    set("FAKE_CUDA_FAIL", "");
    let fake = Fake::open();
    let waits = fake.calls("cuCtxSynchronize");
    // Synchronising tells of the loss, but waits for the other.
    let text = told(synchronize(None, None));
    assert!(text.contains("cuda:0 is lost"), "{text}");
    assert_eq!(fake.calls("cuCtxSynchronize"), waits + 1);
    assert!(gpu(1, 0).is_ok());
    let buffer = DeviceBuffer::from_slice(gpu(1, 0).unwrap(), &[7u8; 3]).unwrap();
    assert_eq!(buffer.to_vec::<u8>().unwrap(), [7; 3]);
}

#[test]
fn work_that_never_ends_is_given_up_in_time_90() {
    process("hang").run();
    process("hang of one of two").set("FAKE_CUDA_DEVICES", "2").run();
}

fn hang() {
    on_gpu(0).unwrap();
    set("FAKE_CUDA_HANG", "0");
    let started = Instant::now();
    let text = told(synchronize(Some(Duration::from_millis(300)), None));
    let took = started.elapsed();
    assert!(text.starts_with("device_lost: ") && text.contains("did not end within the timeout"), "{text}");
    assert!((Duration::from_millis(290)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!(kind(&on_gpu(0)), "device_lost");
    assert_eq!(kind(&synchronize(Some(Duration::ZERO), None)), "device_lost");
    assert_cpu_works();
}

fn hang_of_one_of_two() {
    on_gpu(0).unwrap();
    on_gpu(1).unwrap();
    set("FAKE_CUDA_HANG", "0");
    let text = told(synchronize(Some(Duration::from_millis(200)), None));
    assert!(text.starts_with("device_lost: cuda:0 "), "{text}");
    assert!(gpu(1, 0).is_ok(), "the other one was done in time");
}

#[test]
fn waiting_can_be_interrupted() {
    process("interrupted wait").set("FAKE_CUDA_DEVICES", "2").run();
}

fn interrupted_wait() {
    on_gpu(0).unwrap();
    on_gpu(1).unwrap();
    set("FAKE_CUDA_HANG", "0,1");
    let started = Instant::now();
    // As Python tells of Ctrl-C: once.
    let told_once = std::cell::Cell::new(false);
    let interrupt = || started.elapsed() > Duration::from_millis(100) && !told_once.replace(true);
    assert_eq!(kind(&synchronize(None, Some(&interrupt))), "interrupted");
    assert!(started.elapsed() < Duration::from_secs(5));
    // Nobody gave the devices up.
    assert!(gpu(0, 0).is_ok() && gpu(1, 0).is_ok());
}

#[test]
fn an_idle_device_is_not_lost_for_lack_of_time() {
    process("idle without time").run();
}

fn idle_without_time() {
    // Nothing was used: nothing to wait for.
    synchronize(Some(Duration::ZERO), None).unwrap();
    on_gpu(0).unwrap();
    synchronize(Some(Duration::ZERO), None).unwrap();
    synchronize(Some(Duration::MAX), None).unwrap();
}
