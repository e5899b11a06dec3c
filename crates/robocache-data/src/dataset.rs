//! A dataset as users see it, whatever its format.

use std::path::Path;

use robocache::{Error, ErrorKind, Result, ensure};

use crate::files::fingerprint;
use crate::findings::{Finding, Progress};
use crate::model::{Camera, EpisodeInfo, Opened, Samples, Source, StreamInfo};
use crate::recording::Recording;
use crate::{Limits, formats};

/// A dataset of any format. Opening reads the metadata only; it can be shared between threads.
#[derive(Debug)]
pub struct Dataset {
    source: Box<dyn Source>,
    recording: Recording,
}

impl Dataset {
    /// Opens what lies at `path`; the format is found by looking.
    ///
    /// Metadata that contradicts itself is refused here; [`Dataset::check`] tells all of it.
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        Self::open_recording(path, &Recording::default(), limits)
    }

    /// As [`Dataset::open`], with a say in how a recording is read.
    pub fn open_recording(path: &Path, recording: &Recording, limits: &Limits) -> Result<Self> {
        let (dataset, refusal) = Self::open_anyway(path, recording, limits)?;
        match refusal {
            Some(error) => Err(error),
            None => Ok(dataset),
        }
    }

    fn open_anyway(path: &Path, recording: &Recording, limits: &Limits) -> Result<(Self, Option<Error>)> {
        let Opened { source, refusal } = formats::open(path, recording, limits)?;
        Ok((Self { source, recording: recording.clone() }, refusal))
    }

    /// Opens a dataset and looks at everything in it. Only metadata that cannot be read at all is
    /// an error.
    pub fn check(path: &Path, limits: &Limits, progress: &Progress<'_>) -> Result<Vec<Finding>> {
        Self::open_and_check(path, &Recording::default(), limits, progress).map(|(findings, _)| findings)
    }

    /// As [`Dataset::check`], and the dataset itself where it may be used.
    pub fn open_and_check(
        path: &Path,
        recording: &Recording,
        limits: &Limits,
        progress: &Progress<'_>,
    ) -> Result<(Vec<Finding>, Option<Self>)> {
        let (dataset, refusal) = Self::open_anyway(path, recording, limits)?;
        let findings = dataset.source.check(progress)?.findings;
        Ok((findings, refusal.is_none().then_some(dataset)))
    }

    /// The first error of every episode and stream that has one. Sample values are not looked at: ingest
    /// checks them as it reads them.
    pub(crate) fn episode_errors(&self, progress: &Progress<'_>) -> Result<Vec<Finding>> {
        Ok(self.source.check_but_numbers(progress)?.errors)
    }

    /// Streams that are declared but not read, each with the reason.
    pub fn left_out(&self) -> &[(String, String)] {
        self.source.left_out()
    }

    /// Format and version, such as "lerobot v3.0".
    pub fn format(&self) -> String {
        self.source.format()
    }

    /// Samples per second of the main clock, where there is one.
    pub fn rate(&self) -> Option<f64> {
        self.source.rate()
    }

    /// All tasks, by their number.
    pub fn tasks(&self) -> &[String] {
        self.source.tasks()
    }

    /// All streams, in the dataset's order.
    pub fn streams(&self) -> &[StreamInfo] {
        self.source.streams()
    }

    /// The place of a stream in [`Dataset::streams`].
    pub fn stream(&self, name: &str) -> Result<usize> {
        let streams = self.streams();
        streams.iter().position(|stream| stream.name == name).ok_or_else(|| {
            if let Some((_, why)) = self.source.left_out().iter().find(|(left_out, _)| left_out == name) {
                return Error::new(ErrorKind::Unsupported, format!("{name:?} is left out: {why}")).argument("stream");
            }
            Error::no_such("stream", "streams", name, streams.iter().map(|stream| &*stream.name))
        })
    }

    /// How many episodes there are.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An episode, by its place.
    pub fn episode(&self, at: usize) -> Result<EpisodeInfo> {
        self.ensure_episode(at)?;
        Ok(self.source.episode(at))
    }

    /// Reads streams of an episode, by their places. Pictures are decoded later, when asked for.
    pub fn read(&self, at: usize, streams: &[usize]) -> Result<Vec<Samples>> {
        self.ensure_episode(at)?;
        for &stream in streams {
            ensure!(stream < self.streams().len(), "streams", "there is no stream {stream}");
        }
        self.source
            .read(at, streams)
            .map_err(|error| error.while_doing(format!("reading episode {}", self.source.episode(at).index)))
    }

    /// The cameras of an episode whose calibration the dataset has.
    pub fn cameras(&self, at: usize) -> Result<Vec<Camera>> {
        self.ensure_episode(at)?;
        Ok(self.source.cameras(at))
    }

    /// The stamps of an episode's main clock in nanoseconds as the files have them; `None` where they
    /// have none. The stamps of [`Samples`] may be rebuilt from the rate and say nothing of jitter.
    pub fn recorded_times(&self, at: usize) -> Result<Option<Vec<i64>>> {
        self.ensure_episode(at)?;
        self.source.recorded_times(at)
    }

    /// Bytes of the files that the metadata speaks of and that exist.
    pub fn bytes(&self) -> u64 {
        self.source
            .files()
            .unwrap_or_default()
            .iter()
            .filter_map(|path| path.metadata().ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// A number that differs when the dataset does: names, sizes, times and both ends of all files.
    /// A change in the middle of a file that keeps its size and its time is not seen.
    pub fn fingerprint(&self) -> Result<String> {
        let mut files = self.source.files()?;
        files.sort();
        let mut sum = 0;
        for path in files {
            sum = crc32c::crc32c_append(sum, path.as_os_str().as_encoded_bytes());
            sum = crc32c::crc32c_append(sum, &fingerprint(&path)?);
        }
        // What episodes and stamps are depends on how it is read.
        if !self.recording.is_default() {
            sum = crc32c::crc32c_append(sum, format!("{:?}", self.recording).as_bytes());
        }
        Ok(format!("{sum:08x}"))
    }

    fn ensure_episode(&self, at: usize) -> Result<()> {
        ensure!(at < self.len(), "episode", "expected 0 to {}, got {at}", self.len().saturating_sub(1));
        Ok(())
    }
}
