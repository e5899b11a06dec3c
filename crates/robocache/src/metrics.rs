//! What calls did: counters that are always on, times and records of memory on request.
//!
//! Every call passes `run.rs`, which counts it here. A counter is found by the address of the op's name, so a call costs
//! a few atomic additions and takes no lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::plan::Footprint;
use crate::tensor::Device;

/// Times are counted by powers of two of microseconds: below 1, 2, 4, and so on; the last is for all that are longer.
pub const TIMES: usize = 28;

/// What calls of one op did since the process began or [`reset`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that ran, also those that failed.
    pub calls: u64,
    /// Bytes of their inputs and results.
    pub bytes: u64,
    /// Parts that they ran in: 1 for a call that was not cut.
    pub chunks: u64,
    /// Calls that ran on the CPU since no GPU could be used.
    pub fallbacks: u64,
    /// Calls that ended in an error.
    pub errors: u64,
    /// Calls by time on the host, where this was asked for ([`time_calls`]).
    pub times: [u64; TIMES],
}

/// Counters of an op under one address of its name. On a cache line of its own, since threads count at once.
#[repr(align(128))]
struct Slot {
    name: OnceLock<&'static str>,
    calls: AtomicU64,
    bytes: AtomicU64,
    chunks: AtomicU64,
    fallbacks: AtomicU64,
    errors: AtomicU64,
    times: [AtomicU64; TIMES],
}

/// More than there are names of ops, whose addresses may be several.
const SLOTS: usize = 128;
static COUNTERS: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
static TIMING: AtomicBool = AtomicBool::new(false);

impl Slot {
    const fn new() -> Self {
        Self {
            name: OnceLock::new(),
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            times: [const { AtomicU64::new(0) }; TIMES],
        }
    }

    fn numbers(&self) -> impl Iterator<Item = &AtomicU64> {
        [&self.calls, &self.bytes, &self.chunks, &self.fallbacks, &self.errors].into_iter().chain(&self.times)
    }
}

/// The counters of an op; none once there are more names than anybody has.
fn slot(name: &'static str) -> Option<&'static Slot> {
    let address = name.as_ptr() as usize;
    let start = (address >> 4) ^ (address >> 11);
    (0..SLOTS).map(|step| &COUNTERS[(start + step) % SLOTS]).find(|slot| {
        let known = slot.name.get_or_init(|| name);
        std::ptr::eq(known.as_ptr(), name.as_ptr()) && known.len() == name.len()
    })
}

/// When a call began, where times are counted.
pub(crate) fn begin() -> Option<Instant> {
    TIMING.load(Relaxed).then(Instant::now)
}

/// Counts a call that ran.
pub(crate) fn ran(op: &'static str, bytes: u64, chunks: usize, began: Option<Instant>) {
    let Some(slot) = slot(op) else { return };
    slot.calls.fetch_add(1, Relaxed);
    slot.bytes.fetch_add(bytes, Relaxed);
    slot.chunks.fetch_add(chunks as u64, Relaxed);
    if let Some(began) = began {
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        slot.times[bucket.min(TIMES - 1)].fetch_add(1, Relaxed);
    }
}

/// Counts a call that failed.
#[cold]
pub(crate) fn failed(op: &'static str) {
    if let Some(slot) = slot(op) {
        slot.errors.fetch_add(1, Relaxed);
    }
}

/// Counts a call that runs on the CPU since no GPU could be used.
#[cold]
pub fn fell_back(op: &'static str) {
    if let Some(slot) = slot(op) {
        slot.fallbacks.fetch_add(1, Relaxed);
    }
}

/// Whether the times of calls are counted from here on; returns whether they were.
pub fn time_calls(on: bool) -> bool {
    TIMING.swap(on, Relaxed)
}

/// All counts by op; ops that were not called are not there.
pub fn counts() -> BTreeMap<&'static str, Counts> {
    let mut all = BTreeMap::<&'static str, Counts>::new();
    for slot in &COUNTERS {
        let Some(name) = slot.name.get() else { continue };
        let count = all.entry(name).or_default();
        count.calls += slot.calls.load(Relaxed);
        count.bytes += slot.bytes.load(Relaxed);
        count.chunks += slot.chunks.load(Relaxed);
        count.fallbacks += slot.fallbacks.load(Relaxed);
        count.errors += slot.errors.load(Relaxed);
        for (count, own) in count.times.iter_mut().zip(&slot.times) {
            *count += own.load(Relaxed);
        }
    }
    all.retain(|_, count| *count != Counts::default());
    all
}

