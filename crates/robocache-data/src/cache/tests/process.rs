//! Several processes: killed, at once, poor, without rights.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::super::fs::{FileOut, Folder, Fs, Os};
use super::super::ingest::process_unit_on;
use super::super::{collect_garbage, ingest, merge, plan, process_unit};
use super::*;

const ROLE: &str = "ROBOCACHE_TEST_CACHE_ROLE";
const SOURCE: &str = "ROBOCACHE_TEST_CACHE_SOURCE";
const OUT: &str = "ROBOCACHE_TEST_CACHE_OUT";
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process that a test starts does; in the test run itself nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
    let (source, out) = (path(SOURCE), path(OUT));
    let said = match role.as_str() {
        "ingest" => ingest_with(&Os, &source, &out).map(|_| ()),
        "ingest and wait" => ingest_with(&Waiting::default(), &source, &out).map(|_| ()),
        "unit and wait" => {
            process_unit_on(&Waiting::default(), &out, 0, true, &Limits::default(), &Progress::default()).map(|_| ())
        }
        "ingest poorly" => {
            let files = std::env::var("ROBOCACHE_TEST_CACHE_FILES").unwrap().parse().unwrap();
            let limit = libc::rlimit { rlim_cur: files, rlim_max: files };
            // SAFETY: the limit is a valid one, and a lower one is always allowed.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
            ingest_with(&Os, &source, &out).map(|_| ())
        }
        "collect as nobody" => {
            become_nobody();
            collect_garbage(&out).map(|_| ())
        }
        "look as nobody" => {
            become_nobody();
            look_without_rights(&source, &out);
            Ok(())
        }
        _ => panic!("{role}"),
    };
    match said {
        Ok(()) => println!(">> done"),
        Err(error) => println!(">> {error}"),
    }
}

/// A process of root may do everything; one of nobody may not.
fn become_nobody() {
    // SAFETY: only asks.
    if unsafe { libc::geteuid() } == 0 {
        // SAFETY: root may become anyone; of this process's threads only this one works.
        assert_eq!(unsafe { libc::setuid(65534) }, 0);
    }
}

/// Says when it creates the first shard, and goes on when it is told to.
#[derive(Debug, Default)]
struct Waiting(AtomicBool);

impl Fs for Waiting {
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        Os.create_dir(path)
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn FileOut>> {
        if path.extension().is_some_and(|end| end == "arrow") && !self.0.swap(true, Ordering::Relaxed) {
            println!(">> waiting");
            std::io::stdout().flush()?;
            std::io::stdin().read_line(&mut String::new())?;
        }
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
}

/// A process with a role, ended with the test.
struct Process(Child, BufReader<std::process::ChildStdout>);

impl Process {
    fn start(role: &str, source: &Path, out: &Path) -> Self {
        Self::start_with(role, source, out, 0)
    }

    fn start_with(role: &str, source: &Path, out: &Path, files: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cache::tests::process::child", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(SOURCE, source).env(OUT, out);
        command.env("ROBOCACHE_TEST_CACHE_FILES", files.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(child, out)
    }

    /// The next thing that it says.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.1.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(">> ") {
                return said.trim().to_owned();
            }
            line.clear();
        }
        panic!("it ended with {:?}", self.0.wait());
    }

    /// Lets it go on to its end; what it said last.
    fn finish(mut self) -> String {
        drop(self.0.stdin.take());
        let said = self.hear();
        let started = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        said
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tells other threads to end, also where this one fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn killed_at_random_moments_it_opens_and_goes_on_69() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    let started = Instant::now();
    assert_eq!(Process::start("ingest", &sample(), &out).finish(), "done");
    let whole = started.elapsed();
    scratch.clear();
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()));
    let (mut before, mut caches) = (0, 0);
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..scaled(200) {
        let mut process = Process::start("ingest", &sample(), &out);
        std::thread::sleep(whole.mul_f64(random.below(1000) as f64 / 1000.0));
        process.kill();
        let stamps = || -> Vec<_> {
            let units = files(&out).into_iter().filter(|path| path.ends_with("unit.json"));
            let units = units.filter(|path| !path.to_string_lossy().contains(".tmp-"));
            units.map(|path| (path.metadata().unwrap().modified().unwrap(), path)).collect()
        };
        let now = if out.exists() { ledger.judge(&out) } else { 0 };
        assert!(now >= before, "an episode that was there is gone");
        before = now;
        let there = |name: &str| out.join(name).exists();
        let phase = match (there("plan.json"), there("manifest.json"), now) {
            (false, ..) => "before the plan".to_owned(),
            (true, false, units) => format!("{units} units"),
            (true, true, _) => "the manifest".to_owned(),
        };
        *phases.entry(phase).or_default() += 1;
        if there("manifest.json") || random.below(3) == 0 {
            let done = if out.exists() { stamps() } else { Vec::new() };
            let report = ingest_with(&Os, &sample(), &out).unwrap();
            assert_eq!((report.units_before, report.units_done), (done.len(), ledger.len() - done.len()));
            assert!(done.iter().all(|old| stamps().contains(old)), "work was done twice");
            ledger.judge_complete(&out);
            collect_garbage(&out).unwrap();
            let left = files(&out).iter().filter(|path| path.to_string_lossy().contains(".tmp-")).count();
            assert_eq!(left, 0);
            scratch.clear();
            (before, caches) = (0, caches + 1);
        }
    }
    println!("{caches} caches, killed at: {phases:?}, an ingest takes {whole:?}");
    assert!(scaled(200) < 200 || phases.len() >= 3, "{phases:?}");
}

