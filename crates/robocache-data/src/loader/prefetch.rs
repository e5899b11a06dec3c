//! Threads that make batches ahead of their use, in order and never more than a few.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use robocache::{Error, ErrorKind, Result};

/// How often a waiting thread polls.
const LOOK: Duration = Duration::from_millis(50);

/// Makes items ahead: `make(n, stop)` for n = 0, 1, 2, ... until it gives `None`. An item is given up
/// when `stop()` is true: nobody will take it.
#[derive(Debug)]
pub struct Prefetch<T> {
    shared: Arc<Shared<T>>,
    workers: Vec<JoinHandle<()>>,
    process: u32,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// Items that may be ready or in the making at once.
    ahead: u64,
    stop: AtomicBool,
}

#[derive(Debug)]
struct State<T> {
    /// The next to be made, and the next to be taken.
    next: u64,
    taken: u64,
    ready: BTreeMap<u64, Result<T>>,
    /// The first number that does not exist.
    end: Option<u64>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts the threads; never more than `ahead` items are ready or in the making, so that no
    /// more threads than that are of use.
    pub fn new<F>(threads: usize, ahead: usize, make: F) -> Result<Self>
    where
        F: Fn(u64, &(dyn Fn() -> bool + Sync)) -> Option<Result<T>> + Send + Sync + 'static,
    {
        let ahead = ahead.max(1);
        let threads = threads.clamp(1, ahead);
        let state = Mutex::new(State { next: 0, taken: 0, ready: BTreeMap::new(), end: None });
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { state, changed: Condvar::new(), ahead: ahead as u64, stop });
        let make = Arc::new(make);
        let mut prefetch = Self { shared: Arc::clone(&shared), workers: Vec::new(), process: std::process::id() };
        for number in 0..threads {
            let (shared, make) = (Arc::clone(&shared), Arc::clone(&make));
            let thread = std::thread::Builder::new().name(format!("robocache-load-{number}"));
            let worker = thread.spawn(move || work(&shared, &*make, number)).map_err(|error| {
                Error::new(ErrorKind::OutOfMemory, "cannot start a thread of the loader").caused_by(error)
            })?;
            prefetch.workers.push(worker);
        }
        Ok(prefetch)
    }

    /// The next item; `None` at the end. `interrupted` is asked while it waits.
    pub fn next(&self, interrupted: &dyn Fn() -> bool) -> Option<Result<T>> {
        if std::process::id() != self.process {
            let text = "the loader was made before a fork: its threads are in the other process; make a new one";
            return Some(Err(Error::new(ErrorKind::Unsupported, text)));
        }
        let mut state = self.shared.lock();
        loop {
            let number = state.taken;
            if let Some(item) = state.ready.remove(&number) {
                state.taken += 1;
                self.shared.changed.notify_all();
                return Some(item);
            }
            if state.end.is_some_and(|end| number >= end) {
                return None;
            }
            if self.workers.iter().all(JoinHandle::is_finished) {
                return Some(Err(Error::new(ErrorKind::Interrupted, "the threads of the loader have ended")));
            }
            state = self.shared.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            if interrupted() {
                return Some(Err(Error::new(ErrorKind::Interrupted, "interrupted")));
            }
        }
    }
}

/// What makes an item, asking now and then whether it is still wanted.
type Make<T> = dyn Fn(u64, &(dyn Fn() -> bool + Sync)) -> Option<Result<T>>;

fn work<T>(shared: &Shared<T>, make: &Make<T>, number: usize) {
    let stop = &shared.stop;
    let stopped = || stop.load(Ordering::Relaxed);
    loop {
        let item = {
            let mut state = shared.lock();
            loop {
                if stopped() || state.end.is_some_and(|end| state.next >= end) {
                    return;
                }
                if state.next < state.taken + shared.ahead {
                    break;
                }
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.next += 1;
            state.next - 1
        };
        let made = catch_unwind(AssertUnwindSafe(|| make(item, &stopped))).unwrap_or_else(|panic| {
            let told = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let told = told.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            let text = format!("thread {number} of the loader panicked: {told}");
            Some(Err(Error::new(ErrorKind::CorruptData, text)))
        });
        let mut state = shared.lock();
        match made {
            Some(made) => {
                state.ready.insert(item, made);
            }
            None => state.end = Some(state.end.map_or(item, |end| end.min(item))),
        }
        shared.changed.notify_all();
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // After a fork there is nobody to wait for, and the lock may be held for ever.
            self.workers.drain(..).for_each(std::mem::forget);
            return;
        }
        {
            // Under the lock, so that nobody misses it who is about to wait.
            let _state = self.shared.lock();
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use super::*;

    #[test]
    fn items_come_in_order_and_not_too_far_ahead_96() {
        let made = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&made);
        let prefetch = Prefetch::new(3, 4, move |number, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(number % 7 * 100));
            (number < 50).then_some(Ok(number))
        })
        .unwrap();
        for expected in 0..50 {
            assert_eq!(prefetch.next(&|| false).unwrap().unwrap(), expected);
            if expected == 10 {
                std::thread::sleep(Duration::from_millis(30));
                assert!(made.load(Ordering::Relaxed) <= 11 + 4);
            }
        }
        assert!(prefetch.next(&|| false).is_none());
        assert!(prefetch.next(&|| false).is_none());
    }

    #[test]
    fn a_thread_that_panics_is_an_error_and_dropping_never_hangs_95() {
        let prefetch = Prefetch::new(2, 2, |number, _| {
            assert!(number != 3, "boom");
            Some(Ok(number))
        })
        .unwrap();
        for expected in 0..3 {
            assert_eq!(prefetch.next(&|| false).unwrap().unwrap(), expected);
        }
        let error = prefetch.next(&|| false).unwrap().unwrap_err().to_string();
        assert!(error.contains("panicked: boom"), "{error}");
        assert_eq!(prefetch.next(&|| false).unwrap().unwrap(), 4, "the next one comes");
        drop(prefetch);
        let slow = Prefetch::new(2, 2, |_, _| -> Option<Result<()>> {
            std::thread::sleep(Duration::from_millis(20));
            Some(Ok(()))
        })
        .unwrap();
        assert_eq!(slow.next(&|| true).unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
    }

    #[test]
    fn more_threads_than_items_ahead_make_no_more_96() {
        let made = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&made);
        let prefetch = Prefetch::new(8, 1, move |number, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            Some(Ok(number))
        })
        .unwrap();
        assert_eq!(prefetch.next(&|| false).unwrap().unwrap(), 0);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(made.load(Ordering::Relaxed), 2, "the one that is used and one ahead");
    }

    #[test]
    fn an_item_in_the_making_is_given_up_97() {
        let prefetch = Prefetch::new(2, 2, |_, stop| -> Option<Result<()>> {
            while !stop() {
                std::thread::sleep(Duration::from_millis(1));
            }
            None
        })
        .unwrap();
        let begun = Instant::now();
        assert_eq!(prefetch.next(&|| true).unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
        drop(prefetch);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn dropping_in_another_process_does_not_wait_for_the_lock_100() {
        let mut prefetch = Prefetch::new(1, 1, |number, _| Some(Ok(number))).unwrap();
        let shared = Arc::clone(&prefetch.shared);
        // As in a child that was forked while a thread held the lock.
        let _held = shared.lock();
        prefetch.process = prefetch.process.wrapping_add(1);
        drop(prefetch);
        shared.stop.store(true, Ordering::Relaxed);
    }
}
