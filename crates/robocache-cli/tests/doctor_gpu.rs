//! `robocache doctor` on GPUs, played by the driver and NVRTC of `crates/fake-cuda`.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml exempts tests, but not the functions that they share"
)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Named by a variable, else where cargo puts what tests depend on.
fn fake_library() -> PathBuf {
    let beside = || {
        let name = format!("{}fake_cuda{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        std::env::current_exe().unwrap().with_file_name(name)
    };
    std::env::var_os("ROBOCACHE_FAKE_CUDA").map_or_else(beside, PathBuf::from)
}

/// Exit code and text of `doctor` on the fake.
fn doctor(arguments: &[&str], settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_robocache"));
    command.arg("doctor").args(arguments).stdin(Stdio::null()).env_remove("CUDA_VISIBLE_DEVICES");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ROBOCACHE_")) {
        command.env_remove(name);
    }
    command.env("ROBOCACHE_LIBCUDA", fake_library()).env("ROBOCACHE_NVRTC", fake_library());
    command.env("ROBOCACHE_CUBIN_DIR", "").envs(settings.iter().copied());
    let output = command.output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn devices(settings: &[(&str, &str)]) -> (Option<i32>, Vec<Value>) {
    let (code, text) = doctor(&["--json"], settings);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["ok"], code == Some(0));
    (code, report["devices"].as_array().unwrap().clone())
}

/// Why the only GPU is not usable, which is no failure.
fn refusal(settings: &[(&str, &str)]) -> String {
    let (code, devices) = devices(settings);
    let [cpu, cuda] = &devices[..] else { panic!("{devices:?}") };
    assert_eq!((code, &cpu["usable"], &cuda["usable"]), (Some(0), &true.into(), &false.into()), "{cuda}");
    assert_eq!(cuda["self_test"], Value::Null);
    cuda["why"].as_str().unwrap().to_owned()
}

#[test]
fn a_gpu_that_computes_wrong_is_a_finding() {
    let (code, devices) = devices(&[("FAKE_CUDA_DEVICES", "2")]);
    assert_eq!(code, Some(1));
    let names: Vec<_> = devices.iter().map(|device| device["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cpu", "cuda:0", "cuda:1"]);
    for cuda in &devices[1..] {
        assert_eq!((&cuda["usable"], &cuda["self_test"]["cases"]), (&true.into(), &133.into()), "{cuda}");
        // The fake computes nothing: only answers of all zeros could be right.
        assert_eq!(cuda["self_test"]["failures"].as_array().unwrap().len(), 133, "{cuda}");
        let expected = serde_json::json!({
            "model": "Fake GPU",
            "compute_capability": "9.0",
            "memory": 1 << 30,
            "multiprocessors": 132,
            "driver_cuda": "12.0",
        });
        assert_eq!(cuda["gpu"], expected);
    }
    let (code, text) = doctor(&[], &[]);
    assert_eq!(code, Some(1));
    for part in [
        "133 of 133 cases wrong",
        "Fake GPU, compute capability 9.0, 1.0 GiB,",
        "The self-test failed on: cuda:0.",
        "ROBOCACHE_BLOCKING     not set",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn a_gpu_that_cannot_be_used_is_listed_with_the_reason() {
    for (settings, part) in [
        (&[("FAKE_CUDA_DEVICES", "0")][..], "sees no device"),
        (&[("FAKE_CUDA_DEVICES", "hidden")], "shows no device"),
        (&[("FAKE_CUDA_VERSION", "11080")], "the driver supports CUDA 11.8, but 12.0 or newer is needed (driver 525"),
        (&[("FAKE_CUDA_COMPUTE_MODE", "2")], "its compute mode is \"prohibited\""),
        (&[("FAKE_CUDA_CAPABILITY", "7.5")], "compute capability 7.5, 8.0 or newer is needed"),
        (&[("FAKE_CUDA_CAPABILITY", "15.0")], "does not compile for sm_150"),
        (&[("FAKE_CUDA_MEMORY", "16")], "CUDA_ERROR_OUT_OF_MEMORY"),
        (&[("ROBOCACHE_NVRTC", "/nowhere/libnvrtc.so")], "/nowhere/libnvrtc.so"),
        (&[("FAKE_NVRTC_VERSION", "13.0")], "newer than the driver"),
    ] {
        let why = refusal(settings);
        assert!(why.contains(part), "{part:?}: {why}");
    }
}

#[test]
fn one_bad_gpu_does_not_hide_the_other() {
    let (code, devices) = devices(&[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_COMPUTE_MODE", "2,0")]);
    assert_eq!(code, Some(1), "the other one computes wrong");
    assert_eq!([&devices[1]["usable"], &devices[2]["usable"]], [&Value::from(false), &true.into()]);
    assert_eq!(devices[1]["gpu"]["model"], "Fake GPU");
}

#[test]
fn a_gpu_that_is_lost_is_a_finding() {
    for failure in ["cuLaunchKernel:700", "cuModuleLoadData:719", "cuCtxSynchronize:716"] {
        let (code, devices) = devices(&[("FAKE_CUDA_FAIL", failure)]);
        assert_eq!(code, Some(1), "{failure}");
        let first = devices[1]["self_test"]["failures"][0].as_str().unwrap();
        assert!(first.contains("cuda:0 is lost until the process ends"), "{failure}: {first}");
    }
}
