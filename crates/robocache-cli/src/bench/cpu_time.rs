//! The time that this process really had.

use std::time::Duration;

/// Of all its threads, those that ended among them.
pub(super) fn of_process() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is good for a time, which the call only writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| failed == 0)?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn work_takes_time() {
        let before = of_process().unwrap();
        let started = Instant::now();
        while of_process().unwrap() - before < Duration::from_millis(20) {
            assert!(started.elapsed() < Duration::from_secs(60));
        }
    }
}
