//! A file system that fails, dies, is full, or writes little at a time.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{EDQUOT, EIO, ENOSPC, EROFS};

use super::super::fs::{FileOut, Fs, Os};
use super::*;

/// What goes wrong, and at which operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Never,
    /// This operation fails, those behind it do not.
    Once(usize, i32),
    /// From this operation on all that needs space fails.
    Full(usize, i32),
    /// From this operation on nothing reaches the disk, as after SIGKILL; a write gets half through.
    Death(usize),
}

#[derive(Debug)]
struct State {
    fault: Fault,
    /// Bytes that a write takes at most.
    step: usize,
    /// Every second write is interrupted.
    interrupts: bool,
    count: AtomicUsize,
    writes: AtomicUsize,
}

/// The real file system with a fault; nothing is synced for real, which no process can see.
#[derive(Debug, Clone)]
struct Faulty(Arc<State>);

struct FaultyFile(Box<dyn FileOut>, Faulty);

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self::slow(fault, usize::MAX, false)
    }

    fn slow(fault: Fault, step: usize, interrupts: bool) -> Self {
        let (count, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(State { fault, step, interrupts, count, writes }))
    }

    /// Operations so far.
    fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    fn pass(&self, needs_space: bool) -> std::io::Result<()> {
        let now = self.0.count.fetch_add(1, Ordering::Relaxed);
        let failure = match self.0.fault {
            Fault::Once(at, code) if now == at => Some(code),
            Fault::Full(at, code) if now >= at && needs_space => Some(code),
            Fault::Death(at) if now >= at => Some(EIO),
            _ => None,
        };
        failure.map_or(Ok(()), |code| Err(std::io::Error::from_raw_os_error(code)))
    }
}

