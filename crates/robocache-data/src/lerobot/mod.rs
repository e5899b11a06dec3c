//! LeRobot datasets: v3.0, v2.1, v2.0 and the flavour of GR00T.
//!
//! `info` reads what the dataset says of itself, `streams` turns its features into streams,
//! `gr00t` names their parts, `episodes` reads the table of episodes, `read` the samples of one;
//! `check` looks at everything.

mod check;
mod episodes;
mod finding;
mod gr00t;
mod info;
mod read;
mod recent;
mod root;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::{DType, Error, ErrorKind, Result};

use self::episodes::{Episodes, FileId, is_text};
use self::finding::finding_of;
use self::info::{Info, Version};
use self::recent::Recent;
use self::root::{Field, Root};
use self::streams::LeftOut;
use crate::Limits;
use crate::check::{Code, codes};
use crate::files::{is_denied, is_lasting, look};
use crate::findings::{Checked, Finding, Level, Progress};
use crate::json::Json;
use crate::limits::corrupt;
use crate::model::{EpisodeInfo, Format, Kind, Opened, Samples, Source, StreamInfo};
use crate::parquet::{ParquetFile, Shared};
use crate::video::VideoFile;

/// Files whose metadata is kept: their indices are small, but a dataset has many.
const KEPT_FILES: usize = 64;

/// An opened dataset.
#[derive(Debug)]
pub(crate) struct LeRobot {
    root: Root,
    info: Info,
    streams: Vec<StreamInfo>,
    left_out: Vec<LeftOut>,
    episodes: Episodes,
    tasks: Vec<String>,
    /// What opening found; `check` adds to it.
    findings: Vec<Finding>,
    tables: Recent<FileId, ParquetFile>,
    /// What the tables keep.
    pages: Arc<Shared>,
    videos: Recent<PathBuf, VideoFile>,
}

/// LeRobot v2.0, v2.1, v3.0 and GR00T's flavour.
pub(crate) const FORMAT: Format = Format {
    looks_like: "the folder of a LeRobot dataset, with meta/info.json in it",
    recognises: is_dataset,
    open: |path, recording, limits| {
        recording.ensure_default("LeRobot")?;
        let (source, refusal) = open(path, limits)?;
        Ok(Opened { source: Box::new(source), refusal })
    },
};

/// Whether a folder looks like a LeRobot dataset; a folder that may not be looked into is an error.
fn is_dataset(path: &Path) -> Result<bool> {
    Ok(look(&path.join("meta/info.json"))?.is_some())
}

/// Opens a dataset by its metadata, and says why it should not be used, where its metadata
/// contradicts itself.
fn open(path: &Path, limits: &Limits) -> Result<(LeRobot, Option<Error>)> {
    let root = Root { path: path.to_path_buf(), limits: *limits };
    let info = Info::read(&root)?;
    let episodes = Episodes::read(&root, &info)?;
    let (streams, left_out) = streams::streams(&info);
    let mut dataset = LeRobot {
        streams,
        left_out,
        tasks: Vec::new(),
        findings: Vec::new(),
        tables: Recent::new(KEPT_FILES),
        pages: Shared::new(limits.max_alloc),
        videos: Recent::new(KEPT_FILES),
        root,
        info,
        episodes,
    };
    match episodes::read_tasks(&dataset.root, &dataset.info) {
        Ok((tasks, found)) => {
            dataset.tasks = tasks;
            dataset.findings.extend(found);
        }
        // A cache would do without for good.
        Err(error) if !is_lasting(&error) => return Err(error),
        // Nothing but the words is lost.
        Err(error) => dataset.found_unreadable(&codes::TASKS_UNREADABLE, &error),
    }
    if let Err(error) = gr00t::name_parts(&dataset.root, &mut dataset.streams) {
        if !is_lasting(&error) {
            return Err(error);
        }
        dataset.found_unreadable(&codes::MODALITY_UNREADABLE, &error);
    }
    dataset.take_types_of_files()?;
    streams::set_methods(&mut dataset.streams);
    for (name, why) in &dataset.left_out {
        dataset.findings.push(Finding::warning(&codes::STREAM_LEFT_OUT, why).stream(name));
    }
    let refusal = dataset.contradiction();
    Ok((dataset, refusal))
}

