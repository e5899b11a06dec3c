//! What systems do to readers, on the datasets of the repository.

use std::path::{Path, PathBuf};

use robocache::{ErrorKind, Result};

use crate::files::faults::{Fault, during};
use crate::{Dataset, Level, Limits, Progress, Values};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// Everything that is read without a decoder, as text.
fn read_all(path: &Path) -> Result<Vec<String>> {
    let dataset = Dataset::open(path, &Limits::default())?;
    let all: Vec<usize> = (0..dataset.streams().len()).collect();
    let mut seen = vec![dataset.tasks().join(" ")];
    for at in 0..dataset.len() {
        for samples in dataset.read(at, &all)? {
            let values = match &samples.values {
                Values::Numbers(tensor) => format!("{:?} {:?}", tensor.shape(), crate::parquet::bits(tensor)?),
                Values::Frames(frames) => format!("{} {:?}", frames.len(), frames.shape()),
                Values::Text(texts) => format!("{texts:?}"),
            };
            seen.push(format!("{:?} {values}", samples.times));
        }
    }
    Ok(seen)
}

/// Bad input 65. Each row: its name, what happens to reads, and whether all must still be read.
const ROWS: [(&str, Option<Fault>, bool); 3] = [
    ("65 short reads of 1 byte", Some(Fault::OneByte), true),
    ("65 EINTR", Some(Fault::Interrupted), true),
    ("65 EIO on n-th read", None, false),
];

#[test]
fn reads_that_are_short_interrupted_or_fail_65() {
    for name in ["lerobot_v30", "lerobot_v21"] {
        let path = sample(name);
        let (good, reads) = during(None, || read_all(&path));
        let good = good.unwrap();
        for (row, fault, is_whole) in ROWS {
            if is_whole {
                let (seen, count) = during(fault, || read_all(&path));
                assert!(seen.unwrap() == good && count > reads, "{row}: {name}");
                continue;
            }
            let mut failed = 0;
            for nth in 0..reads {
                match during(Some(Fault::Error(nth)), || read_all(&path)).0 {
                    Ok(seen) => {
                        // The words of tasks may be lost, which is a finding; numbers never are.
                        assert!(seen.get(1..) == good.get(1..), "{row}: read {nth} of {name}");
                    }
                    Err(error) => {
                        failed += 1;
                        assert_eq!(error.kind(), ErrorKind::FileError, "{row}: read {nth} of {name}: {error}");
                        assert!(error.file().is_some_and(|file| file.starts_with(&path)), "{row}: {error}");
                    }
                }
            }
            assert!(failed * 2 > reads, "{row}: {failed} of {reads} in {name}");
            assert!(read_all(&path).unwrap() == good, "{row}: the next good call");
        }
    }
}

/// Sets how many files this process may open; tells how many it might before.
fn allow_files(files: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a valid one, and no higher than the one that holds for it.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, files);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

/// In a process of its own, which may open no file once the dataset is open.
#[test]
fn a_file_that_is_not_to_blame_costs_no_episode_73() {
    const ROLE: &str = "ROBOCACHE_TEST_CHECK_POORLY";
    if std::env::var_os(ROLE).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "lerobot::tests::a_file_that_is_not_to_blame_costs_no_episode_73"]).env(ROLE, "");
        let done = again.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        return;
    }
    let (dataset, _) = super::open(&sample("lerobot_v21"), &Limits::default()).unwrap();
    let before = allow_files(0);
    let checked = dataset.check_all(&Progress::default(), true);
    let opened = super::open(&sample("lerobot_v21"), &Limits::default()).map(|_| ());
    allow_files(before);
    let checked = checked.unwrap();
    let errors = checked.findings.iter().filter(|finding| finding.level == Level::Error);
    let codes: Vec<_> = errors.map(|finding| finding.code).collect();
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == "unreadable_now"), "{:#?}", checked.findings);
    assert!(checked.findings.iter().any(|finding| finding.message.contains("Too many open files")));
    assert_eq!(checked.errors, []);
    assert!(opened.is_err_and(|error| error.to_string().contains("Too many open files")));
}
