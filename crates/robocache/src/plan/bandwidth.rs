//! How fast this machine moves bytes: measured once, when a plan first asks.

use std::sync::OnceLock;
use std::time::Instant;

use crate::cuda::{Gpu, Link};
use crate::{Context, Memory, Result, cpu};

/// Bytes of a copy that is timed.
const BYTES: usize = 32 << 20;
const TASK: usize = 1 << 20;
/// The best of so many.
const TRIES: usize = 3;

/// Bytes per second that an op reads and writes on the host, by a copy on all cores; none where there is no memory for it.
pub(super) fn host() -> Option<f64> {
    static MEASURED: OnceLock<Option<f64>> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let (from, to) = (Memory::new(BYTES)?, Memory::new(BYTES)?);
        let (from, to) = (from.data() as usize, to.data() as usize);
        // SAFETY: both are as long, nobody else has them, and tasks write their own parts.
        let copy = |task: usize| unsafe {
            std::ptr::copy_nonoverlapping((from + task * TASK) as *const u8, (to + task * TASK) as *mut u8, TASK);
        };
        best(|| cpu::for_each(BYTES / TASK, &Context::default(), &copy)).map(|seconds| 2.0 * BYTES as f64 / seconds)
    })
}

/// Bytes per second that an op reads and writes on a GPU, or that go over the link to the host in one direction.
pub(super) fn gpu(gpu: &'static Gpu, link: Link) -> Option<f64> {
    let copy = link.copy(gpu, BYTES).ok()?;
    let sides = if link == Link::Within { 2.0 } else { 1.0 };
    best(copy).map(|seconds| sides * BYTES as f64 / seconds)
}

/// Seconds of the quickest of several runs, after one that does not count.
fn best(mut work: impl FnMut() -> Result<()>) -> Option<f64> {
    work().ok()?;
    let timed = (0..TRIES).filter_map(|_| {
        let began = Instant::now();
        work().ok().map(|()| began.elapsed().as_secs_f64())
    });
    timed.reduce(f64::min).filter(|seconds| *seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_moves_bytes() {
        // Machines move between 100 MB and 100 TB in a second; without large pages nothing is measured.
        assert!(host().is_none_or(|speed| (1e8..1e14).contains(&speed)));
    }
}
