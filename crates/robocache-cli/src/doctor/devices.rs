//! One report per device. A new backend adds its own here.

use robocache::Device;
use serde::Serialize;

use super::self_test::{self, SelfTest};
use crate::output::{Paint, count, duration};

const DRIVER_FILE: &str = "/proc/driver/nvidia/version";
const GPU_FOLDER: &str = "/proc/driver/nvidia/gpus";
/// JSON has them all.
const FAILURES_SHOWN: usize = 5;

#[derive(Debug, Serialize)]
pub(super) struct DeviceReport {
    /// As users write it: `cpu`, `cuda:0`.
    pub(super) name: String,
    pub(super) usable: bool,
    /// Why it is not usable.
    why: Option<String>,
    /// What can be said about it without using it.
    seen: Vec<String>,
    /// Only of a usable device.
    self_test: Option<SelfTest>,
}

pub(super) fn all() -> Vec<DeviceReport> {
    vec![cpu(), cuda()]
}

fn cpu() -> DeviceReport {
    DeviceReport {
        name: Device::Cpu.to_string(),
        usable: true,
        why: None,
        seen: Vec::new(),
        self_test: Some(self_test::run(|op| robocache::run(op))),
    }
}

fn cuda() -> DeviceReport {
    let mut seen = gpus();
    seen.push(match std::fs::read_to_string(DRIVER_FILE) {
        Ok(text) => driver(&text),
        Err(_) => format!("no NVIDIA driver seen in {DRIVER_FILE}"),
    });
    DeviceReport {
        name: "cuda".to_owned(),
        usable: false,
        why: Some("this version of RoboCache has no CUDA backend yet".to_owned()),
        seen,
        self_test: None,
    }
}

/// The first line of the driver's version file, with its runs of spaces made one.
fn driver(text: &str) -> String {
    text.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The models of the GPUs that the driver lists.
fn gpus() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(GPU_FOLDER) else {
        return Vec::new();
    };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let texts = folders.iter().filter_map(|folder| std::fs::read_to_string(folder.join("information")).ok());
    texts.filter_map(|text| model(&text)).collect()
}

fn model(information: &str) -> Option<String> {
    information.lines().find_map(|line| line.strip_prefix("Model:")).map(|model| model.trim().to_owned())
}

impl DeviceReport {
    /// Not usable is sound; usable and wrong is not.
    pub(super) fn is_sound(&self) -> bool {
        self.self_test.as_ref().is_none_or(|test| test.failures.is_empty())
    }

    /// What to say about it, the most important first.
    pub(super) fn notes(&self) -> Vec<(String, Paint)> {
        let mut notes = Vec::new();
        notes.extend(self.why.clone().map(|why| (why, Paint::Plain)));
        if let Some(test) = &self.self_test {
            let cases = count(test.cases as u64);
            let time = duration(test.seconds);
            if test.failures.is_empty() {
                notes.push((format!("{cases} cases right, in {time}"), Paint::Good));
            } else {
                notes.push((format!("{} of {cases} cases wrong, in {time}", test.failures.len()), Paint::Bad));
                notes.extend(test.failures.iter().take(FAILURES_SHOWN).map(|failure| (failure.clone(), Paint::Bad)));
            }
        }
        notes.extend(self.seen.iter().map(|seen| (seen.clone(), Paint::Plain)));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_and_the_gpus_name_themselves() {
        let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  Tue\nGCC version: 12\n";
        assert_eq!(driver(version), "NVRM version: NVIDIA UNIX x86_64 Kernel Module 580.159 Tue");
        assert_eq!(driver(""), "");
        assert_eq!(model("Model: \t\t NVIDIA H200\nIRQ:   1\n").as_deref(), Some("NVIDIA H200"));
    }

    #[test]
    fn a_wrong_device_is_not_sound_and_says_so() {
        let test = SelfTest { cases: 2, failures: vec!["linear is wrong".to_owned()], seconds: 0.001 };
        let report = DeviceReport { self_test: Some(test), ..cpu() };
        assert!(!report.is_sound() && cpu().is_sound() && cuda().is_sound());
        let notes = report.notes();
        assert_eq!(notes[0], ("1 of 2 cases wrong, in 1.0 ms".to_owned(), Paint::Bad));
        assert_eq!(notes[1].0, "linear is wrong");
    }
}
