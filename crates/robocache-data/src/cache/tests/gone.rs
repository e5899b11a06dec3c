//! Folders that vanish or are others than they were, sources that changed, file systems that cannot lock.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use super::super::fs::{FileOut, Fs, Os};
use super::super::{collect_garbage, plan, process_unit};
use super::*;

#[test]
fn a_cache_that_is_removed_while_it_is_open_gives_errors_80() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    ingest_with(&Os, &sample(), &scratch.out()).unwrap();
    let cache = Cache::open(&scratch.out()).unwrap();
    let touched = read(&cache, 0, 0).unwrap();
    scratch.clear();
    assert_eq!(read(&cache, 0, 0).unwrap(), touched, "what is mapped stays");
    let seen = ledger.compare(&cache);
    assert!(seen.right == 1 && seen.refused > 1, "{seen:?}");
    assert_eq!(ledger.judge(&scratch.out()), 0);
    std::fs::write(scratch.out(), b"a file").unwrap();
    assert_eq!(ledger.compare(&cache), seen);
    assert_eq!(Cache::open(&scratch.out()).unwrap_err().kind(), ErrorKind::FileError);
    assert_eq!(ingest_with(&Os, &sample(), &scratch.out()).unwrap_err().kind(), ErrorKind::FileError);
}

/// Removes the cache when an operation is reached.
#[derive(Debug)]
struct Removing(PathBuf, std::sync::atomic::AtomicI32);

impl Removing {
    fn count(&self) {
        if self.1.fetch_sub(1, Ordering::Relaxed) == 0 {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }
}

impl Fs for Removing {
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        self.count();
        Os.create_dir(path)
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn FileOut>> {
        self.count();
        Os.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.count();
        Os.rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        self.count();
        Os.sync_dir(path)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        Os.remove(path)
    }
}

#[test]
fn a_cache_that_is_removed_while_it_is_written_gives_an_error_80() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    for at in (2..40).step_by(3) {
        let error = ingest_with(&Removing(scratch.out(), at.into()), &sample(), &scratch.out()).unwrap_err();
        assert!(error.kind() == ErrorKind::FileError && error.file().is_some(), "{at}: {error}");
        assert_eq!(ledger.judge(&scratch.out()), 0);
        ingest_with(&Os, &sample(), &scratch.out()).unwrap();
        ledger.judge_complete(&scratch.out());
        scratch.clear();
    }
}

#[test]
fn units_of_another_plan_are_not_taken_78() {
    let scratch = Scratch::new();
    let (out, source) = (scratch.out(), scratch.0.join("source"));
    copy(&sample(), &source);
    ingest_with(&Os, &source, &out).unwrap();
    for name in [PLAN, MANIFEST] {
        std::fs::remove_file(out.join(name)).unwrap();
    }
    // Someone started over and left the units: of this source, or of another with the same streams.
    let error = ingest_with(&Os, &sample(), &out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileError, "{error}");
    let other = scratch.0.join("other");
    ingest_with(&Os, &sample(), &other).unwrap();
    std::fs::remove_dir_all(other.join("shards/unit-000001")).unwrap();
    copy(&out.join("shards/unit-000001"), &other.join("shards/unit-000001"));
    std::fs::remove_file(other.join(MANIFEST)).unwrap();
    let error = Cache::open(&other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
    assert!(error.to_string().contains("unit-000001"), "{error}");
    assert_eq!(ingest_with(&Os, &sample(), &other).unwrap().units_done, 1);
    Ledger::of(&sample()).judge_complete(&other);
}

#[test]
fn a_unit_without_its_description_is_done_again_80() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    ingest_with(&Os, &sample(), &out).unwrap();
    std::fs::remove_file(out.join("shards/unit-000001/unit.json")).unwrap();
    let report = ingest_with(&Os, &sample(), &out).unwrap();
    assert_eq!(report.units_done, 1);
    ledger.judge_complete(&out);
}

#[test]
fn a_bad_index_is_made_anew_by_the_next_ingest_80() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    ingest_with(&Os, &sample(), &out).unwrap();
    let index = files(&out).into_iter().find(|path| path.file_name().unwrap().to_string_lossy().starts_with("index-"));
    std::fs::write(index.unwrap(), b"x").unwrap();
    assert_eq!(Cache::open(&out).unwrap_err().kind(), ErrorKind::CorruptData);
    ingest_with(&Os, &sample(), &out).unwrap();
    ledger.judge_complete(&out);
}

#[test]
fn folders_that_are_no_caches_are_left_alone_80() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.out()).unwrap();
    std::fs::write(scratch.out().join("thesis.tex"), b"x").unwrap();
    std::fs::write(scratch.out().join(".tmp-1-2-3-x"), b"x").unwrap();
    for error in
        [collect_garbage(&scratch.out()).unwrap_err(), ingest_with(&Os, &sample(), &scratch.out()).unwrap_err()]
    {
        assert_eq!((error.kind(), error.file()), (ErrorKind::FileError, Some(&*scratch.out())), "{error}");
    }
    assert_eq!(files(&scratch.out()).len(), 2);
}

