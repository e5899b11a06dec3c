//! `meta/info.json`: what the dataset says of itself.

use std::ops::RangeInclusive;
use std::path::Path;

use robocache::{Error, ErrorKind, Result};

use super::root::{Root, Template};
use crate::frames::DepthCode;
use crate::json::Json;
use crate::limits::{Limits, corrupt, exceeds};

/// Frames per second that a recording can have: from one in some hours to more than any sensor gives.
const FPS: RangeInclusive<f64> = 1e-4..=1e6;

/// Which layout the folder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V20,
    V21,
    V30,
}

impl Version {
    /// Where the table of episodes is: a folder, or a file.
    pub(super) fn episodes(self) -> &'static str {
        if self == Self::V30 { "meta/episodes" } else { "meta/episodes.jsonl" }
    }

    /// Where the tasks are.
    pub(super) fn tasks(self) -> &'static str {
        if self == Self::V30 { "meta/tasks.parquet" } else { "meta/tasks.jsonl" }
    }
}

/// The file's content, checked.
#[derive(Debug)]
pub(super) struct Info {
    pub(super) version: Version,
    pub(super) fps: f64,
    pub(super) total_episodes: Option<u64>,
    pub(super) total_frames: Option<u64>,
    pub(super) total_tasks: Option<u64>,
    pub(super) chunks_size: u64,
    pub(super) data_path: Template,
    pub(super) video_path: Template,
    pub(super) features: Vec<Feature>,
}

/// A column or a camera.
#[derive(Debug)]
pub(super) struct Feature {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Names of components, flattened; may be as many as they like.
    pub(super) names: Vec<String>,
    /// The codec that the video claims to have.
    pub(super) codec: Option<String>,
    pub(super) is_depth: bool,
    /// How distances were quantised; `None` where the file does not say all of it.
    pub(super) depth: Option<DepthCode>,
}

impl Info {
    pub(super) fn read(root: &Root) -> Result<Self> {
        let path = root.info();
        let json = Json::parse(&path, &root.read(&path)?, &root.limits)?;
        Self::from_json(&path, &json, &root.limits)
    }

    /// Also what the fuzz target feeds.
    pub(super) fn from_json(path: &Path, json: &Json, limits: &Limits) -> Result<Self> {
        if json.as_map().is_none() {
            return Err(corrupt(path, "expected a JSON object"));
        }
        let text = |key: &str| json.get(key).and_then(Json::as_text);
        let version = match text("codebase_version") {
            Some("v2.0") => Version::V20,
            Some("v2.1") => Version::V21,
            Some("v3.0") => Version::V30,
            Some(other) => {
                let text = format!("LeRobot {other:?} is not known; v2.0, v2.1 and v3.0 are read");
                return Err(Error::new(ErrorKind::Unsupported, text).path(path));
            }
            None => return Err(corrupt(path, "expected \"codebase_version\", such as \"v3.0\"")),
        };
        if let Some(format) = text("storage_format").filter(|&format| format != "parquet") {
            let text = format!("its data is stored as {format:?}; parquet is read");
            return Err(Error::new(ErrorKind::Unsupported, text).path(path));
        }
        let fps = json.get("fps").and_then(Json::as_f64);
        let fps = fps.filter(|fps| FPS.contains(fps)).ok_or_else(|| {
            let got = json.get("fps").map_or_else(|| "nothing".to_owned(), ToString::to_string);
            corrupt(path, format!("\"fps\": expected a number of {:e} to {:e}, got {got}", FPS.start(), FPS.end()))
        })?;
        // A count that is left out can be counted; one that is none says that something went wrong.
        let count = |key: &str| match json.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(found) => {
                let bad = || corrupt(path, format!("{key:?}: expected a count, got {found}"));
                found.as_count().map(Some).ok_or_else(bad)
            }
        };
        let chunks_size = count("chunks_size")?.unwrap_or(1000);
        if chunks_size == 0 && version != Version::V30 {
            return Err(corrupt(path, "\"chunks_size\": expected episodes in a chunk, got 0"));
        }
        let (data_default, video_default) = match version {
            Version::V30 => (
                "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
                "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
            ),
            _ => (
                "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
                "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
            ),
        };
        let features = json.get("features").and_then(Json::as_map);
        let features = features.ok_or_else(|| corrupt(path, "expected \"features\", an object"))?;
        Ok(Self {
            version,
            fps,
            total_episodes: count("total_episodes")?,
            total_frames: count("total_frames")?,
            total_tasks: count("total_tasks")?,
            chunks_size,
            data_path: Template::parse(path, text("data_path").unwrap_or(data_default))?,
            video_path: Template::parse(path, text("video_path").unwrap_or(video_default))?,
            features: features
                .iter()
                .map(|(name, json)| Feature::new(path, name, json, limits))
                .collect::<Result<_>>()?,
        })
    }

    /// "lerobot v3.0".
    pub(super) fn format(&self) -> &'static str {
        match self.version {
            Version::V20 => "lerobot v2.0",
            Version::V21 => "lerobot v2.1",
            Version::V30 => "lerobot v3.0",
        }
    }
}