#[test]
fn a_second_writer_is_refused_and_a_dead_one_holds_nothing_74() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    let mut first = Process::start("ingest and wait", &sample(), &out);
    assert_eq!(first.hear(), "waiting");
    let refused = [
        ingest_with(&Os, &sample(), &out).unwrap_err(),
        merge(&out).unwrap_err(),
        plan(&sample(), &out, &options(), &Limits::default(), &Progress::default()).unwrap_err(),
        collect_garbage(&out).unwrap_err(),
    ];
    for error in refused {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::FileError);
        assert!(text.contains(&format!("process {} is writing", first.0.id())), "{text}");
        assert!(text.contains(out.to_str().unwrap()), "{text}");
    }
    ledger.judge(&out);
    first.kill();
    ingest_with(&Os, &sample(), &out).unwrap();
    ledger.judge_complete(&out);
}

#[test]
fn of_writers_at_once_one_wins_and_readers_see_whole_units_74() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    for _ in 0..scaled(10) {
        let writers: Vec<_> = (0..3).map(|_| Process::start("ingest", &sample(), &out)).collect();
        let ended = AtomicBool::new(false);
        let said: Vec<String> = std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut most = 0;
                    while !ended.load(Ordering::Relaxed) {
                        let now = if out.exists() { ledger.judge(&out) } else { 0 };
                        assert!(now >= most, "an episode that was there is gone");
                        most = now;
                    }
                });
            }
            let _ended = Ended(&ended);
            writers.into_iter().map(Process::finish).collect()
        });
        assert!(said.iter().any(|said| said == "done"), "{said:?}");
        assert!(said.iter().all(|said| said == "done" || said.contains("is writing to this cache")), "{said:?}");
        ledger.judge_complete(&out);
        scratch.clear();
    }
}

#[test]
fn readers_open_while_indices_come_and_go_74() {
    let scratch = Scratch::new();
    let out = scratch.out();
    ingest_with(&Os, &sample(), &out).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut most = 0;
                while !ended.load(Ordering::Relaxed) {
                    let cache = Cache::open(&out).unwrap();
                    assert!(cache.len() >= most, "an episode that was there is gone");
                    most = cache.len();
                }
            });
        }
        let _ended = Ended(&ended);
        for number in 0..scaled(20) {
            let source = scratch.0.join(format!("source-{number}"));
            copy(&sample(), &source);
            ingest_with(&Os, &source, &out).unwrap();
            assert_eq!(collect_garbage(&out).unwrap().removed.len(), 1, "the index before");
        }
    });
}

#[test]
fn two_processes_do_the_same_unit_74() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    plan(&sample(), &out, &options(), &Limits::default(), &Progress::default()).unwrap();
    let mut other = Process::start("unit and wait", &sample(), &out);
    assert_eq!(other.hear(), "waiting");
    process_unit(&out, 0, true, &Limits::default(), &Progress::default()).unwrap();
    let stamp = || out.join("shards/unit-000000/unit.json").metadata().unwrap().modified().unwrap();
    let before = stamp();
    assert_eq!(other.finish(), "done");
    assert_eq!(stamp(), before, "who comes second changes nothing");
    for unit in 1..ledger.len() {
        process_unit(&out, unit, true, &Limits::default(), &Progress::default()).unwrap();
    }
    merge(&out).unwrap();
    ledger.judge_complete(&out);
    assert!(files(&out).iter().all(|path| !path.to_string_lossy().contains(".tmp-")));
}

