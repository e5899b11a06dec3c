//! Bad data found by a kernel, reported without waiting for it.
//!
//! A kernel that finds a fault writes what it found into host memory, once until the host has read
//! it; the next call on that device looks there, which costs a load. A fault is claimed by an
//! atomic in device memory: `claims` holds the last epoch that was claimed, the host's `epoch` the
//! last one that was read, and by which calls, so that a call which still runs when its letter is
//! read does not write another. Graphs replay with the same arguments, so the epoch is read from
//! host memory, in the faulty case only, and their calls may report again: `%gridid`, which could
//! tell replays apart, is the same in all of them (tried on an H200).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::driver::OUT_OF_MEMORY;
use super::sys::{DevicePointer, Driver};
use crate::{Error, ErrorKind, Result};

/// Mirrors `rc::Letter` in `kernels/report.cuh`.
#[repr(C)]
#[derive(Debug, Default)]
struct Letter {
    epoch: AtomicU64,
    posted: AtomicU64,
    call: AtomicU64,
    code: AtomicU64,
    row: AtomicU64,
    index: AtomicU64,
    first: AtomicU64,
    second: AtomicU64,
    third: AtomicU64,
}

/// `rc::Claims` in `kernels/report.cuh`, of which the host knows only the size.
type Claims = [u64; 8];

/// What a kernel is given to report with; a field of every op's arguments.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    letter: DevicePointer,
    claims: DevicePointer,
    call: u64,
    once: u64,
}

/// What a kernel found. `code` and what the numbers mean are the op's own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finding {
    pub(crate) code: u32,
    pub(crate) row: u64,
    pub(crate) index: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) third: u64,
}

/// What an op makes of its kernels' findings; one `static` of each op that reports.
#[derive(Debug)]
pub(crate) struct Reports {
    describe: fn(&Finding) -> Error,
    number: OnceLock<u32>,
}

/// The ops that may have reported, by number.
static KNOWN: Mutex<Vec<&'static Reports>> = Mutex::new(Vec::new());

impl Reports {
    /// `describe` turns a finding into the error that the CPU would raise.
    pub(crate) const fn new(describe: fn(&Finding) -> Error) -> Self {
        Self { describe, number: OnceLock::new() }
    }

    /// The upper half of the code that the op's kernels send.
    pub(crate) fn code(&'static self) -> u64 {
        let number = self.number.get_or_init(|| {
            let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            known.push(self);
            known.len() as u32
        });
        u64::from(*number) << 32
    }
}

fn describe(number: u64, finding: &Finding) -> Error {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match (number as usize).checked_sub(1).and_then(|place| known.get(place)) {
        Some(reports) => (reports.describe)(finding),
        None => Error::invalid("input", format!("bad data in row {}", finding.row)),
    }
}

/// The host's side of the reports of one GPU, or of one lane.
#[derive(Debug)]
pub(super) struct Mailbox {
    letter: *const Letter,
    on_device: DevicePointer,
    claims: DevicePointer,
    calls: AtomicU64,
    /// Calls whose rows are those of a later part of a batch, and where that begins; the latest last.
    parts: Mutex<VecDeque<(u64, u64)>>,
}

/// Parts that are remembered: more than can be queued.
const MOST_PARTS: usize = 1 << 16;

impl Mailbox {
    /// Allocates the letter (pinned, mapped) and the claims, which stay for good.
    pub(super) fn new(driver: &Driver) -> Result<Self> {
        let (mut host, mut on_device, mut claims) = (std::ptr::null_mut(), 0, 0);
        let none: Claims = Default::default();
        // SAFETY: sizes and pointers fit; portable (1) and mapped (2) memory is zeroed before use.
        let code = unsafe {
            let mut code = (driver.alloc)(&raw mut claims, size_of::<Claims>());
            if code == 0 {
                code = (driver.copy_to_device)(claims, (&raw const none).cast(), size_of::<Claims>());
            }
            if code == 0 {
                code = (driver.host_alloc)(&raw mut host, size_of::<Letter>(), 1 | 2);
            }
            if code == 0 {
                host.cast::<Letter>().write(Letter::default());
                code = (driver.host_device_pointer)(&raw mut on_device, host, 0);
            } else if claims != 0 {
                // Opening is tried again after a lack of memory, which must not leave this behind.
                (driver.free)(claims);
            }
            code
        };
        match code {
            0 => Ok(Self { letter: host.cast(), on_device, claims, calls: AtomicU64::new(0), parts: Mutex::default() }),
            OUT_OF_MEMORY => {
                Err(Error::new(ErrorKind::OutOfMemory, format!("no memory for reports: {}", driver.describe(code))))
            }
            _ => Err(Error::new(ErrorKind::NoDevice, format!("reports cannot be set up: {}", driver.describe(code)))),
        }
    }

    /// A reporter for a new call, whose rows begin at `first_row`; one that is captured in a graph may report at every
    /// replay.
    pub(super) fn reporter(&self, captured: bool, first_row: u64) -> Reporter {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if first_row > 0 {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            if parts.len() == MOST_PARTS {
                parts.pop_front();
            }
            parts.push_back((call, first_row));
        }
        Reporter { letter: self.on_device, claims: self.claims, call, once: if captured { 0 } else { call } }
    }

    /// What was found since the last time, as an error that names the call.
    pub(super) fn take(&self, ordinal: u32) -> Option<Error> {
        let (call, error) = self.take_alone()?;
        let latest = self.calls.load(Ordering::Relaxed);
        Some(error.while_doing(format!("running call {call} of {latest} on cuda:{ordinal}")))
    }

    /// What was found since the last time, and by which call.
    pub(super) fn take_alone(&self) -> Option<(u64, Error)> {
        // SAFETY: allocated in `new` and never freed; the device writes to it atomically.
        let letter = unsafe { &*self.letter };
        let epoch = letter.epoch.load(Ordering::Relaxed);
        if letter.posted.load(Ordering::Acquire) <= epoch {
            return None;
        }
        let read = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let code = read(&letter.code);
        let mut finding = Finding {
            code: (code & 0xffff_ffff) as u32,
            row: read(&letter.row),
            index: read(&letter.index),
            first: read(&letter.first),
            second: read(&letter.second),
            third: read(&letter.third),
        };
        let call = read(&letter.call);
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        finding.row += parts.iter().find(|(part, _)| *part == call).map_or(0, |&(_, first)| first);
        drop(parts);
        // Of several threads that look at once, one reports.
        letter.epoch.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some((call, describe(code >> 32, &finding)))
    }
}