/// For the fuzz target: everything that is made of `info.json`.
pub(crate) fn examine_info(bytes: &[u8]) {
    let path = Path::new("info.json");
    let fields = [("chunk_index", Field::Number(1)), ("video_key", Field::Text("key"))];
    let limits = Limits::default();
    if let Ok(info) = Json::parse(path, bytes, &limits).and_then(|json| Info::from_json(path, &json, &limits)) {
        let root = Root { path: PathBuf::from("."), limits };
        streams::set_methods(&mut streams::streams(&info).0);
        let _ = info.data_path.fill(&fields).and_then(|path| root.join(&path));
    }
}

/// For the fuzz target: lines of JSON.
pub(crate) fn examine_lines(bytes: &[u8]) {
    let _ = episodes::for_each_line(Path::new("episodes.jsonl"), bytes, &Limits::default(), |json| {
        json.get("episode_index").and_then(Json::as_count);
        Ok(())
    });
}

impl LeRobot {
    fn found_unreadable(&mut self, code: &'static Code, error: &Error) {
        self.findings.push(finding_of(&self.root, Level::Warning, code, error));
    }

    /// Numbers have the type that the files give them, which is not always the declared one. One
    /// odd file does not decide: where the first differs a second one is asked. All files must agree.
    fn take_types_of_files(&mut self) -> Result<()> {
        let tables = self.first_tables()?;
        let mut left_out = Vec::new();
        for stream in &mut self.streams {
            match (stream.kind, stream.dtype) {
                (Kind::Scalar | Kind::Vector, Some(declared)) => {
                    let found = tables.iter().filter_map(|table| table.number_type(&stream.name));
                    let found: Vec<DType> = found.collect();
                    let Some(&first) = found.first().filter(|_| !found.contains(&declared)) else {
                        continue;
                    };
                    let text = format!("declared as {declared}, stored as {first}");
                    self.findings.push(Finding::warning(&codes::DTYPE_DIFFERS, text).stream(&stream.name));
                    stream.dtype = Some(first);
                }
                (Kind::Text, _) => {
                    let found: Vec<bool> = tables.iter().filter_map(|table| is_text(table, &stream.name)).collect();
                    if let (Some(table), false) = (tables.first(), found.is_empty() || found.contains(&true)) {
                        let stored =
                            table.schema().field_with_name(&stream.name).map(|field| field.data_type().to_string());
                        let text =
                            format!("declared as text, stored as {}, which is not read", stored.unwrap_or_default());
                        left_out.push((stream.name.clone(), text));
                    }
                }
                _ => {}
            }
        }
        self.streams.retain(|stream| left_out.iter().all(|(name, _)| *name != stream.name));
        self.left_out.extend(left_out);
        Ok(())
    }

    /// The first two files with rows that can be opened.
    fn first_tables(&self) -> Result<Vec<Arc<ParquetFile>>> {
        /// Files that are tried.
        const TRIED: usize = 4;
        let mut tried: Vec<FileId> = Vec::new();
        let mut tables = Vec::new();
        for (at, file) in self.episodes.file.iter().enumerate() {
            if tables.len() == 2 || tried.len() == TRIED {
                break;
            }
            if !tried.contains(file) {
                tried.push(*file);
                match self.table(at) {
                    Ok(table) => tables.push(table),
                    // Without rights to one file the others can be read; an ingest ends at its fingerprint.
                    Err(error) if !is_lasting(&error) && !is_denied(&error) => return Err(error),
                    Err(_) => {}
                }
            }
        }
        Ok(tables)
    }

    /// Metadata that speaks of different datasets: whatever is read by it may be another episode.
    fn contradiction(&self) -> Option<Error> {
        let (path, rows) = (self.root.info(), self.episodes.len() as u64);
        if let Some(total) = self.info.total_episodes.filter(|&total| total != rows) {
            let text = format!("\"total_episodes\" is {total}, but the metadata lists {rows} episodes");
            return Some(corrupt(&path, text));
        }
        let mut seen = HashSet::new();
        let twice = self.episodes.index.iter().find(|index| !seen.insert(**index))?;
        Some(corrupt(&path, format!("the metadata lists episode {twice} twice")))
    }

    /// The file with an episode's rows.
    fn table_path(&self, at: usize) -> Result<PathBuf> {
        let (chunk, file) = self.episodes.file.get(at).copied().unwrap_or_default();
        let fields = [
            ("chunk_index", Field::Number(chunk)),
            ("file_index", Field::Number(file)),
            ("episode_chunk", Field::Number(chunk)),
            ("episode_index", Field::Number(file)),
        ];
        self.info
            .data_path
            .fill(&fields)
            .map_err(|error| error.path(self.root.info()))
            .and_then(|path| self.root.join(&path))
    }