/// Sets all counts to 0.
pub fn reset() {
    COUNTERS.iter().flat_map(Slot::numbers).for_each(|number| number.store(0, Relaxed));
}

/// The memory of one call.
#[derive(Debug, Clone)]
pub struct Record {
    /// The op's name.
    pub op: &'static str,
    /// Where it ran.
    pub device: Device,
    /// What the parts in flight took at most.
    pub bytes: Footprint,
    /// Parts that it ran in.
    pub chunks: usize,
    /// Bytes that were free on the device after it.
    pub free: Option<u64>,
    /// Since the profile began.
    pub after: Duration,
}

/// Calls since it was made, until it is dropped.
#[derive(Debug)]
pub struct MemoryProfile(usize);

struct Profile {
    number: usize,
    began: Instant,
    records: Vec<Record>,
}

/// How many profiles there are; asked by every call.
static PROFILING: AtomicUsize = AtomicUsize::new(0);
static PROFILES: Mutex<Vec<Profile>> = Mutex::new(Vec::new());
/// Records of a profile: an epoch of training has more calls than anybody looks at.
const MOST_RECORDS: usize = 1 << 20;

impl MemoryProfile {
    /// Records the memory of all calls of this process from here on.
    #[expect(clippy::new_without_default, reason = "it begins something")]
    pub fn new() -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let mut profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.push(Profile { number, began: Instant::now(), records: Vec::new() });
        PROFILING.store(profiles.len(), Relaxed);
        Self(number)
    }

    /// What was recorded so far.
    pub fn records(&self) -> Vec<Record> {
        let profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
        let own = profiles.iter().find(|profile| profile.number == self.0);
        own.map(|profile| profile.records.clone()).unwrap_or_default()
    }
}

impl Drop for MemoryProfile {
    fn drop(&mut self) {
        let mut profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.retain(|profile| profile.number != self.0);
        PROFILING.store(profiles.len(), Relaxed);
    }
}

/// Whether calls are recorded.
pub(crate) fn is_profiling() -> bool {
    PROFILING.load(Relaxed) > 0
}

/// Records a call in all profiles.
#[cold]
pub(crate) fn record(op: &'static str, device: Device, bytes: Footprint, chunks: usize, free: Option<u64>) {
    for profile in PROFILES.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
        if profile.records.len() < MOST_RECORDS {
            let after = profile.began.elapsed();
            profile.records.push(Record { op, device, bytes, chunks, free, after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lie_apart_are_one_op() {
        let other: &'static str = Box::leak("metrics test".to_owned().into_boxed_str());
        ran("metrics test", 10, 1, None);
        ran(other, 5, 3, Some(Instant::now()));
        failed(other);
        fell_back("metrics test");
        let counts = counts();
        let found = &counts["metrics test"];
        assert_eq!((found.calls, found.bytes, found.chunks, found.fallbacks, found.errors), (2, 15, 4, 1, 1));
        assert_eq!(found.times.iter().sum::<u64>(), 1);
    }

    #[test]
    fn threads_count_together() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| ran("metrics threads", 1, 1, None)));
            }
        });
        assert_eq!(counts()["metrics threads"].calls, 8000);
    }

    #[test]
    fn profiles_end() {
        let profile = MemoryProfile::new();
        record("metrics profile", Device::Cpu, Footprint { input: 1, output: 2, temporary: 3 }, 1, None);
        let own = |records: Vec<Record>| records.into_iter().filter(|one| one.op == "metrics profile").count();
        assert_eq!(own(profile.records()), 1);
        assert_eq!(own(MemoryProfile::new().records()), 0);
    }
}
