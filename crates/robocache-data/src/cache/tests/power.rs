//! Power loss: what was not synced is gone, or half there.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::super::fs::{FileOut, Fs, Os};
use super::*;

#[derive(Debug, Clone)]
enum Op {
    CreateDir(PathBuf),
    /// A path and the number that the file has from then on.
    Create(PathBuf, usize),
    Write(usize, Vec<u8>),
    Sync(usize),
    Rename(PathBuf, PathBuf),
    SyncDir(PathBuf),
    Remove(PathBuf),
}

#[derive(Debug, Default)]
struct Log {
    ops: Vec<Op>,
    files: usize,
    /// Nothing more happens from this operation on.
    death: Option<usize>,
}

/// The real file system, with a record of what was done to it.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Log>>);

struct RecordedFile(Box<dyn FileOut>, usize, Recorder);

impl Recorder {
    fn add(&self, op: Op) -> std::io::Result<()> {
        let mut log = self.0.lock().unwrap();
        if log.death.is_some_and(|death| log.ops.len() >= death) {
            return Err(std::io::Error::other("dead"));
        }
        log.ops.push(op);
        Ok(())
    }
}

impl Write for RecordedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.2.add(Op::Write(self.1, bytes.to_vec()))?;
        self.0.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl FileOut for RecordedFile {
    fn sync(&mut self) -> std::io::Result<()> {
        self.2.add(Op::Sync(self.1))
    }
}

