//! Every number with which a system may refuse to let a source be read: the table of docs/cache.md.

use std::path::Path;

use libc::{
    EACCES, EAGAIN, EBUSY, EIO, EISDIR, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENODEV, ENOENT, ENOMEM, ENOTCONN, ENOTDIR,
    ENXIO, EOVERFLOW, EPERM, ESTALE, ETIMEDOUT, ETXTBSY,
};

use super::super::fs::Os;
use super::*;
use crate::files::Operation::{self, List, Look, Open, Read};
use crate::files::faults::{Fault, during, while_blocked};

/// There is no file: its episodes are skipped.
const SKIPS: [i32; 5] = [ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG];
/// The file may be fine: the run ends.
const ENDS: [i32; 15] = [
    EACCES, EPERM, EIO, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT, EAGAIN, EBUSY, ENXIO, ENODEV, ENOTCONN, EOVERFLOW,
    ETXTBSY,
];
const ALL: [Operation; 4] = [Look, Open, List, Read];

/// A source with what is needed to find out.
struct Source {
    scratch: Scratch,
    path: PathBuf,
    ledger: Ledger,
}

impl Source {
    fn of(name: &str) -> Self {
        let scratch = Scratch::new();
        let path = scratch.0.join("source");
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name), &path);
        let ledger = Ledger::of(&path);
        Self { scratch, path, ledger }
    }

    /// The next run, without the fault, does what is left.
    fn finish(&self) {
        let report = ingest_with(&Os, &self.path, &self.scratch.out()).unwrap();
        assert_eq!(report.skipped, []);
        self.ledger.judge_complete(&self.scratch.out());
        self.scratch.clear();
    }

    /// Ends with an error that names what cannot be read, notes nothing, and goes on later. Where the operation
    /// is not needed all is taken.
    fn ends(&self, place: &str, operation: Operation, number: i32, must: bool) {
        let (blocked, what) = (self.path.join(place), format!("{operation:?} {place}: {number}"));
        let run = || ingest_with(&Os, &self.path, &self.scratch.out());
        match while_blocked(&blocked, operation, number, run) {
            Ok(report) => assert!(!must && report.skipped.is_empty(), "{what}: {report:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::FileError, "{what}: {error}");
                assert!(error.file().is_some_and(|file| file.starts_with(&blocked)), "{what}: {error}");
                let system = std::io::Error::from_raw_os_error(number).to_string();
                assert!(error.to_string().contains(system.split(" (os").next().unwrap()), "{what}: {error}");
            }
        }
        self.ledger.judge(&self.scratch.out());
        // How it goes on is the same for every number.
        if number == ENDS[0] {
            self.finish();
        } else {
            self.scratch.clear();
        }
    }
}

#[test]
fn what_cannot_be_read_now_ends_the_run_and_costs_nothing_65() {
    for (name, needed) in [
        (
            "lerobot_v21",
            [
                ("data/chunk-000/episode_000001.parquet", &[Open, Read][..]),
                ("data/chunk-000", &[Open, Read]),
                ("data", &[Open, Read]),
                ("videos", &[Open, Read]),
                ("meta/episodes.jsonl", &[Look, Open, Read]),
                ("meta/tasks.jsonl", &[Open, Read]),
                // Only a check reads it.
                ("meta/episodes_stats.jsonl", &[]),
                ("meta", &[Look, Open, Read]),
            ],
        ),
        (
            "lerobot_v30",
            [
                ("data/chunk-000/file-001.parquet", &[Open, Read][..]),
                ("data/chunk-000", &[Open, Read]),
                ("data", &[Open, Read]),
                ("videos/observation.images.top/chunk-000/file-001.mp4", &[Open, Read]),
                ("meta/episodes", &[Look, Open, List, Read]),
                ("meta/episodes/chunk-000", &[Open, List, Read]),
                ("meta/stats.json", &[]),
                ("meta", &[Look, Open, List, Read]),
            ],
        ),
    ] {
        let source = Source::of(name);
        for (place, needed) in needed {
            for operation in ALL {
                // Every number for the first place, the commonest for all.
                let every = place.ends_with(".parquet");
                for number in if every { &ENDS[..] } else { &ENDS[..2] } {
                    source.ends(place, operation, *number, needed.contains(&operation));
                }
            }
        }
    }
}

