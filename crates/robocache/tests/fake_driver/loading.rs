//! Libraries that are missing, wrong, too old or too new.

use crate::calls::{assert_refused, two_calls};
use crate::harness::{Fake, Folder, Process, library};

/// The functions that the engine looks up, from its own table.
fn functions(prefix: &str) -> Vec<&'static str> {
    let table = include_str!("../../src/cuda/sys.rs");
    let names: Vec<_> = table
        .lines()
        .filter_map(|line| line.trim().split_once(" = \"")?.1.split_once('"'))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(prefix))
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    names
}

/// A copy of the fake library that does not have `function`: its name is misspelt in the table of
/// symbols.
fn without(function: &str, folder: &Folder) -> String {
    let mut bytes = std::fs::read(library()).unwrap();
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let places: Vec<_> = bytes.windows(name.len()).enumerate().filter(|(_, part)| *part == name).collect();
    let places: Vec<_> = places.iter().map(|(place, _)| *place).collect();
    assert!(!places.is_empty(), "{function} is not in the library");
    for place in places {
        bytes[place + name.len() - 2] = b'~';
    }
    folder.file(&format!("without-{function}.so"), &bytes)
}

#[test]
fn the_whole_way_works_on_the_oldest_driver() {
    let works = |settings: &[(&str, &str)]| {
        assert_eq!(two_calls(|process| process.set_all(settings)), ["ok", "ok"], "{settings:?}");
    };
    works(&[("FAKE_CUDA_VERSION", "12000"), ("FAKE_NVRTC_VERSION", "12.0")]);
    works(&[("FAKE_CUDA_VERSION", "12000"), ("FAKE_NVRTC_VERSION", "12.9")]);
    works(&[("FAKE_CUDA_VERSION", "13000"), ("FAKE_NVRTC_VERSION", "12.0")]);
    works(&[("FAKE_CUDA_VERSION", "13000"), ("FAKE_NVRTC_VERSION", "13.4")]);
}

#[test]
fn the_fake_has_all_functions_and_none_can_be_missing_85() {
    let fake = Fake::open();
    let folder = Folder::new();
    for (prefix, variable) in [("cu", "ROBOCACHE_LIBCUDA"), ("nvrtc", "ROBOCACHE_NVRTC")] {
        for function in functions(prefix) {
            assert!(fake.has(function), "{function}");
            let path = without(function, &folder);
            let reason = format!("{path} has no {function}, it is too old");
            assert_refused("no_device", &[&reason], |process| process.set(variable, &path));
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn files_that_are_no_libraries_are_named_85() {
    let folder = Folder::new();
    let files = [
        folder.file("text.so", b"not a library"),
        folder.file("empty.so", b""),
        folder.file("cut.so", &std::fs::read(library()).unwrap()[..60]),
        folder.path().to_str().unwrap().to_owned(),
        folder.path().join("absent.so").to_str().unwrap().to_owned(),
    ];
    for file in &files {
        let driver = |process: Process| process.set("ROBOCACHE_LIBCUDA", file);
        assert_refused("no_device", &["no CUDA driver found; searched", file], driver);
        let nvrtc = |process: Process| process.set("ROBOCACHE_NVRTC", file);
        assert_refused("no_device", &["ROBOCACHE_NVRTC cannot be used", file], nvrtc);
    }
}

#[test]
fn without_settings_the_usual_names_are_searched_85() {
    for name in ["libcuda.so.1", "libnvrtc.so.13", "libnvrtc.so.12"] {
        // SAFETY: the vendor's library, which every CUDA program loads.
        if unsafe { libloading::Library::new(name) }.is_ok() {
            println!("skipped: this machine has {name}");
            return;
        }
    }
    assert_refused("no_device", &["searched", "libcuda.so.1: ", "libcuda.so: "], |process| {
        process.unset("ROBOCACHE_LIBCUDA")
    });
    // An empty name counts as none; for the system's loader it would be the program itself.
    assert_refused("no_device", &["libcuda.so.1: "], |process| process.set("ROBOCACHE_LIBCUDA", ""));
    for configure in
        [|process: Process| process.unset("ROBOCACHE_NVRTC"), |process: Process| process.set("ROBOCACHE_NVRTC", "")]
    {
        let parts = ["pip install \"robocache[cuda12]\"", "searched", "libnvrtc.so.13: ", "libnvrtc.so.12: "];
        assert_refused("no_device", &parts, configure);
        let parts = ["pip install \"robocache[cuda]\"", "searched"];
        assert_refused("no_device", &parts, |process| configure(process).set("FAKE_CUDA_VERSION", "13000"));
    }
}

#[test]
fn nvrtc_that_cannot_compile_says_why_85() {
    for (code, kind, part) in [
        ("1", "out_of_memory", "error 1"),
        ("5", "no_device", "a newer one is needed"),
        ("6", "no_device", "fake.cu(1): error 6 as asked for"),
        ("7", "no_device", "libnvrtc-builtins is missing or of another version"),
    ] {
        let failure = format!("nvrtcCompileProgram:{code}");
        let parts = [part, "resample: NVRTC cannot compile rc_align_one_float32_int64"];
        assert_refused(kind, &parts, |process| process.set("FAKE_CUDA_FAIL", &failure));
    }
    for function in ["nvrtcCreateProgram", "nvrtcGetCUBIN", "nvrtcGetCUBINSize"] {
        let failure = format!("{function}:11");
        assert_refused("no_device", &["error 11"], |process| process.set("FAKE_CUDA_FAIL", &failure));
    }
}

#[test]
fn versions_that_do_not_fit_are_named_86() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("11080", "12.0", &["supports CUDA 11.8, but 12.0 or newer is needed", "driver 525 or newer"]),
        ("0", "12.0", &["12.0 or newer is needed"]),
        ("12080", "13.0", &["is of CUDA 13.0, newer than the driver"]),
    ];
    for (driver, nvrtc, parts) in cases {
        let settings = [("FAKE_CUDA_VERSION", *driver), ("FAKE_NVRTC_VERSION", *nvrtc)];
        assert_refused("no_device", parts, |process| process.set_all(&settings));
    }
}

#[test]
fn a_cubin_that_the_driver_refuses_is_named_86() {
    for (failure, part) in [
        ("cuModuleLoadData:200", "CUDA_ERROR_INVALID_IMAGE"),
        ("cuModuleLoadData:209", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ("cuModuleLoadData:222", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        ("cuModuleGetFunction:500", "CUDA_ERROR_NOT_FOUND"),
        ("cuFuncSetAttribute:1", "CUDA_ERROR_INVALID_VALUE"),
        ("cuLaunchKernel:701", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        // A code that this driver has no name for.
        ("cuModuleLoadData:12345", "error 12345"),
    ] {
        let parts = ["resample: cuda:0: ", part];
        assert_refused("no_device", &parts, |process| process.set("FAKE_CUDA_FAIL", failure));
    }
}

#[test]
fn a_driver_that_does_not_start_says_why_86() {
    for (code, parts) in [
        ("3", &["CUDA_ERROR_NOT_INITIALIZED", "forked", "\"spawn\""][..]),
        ("34", &["CUDA_ERROR_STUB_LIBRARY"]),
        ("100", &["sees no device", "CUDA_VISIBLE_DEVICES"]),
        ("803", &["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"]),
        ("999", &["CUDA_ERROR_UNKNOWN"]),
    ] {
        let failure = format!("cuInit:{code}");
        assert_refused("no_device", parts, |process| process.set("FAKE_CUDA_FAIL", &failure));
    }
}