impl Write for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1.0.interrupts && self.1.0.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let first_death = matches!(self.1.0.fault, Fault::Death(at) if self.1.count() > at);
        if let Err(error) = self.1.pass(true) {
            if !first_death {
                self.0.write_all(&bytes[..bytes.len() / 2]).unwrap();
            }
            return Err(error);
        }
        self.0.write(&bytes[..bytes.len().min(self.1.0.step)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl FileOut for FaultyFile {
    fn sync(&mut self) -> std::io::Result<()> {
        self.1.pass(false)
    }
}

impl Fs for Faulty {
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        self.pass(true)?;
        Os.create_dir(path)
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn FileOut>> {
        self.pass(true)?;
        Ok(Box::new(FaultyFile(Os.create(path)?, self.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.pass(true)?;
        Os.rename(from, to)
    }

    fn sync_dir(&self, _: &Path) -> std::io::Result<()> {
        self.pass(false)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        match self.0.fault {
            Fault::Death(at) if self.count() > at => Err(std::io::Error::from_raw_os_error(EIO)),
            _ => Os.remove(path),
        }
    }
}

/// How many operations an ingest is.
fn operations(scratch: &Scratch) -> usize {
    let fs = Faulty::new(Fault::Never);
    ingest_with(&fs, &sample(), &scratch.out()).unwrap();
    scratch.clear();
    assert!(fs.count() > 100);
    fs.count()
}

/// Every operation, or every tenth in a run that is scaled to a tenth.
fn stride() -> usize {
    1000 / scaled(1000).clamp(1, 1000)
}

/// Fails, looks, goes on without the fault, looks again. The error.
fn fail_and_go_on(ledger: &Ledger, scratch: &Scratch, fault: Fault) -> robocache::Error {
    let out = scratch.out();
    let error = ingest_with(&Faulty::new(fault), &sample(), &out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileError, "{fault:?}: {error}");
    assert!(error.file().is_some_and(|path| path.starts_with(&scratch.0)), "{fault:?}: {error}");
    let before = ledger.judge(&out);
    let report =
        ingest_with(&Faulty::new(Fault::Never), &sample(), &out).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    assert!(report.units_before >= before, "{fault:?}: work was done twice");
    assert_eq!(report.units_before + report.units_done, ledger.len(), "{fault:?}");
    ledger.judge_complete(&out);
    scratch.clear();
    error
}

#[test]
fn death_at_every_operation_leaves_whole_units_70() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let operations = operations(&scratch);
    for at in (0..operations).step_by(stride()) {
        fail_and_go_on(&ledger, &scratch, Fault::Death(at));
    }
}

#[test]
fn every_operation_may_fail_once_or_from_then_on_72_73() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let operations = operations(&scratch);
    for at in (0..operations).step_by(stride()) {
        for (place, code) in [ENOSPC, EIO, EDQUOT, EROFS].into_iter().enumerate() {
            // All of them at all places in a long run; in a short one each place has one.
            if scaled(4) < 16 && place != at / stride() % 4 {
                continue;
            }
            let error = fail_and_go_on(&ledger, &scratch, Fault::Once(at, code));
            let expected = std::io::Error::from_raw_os_error(code).to_string();
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
    // The last operation is a sync, which needs no space.
    for at in (0..operations - 1).step_by(7) {
        fail_and_go_on(&ledger, &scratch, Fault::Full(at, ENOSPC));
    }
}

#[test]
fn slow_and_interrupted_writes_make_the_same_bytes_65() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let (plain, slow) = (scratch.0.join("plain"), scratch.0.join("slow"));
    ingest_with(&Os, &sample(), &plain).unwrap();
    ingest_with(&Faulty::slow(Fault::Never, 1, true), &sample(), &slow).unwrap();
    ledger.judge_complete(&slow);
    let names = |folder: &Path| -> Vec<PathBuf> {
        files(folder).iter().map(|path| path.strip_prefix(folder).unwrap().to_path_buf()).collect()
    };
    assert_eq!(names(&plain), names(&slow));
    for name in names(&plain) {
        assert!(std::fs::read(plain.join(&name)).unwrap() == std::fs::read(slow.join(&name)).unwrap(), "{name:?}");
    }
}

#[test]
fn a_failure_in_one_thread_stops_all_and_keeps_what_is_done_72() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let operations = operations(&scratch);
    let two = IngestOptions { workers: Some(2), ..options() };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..scaled(40) {
        let fs = Faulty::new(Fault::Full(random.below(operations * 9 / 10), ENOSPC));
        let out = scratch.out();
        let error = ingest_on(&fs, &sample(), &out, &two, &Limits::default(), &Progress::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileError);
        ledger.judge(&out);
        let fs = Faulty::new(Fault::Never);
        ingest_on(&fs, &sample(), &out, &two, &Limits::default(), &Progress::default()).unwrap();
        ledger.judge_complete(&out);
        scratch.clear();
    }
}

#[test]
fn an_interrupt_leaves_whole_units_and_the_next_run_goes_on() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let steps = AtomicUsize::new(0);
    let step = |done: usize, _: usize| {
        steps.fetch_add(usize::from(done > 0), Ordering::Relaxed);
    };
    let progress = Progress { step: &step, interrupted: &|| steps.load(Ordering::Relaxed) == 2 };
    let error = ingest_on(&Os, &sample(), &scratch.out(), &options(), &Limits::default(), &progress).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    let before = ledger.judge(&scratch.out());
    assert!(before > 0 && before < ledger.len() && scratch.out().join(MANIFEST).exists());
    let report = ingest_with(&Os, &sample(), &scratch.out()).unwrap();
    assert_eq!((report.units_before, report.units_done), (before, ledger.len() - before));
    ledger.judge_complete(&scratch.out());
}

#[test]
fn names_that_are_too_long_are_an_error_that_names_them_73() {
    let scratch = Scratch::new();
    let out = scratch.0.join("x".repeat(300));
    let error = ingest_with(&Os, &sample(), &out).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::FileError, Some(out.as_path())), "{error}");
}
