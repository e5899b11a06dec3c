//! What lies where in a cache, as its JSON files say it.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use robocache::{DType, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::files::open_regular;
use crate::limits::{corrupt, file_error};
use crate::model::{Camera, Interpolation, Kind, Span, StreamInfo};
use crate::recording::Recording;

/// The version that is written. A reader knows this one and the one before.
pub(crate) const VERSION: u32 = 1;
pub(crate) const FORMAT: &str = "robocache";

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const PLAN: &str = "plan.json";
pub(crate) const SHARDS: &str = "shards";
pub(crate) const QUARANTINE: &str = "quarantine";
pub(crate) const UNIT: &str = "unit.json";

/// How the samples of a stream are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Numbers or pixels as they are.
    Raw,
    /// Pictures as JPEG.
    Jpeg,
    /// UTF-8.
    Text,
}

/// A stream of a cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedStream {
    /// Its name in the cache.
    pub name: String,
    /// What it records.
    pub kind: Kind,
    /// Type of its numbers or pixels; "string" for text.
    pub dtype: String,
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// Names of the components.
    pub names: Option<Vec<String>>,
    /// Samples per second as the source declared them.
    pub rate: Option<f64>,
    /// How values between samples are made.
    pub method: Vec<Span>,
    /// How samples are kept.
    pub encoding: Encoding,
}

impl CachedStream {
    /// The type of the numbers; `None` for text.
    pub fn number_type(&self) -> Option<DType> {
        DType::ALL.iter().copied().find(|dtype| dtype.name() == self.dtype)
    }

    /// Bytes of a sample that is kept raw.
    pub fn row_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.number_type().map_or(0, DType::size)
    }

    pub(crate) fn from_source(info: &StreamInfo, name: &str, dtype: Option<DType>, encoding: Encoding) -> Self {
        Self {
            name: name.to_owned(),
            kind: info.kind,
            dtype: dtype.map_or("string", |dtype| dtype.name()).to_owned(),
            shape: info.shape.clone(),
            names: info.names.clone(),
            rate: info.rate,
            method: info.method.clone(),
            encoding,
        }
    }

    /// The name of its file in a shard: safe on every file system, different for different names.
    pub(crate) fn file_name(&self) -> String {
        let mut text = String::new();
        for byte in self.name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => text.push(char::from(byte)),
                _ => text.push_str(&format!("%{byte:02x}")),
            }
        }
        // Names may be longer than a file's can be.
        if text.len() > 180 {
            let sum = crc32c::crc32c(self.name.as_bytes());
            text.truncate(160);
            text.push_str(&format!("%{sum:08x}"));
        }
        text + ".arrow"
    }
}

/// Where a cache's episodes come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedSource {
    /// Its place when it was ingested.
    #[serde(with = "path_as_text")]
    pub path: PathBuf,
    /// Its format and version.
    pub format: String,
    /// Names, sizes and times of its files, summed up.
    pub fingerprint: String,
    /// What it is called among several: the embodiment.
    pub tag: String,
    /// Samples per second of its main clock.
    pub rate: Option<f64>,
    /// Episodes that it had.
    pub episodes: usize,
    /// For every stream that it has: its name there, and its place among the cache's streams.
    pub streams: Vec<(String, usize)>,
    /// Streams that it declares but that cannot be taken: there is no picture of them, or their type is not read.
    pub missing: Vec<String>,
    /// The height and width that its pictures were given, where it was asked for.
    pub image_size: Option<(usize, usize)>,
    /// Of its JPEG pictures, 1 to 100.
    pub quality: u8,
    /// How it was read, where it is a recording.
    #[serde(default, skip_serializing_if = "Recording::is_default")]
    pub recording: Recording,
    /// Its tasks, by number.
    pub tasks: Vec<String>,
}

/// A path as text, or as its bytes where these are no text.
mod path_as_text {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => text.serialize(serializer),
            None => path.as_os_str().as_bytes().serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match Either::deserialize(deserializer)? {
            Either::Text(path) => path,
            Either::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

/// Work that is done, or not done at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its number.
    pub unit: usize,
    /// Its source's number.
    pub source: usize,
    /// The place of the first episode in its source.
    pub first: usize,
    /// The place after the last.
    pub end: usize,
    /// How many frames the metadata promises.
    pub frames: u64,
}

impl Unit {
    /// The name of its folder.
    pub(crate) fn folder(&self) -> String {
        unit_name(self.unit)
    }
}

/// The name of a unit's folder.
pub(crate) fn unit_name(unit: usize) -> String {
    format!("unit-{unit:06}")
}

/// All that is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// "robocache".
    pub format: String,
    /// Of this file and of everything that it leads to.
    pub version: u32,
    /// Where episodes come from.
    pub sources: Vec<CachedSource>,
    /// All streams.
    pub streams: Vec<CachedStream>,
    /// Episodes that will not be taken, because a check of their source found errors in them.
    pub errors: Vec<Skipped>,
    /// The work.
    pub units: Vec<Unit>,
}