/// A file system that cannot lock, as some network ones.
#[derive(Debug)]
struct Lockless(i32);

impl Fs for Lockless {
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        Os.create_dir(path)
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn FileOut>> {
        Os.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        Os.rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        Os.sync_dir(path)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        Os.remove(path)
    }

    fn lock(&self, _: &File) -> std::io::Result<()> {
        Err(std::io::Error::from_raw_os_error(self.0))
    }
}

#[test]
fn a_file_system_that_cannot_lock_is_refused_by_name_83() {
    let scratch = Scratch::new();
    for code in [libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP] {
        let error = ingest_with(&Lockless(code), &sample(), &scratch.out()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileError);
        assert!(error.to_string().contains("cannot lock files"), "{error}");
        assert!(!scratch.out().join(PLAN).exists());
        assert_eq!(Ledger::of(&sample()).judge(&scratch.out()), 0);
    }
}

#[test]
fn a_source_that_changed_since_the_plan_is_refused_84() {
    let scratch = Scratch::new();
    let (source, out) = (scratch.0.join("source"), scratch.out());
    let table = source.join("data/chunk-000/episode_000001.parquet");
    let stamp = |time| File::options().write(true).open(&table).unwrap().set_modified(time).unwrap();
    let changes: [(&str, &dyn Fn()); 4] = [
        ("time", &|| stamp(std::time::SystemTime::now() + Duration::from_secs(3600))),
        ("size, not time", &|| {
            let before = table.metadata().unwrap().modified().unwrap();
            let mut bytes = std::fs::read(&table).unwrap();
            bytes.extend_from_slice(b"PAR1");
            std::fs::write(&table, bytes).unwrap();
            stamp(before);
        }),
        ("an end, neither size nor time", &|| {
            let before = table.metadata().unwrap().modified().unwrap();
            let mut bytes = std::fs::read(&table).unwrap();
            let length = bytes.len();
            bytes[length - 100] ^= 1;
            std::fs::write(&table, bytes).unwrap();
            stamp(before);
        }),
        ("gone", &|| std::fs::remove_file(&table).unwrap()),
    ];
    for (what, change) in changes {
        copy(&sample(), &source);
        plan(&source, &out, &options(), &Limits::default(), &Progress::default()).unwrap();
        process_unit(&out, 0, true, &Limits::default(), &Progress::default()).unwrap();
        change();
        let refused = [
            ingest_with(&Os, &source, &out).unwrap_err(),
            plan(&source, &out, &options(), &Limits::default(), &Progress::default()).unwrap_err(),
            process_unit(&out, 1, true, &Limits::default(), &Progress::default()).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
            assert!(error.to_string().contains("changed since"), "{what}: {error}");
            assert!(error.file().is_some_and(|path| path.ends_with("source")), "{what}: {error}");
        }
        assert_eq!(Cache::open(&out).unwrap().len(), 1);
        std::fs::remove_dir_all(&source).unwrap();
        scratch.clear();
    }
}

#[test]
fn a_source_that_changes_while_it_is_read_is_an_error_84() {
    let scratch = Scratch::new();
    let (source, out) = (scratch.0.join("source"), scratch.out());
    copy(&sample(), &source);
    let last = source.join("data/chunk-000/episode_000002.parquet");
    let step = |done: usize, _: usize| {
        if done > 0 {
            let later = std::time::SystemTime::now() + Duration::from_secs(3600);
            File::options().write(true).open(&last).unwrap().set_modified(later).unwrap();
        }
    };
    let progress = Progress { step: &step, ..Progress::default() };
    let error = ingest_on(&Os, &source, &out, &options(), &Limits::default(), &progress).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    assert!(!out.join(MANIFEST).exists());
    // Which units have the old content nobody knows, so none is kept.
    assert_eq!(std::fs::read_dir(out.join("shards")).unwrap().count(), 0);
    assert_eq!(Cache::open(&out).unwrap().len(), 0);
}

#[test]
fn the_same_source_by_another_path_is_the_same_84() {
    let scratch = Scratch::new();
    let (source, out) = (scratch.0.join("source"), scratch.out());
    copy(&sample(), &source);
    ingest_with(&Os, &source.join("../source/."), &out).unwrap();
    std::os::unix::fs::symlink(&source, scratch.0.join("link")).unwrap();
    for path in [source.clone(), scratch.0.join("link"), source.join("meta/..")] {
        let report = ingest_with(&Os, &path, &out).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(report.units_done, 0);
    }
}