impl Fs for Recorder {
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        self.add(Op::CreateDir(path.to_path_buf()))?;
        Os.create_dir(path)
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn FileOut>> {
        let number = {
            let mut log = self.0.lock().unwrap();
            log.files += 1;
            log.files - 1
        };
        self.add(Op::Create(path.to_path_buf(), number))?;
        Ok(Box::new(RecordedFile(Os.create(path)?, number, self.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.add(Op::Rename(from.to_path_buf(), to.to_path_buf()))?;
        Os.rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        self.add(Op::SyncDir(path.to_path_buf()))
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.add(Op::Remove(path.to_path_buf()))?;
        Os.remove(path)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Node {
    File(usize),
    Dir(usize),
}

#[derive(Debug, Default, Clone)]
struct Kept<T> {
    now: T,
    synced: T,
}

/// What a disk holds for sure, and what it may hold.
#[derive(Debug)]
struct Disk {
    base: PathBuf,
    files: BTreeMap<usize, Kept<Vec<u8>>>,
    dirs: Vec<Kept<BTreeMap<String, Node>>>,
}

impl Disk {
    fn new(base: &Path) -> Self {
        Self { base: base.to_path_buf(), files: BTreeMap::new(), dirs: vec![Kept::default()] }
    }

    /// The number of a folder.
    fn dir(&self, path: &Path) -> usize {
        let parts = path.strip_prefix(&self.base).unwrap().components();
        parts.fold(0, |dir, part| match self.dirs[dir].now[part.as_os_str().to_str().unwrap()] {
            Node::Dir(dir) => dir,
            Node::File(_) => panic!("{} is a file", path.display()),
        })
    }

    fn entry(&self, path: &Path) -> (usize, String) {
        (self.dir(path.parent().unwrap()), path.file_name().unwrap().to_str().unwrap().to_owned())
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::CreateDir(path) => {
                let (dir, name) = self.entry(path);
                let new = self.dirs.len();
                self.dirs[dir].now.insert(name, Node::Dir(new));
                self.dirs.push(Kept::default());
            }
            Op::Create(path, number) => {
                let (dir, name) = self.entry(path);
                self.dirs[dir].now.insert(name, Node::File(*number));
                self.files.insert(*number, Kept::default());
            }
            Op::Write(number, bytes) => self.files.get_mut(number).unwrap().now.extend_from_slice(bytes),
            Op::Sync(number) => {
                let file = self.files.get_mut(number).unwrap();
                file.synced = file.now.clone();
            }
            Op::Rename(from, to) => {
                let ((from, old), (to, new)) = (self.entry(from), self.entry(to));
                let node = self.dirs[from].now.remove(&old).unwrap();
                self.dirs[to].now.insert(new, node);
            }
            Op::SyncDir(path) => {
                let dir = self.dir(path);
                self.dirs[dir].synced = self.dirs[dir].now.clone();
            }
            Op::Remove(path) => {
                let (dir, name) = self.entry(path);
                self.dirs[dir].now.remove(&name);
            }
        }
    }

    /// Makes the files that are left after the power was lost. `luck` chooses what becomes of what was not
    /// synced; 0 is that it is gone.
    fn write(&self, folder: &Path, luck: &mut dyn FnMut(usize) -> usize) {
        self.write_dir(0, folder, luck);
    }

    fn write_dir(&self, dir: usize, folder: &Path, luck: &mut dyn FnMut(usize) -> usize) {
        std::fs::create_dir_all(folder).unwrap();
        let Kept { now, synced } = &self.dirs[dir];
        let names: std::collections::BTreeSet<&String> = now.keys().chain(synced.keys()).collect();
        for name in names {
            let (old, new) = (synced.get(name), now.get(name));
            let node = if old == new || luck(2) == 0 { old } else { new };
            match node {
                None => {}
                Some(Node::Dir(dir)) => self.write_dir(*dir, &folder.join(name), luck),
                Some(Node::File(number)) => {
                    let Kept { now, synced } = &self.files[number];
                    let mut content = synced.clone();
                    if now != synced {
                        match luck(4) {
                            0 => {}
                            1 => content = now.clone(),
                            2 => content.resize(now.len(), 0),
                            _ => content = now[..now.len() / 2].to_vec(),
                        }
                    }
                    std::fs::write(folder.join(name), content).unwrap();
                }
            }
        }
    }
}

/// Runs ingests, each but the last dead at an operation; the record of all of them.
fn record(base: &Path, deaths: &[usize]) -> Vec<Op> {
    let recorder = Recorder::default();
    for &death in deaths {
        recorder.0.lock().unwrap().death = Some(death);
        ingest_with(&recorder, &sample(), &base.join("out")).unwrap_err();
    }
    recorder.0.lock().unwrap().death = None;
    ingest_with(&recorder, &sample(), &base.join("out")).unwrap();
    let ops = recorder.0.lock().unwrap().ops.clone();
    std::fs::remove_dir_all(base.join("out")).unwrap();
    ops
}

#[test]
fn power_loss_after_any_operation_leaves_a_cache_or_none_71() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let ops = record(&scratch.0, &[]);
    let mut disk = Disk::new(&scratch.0);
    let left = scratch.0.join("left");
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut most, mut looked) = (0, 0);
    for op in &ops {
        disk.apply(op);
        // For sure there is only what was synced, so nothing new before the next sync.
        if matches!(op, Op::Sync(_) | Op::SyncDir(_) | Op::Remove(_)) {
            disk.write(&left, &mut |_| 0);
            let episodes = ledger.judge(&left.join("out"));
            assert!(episodes >= most, "what was there is gone");
            most = episodes;
            let report = ingest_with(&Os, &sample(), &left.join("out")).unwrap();
            assert_eq!(report.units_before + report.units_done, ledger.len());
            ledger.judge_complete(&left.join("out"));
            std::fs::remove_dir_all(&left).unwrap();
        }
        for _ in 0..scaled(2) {
            disk.write(&left, &mut |choices| random.below(choices));
            let episodes = ledger.judge(&left.join("out"));
            assert!(episodes >= most, "what was there is gone");
            looked += 1;
            std::fs::remove_dir_all(&left).unwrap();
        }
    }
    assert!(most == ledger.len() && looked >= ops.len());
}

#[test]
fn what_an_ingest_reported_survives_a_kill_before_and_power_loss_after_71() {
    let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
    let plain = record(&scratch.0, &[]);
    let left = scratch.0.join("left");
    // Killed between giving something its name and making the name last.
    let deaths = (0..plain.len()).filter(|&at| matches!(plain[at], Op::SyncDir(_)));
    for death in deaths {
        let ops = record(&scratch.0, &[death]);
        let mut disk = Disk::new(&scratch.0);
        let mut most = 0;
        for op in &ops {
            disk.apply(op);
            if matches!(op, Op::SyncDir(_)) {
                disk.write(&left, &mut |_| 0);
                let episodes = ledger.judge(&left.join("out"));
                assert!(episodes >= most, "killed at {death}: what was there is gone");
                most = episodes;
                std::fs::remove_dir_all(&left).unwrap();
            }
        }
        disk.write(&left, &mut |_| 0);
        ledger.judge_complete(&left.join("out"));
        std::fs::remove_dir_all(&left).unwrap();
    }
}
