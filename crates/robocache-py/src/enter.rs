//! The one seam between the interpreter and work that takes time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use robocache::Result;

use crate::errors;

/// How often a long work is looked after.
const LOOK: Duration = Duration::from_millis(50);

/// Does engine work with the interpreter released, so that other Python threads go on. The work is
/// given a question to ask a few times a second: whether a signal came and it should stop.
pub(crate) fn engine<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Fn() -> bool) -> Result<T> + Send) -> PyResult<T> {
    engine_shared(py, |interrupt| work(interrupt))
}

/// As [`engine`] for work in parts. The second thing that the work is given tells Python how many of how many are done; a
/// failure there stops the work.
pub(crate) fn engine_in_parts<T: Send>(
    py: Python<'_>,
    told: Option<&Py<PyAny>>,
    work: impl FnOnce(&dyn Fn() -> bool, Option<&dyn Fn(usize, usize)>) -> Result<T> + Send,
) -> PyResult<T> {
    let Some(told) = told else {
        return engine(py, |interrupt| work(interrupt, None));
    };
    let failure = Mutex::new(None);
    let result = engine(py, |interrupt| {
        let has_failed =
            || failure.lock().is_ok_and(|failure: std::sync::MutexGuard<'_, Option<PyErr>>| failure.is_some());
        let tell = |done: usize, all: usize| {
            if has_failed() {
                return;
            }
            Python::attach(|py| {
                if let (Err(error), Ok(mut failure)) = (told.call1(py, (done, all)), failure.lock()) {
                    *failure = Some(error);
                }
            });
        };
        work(&|| has_failed() || interrupt(), Some(&tell))
    });
    match failure.into_inner().ok().flatten() {
        Some(failure) => Err(failure),
        None => result,
    }
}

/// As [`engine`], with a question that helping threads can ask too.
pub(crate) fn engine_shared<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> Result<T> + Send,
) -> PyResult<T> {
    let signal = Mutex::new(None);
    let result = py.detach(|| {
        work(&|| {
            Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(error) => {
                    if let Ok(mut signal) = signal.lock() {
                        *signal = Some(error);
                    }
                    true
                }
            })
        })
    });
    match signal.into_inner().ok().flatten() {
        Some(signal) => Err(signal),
        None => result.map_err(|error| errors::to_python(py, &error)),
    }
}

/// As [`engine`] for work that many threads share, none of which is the interpreter's: it runs in
/// a thread of its own while this one waits for it and for signals.
pub(crate) fn threads<T: Send>(py: Python<'_>, work: impl FnOnce(&AtomicBool) -> Result<T> + Send) -> PyResult<T> {
    threads_with(py, work, || Ok(()))
}

/// As [`threads`], with something to do in Python now and then; its failure stops the work.
pub(crate) fn threads_with<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send,
    look: impl Fn() -> PyResult<()>,
) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    let mut signal = None;
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop));
        while !worker.is_finished() {
            py.detach(|| std::thread::sleep(LOOK));
            if let Err(error) = py.check_signals().and_then(|()| look()) {
                stop.store(true, Ordering::Relaxed);
                signal = Some(error);
            }
        }
        py.detach(|| worker.join())
    });
    match (signal, result) {
        (Some(signal), _) => Err(signal),
        (None, Ok(result)) => result.map_err(|error| errors::to_python(py, &error)),
        (None, Err(_)) => Err(pyo3::exceptions::PyRuntimeError::new_err("a thread of RoboCache panicked")),
    }
}
