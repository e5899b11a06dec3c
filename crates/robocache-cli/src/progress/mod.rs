//! Long work: a bar for whoever waits, and Ctrl-C.

mod bar;
mod interrupt;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use robocache::{Error, ErrorKind, Result};
use robocache_data::Progress;

use self::bar::{Bar, State};
use self::interrupt::Caught;

/// How often the bar is drawn and Ctrl-C is looked for.
const PERIOD: Duration = Duration::from_millis(50);
/// What ends sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(300);
/// What most work has to stop by itself after Ctrl-C.
const GRACE: Duration = Duration::from_millis(200);

/// How far the work is; the number of things to do is 0 until it is known.
#[derive(Debug, Default)]
struct Steps {
    done: AtomicUsize,
    total: AtomicUsize,
}

/// What came of the work.
#[derive(Debug)]
pub(crate) struct Worked<T> {
    pub(crate) result: T,
    /// How many things there were to do, as the work last said; 0 if it did not.
    pub(crate) total: usize,
}

/// Does long work in another thread, with a bar on standard error if it is a terminal and `bar`
/// is wanted. After Ctrl-C the work is asked to stop, and left to itself if it does not:
/// the error is `Interrupted` in both cases.
pub(crate) fn run<T: Send + 'static>(
    title: &'static str,
    unit: &'static str,
    bar: bool,
    work: impl FnOnce(&Progress<'_>) -> Result<T> + Send + 'static,
) -> Result<Worked<T>> {
    run_with_grace(title, unit, bar, GRACE, work)
}

/// The same for work that needs some time to stop well; a second Ctrl-C ends it at once.
pub(crate) fn run_with_grace<T: Send + 'static>(
    title: &'static str,
    unit: &'static str,
    bar: bool,
    grace: Duration,
    work: impl FnOnce(&Progress<'_>) -> Result<T> + Send + 'static,
) -> Result<Worked<T>> {
    let _caught = Caught::new();
    let steps = Arc::new(Steps::default());
    let (sender, receiver) = channel();
    let told = Arc::clone(&steps);
    let job = move || {
        let step = |done, total| {
            // Threads tell in any order.
            told.done.fetch_max(done, Ordering::Relaxed);
            told.total.store(total, Ordering::Relaxed);
        };
        let result = work(&Progress { step: &step, interrupted: &interrupt::is_interrupted });
        // Nobody listens any more after Ctrl-C.
        let _ = sender.send(result);
    };
    let thread = std::thread::Builder::new().name(title.to_owned()).spawn(job);
    thread.map_err(|error| Error::new(ErrorKind::OutOfMemory, "cannot start a thread").caused_by(error))?;

    let started = Instant::now();
    let mut bar = Bar::new(title, unit, bar);
    let mut stop_at = None;
    let result = loop {
        match receiver.recv_timeout(PERIOD) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Error::new(ErrorKind::Unsupported, format!("{title} ended without a result")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let is_over = |stop_at: &mut Option<Instant>| {
            let stop_at = *stop_at.get_or_insert_with(|| Instant::now() + grace);
            interrupt::is_insisted_on() || Instant::now() >= stop_at
        };
        if interrupt::is_interrupted() && is_over(&mut stop_at) {
            break Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        let elapsed = started.elapsed();
        if elapsed >= PATIENCE {
            let (done, total) = (steps.done.load(Ordering::Relaxed), steps.total.load(Ordering::Relaxed));
            bar.draw(State { done, total, elapsed });
        }
    };
    bar.clear();
    Ok(Worked { result: result?, total: steps.total.load(Ordering::Relaxed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_come_back() {
        let worked = run("test", "thing", false, |progress| {
            (progress.step)(1, 2);
            Ok((progress.interrupted)())
        });
        let worked = worked.unwrap();
        assert_eq!((worked.result, worked.total), (false, 2));
        let error = run::<()>("test", "thing", false, |_| Err(Error::invalid("x", "bad"))).unwrap_err();
        assert_eq!(error.to_string(), "x: bad");
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = run::<()>("test", "thing", false, |_| panic!("on purpose")).unwrap_err();
        assert_eq!(error.to_string(), "test ended without a result");
    }
}
