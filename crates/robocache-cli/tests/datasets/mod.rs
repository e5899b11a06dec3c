//! Commands that read datasets.

mod bench;
mod cache;
mod check;
mod ingest;
mod inspect;
mod plot;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Float32Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use serde_json::json as value;

use super::{good, json, refused, robocache, run, stderr, stdout};

/// A dataset of the repository.
fn sample(name: &str) -> String {
    format!("{}/../../testdata/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("robocache-cli-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A copy of a dataset of the repository, to do harm to.
    fn copy_of(sample_name: &str, name: &str) -> Self {
        let folder = Self::new(name);
        copy(Path::new(&sample(sample_name)), &folder.0);
        folder
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            std::fs::copy(&entry, &target).unwrap();
        }
    }
}

/// A dataset of version 2.1 with equal episodes, all of which are one file.
fn made(name: &str, count: usize, frames: usize) -> Folder {
    let folder = Folder::new(name);
    for name in ["meta", "data/chunk-000"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let info = value!({
        "codebase_version": "v2.1", "fps": 10, "total_episodes": count, "total_frames": frames * count,
        "chunks_size": 100_000, "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "features": { "action": { "dtype": "float32", "shape": [1], "names": null } },
    });
    std::fs::write(folder.join("meta/info.json"), info.to_string()).unwrap();
    std::fs::write(folder.join("meta/tasks.jsonl"), "{\"task_index\": 0, \"task\": \"wait\"}\n").unwrap();
    let episode = |index| value!({ "episode_index": index, "tasks": ["wait"], "length": frames }).to_string() + "\n";
    std::fs::write(folder.join("meta/episodes.jsonl"), (0..count).map(episode).collect::<String>()).unwrap();
    let action: ArrayRef = Arc::new(Float32Array::from_iter_values((0..frames).map(|frame| (frame % 1000) as f32)));
    let batch = RecordBatch::try_from_iter([("action", action)]).unwrap();
    let file = |index: usize| folder.join(&format!("data/chunk-000/episode_{index:06}.parquet"));
    let mut writer = ArrowWriter::try_new(std::fs::File::create(file(0)).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    (1..count).for_each(|index| std::fs::hard_link(file(0), file(index)).unwrap());
    folder
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Presses Ctrl-C.
fn interrupt(child: &Child) {
    let id = i32::try_from(child.id()).unwrap();
    // SAFETY: the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
}

#[test]
fn what_is_no_dataset_is_refused_by_name() {
    let empty = Folder::new("empty");
    for command in [&["inspect"][..], &["check"], &["bench", "readers"]] {
        let message = refused(&[command, &["/no/such/place"]].concat());
        let expected = format!("robocache: {}: there is no such file or folder (/no/such/place)\n", command[0]);
        assert_eq!(message, expected);
        let message = refused(&[command, &[empty.text()]].concat());
        assert!(message.contains("no dataset of a known format") && message.contains(empty.text()), "{message}");
        assert!(refused(&[command, &["--jsn"]].concat()).contains("--jsn"));
    }
    assert!(refused(&["inspect"]).contains("<PATH>") && refused(&["check"]).contains("<PATH>"));
    assert!(refused(&["bench"]).contains("readers") && refused(&["bench", "writers"]).contains("writers"));
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_quiet() {
    let path = sample("lerobot_v30");
    for arguments in [["inspect", &path, "--json"], ["check", &path, "--json"], ["check", &path, "--strict"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = robocache().args(arguments).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
}