impl Plan {
    /// What the content of a unit comes from, summed up: a unit of another plan has another key.
    pub(crate) fn key(&self, unit: &Unit) -> Result<String> {
        let source = self.sources.get(unit.source).ok_or_else(|| Error::invalid("plan", "a unit has no source"))?;
        let streams = source.streams.iter().map(|(name, place)| {
            let stream = self.streams.get(*place).ok_or_else(|| Error::invalid("plan", "it lacks a stream"))?;
            Ok((name, &stream.name, &stream.dtype, &stream.shape, stream.encoding))
        });
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let text = to_text(&(unit, &source.fingerprint, streams, source.image_size, source.quality))?;
        Ok(format!("{:08x}", crc32c::crc32c(&text)))
    }
}

/// A file of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardFile {
    /// The stream's place in the plan.
    pub(crate) stream: usize,
    pub(crate) file: String,
    pub(crate) bytes: u64,
    /// Rows of each record batch.
    pub(crate) batches: Vec<u64>,
    /// CRC-32C of each block of 4 MiB.
    pub(crate) crc32c: Vec<u32>,
}

/// An episode in a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnitEpisode {
    pub(crate) index: u64,
    pub(crate) length: u64,
    pub(crate) duration: f64,
    pub(crate) tasks: Vec<String>,
    /// First row and number of rows, for each file of the unit.
    pub(crate) rows: Vec<(u64, u64)>,
    /// Those whose calibration is known, by the names of their streams in the cache.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cameras: Vec<Camera>,
}

/// An episode that could not be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// The source's number.
    pub source: usize,
    /// Its number in the source.
    pub episode: u64,
    /// Why.
    pub reason: String,
}

/// `unit.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnitManifest {
    pub(crate) format: String,
    pub(crate) version: u32,
    pub(crate) unit: Unit,
    /// Of the plan's, so that a unit which came from elsewhere is noticed.
    pub(crate) key: String,
    pub(crate) files: Vec<ShardFile>,
    pub(crate) episodes: Vec<UnitEpisode>,
    pub(crate) skipped: Vec<Skipped>,
    /// For each file, where its stream has numbers.
    pub(crate) stats: Vec<Option<super::stats::StreamStats>>,
}

/// The content of a file; a pipe would block for ever.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    let (mut file, _) = open_regular(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| file_error(path, "cannot read", error))?;
    Ok(bytes)
}

/// The path of a file that a cache names, which must lie in that folder.
pub(crate) fn path_in(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name => Ok(folder.join(name)),
        _ => Err(corrupt(folder, format!("expected the name of a file in this folder, got {name:?}"))),
    }
}

/// A JSON file of a cache.
pub(crate) fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    parse_json(path, &read_file(path)?)
}

/// Refuses a version from the future by name, and what its checksum does not fit.
pub(crate) fn parse_json<T: for<'de> Deserialize<'de>>(path: &Path, bytes: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let bad = |error: serde_json::Error| corrupt(path, format!("expected JSON of a cache: {error}"));
    let head: Head = serde_json::from_slice(bytes).map_err(bad)?;
    if head.format != FORMAT {
        return Err(corrupt(path, format!("expected the format {FORMAT:?}, got {:?}", head.format)));
    }
    if head.version > VERSION {
        let text = format!("the cache has version {}; this RoboCache reads up to {VERSION}: update it", head.version);
        return Err(Error::new(ErrorKind::Unsupported, text).path(path));
    }
    let end = bytes.len().checked_sub(seal(&[]).len()).and_then(|length| bytes.split_at_checked(length));
    if end.is_none_or(|(body, end)| end != seal(body).as_bytes()) {
        return Err(corrupt(path, "its checksum is wrong"));
    }
    serde_json::from_slice(bytes).map_err(bad)
}

/// The last member of every JSON file: the checksum of what is before it.
pub(super) fn seal(body: &[u8]) -> String {
    format!(",\n  \"crc32c\": \"{:08x}\"\n}}", crc32c::crc32c(body))
}

/// A JSON file of a cache, with its checksum.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut text = to_text(value)?;
    text.truncate(text.len().saturating_sub("\n}".len()));
    let end = seal(&text);
    text.extend_from_slice(end.as_bytes());
    Ok(text)
}

fn to_text<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let text = serde_json::to_vec_pretty(value);
    text.map_err(|error| Error::new(ErrorKind::Unsupported, "cannot write JSON").caused_by(error))
}

/// One method for all columns of a stream.
pub(crate) fn whole(method: Interpolation, width: usize) -> Vec<Span> {
    vec![Span { method, start: 0, end: width }]
}
