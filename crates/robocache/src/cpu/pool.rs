//! A thread pool that survives `fork`.
//!
//! After `fork` only the calling thread exists in the child, so a pool inherited from the parent
//! would wait for ever. The pool therefore remembers the process that made it; another process
//! makes its own and leaks the old one, whose threads are not there to be joined. No lock is
//! held anywhere, since a lock that another thread held during `fork` would stay locked.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Context, Error, ErrorKind, Result};

/// Waking a thread costs about as much as moving this many bytes.
const WORTH_SHARING_BYTES: usize = 256 << 10;
/// How often a long run asks whether it should stop.
pub(crate) const POLL: Duration = Duration::from_millis(50);

struct Pool {
    process: u32,
    workers: Option<ThreadPool>,
}

static CURRENT: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// Threads that an op may use: `ROBOCACHE_NUM_THREADS`, else what the machine and the process's
/// affinity and cgroup allow.
pub fn threads() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    match THREADS.load(Ordering::Relaxed) {
        0 => {
            let wanted = std::env::var("ROBOCACHE_NUM_THREADS").ok().and_then(|text| text.trim().parse().ok());
            let threads = match wanted {
                Some(count) if count > 0 => count,
                _ => std::thread::available_parallelism().map_or(1, Into::into),
            };
            // Of two that find out at once the first counts: what was planned for so many is done by so many.
            THREADS.compare_exchange(0, threads, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(threads)
        }
        known => known,
    }
}

/// Whether so many bytes are worth waking other threads for, and asking for interrupts.
pub(crate) fn is_worth_sharing(bytes: usize) -> bool {
    bytes >= WORTH_SHARING_BYTES
}

/// Runs `body(0..tasks)` on all threads, the caller's included, in an order that keeps threads [`apart`].
/// Tasks should take well under [`POLL`] each, so that a run can be stopped.
pub(crate) fn for_each(tasks: usize, context: &Context<'_>, body: &(dyn Fn(usize) + Sync)) -> Result<()> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let take = || {
        let turn = next.fetch_add(1, Ordering::Relaxed);
        (turn < tasks && !stop.load(Ordering::Relaxed)).then(|| apart(turn, tasks, threads()))
    };
    let take_all = || {
        while let Some(task) = take() {
            body(task);
        }
    };
    let take_all_and_poll = || {
        let mut asked = Instant::now();
        while let Some(task) = take() {
            body(task);
            if let Some(interrupt) = context.interrupt
                && asked.elapsed() > POLL
            {
                if interrupt() {
                    stop.store(true, Ordering::Relaxed);
                }
                asked = Instant::now();
            }
        }
    };
    let workers = if tasks > 1 { workers() } else { None };
    match workers {
        Some(pool) => pool.in_place_scope(|scope| {
            for _ in 0..pool.current_num_threads().min(tasks - 1) {
                scope.spawn(|_| take_all());
            }
            take_all_and_poll();
        }),
        None => take_all_and_poll(),
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
    }
    Ok(())
}

/// The task of a turn: turns walk through as many parts of the tasks as there are threads, all at once. Tasks side
/// by side write memory side by side, and of two threads that touch a fresh page at the same time each clears
/// one, of which one is thrown away: 2 MiB where pages are large.
fn apart(turn: usize, tasks: usize, parts: usize) -> usize {
    let (step, part) = (turn / parts, turn % parts);
    // The first parts are longer by one where the tasks cannot be shared evenly.
    part * (tasks / parts) + part.min(tasks % parts) + step
}

/// The other threads of this process; `None` when there is only the caller's.
fn workers() -> Option<&'static ThreadPool> {
    if threads() < 2 {
        return None;
    }
    let process = std::process::id();
    loop {
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: pools are leaked once published, so the pointer is null or valid for ever.
        if let Some(pool) = unsafe { current.as_ref() }
            && pool.process == process
        {
            return pool.workers.as_ref();
        }
        // A machine that refuses more threads still computes, on the caller's alone.
        let workers = ThreadPoolBuilder::new()
            .num_threads(threads() - 1)
            .thread_name(|index| format!("robocache-{index}"))
            .build()
            .ok();
        let made = Box::into_raw(Box::new(Pool { process, workers }));
        if CURRENT.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: another thread published first and nobody has seen ours.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn every_task_runs_once() {
        let counts: Vec<_> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        for_each(counts.len(), &Context::default(), &|task| {
            counts[task].fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn turns_walk_through_all_parts_at_once() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|turn| apart(turn, 7, 3)), [0, 3, 5, 1, 4, 6, 2]);
        for (tasks, parts) in [(1, 1), (1, 4), (5, 1), (8, 2), (9, 2), (100, 64), (63, 64)] {
            let mut seen: Vec<_> = (0..tasks).map(|turn| apart(turn, tasks, parts)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..tasks).collect::<Vec<_>>(), "{tasks} in {parts}");
        }
    }

    #[test]
    fn a_run_stops_soon_after_it_is_asked_to() {
        let asked = Cell::new(0);
        let interrupt = || {
            asked.set(asked.get() + 1);
            true
        };
        let context = Context { interrupt: Some(&interrupt), ..Context::default() };
        let started = Instant::now();
        let error = for_each(1_000_000, &context, &|_| std::thread::sleep(Duration::from_millis(1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert_eq!(asked.get(), 1);
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}
