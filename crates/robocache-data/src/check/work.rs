//! Shares tasks between threads and takes their results in order.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use robocache::{Error, ErrorKind, Result};

use crate::findings::Progress;

/// How often a long run asks whether it should stop.
const POLL: Duration = Duration::from_millis(50);
/// Tasks per thread that may be ahead of the oldest that is not done.
const AHEAD: usize = 4;

/// Says to a task that nobody waits for it any more.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

type Outcome<T> = std::thread::Result<T>;

/// Runs `work(0..tasks)` on all threads and gives the results to `take` on the caller's, in order,
/// so that sums do not depend on the threads. Few results wait at a time.
///
/// The threads live as long as the call: a pool would not survive `fork`.
pub(crate) fn in_order<T: Send>(
    tasks: usize,
    progress: &Progress<'_>,
    work: &(dyn Fn(usize, &Stop) -> T + Sync),
    take: &mut dyn FnMut(usize, T),
) -> Result<()> {
    let stop = Stop::default();
    let threads = robocache::cpu_threads().min(tasks).max(1);
    let (tickets, waiting) = mpsc::channel::<usize>();
    let waiting = Mutex::new(waiting);
    let (results, finished) = mpsc::channel::<(usize, Outcome<T>)>();
    let serve = |results: Sender<(usize, Outcome<T>)>| {
        while let Some(task) = next(&waiting) {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(task, &stop)));
            if stop.asked() || results.send((task, outcome)).is_err() {
                break;
            }
        }
    };
    let outcome = std::thread::scope(|scope| {
        let mut spawned = 0;
        for number in 0..threads {
            let results = results.clone();
            let thread = std::thread::Builder::new().name(format!("robocache-work-{number}"));
            spawned += usize::from(thread.spawn_scoped(scope, || serve(results)).is_ok());
        }
        drop(results);
        let outcome = if spawned == 0 {
            // A machine that refuses threads still checks, on the caller's alone.
            alone(tasks, progress, &stop, work, take)
        } else {
            deliver(tasks, threads * AHEAD, &tickets, &finished, progress, take)
        };
        if outcome.is_err() {
            stop.0.store(true, Ordering::Relaxed);
        }
        drop(tickets);
        outcome
    });
    outcome.map_err(|failure| match failure {
        Failure::Interrupted => Error::new(ErrorKind::Interrupted, "interrupted"),
        Failure::Panic(payload) => resume_unwind(payload),
    })
}

/// The results of `work(0..tasks)` on all threads, or the first failure in the order of the tasks.
pub(crate) fn all<T: Send>(
    tasks: usize,
    progress: &Progress<'_>,
    work: &(dyn Fn(usize) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks);
    in_order(tasks, progress, &|task, _| work(task), &mut |_, result| results.push(result))?;
    results.into_iter().collect()
}

enum Failure {
    Interrupted,
    Panic(Box<dyn Any + Send>),
}

fn next(waiting: &Mutex<Receiver<usize>>) -> Option<usize> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn deliver<T>(
    tasks: usize,
    ahead: usize,
    tickets: &Sender<usize>,
    finished: &Receiver<(usize, Outcome<T>)>,
    progress: &Progress<'_>,
    take: &mut dyn FnMut(usize, T),
) -> Result<(), Failure> {
    // The other ends live until this returns, so that sending cannot fail.
    let send = |task: usize| tickets.send(task).unwrap_or_default();
    (0..tasks.min(ahead)).for_each(send);
    let mut early = BTreeMap::new();
    let mut wanted = 0;
    while wanted < tasks {
        match finished.recv_timeout(POLL) {
            Ok((task, Ok(result))) => drop(early.insert(task, result)),
            Ok((_, Err(payload))) => return Err(Failure::Panic(payload)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Interrupted),
        }
        while let Some(result) = early.remove(&wanted) {
            take(wanted, result);
            if wanted + ahead < tasks {
                send(wanted + ahead);
            }
            wanted += 1;
        }
        if (progress.interrupted)() {
            return Err(Failure::Interrupted);
        }
    }
    Ok(())
}

fn alone<T>(
    tasks: usize,
    progress: &Progress<'_>,
    stop: &Stop,
    work: &(dyn Fn(usize, &Stop) -> T + Sync),
    take: &mut dyn FnMut(usize, T),
) -> Result<(), Failure> {
    for task in 0..tasks {
        take(task, work(task, stop));
        if (progress.interrupted)() {
            return Err(Failure::Interrupted);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn results_come_in_order_and_once() {
        for tasks in [0, 1, 2, 1000] {
            let mut got = Vec::new();
            let slow_sometimes = |task: usize, _: &Stop| {
                if task.is_multiple_of(97) {
                    std::thread::sleep(Duration::from_millis(3));
                }
                task * 2
            };
            in_order(tasks, &Progress::default(), &slow_sometimes, &mut |task, twice| got.push((task, twice))).unwrap();
            assert_eq!(got, (0..tasks).map(|task| (task, task * 2)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_interrupt_ends_it_soon() {
        let started = Instant::now();
        let progress = Progress { step: &|_, _| {}, interrupted: &|| started.elapsed() > Duration::from_millis(100) };
        let wait = |_: usize, stop: &Stop| {
            for _ in 0..1000 {
                if stop.asked() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let error = in_order(100, &progress, &wait, &mut |_, ()| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let bad = |task: usize, _: &Stop| assert!(task != 7, "seven");
        let outcome = catch_unwind(|| in_order(50, &Progress::default(), &bad, &mut |_, ()| {}));
        assert!(outcome.is_err());
    }
}
