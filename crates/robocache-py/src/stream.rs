//! The CUDA stream of a call, and the way that it goes.

use std::cell::OnceCell;

use pyo3::prelude::*;
use robocache::Context;
use robocache::plan::Way;

/// As the driver knows it.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) handle: usize,
    /// Whether it is another than the framework's own, which then must not reuse memory early.
    pub(crate) foreign: bool,
    /// Where and in what parts the call runs, if that was said.
    way: OnceCell<Option<Box<Going>>>,
}

/// What was said about how a call goes.
pub(crate) struct Going {
    pub(crate) way: Way,
    /// Told how many of how many parts are done.
    pub(crate) progress: Option<Py<PyAny>>,
}

impl Stream {
    /// As the driver knows it.
    pub(crate) fn new(handle: usize, foreign: bool) -> Self {
        Self { handle, foreign, way: OnceCell::new() }
    }

    /// Sets the way of the call.
    pub(crate) fn go(&self, way: Option<Box<Going>>) {
        // Calls say it once.
        let _ = self.way.set(way);
    }

    /// Who is told about parts that are done.
    pub(crate) fn progress(&self) -> Option<&Py<PyAny>> {
        self.way.get()?.as_ref()?.progress.as_ref()
    }

    /// What the engine is told before a call.
    pub(crate) fn context(&self) -> Context<'_> {
        let way = self.way.get().and_then(|way| way.as_ref());
        Context { stream: self.handle, way: way.map(|going| &going.way), ..Context::default() }
    }
}
