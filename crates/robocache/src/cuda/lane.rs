//! CUDA streams of our own with pinned memory, kept for later calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::StreamHandle;
use super::device::Gpu;
use super::launch::Launcher;
use super::link::Pinned;
use super::report::Mailbox;
use super::sys::{DevicePointer, Handle};
use crate::tensor::TensorRef;
use crate::{Error, Result};

/// Lanes that a GPU keeps, and pinned bytes of each: a ring of parts for two calls.
const MOST_KEPT: usize = 6;
const MOST_PINNED: usize = 96 << 20;

/// What copies to and from a GPU, in order. Dropped while work is queued it would free memory in use: wait before.
#[derive(Debug)]
pub(super) struct Lane {
    gpu: &'static Gpu,
    stream: Handle,
    pinned: Option<Pinned>,
    /// Where kernels on it report to: what they find belongs to the call that has the lane.
    mailbox: Option<Mailbox>,
}

// SAFETY: CUDA streams may be used from any thread; the mailbox is made of atomics.
unsafe impl Send for Lane {}

/// Lanes that nobody uses, and mailboxes of others that are gone.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    idle: Mutex<Vec<Lane>>,
    mailboxes: Mutex<Vec<Mailbox>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    /// One that is idle.
    pub(super) fn new(gpu: &'static Gpu) -> Result<Self> {
        if let Some(kept) = lock(&gpu.lanes.idle).pop() {
            // What a call did not read, since it ended otherwise.
            drop(kept.found());
            return Ok(kept);
        }
        /// Does not wait for the default stream.
        const NON_BLOCKING: u32 = 1;
        let _current = gpu.current()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is valid.
        gpu.check(unsafe { (gpu.driver.create_stream)(&raw mut stream, NON_BLOCKING) }, "making a stream")?;
        let mut lane = Self { gpu, stream, pinned: None, mailbox: lock(&gpu.lanes.mailboxes).pop() };
        if lane.mailbox.is_none() {
            lane.mailbox = Some(Mailbox::new(gpu.driver)?);
        }
        drop(lane.found());
        Ok(lane)
    }

    /// What kernels on it found since it was asked the last time.
    pub(super) fn found(&self) -> Option<Error> {
        Some(self.mailbox.as_ref()?.take_alone()?.1)
    }

    /// Queues kernels on it, which report to it.
    pub(super) fn launcher(&self) -> Launcher<'_> {
        let launcher = Launcher::new(self.gpu, self.handle(), false);
        match &self.mailbox {
            Some(mailbox) => launcher.with_mailbox(mailbox),
            None => launcher,
        }
    }

    /// Keeps it for a later call; it must be idle.
    pub(super) fn keep(mut self) {
        if self.pinned.as_ref().is_some_and(|pinned| pinned.bytes() > MOST_PINNED) {
            self.pinned = None;
        }
        let mut kept = lock(&self.gpu.lanes.idle);
        if kept.len() < MOST_KEPT {
            kept.push(self);
        } else {
            drop(kept);
        }
    }

    /// The stream, as the driver knows it.
    pub(super) fn handle(&self) -> StreamHandle {
        self.stream as StreamHandle
    }

    /// At least so many pinned bytes; the lane must be idle. Returns where they begin.
    pub(super) fn pinned(&mut self, bytes: usize) -> Result<*mut u8> {
        if self.pinned.as_ref().is_none_or(|pinned| pinned.bytes() < bytes) {
            self.pinned = None;
            self.pinned = Some(Pinned::new(self.gpu, bytes)?);
        }
        Ok(self.start())
    }

    /// Where its pinned memory begins.
    pub(super) fn start(&self) -> *mut u8 {
        self.pinned.as_ref().map_or(std::ptr::null_mut(), Pinned::start)
    }

    /// Whether the memory of a tensor is pinned, by whoever owns it.
    pub(super) fn is_pinned(&self, tensor: &TensorRef<'_>) -> bool {
        let Ok(_current) = self.gpu.current() else { return false };
        let mut flags = 0;
        let last = tensor.data().wrapping_add(tensor.bytes().saturating_sub(1));
        // SAFETY: asks about addresses, and touches nothing.
        [tensor.data(), last]
            .into_iter()
            .all(|address| unsafe { (self.gpu.driver.host_flags)(&raw mut flags, address.cast_mut().cast()) } == 0)
    }

    /// Queues a copy to the GPU.
    ///
    /// # Safety
    /// Both sides must be good for so many bytes until the copy is done.
    pub(super) unsafe fn up(&self, to: DevicePointer, from: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.gpu.current()?;
        // SAFETY: the caller's promise.
        let code = unsafe { (self.gpu.driver.copy_up)(to, from.cast(), bytes, self.stream) };
        self.gpu.check(code, "copying to the device")
    }

    /// Queues a copy to the host.
    ///
    /// # Safety
    /// As for [`Lane::up`].
    pub(super) unsafe fn down(&self, to: *mut u8, from: DevicePointer, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.gpu.current()?;
        // SAFETY: the caller's promise.
        let code = unsafe { (self.gpu.driver.copy_down)(to.cast(), from, bytes, self.stream) };
        self.gpu.check(code, "copying to the host")
    }

    /// Waits until all that was queued is done, also where the GPU was given up meanwhile.
    pub(super) fn wait(&self) -> Result<()> {
        self.gpu.wait_anyway(self.stream)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        lock(&self.gpu.lanes.mailboxes).extend(self.mailbox.take());
        // A lost device answers with an error, which the next call reports.
        if let Ok(_current) = self.gpu.current() {
            // SAFETY: made by us and destroyed once.
            unsafe { (self.gpu.driver.destroy_stream)(self.stream) };
        }
    }
}
