//! Large pages for large results.

/// From so many bytes on it is worth asking; NumPy asks from here on, too.
const LARGE: usize = 4 << 20;

/// Asks the system for large pages behind an output that is about to be written. Frameworks give out fresh
/// memory, and of what a large grid costs, most is the first touch of each of its pages: with 2 MiB instead
/// of 4 KiB there are 512 times fewer. A hint: memory that has its pages already keeps them.
pub(crate) fn want_large_pages(address: usize, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        const PAGE: usize = 4096;
        let (start, end) = (address.next_multiple_of(PAGE), (address + bytes) & !(PAGE - 1));
        // SAFETY: the range lies within the caller's memory, and advice does not change what it holds.
        // Kernels without large pages refuse, which changes nothing.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes, LARGE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_changes_nothing() {
        let memory: Vec<u8> = (0..3 * LARGE).map(|at| (at % 251) as u8).collect();
        let start = memory.as_ptr() as usize;
        for (offset, bytes) in [(0, memory.len()), (1, LARGE), (4097, 2 * LARGE - 3), (0, 0), (5, LARGE - 1)] {
            want_large_pages(start + offset, bytes);
        }
        assert!(memory.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }
}