#[test]
fn what_the_dead_left_is_collected_and_what_lives_is_kept_81() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    plan(&sample(), &out, &options(), &Limits::default(), &Progress::default()).unwrap();
    let mut dead = Process::start("unit and wait", &sample(), &out);
    assert_eq!(dead.hear(), "waiting");
    dead.kill();
    // A name of the dead process as often as crashes may have left it, in both folders.
    let left = std::fs::read_dir(out.join("shards")).unwrap().flatten().next().unwrap().file_name();
    let left = left.to_str().unwrap().to_owned();
    let many = scaled(10_000);
    for number in 0..many {
        std::fs::write(out.join(format!("{left}-{number}")), b"x").unwrap();
    }
    let mut alive = Process::start("unit and wait", &sample(), &out);
    assert_eq!(alive.hear(), "waiting");
    let own = Folder { path: out.join("shards"), fs: &Os }.temporary("unit-000001");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(out.join(".tmp-notes"), b"not ours").unwrap();
    let collected = collect_garbage(&out).unwrap();
    assert_eq!((collected.removed.len(), collected.bytes), (many + 1, many as u64));
    assert!(own.exists() && out.join(".tmp-notes").exists());
    assert_eq!(alive.finish(), "done");
    ingest_with(&Os, &sample(), &out).unwrap();
    ledger.judge_complete(&out);
}

#[test]
fn a_process_with_the_number_of_a_dead_one_is_not_in_its_way_81() {
    // In a container the number is the same at every start.
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    plan(&sample(), &out, &options(), &Limits::default(), &Progress::default()).unwrap();
    let shards = Folder { path: out.join("shards"), fs: &Os };
    let next = shards.temporary("unit-000000").file_name().unwrap().to_str().unwrap().to_owned();
    let parts: Vec<&str> = next.split('-').collect();
    let number: u64 = parts[3].parse().unwrap();
    // Of this very process, and of one that started at another time.
    for at in number..number + 100 {
        let taken = format!(".tmp-{}-{}-{at}-unit-000000", parts[1], parts[2]);
        std::fs::create_dir(out.join("shards").join(taken)).unwrap();
    }
    let old = out.join("shards").join(format!(".tmp-{}-1-0-unit-000000", parts[1]));
    std::fs::create_dir(&old).unwrap();
    ingest_with(&Os, &sample(), &out).unwrap();
    ledger.judge_complete(&out);
    assert_eq!(collect_garbage(&out).unwrap().removed, [old]);
}

#[test]
fn what_another_user_is_writing_is_kept_81() {
    let scratch = Scratch::new();
    let out = scratch.out();
    ingest_with(&Os, &sample(), &out).unwrap();
    let started = std::fs::read_to_string("/proc/1/stat").unwrap();
    let started = started.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().to_owned();
    let theirs = out.join("shards").join(format!(".tmp-1-{started}-0-unit-000000"));
    std::fs::create_dir(&theirs).unwrap();
    for path in [out.clone(), out.join("shards"), out.join("lock"), out.join("manifest.json")] {
        allow(&path, 0o777);
    }
    assert_eq!(Process::start("collect as nobody", &sample(), &out).finish(), "done");
    assert!(theirs.exists());
}

fn allow(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn too_few_open_files_are_an_error_and_no_episode_is_left_out_73() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let out = scratch.out();
    let (mut failed, mut well) = (0, 0);
    for files in (3..30).chain((30..40).step_by(2)) {
        let said = Process::start_with("ingest poorly", &sample(), &out, files).finish();
        ledger.judge(&out);
        if said == "done" {
            ledger.judge_complete(&out);
            well += 1;
        } else {
            assert!(said.contains("Too many open files"), "{files} files: {said}");
            failed += 1;
        }
        if out.exists() {
            ingest_with(&Os, &sample(), &out).unwrap();
            ledger.judge_complete(&out);
        }
        scratch.clear();
    }
    assert!(failed > 3 && well > 3, "{failed} failed, {well} went well");
}

#[test]
fn files_that_may_not_be_read_or_written_are_errors_that_name_them_80() {
    let scratch = Scratch::new();
    let (source, out) = (scratch.0.join("source"), scratch.out());
    copy(&sample(), &source);
    ingest_with(&Os, &source, &out).unwrap();
    let unit = files(&out.join("shards/unit-000000"));
    allow(unit.iter().find(|path| path.extension().is_some_and(|end| end == "arrow")).unwrap(), 0o000);
    allow(&out, 0o555);
    allow(&scratch.0, 0o555);
    let said = Process::start("look as nobody", &source, &out).finish();
    allow(&scratch.0, 0o755);
    allow(&out, 0o755);
    assert_eq!(said, "done");
}

/// In a process that may not write to the cache, nor read one of its shards.
fn look_without_rights(source: &Path, out: &Path) {
    let seen = Ledger::of(source).compare(&Cache::open(out).unwrap());
    assert!(seen.refused == 1 && seen.right > 1, "{seen:?}");
    for error in [
        verify(out, &Progress::default()).unwrap_err(),
        ingest(source, out, &options(), &Limits::default(), &Progress::default()).unwrap_err(),
        ingest_with(&Os, source, &out.with_file_name("new")).unwrap_err(),
    ] {
        assert!(error.kind() == ErrorKind::FileError && error.file().is_some(), "{error}");
        assert!(error.to_string().contains("Permission denied"), "{error}");
    }
}
