//! The memory that this process takes, as Linux counts it.

/// Forgets earlier peaks, where the system allows it; else the next answer is too large.
pub(super) fn forget_peak() {
    // What was freed is not gone: the allocator keeps it for the next who asks.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time and from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most bytes that the process had in memory.
pub(super) fn peak() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// Bytes in memory now that are not those of mapped files.
pub(super) fn anonymous() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?, "RssAnon")
}

fn parse(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_counts_in_kibibytes() {
        let status = "Name:\tx\nVmHWM:\t   31112 kB\nVmRSS:\t 5 kB\n";
        assert_eq!(
            [parse(status, "VmHWM"), parse(status, "VmRSS"), parse(status, "Vm")],
            [Some(31_112 << 10), Some(5120), None]
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_peak_is_seen() {
        let before = peak().unwrap();
        let block = vec![1u8; 64 << 20];
        assert!(std::hint::black_box(&block).iter().all(|byte| *byte == 1));
        assert!(peak().unwrap() >= before.max(64 << 20));
    }
}
