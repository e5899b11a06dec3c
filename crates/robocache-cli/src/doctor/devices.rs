//! One report per device. A new backend adds its own here.

use robocache::cuda::GpuInfo;
use robocache::{Device, ErrorKind};
use serde::Serialize;

use super::self_test::{self, SelfTest};
use super::{gpu, nvidia};
use crate::output::{Paint, bytes, count, duration};

/// JSON has them all.
const FAILURES_SHOWN: usize = 5;
const CUDA_NEEDS: &str = "CUDA needs an NVIDIA driver 525 or newer (CUDA 12.0)";

#[derive(Debug, Serialize)]
pub(super) struct DeviceReport {
    /// As users write it: `cpu`, `cuda:0`.
    pub(super) name: String,
    pub(super) usable: bool,
    /// Why it is not usable.
    why: Option<String>,
    /// Only of a GPU.
    gpu: Option<GpuFacts>,
    /// What can be said about it without using it.
    seen: Vec<String>,
    /// Only of a usable device.
    self_test: Option<SelfTest>,
}

#[derive(Debug, Serialize)]
struct GpuFacts {
    model: String,
    compute_capability: String,
    /// In bytes.
    memory: u64,
    multiprocessors: u32,
    /// The CUDA version that the driver supports.
    driver_cuda: String,
}

pub(super) fn all() -> Vec<DeviceReport> {
    let mut devices = vec![cpu()];
    match robocache::cuda::probe() {
        Ok(gpus) => devices.extend(gpus.into_iter().map(cuda)),
        Err(error) => devices.push(no_cuda(error.to_string())),
    }
    devices
}

fn cpu() -> DeviceReport {
    DeviceReport {
        name: Device::Cpu.to_string(),
        usable: true,
        why: None,
        gpu: None,
        seen: Vec::new(),
        self_test: Some(self_test::run(|op| robocache::run(op))),
    }
}

/// The place of all GPUs when there is none.
fn no_cuda(why: String) -> DeviceReport {
    let mut seen = nvidia::gpus();
    seen.push(nvidia::driver().unwrap_or_else(|| format!("no NVIDIA driver seen in {}", nvidia::DRIVER_FILE)));
    seen.push(CUDA_NEEDS.to_owned());
    DeviceReport { name: "cuda".to_owned(), usable: false, why: Some(why), gpu: None, seen, self_test: None }
}

fn cuda(info: GpuInfo) -> DeviceReport {
    let device = Device::Cuda(info.ordinal);
    // A device that breaks while it is made ready is not merely unusable: the test tells how.
    let (why, self_test) = match gpu::ready(info.ordinal) {
        Err(error) if error.kind() != ErrorKind::DeviceLost => (Some(error.to_string()), None),
        _ => (None, Some(self_test::run(|op| gpu::run(info.ordinal, op)))),
    };
    DeviceReport {
        name: device.to_string(),
        usable: why.is_none(),
        why,
        // The same for all of them.
        seen: nvidia::driver().filter(|_| info.ordinal == 0).into_iter().collect(),
        gpu: Some(GpuFacts::new(info)),
        self_test,
    }
}

impl GpuFacts {
    fn new(info: GpuInfo) -> Self {
        let (major, minor) = info.capability;
        Self {
            model: info.name,
            compute_capability: format!("{major}.{minor}"),
            memory: info.memory as u64,
            multiprocessors: info.multiprocessors,
            driver_cuda: info.driver,
        }
    }

    fn text(&self) -> String {
        format!(
            "{}, compute capability {}, {}, {} multiprocessors, driver of CUDA {}",
            self.model,
            self.compute_capability,
            bytes(self.memory),
            self.multiprocessors,
            self.driver_cuda
        )
    }
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
        notes.extend(self.gpu.as_ref().map(|gpu| (gpu.text(), Paint::Plain)));
        notes.extend(self.seen.iter().map(|seen| (seen.clone(), Paint::Plain)));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_device_is_not_sound_and_says_so() {
        let test = SelfTest { cases: 2, failures: vec!["linear is wrong".to_owned()], seconds: 0.001 };
        let report = DeviceReport { self_test: Some(test), ..cpu() };
        assert!(!report.is_sound() && cpu().is_sound() && no_cuda("absent".to_owned()).is_sound());
        let notes = report.notes();
        assert_eq!(notes[0], ("1 of 2 cases wrong, in 1.0 ms".to_owned(), Paint::Bad));
        assert_eq!(notes[1].0, "linear is wrong");
    }

    #[test]
    fn a_gpu_is_described_in_one_line() {
        let info = GpuInfo {
            ordinal: 1,
            name: "NVIDIA H200".to_owned(),
            capability: (9, 0),
            memory: 150_109_880_320,
            multiprocessors: 132,
            shared_memory: 232_448,
            driver: "13.0".to_owned(),
            refusal: None,
        };
        let expected = "NVIDIA H200, compute capability 9.0, 139.8 GiB, 132 multiprocessors, driver of CUDA 13.0";
        assert_eq!(GpuFacts::new(info).text(), expected);
    }
}