impl Feature {
    fn new(path: &Path, name: &str, json: &Json, limits: &Limits) -> Result<Self> {
        let bad = |what: &str| corrupt(path, format!("feature {name:?}: expected {what}"));
        let dtype = json.get("dtype").and_then(Json::as_text).ok_or_else(|| bad("a \"dtype\""))?;
        let shape = json.get("shape").and_then(Json::as_list).ok_or_else(|| bad("a \"shape\""))?;
        let size = |size: &Json| size.as_count().and_then(|size| usize::try_from(size).ok());
        let shape: Option<Vec<usize>> = shape.iter().map(size).collect();
        let shape = shape.filter(|shape| !shape.contains(&0)).ok_or_else(|| bad("a \"shape\" of sizes above 0"))?;
        // One sample must fit, and its number of values can be counted everywhere.
        let value = if matches!(dtype, "video" | "image") { 2 } else { 8 };
        let bytes = shape.iter().try_fold(value, |all: u64, &n| all.checked_mul(u64::try_from(n).ok()?));
        if bytes.is_none_or(|bytes| bytes > limits.max_alloc) {
            let text =
                format!("feature {name:?}: one sample of shape {shape:?} exceeds max_alloc ({})", limits.max_alloc);
            return Err(exceeds(path, text));
        }
        let mut names = Vec::new();
        flatten_names(json.get("names").unwrap_or(&Json::Null), &mut names);
        let notes = |key: &str| {
            let short = key.strip_prefix("video.").unwrap_or(key);
            ["info", "video_info"]
                .into_iter()
                .filter_map(|notes| json.get(notes))
                .find_map(|notes| [key, short].into_iter().find_map(|key| notes.get(key)))
        };
        let metres = |key: &str| notes(key).and_then(Json::as_f64);
        let depth = (|| {
            Some(DepthCode {
                least: metres("video.depth_min")?,
                most: metres("video.depth_max")?,
                shift: metres("video.shift")?,
                logarithmic: notes("video.use_log").and_then(Json::as_bool)?,
            })
        })();
        Ok(Self {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape,
            names,
            codec: notes("video.codec").and_then(Json::as_text).map(str::to_owned),
            is_depth: notes("video.is_depth_map").and_then(Json::as_bool).unwrap_or(false),
            depth: depth.filter(DepthCode::is_sound),
        })
    }
}

/// Names come as a list, as an object of lists, or not at all.
fn flatten_names(json: &Json, names: &mut Vec<String>) {
    match json {
        Json::Text(name) => names.push(name.clone()),
        Json::List(list) => list.iter().for_each(|json| flatten_names(json, names)),
        Json::Map(entries) => entries.iter().for_each(|(_, json)| flatten_names(json, names)),
        _ => {}
    }
}