    fn table(&self, at: usize) -> Result<Arc<ParquetFile>> {
        let id = self.episodes.file.get(at).copied().unwrap_or_default();
        let open = || ParquetFile::open_among(&self.table_path(at)?, &self.root.limits, &self.pages);
        self.tables.get_or_open(&id, open)
    }

    /// The video of a camera with an episode's pictures, and where in it the episode starts.
    fn video_path(&self, at: usize, key: &str) -> Result<(PathBuf, f64)> {
        let camera = self.episodes.cameras.iter().find(|camera| camera.key == key);
        let place = camera.and_then(|camera| camera.places.get(at).copied().flatten());
        let (chunk, file, start) = match (self.info.version, place) {
            (Version::V30, Some(((chunk, file), start))) => (chunk, file, start),
            (Version::V30, None) => {
                let text = format!("the metadata of episodes does not say where the video {key:?} is");
                return Err(Error::new(ErrorKind::FileError, text).path(&self.root.path));
            }
            _ => {
                let (chunk, episode) = self.episodes.file.get(at).copied().unwrap_or_default();
                (chunk, episode, 0.0)
            }
        };
        let fields = [
            ("video_key", Field::Text(key)),
            ("chunk_index", Field::Number(chunk)),
            ("file_index", Field::Number(file)),
            ("episode_chunk", Field::Number(chunk)),
            ("episode_index", Field::Number(file)),
        ];
        let relative = self.info.video_path.fill(&fields).map_err(|error| error.path(self.root.info()))?;
        Ok((self.root.join(&relative)?, start))
    }

    fn video(&self, path: &Path) -> Result<Arc<VideoFile>> {
        self.videos.get_or_open(&path.to_path_buf(), || VideoFile::open(path, &self.root.limits))
    }
}

impl Source for LeRobot {
    fn format(&self) -> String {
        self.info.format().to_owned()
    }

    fn rate(&self) -> Option<f64> {
        Some(self.info.fps)
    }

    fn tasks(&self) -> &[String] {
        &self.tasks
    }

    fn streams(&self) -> &[StreamInfo] {
        &self.streams
    }

    fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    fn len(&self) -> usize {
        self.episodes.len()
    }

    fn episode(&self, at: usize) -> EpisodeInfo {
        let length = self.episodes.length.get(at).copied().unwrap_or(0);
        EpisodeInfo {
            index: self.episodes.index.get(at).copied().unwrap_or(0),
            length,
            tasks: self.episodes.tasks(at),
            duration: length as f64 / self.info.fps,
        }
    }

    fn read(&self, at: usize, streams: &[usize]) -> Result<Vec<Samples>> {
        self.read_streams(at, streams)
    }

    fn recorded_times(&self, at: usize) -> Result<Option<Vec<i64>>> {
        self.read_recorded_times(at)
    }

    fn check(&self, progress: &Progress<'_>) -> Result<Checked> {
        self.check_all(progress, true)
    }

    fn check_but_numbers(&self, progress: &Progress<'_>) -> Result<Checked> {
        let checked = self.check_all(progress, false)?;
        // What is wrong with a file that cannot be read now is not known.
        match checked.findings.iter().find(|finding| finding.code == codes::UNREADABLE_NOW.name) {
            None => Ok(checked),
            Some(finding) => {
                let path = finding.path.as_ref().map_or(self.root.path.clone(), |path| self.root.path.join(path));
                Err(Error::new(ErrorKind::FileError, finding.message.clone()).path(path))
            }
        }
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut paths: HashSet<PathBuf> = HashSet::from([self.root.info()]);
        for at in 0..self.episodes.len() {
            paths.extend(self.table_path(at));
            for camera in &self.episodes.cameras {
                paths.extend(self.video_path(at, &camera.key).map(|(path, _)| path));
            }
        }
        let metadata = [Version::V21.episodes(), Version::V21.tasks(), Version::V30.tasks()];
        paths.extend(metadata.iter().map(|file| self.root.path.join(file)));
        match self.root.chunked_files("meta/episodes") {
            Ok(files) => paths.extend(files),
            Err(error) if !is_lasting(&error) => return Err(error),
            // Older versions have no such folder.
            Err(_) => {}
        }
        Ok(paths.into_iter().collect())
    }
}
