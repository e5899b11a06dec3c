//! `meta/info.json`: what the dataset says of itself.

use std::path::Path;

use robocache::{Error, ErrorKind, Result};

use super::root::{Root, Template};
use crate::frames::DepthCode;
use crate::json::Json;
use crate::limits::corrupt;

/// Which layout the folder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V20,
    V21,
    V30,
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
    pub(super) video_path: Option<Template>,
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
        let json = Json::parse(&path, &root.read(&path)?)?;
        Self::from_json(&path, &json)
    }

    /// Also what the fuzz target feeds.
    pub(super) fn from_json(path: &Path, json: &Json) -> Result<Self> {
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
        let fps = fps.filter(|fps| fps.is_finite() && *fps > 0.0 && *fps <= 1e6).ok_or_else(|| {
            let got = json.get("fps").map_or_else(|| "nothing".to_owned(), ToString::to_string);
            corrupt(path, format!("\"fps\": expected a number above 0, got {got}"))
        })?;
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
            total_episodes: json.get("total_episodes").and_then(Json::as_count),
            total_frames: json.get("total_frames").and_then(Json::as_count),
            total_tasks: json.get("total_tasks").and_then(Json::as_count),
            chunks_size: json.get("chunks_size").and_then(Json::as_count).filter(|&size| size > 0).unwrap_or(1000),
            data_path: Template::parse(path, text("data_path").unwrap_or(data_default))?,
            video_path: Some(Template::parse(path, text("video_path").unwrap_or(video_default))?),
            features: features.iter().map(|(name, json)| Feature::new(path, name, json)).collect::<Result<_>>()?,
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
    fn new(path: &Path, name: &str, json: &Json) -> Result<Self> {
        let bad = |what: &str| corrupt(path, format!("feature {name:?}: expected {what}"));
        let dtype = json.get("dtype").and_then(Json::as_text).ok_or_else(|| bad("a \"dtype\""))?;
        let shape = json.get("shape").and_then(Json::as_list).ok_or_else(|| bad("a \"shape\""))?;
        let size = |size: &Json| size.as_count().and_then(|size| usize::try_from(size).ok());
        let shape: Option<Vec<usize>> = shape.iter().map(size).collect();
        // So that the number of values can be counted everywhere.
        let countable = |shape: &Vec<usize>| shape.iter().try_fold(1usize, |all, &n| all.checked_mul(n)).is_some();
        let shape = shape.filter(countable).ok_or_else(|| bad("a \"shape\" of sizes"))?;
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
