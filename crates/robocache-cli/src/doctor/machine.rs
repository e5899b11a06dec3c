//! What the operating system says about the machine. What it does not say stays out.

use std::collections::BTreeSet;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Machine {
    os: String,
    kernel: Option<String>,
    architecture: &'static str,
    cpu: Option<String>,
    cores: Option<usize>,
    hardware_threads: Option<usize>,
    pub(super) memory: Option<Memory>,
}

/// In bytes.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) available: u64,
}

impl Machine {
    pub(super) fn look() -> Self {
        let processors = read("/proc/cpuinfo").map(|text| Processors::parse(&text)).unwrap_or_default();
        // ARM kernels do not name the processor; their boards have a name.
        let board = || read("/proc/device-tree/model").map(|name| name.trim_matches(['\0', '\n', ' ']).to_owned());
        Self {
            os: read("/etc/os-release")
                .and_then(|text| os_name(&text))
                .unwrap_or_else(|| std::env::consts::OS.to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            architecture: std::env::consts::ARCH,
            cpu: processors.model.or_else(board),
            cores: processors.cores,
            hardware_threads: processors.threads,
            memory: read("/proc/meminfo").and_then(|text| Memory::parse(&text)),
        }
    }

    pub(super) fn system_text(&self) -> String {
        let kernel = self.kernel.as_ref().map_or_else(String::new, |kernel| format!(", Linux {kernel}"));
        format!("{}{kernel}, {}", self.os, self.architecture)
    }

    pub(super) fn cpu_text(&self) -> String {
        let mut parts = vec![self.cpu.clone().unwrap_or_else(|| "model unknown".to_owned())];
        parts.extend(self.cores.map(|cores| plural(cores, "core")));
        parts.extend(self.hardware_threads.map(|threads| plural(threads, "hardware thread")));
        parts.join(", ")
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn os_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Processors {
    model: Option<String>,
    cores: Option<usize>,
    threads: Option<usize>,
}

impl Processors {
    /// Reads `/proc/cpuinfo`: one block of `key : value` lines per hardware thread.
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut threads = 0;
        let mut cores = BTreeSet::new();
        for block in text.split("\n\n") {
            let value = |wanted: &str| {
                let fields = block.lines().filter_map(|line| line.split_once(':'));
                fields.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == wanted).map(|(_, v)| v)
            };
            if value("processor").is_some() {
                threads += 1;
            }
            if let (Some(package), Some(core)) = (value("physical id"), value("core id")) {
                cores.insert((package.to_owned(), core.to_owned()));
            }
            if found.model.is_none() {
                found.model = value("model name").map(ToOwned::to_owned);
            }
        }
        found.threads = (threads > 0).then_some(threads);
        found.cores = (!cores.is_empty()).then_some(cores.len());
        found
    }
}

impl Memory {
    /// Reads `/proc/meminfo`.
    fn parse(text: &str) -> Option<Self> {
        let kibibytes = |wanted: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(wanted))?.strip_prefix(':')?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self { total: kibibytes("MemTotal")?, available: kibibytes("MemAvailable")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyperthreads_are_not_cores() {
        let block = |thread: usize, core: usize| {
            format!(
                "processor\t: {thread}\nmodel name\t: Some CPU\nphysical id\t: 0\ncore id\t\t: {core}\nflags\t\t:\n\n"
            )
        };
        let text: String = [(0, 0), (1, 1), (2, 0), (3, 1)].map(|(thread, core)| block(thread, core)).concat();
        let expected = Processors { model: Some("Some CPU".to_owned()), cores: Some(2), threads: Some(4) };
        assert_eq!(Processors::parse(&text), expected);
    }

    #[test]
    fn what_is_not_said_stays_out() {
        let arm = "processor\t: 0\nCPU part\t: 0xd42\n\nprocessor\t: 1\nCPU part\t: 0xd42\n";
        assert_eq!(Processors::parse(arm), Processors { threads: Some(2), ..Processors::default() });
        assert_eq!(Processors::parse(""), Processors::default());
        assert_eq!(Memory::parse("MemTotal: many kB\n"), None);
        assert_eq!(os_name("ID=x\n"), None);
    }

    #[test]
    fn linux_says_how_much_memory_there_is() {
        let text = "MemTotal:       24682416 kB\nMemFree: 1 kB\nMemAvailable:   22541364 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { total: 24_682_416 << 10, available: 22_541_364 << 10 }));
        assert_eq!(os_name("NAME=x\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
    }
}
