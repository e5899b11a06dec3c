//! Tests of the video reader. Those that decode need an ffmpeg program and say so where there is none.

mod build;
mod decode;
mod fakes;
mod hostile;
mod parts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("robocache-video-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program that tests decode with.
fn ffmpeg() -> Option<Ffmpeg> {
    match Ffmpeg::find() {
        Ok(ffmpeg) => Some(ffmpeg),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Files of the sample data that is not in the tree.
fn samples(pattern: &[&str]) -> Vec<PathBuf> {
    let mut folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    folder.extend(pattern);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "mp4"));
    files.sort();
    if files.is_empty() {
        println!("skipped: no sample data in {}", folder.display());
    }
    files
}

/// Repeatable disorder.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// How often a long loop runs, scaled by `ROBOCACHE_TEST_SCALE`.
fn scaled(count: usize) -> usize {
    let scale = std::env::var("ROBOCACHE_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    ((count as f64 * scale) as usize).max(1)
}

fn open(path: &Path) -> Result<VideoFile> {
    VideoFile::open(path, &Limits::default())
}

/// Decodes into one vector per frame.
fn decode_all(video: &VideoFile, ffmpeg: &Ffmpeg, frames: &[usize], format: PixelFormat) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    video.decode_with(ffmpeg, frames, Wish::alone(format), &Context::default(), &mut |frame, pixels| {
        assert_eq!(frame, frames[out.len()]);
        let (Pixels::Packed(pixels) | Pixels::Planes(pixels, _)) = pixels;
        out.push(pixels.to_vec());
        Ok(())
    })?;
    Ok(out)
}

/// Runs ffmpeg for a test's own purposes; `None` where it fails, as for an encoder that it lacks.
fn run(ffmpeg: &Ffmpeg, arguments: &[&str]) -> Option<std::process::Output> {
    let mut command = Command::new(ffmpeg.program());
    command.args(["-nostdin", "-hide_banner", "-y"]).args(arguments);
    let output = command.output().unwrap();
    output.status.success().then_some(output)
}