#[test]
fn a_file_that_is_none_costs_its_episodes_65() {
    let source = Source::of("lerobot_v21");
    let (one, all) = ("data/chunk-000/episode_000001.parquet", "data/chunk-000");
    for (place, lost) in [(one, &[1][..]), (all, &[0, 1, 2])] {
        for number in SKIPS {
            let run = || ingest_with(&Os, &source.path, &source.scratch.out());
            let report = while_blocked(&source.path.join(place), Open, number, run);
            let report = report.unwrap_or_else(|error| panic!("{place}: {number}: {error}"));
            let skipped: Vec<u64> = report.skipped.iter().map(|skipped| skipped.episode).collect();
            assert_eq!(skipped, lost, "{place}: {number}");
            assert_eq!(source.ledger.judge(&source.scratch.out()), 3 - lost.len());
            let frames = source.ledger.episodes.iter().filter(|(index, _)| !lost.contains(index));
            assert_eq!(report.frames, frames.map(|(_, (info, _))| info.length).sum::<u64>(), "{place}: {number}");
            source.scratch.clear();
        }
    }
}

#[test]
fn what_is_no_file_costs_its_episodes_63() {
    let source = Source::of("lerobot_v21");
    let file = source.path.join("data/chunk-000/episode_000001.parquet");
    let bytes = std::fs::read(&file).unwrap();
    let make: [(&str, &dyn Fn()); 4] = [
        ("folder", &|| std::fs::create_dir(&file).unwrap()),
        ("socket", &|| drop(std::os::unix::net::UnixListener::bind(&file).unwrap())),
        ("link to itself", &|| std::os::unix::fs::symlink(&file, &file).unwrap()),
        ("link to nothing", &|| std::os::unix::fs::symlink("nothing", &file).unwrap()),
    ];
    for (what, make) in make {
        std::fs::remove_file(&file).unwrap();
        make();
        let report = ingest_with(&Os, &source.path, &source.scratch.out()).unwrap();
        let skipped: Vec<u64> = report.skipped.iter().map(|skipped| skipped.episode).collect();
        assert_eq!((skipped, source.ledger.judge(&source.scratch.out())), (vec![1], 2), "{what}: {report:?}");
        source.scratch.clear();
        std::fs::remove_file(&file).or_else(|_| std::fs::remove_dir(&file)).unwrap();
        std::fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn a_read_that_is_interrupted_is_done_again_65() {
    let source = Source::of("lerobot_v21");
    let ((), reads) = during(Some(Fault::Interrupted), || source.finish());
    assert!(reads > 0);
}

#[test]
fn a_cache_that_may_not_be_looked_at_is_not_missing_65() {
    let scratch = Scratch::new();
    let out = scratch.out();
    ingest_with(&Os, &sample(), &out).unwrap();
    for (work, what) in [(true, "open"), (false, "ingest")] {
        let run = || match work {
            true => Cache::open(&out).map(|_| ()),
            false => ingest_with(&Os, &sample(), &out).map(|_| ()),
        };
        let error = while_blocked(&out, Look, EACCES, run).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileError, "{what}: {error}");
        assert!(error.to_string().contains("Permission denied"), "{what}: {error}");
    }
    Ledger::of(&sample()).judge_complete(&out);
}

#[test]
fn what_cannot_be_read_now_is_no_damage_65() {
    let scratch = Scratch::new();
    let out = scratch.out();
    ingest_with(&Os, &sample(), &out).unwrap();
    let shards = out.join("shards");
    let shard = files(&shards).into_iter().find(|path| path.extension().is_some_and(|end| end == "arrow")).unwrap();
    for path in [shard, shards.join("unit-000000/unit.json"), shards, out.join("plan.json")] {
        for number in ENDS {
            let error = while_blocked(&path, Open, number, || verify(&out, &Progress::default())).unwrap_err();
            let named = error.file().is_some_and(|file| file.starts_with(&path));
            assert!(error.kind() == ErrorKind::FileError && named, "{number}: {error}");
        }
        // What is gone is gone.
        for number in SKIPS {
            let report = while_blocked(&path, Open, number, || verify(&out, &Progress::default())).unwrap();
            assert!(!report.damage.is_empty(), "{number}: {report:?}");
        }
    }
    let report = verify(&out, &Progress::default()).unwrap();
    assert_eq!(report.damage, []);
    Ledger::of(&sample()).judge_complete(&out);
}

#[test]
fn an_empty_path_is_an_argument_that_is_wrong() {
    let none = Path::new("");
    let source = ingest_with(&Os, none, &Scratch::new().out()).unwrap_err();
    let out = ingest_with(&Os, &sample(), none).unwrap_err();
    let work = super::super::process_unit(none, 0, true, &Limits::default(), &Progress::default()).unwrap_err();
    let merge = super::super::merge(none).unwrap_err();
    let opened = Cache::open(none).unwrap_err();
    let garbage = super::super::collect_garbage(none).unwrap_err();
    let checked = Dataset::check(none, &Limits::default(), &Progress::default()).unwrap_err();
    for (error, argument) in [
        (source, "path"),
        (out, "out"),
        (work, "out"),
        (merge, "out"),
        (opened, "path"),
        (garbage, "path"),
        (checked, "path"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().starts_with(argument), "{error}");
    }
}
