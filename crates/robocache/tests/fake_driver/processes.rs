//! Forked processes, and several at once on one folder of cubins.

use std::panic::{AssertUnwindSafe, catch_unwind};

use robocache::cuda::{DeviceBuffer, gpu, probe, synchronize};

use crate::calls::{assert_cpu_works, kind, on_gpu, told};
use crate::harness::{Fake, Folder, Scenario, process, say};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("fork after use", fork_after_use),
    ("fork after probe", fork_after_probe),
    ("fork after another library", fork_after_another_library),
    ("fork before use", fork_before_use),
    ("compile", compile),
];

/// Runs `work` in a forked process, which must end well.
fn in_fork(work: impl FnOnce()) {
    // SAFETY: the runner's other thread waits and holds no lock that `work` needs; the process ends
    // without running anybody's exit handlers.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let good = catch_unwind(AssertUnwindSafe(work)).is_ok();
            libc::_exit(i32::from(!good));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the forked process: {status:#x}");
    }
}

fn assert_refused_in_fork() {
    let text = told(on_gpu(0));
    assert!(text.starts_with("no_device: "), "{text}");
    assert!(text.contains("before this process was forked") && text.contains("\"spawn\""), "{text}");
    assert_eq!(kind(&probe()), "no_device");
    assert_cpu_works();
    synchronize(None, None).unwrap();
}

#[test]
fn after_a_fork_the_child_is_told_and_the_parent_goes_on_91() {
    for scenario in ["fork after use", "fork after probe", "fork after another library", "fork before use"] {
        process(scenario).run();
    }
}

fn fork_after_use() {
    on_gpu(0).unwrap();
    let buffer = DeviceBuffer::from_slice(gpu(0, 0).unwrap(), &[1.0f32; 4]).unwrap();
    in_fork(|| {
        assert_refused_in_fork();
        // What was made before the fork is refused without harm, and can be dropped.
        assert_eq!(kind(&buffer.to_vec::<f32>()), "no_device");
        // SAFETY: the copy is dropped in this process only, which ends without dropping the other.
        drop(unsafe { std::ptr::read(&raw const buffer) });
    });
    assert_eq!(on_gpu(0).unwrap(), [0.0; 2]);
    assert_eq!(buffer.to_vec::<f32>().unwrap(), [1.0; 4]);
}

/// Probing starts the driver too, as `device="auto"` does.
fn fork_after_probe() {
    assert_eq!(probe().unwrap().len(), 1);
    in_fork(assert_refused_in_fork);
    on_gpu(0).unwrap();
}

/// As when torch has used a GPU before RoboCache was first called.
fn fork_after_another_library() {
    let fake = Fake::open();
    fake.make_current(0);
    in_fork(assert_refused_in_fork);
    on_gpu(0).unwrap();
}

fn fork_before_use() {
    assert_cpu_works();
    in_fork(|| assert_eq!(on_gpu(0).unwrap(), [0.0; 2]));
    on_gpu(0).unwrap();
    in_fork(assert_refused_in_fork);
}

/// A call, and how often it compiled.
fn compile() {
    on_gpu(0).unwrap();
    say(&Fake::open().calls("nvrtcCompileProgram").to_string());
}

#[test]
fn processes_that_compile_at_once_leave_one_good_cubin_94() {
    let folder = Folder::new();
    let cubins = folder.path().join("cubins");
    let start = || process("compile").set("ROBOCACHE_CUBIN_DIR", cubins.to_str().unwrap());
    let files = || {
        let mut names: Vec<_> = std::fs::read_dir(&cubins).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let running: Vec<_> = (0..4).map(|_| start().set("FAKE_NVRTC_SECONDS", "0.5").start()).collect();
    let compiled: Vec<_> = running.into_iter().flat_map(|process| process.finish()).collect();
    assert!(compiled.iter().filter(|count| *count == "1").count() >= 2, "not at once: {compiled:?}");
    let after = files();
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(after[0].to_string_lossy().ends_with(".cubin"), "{after:?}");
    assert_eq!(start().run(), ["0"], "the next process finds it");

    // Another version or architecture has a file of its own.
    assert_eq!(start().set("FAKE_NVRTC_VERSION", "12.4").run(), ["1"]);
    assert_eq!(start().set("FAKE_CUDA_CAPABILITY", "8.0").run(), ["1"]);
    assert_eq!(files().len(), 3);

    // Damage is noticed, compiled anew and mended.
    for damage in [
        |bytes: &mut Vec<u8>| bytes.truncate(1000),
        |bytes: &mut Vec<u8>| bytes.clear(),
        |bytes: &mut Vec<u8>| {
            bytes[200_000] ^= 1;
        },
    ] {
        let file = cubins.join(&after[0]);
        let mut bytes = std::fs::read(&file).unwrap();
        damage(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(start().run(), ["1"]);
        assert_eq!(start().run(), ["0"]);
    }
}

#[test]
fn a_folder_that_cannot_be_used_costs_only_time_94() {
    let folder = Folder::new();
    let file = folder.file("file", b"in the way");
    for unusable in [file.as_str(), "/proc/robocache", ""] {
        let start = || process("compile").set("ROBOCACHE_CUBIN_DIR", unusable);
        assert_eq!([start().run(), start().run()], [["1"], ["1"]], "{unusable:?}");
    }
}
