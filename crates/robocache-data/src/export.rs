//! Caches written in formats that other tools open.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use half::{bf16, f16};
use robocache::{DType, Error, ErrorKind, Result, ensure};

use crate::cache::{Cache, CachedStream, Encoding};
use crate::files::{ensure_path, list, look};
use crate::findings::Progress;
use crate::limits::file_error;
use crate::mcap::{Cdr, Compression, HEADER, McapWriter};
use crate::model::Kind;

/// What an export wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportReport {
    /// Files, one per episode.
    pub episodes: usize,
    /// Messages in all of them.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// The type of a cloud's fields.
const POINT_FIELD: &str = "================================================================================\n\
                           MSG: sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\nuint32 count\n";

/// Writes each episode of a cache as an MCAP file of ROS 2 messages into a new or empty folder.
///
/// Numbers become fixed arrays with a header, texts strings with one, pictures `CompressedImage` or `Image`, clouds
/// `PointCloud2`; a task is a `std_msgs/String` on `/task`. bfloat16 and float16 become float32.
pub fn to_mcap(root: &Path, out: &Path, progress: &Progress<'_>) -> Result<ExportReport> {
    ensure_path(out, "out")?;
    let cache = Cache::open(root)?;
    let is_taken = look(out)?.is_some() && (!out.is_dir() || !list(out)?.is_empty());
    ensure!(!is_taken, "out", "expected a new or empty folder, there is something in {}", out.display());
    std::fs::create_dir_all(out).map_err(|error| file_error(out, "cannot make the folder", error))?;
    let forms = cache.streams().iter().map(Form::of).collect::<Result<Vec<_>>>()?;
    let topics = topics(cache.streams());
    let mut report = ExportReport { episodes: 0, messages: 0, bytes: 0 };
    for at in 0..cache.len() {
        let name = format!("episode_{at:06}.mcap");
        let (path, part) = (out.join(&name), out.join(format!("{name}.part")));
        report.messages += write_episode(&cache, at, &forms, &topics, &part, progress)?;
        // A file with its name is whole.
        std::fs::rename(&part, &path).map_err(|error| file_error(&part, "cannot rename", error))?;
        let metadata = path.metadata().map_err(|error| file_error(&path, "cannot open", error))?;
        report.bytes += metadata.len();
        report.episodes += 1;
        (progress.step)(at + 1, cache.len());
    }
    Ok(report)
}

/// A topic for each stream, `/like/this`.
fn topics(streams: &[CachedStream]) -> Vec<String> {
    let mut taken = HashSet::new();
    let topic = |stream: &CachedStream| {
        let nested = format!("/{}", stream.name.trim_start_matches('/').replace('.', "/"));
        let plain = format!("/{}", stream.name);
        let free = [nested, plain].into_iter().find(|topic| taken.insert(topic.clone()));
        free.unwrap_or_else(|| stream.name.clone())
    };
    streams.iter().map(topic).collect()
}

/// How the samples of a stream are written.
#[derive(Debug, Clone, PartialEq)]
enum Form {
    Numbers { name: String, width: usize, dtype: DType },
    Cloud { points: usize, columns: usize, size: usize },
    Jpeg,
    Pixels { height: usize, width: usize, encoding: &'static str, bytes: usize },
    Text,
}

/// The name that message definitions give a type of numbers.
fn number_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F16 | DType::BF16 | DType::F32 => "float32",
        DType::F64 => "float64",
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::U16 => "uint16",
        DType::I16 => "int16",
        DType::U32 => "uint32",
        DType::I32 => "int32",
        DType::U64 => "uint64",
        DType::I64 => "int64",
        DType::F8E4M3 | DType::F8E5M2 => return None,
    })
}

impl Form {
    fn of(stream: &CachedStream) -> Result<Self> {
        let unsupported = |what: String| {
            Err(Error::new(ErrorKind::Unsupported, format!("{:?}: {what}", stream.name)).argument("cache"))
        };
        let (Some(dtype), false) = (stream.number_type(), stream.encoding == Encoding::Text) else {
            return Ok(Self::Text);
        };
        Ok(match (stream.kind, stream.encoding, stream.shape.as_slice()) {
            (_, Encoding::Jpeg, _) => Self::Jpeg,
            (kind, _, &[height, width, channels]) if kind.is_picture() => {
                let encoding = match (dtype, channels) {
                    (DType::U8, 3) => "rgb8",
                    (DType::U8, 4) => "rgba8",
                    (DType::U8, 1) => "mono8",
                    (DType::U16, 1) => "16UC1",
                    _ => return unsupported(format!("pictures of {channels} channels of {dtype} are not exported")),
                };
                Self::Pixels { height, width, encoding, bytes: channels * dtype.size() }
            }
            (Kind::PointCloud, _, &[points, columns]) if matches!(dtype, DType::F32 | DType::F64) => {
                Self::Cloud { points, columns, size: dtype.size() }
            }
            _ => match number_name(dtype) {
                Some(name) => Self::Numbers { name: name.to_owned(), width: stream.shape.iter().product(), dtype },
                None => return unsupported(format!("numbers of {dtype} are not exported")),
            },
        })
    }

    /// The name of its message type, and its definition.
    fn schema(&self, stream: &CachedStream) -> (String, String) {
        match self {
            Self::Numbers { name, width, .. } => {
                let columns = stream.names.as_ref().map(|names| names.join(", ").escape_debug().to_string());
                let comment = columns.map(|columns| format!("# {columns}\n")).unwrap_or_default();
                let kind = format!("robocache_msgs/msg/{}x{width}", name.replace("float", "Float"));
                (kind, format!("std_msgs/Header header\n{comment}{name}[{width}] data\n{HEADER}"))
            }
            Self::Text => {
                let text = format!("std_msgs/Header header\nstring data\n{HEADER}");
                ("robocache_msgs/msg/Text".to_owned(), text)
            }
            Self::Jpeg => {
                let text = format!("std_msgs/Header header\nstring format\nuint8[] data\n{HEADER}");
                ("sensor_msgs/msg/CompressedImage".to_owned(), text)
            }
            Self::Pixels { .. } => {
                let fields =
                    "uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data";
                ("sensor_msgs/msg/Image".to_owned(), format!("std_msgs/Header header\n{fields}\n{HEADER}"))
            }
            Self::Cloud { .. } => {
                let fields = "uint32 height\nuint32 width\nsensor_msgs/PointField[] fields\nbool is_bigendian\n\
                              uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense";
                let text = format!("std_msgs/Header header\n{fields}\n{HEADER}{POINT_FIELD}");
                ("sensor_msgs/msg/PointCloud2".to_owned(), text)
            }
        }
    }

    /// The message of a sample.
    fn message(&self, time: i64, sample: &[u8]) -> Result<Vec<u8>> {
        let mut cdr = Cdr::new();
        cdr.header(time)?;
        match *self {
            Self::Numbers { width, dtype, .. } => match dtype {
                DType::F16 | DType::BF16 => {
                    let halves = sample.as_chunks::<2>().0.iter();
                    let wide = halves.map(|&bytes| match dtype {
                        DType::F16 => f16::from_le_bytes(bytes).to_f32(),
                        _ => bf16::from_le_bytes(bytes).to_f32(),
                    });
                    cdr.numbers(4, &wide.flat_map(f32::to_le_bytes).collect::<Vec<_>>());
                }
                dtype if width > 0 => cdr.numbers(dtype.size(), sample),
                _ => {}
            },
            Self::Text => cdr.text(sample),
            Self::Jpeg => {
                cdr.text(b"jpeg");
                cdr.bytes(sample);
            }
            Self::Pixels { height, width, encoding, bytes } => {
                cdr.size(height);
                cdr.size(width);
                cdr.text(encoding.as_bytes());
                cdr.byte(0);
                cdr.size(width * bytes);
                cdr.bytes(sample);
            }
            Self::Cloud { points, columns, size } => {
                cdr.size(1);
                cdr.size(points);
                cdr.size(columns);
                for column in 0..columns {
                    match column {
                        0..3 => cdr.text(["x", "y", "z"].get(column).copied().unwrap_or_default().as_bytes()),
                        _ => cdr.text(format!("column_{column}").as_bytes()),
                    }
                    cdr.size(column * size);
                    cdr.byte(if size == 8 { 8 } else { 7 });
                    cdr.size(1);
                }
                cdr.byte(0);
                cdr.size(columns * size);
                cdr.size(points * columns * size);
                cdr.bytes(sample);
                cdr.byte(0);
            }
        }
        Ok(cdr.into_bytes())
    }
}

/// Writes the samples of an episode by their times; the number of messages.
fn write_episode(
    cache: &Cache,
    at: usize,
    forms: &[Form],
    topics: &[String],
    path: &Path,
    progress: &Progress<'_>,
) -> Result<u64> {
    let cannot = |error: std::io::Error| file_error(path, "cannot write", error);
    let file = File::create(path).map_err(cannot)?;
    let mut writer = McapWriter::new(BufWriter::new(file), "ros2", Compression::Zstd).map_err(cannot)?;
    let mut channels = Vec::with_capacity(forms.len());
    for ((form, topic), stream) in forms.iter().zip(topics).zip(cache.streams()) {
        let (name, text) = form.schema(stream);
        let schema = writer.schema(&name, "ros2msg", text.as_bytes());
        channels.push(writer.channel(schema, topic, "cdr"));
    }
    let mut order: Vec<(i64, usize, usize)> = Vec::new();
    for stream in 0..forms.len() {
        let times = cache.times(at, stream)?;
        order.extend(times.into_iter().enumerate().map(|(row, time)| (time, stream, row)));
    }
    order.sort_unstable();
    // Log times are not negative.
    let shift = order.first().map_or(0, |&(first, ..)| first.min(0).saturating_neg());
    let episode = cache.episode(at)?;
    if let (Some(task), Some(&(first, ..))) = (episode.tasks.first(), order.first()) {
        let schema = writer.schema("std_msgs/msg/String", "ros2msg", b"string data\n");
        let channel = writer.channel(schema, "/task", "cdr");
        let mut cdr = Cdr::new();
        cdr.text(task.as_bytes());
        writer.message(channel, log_time(first, shift), &cdr.into_bytes()).map_err(cannot)?;
    }
    let mut messages = 0;
    for (time, stream, row) in order {
        if messages % 256 == 0 && (progress.interrupted)() {
            return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        let (Some(form), Some(&channel)) = (forms.get(stream), channels.get(stream)) else { continue };
        let sample = match form {
            Form::Jpeg | Form::Text => cache.item(at, stream, row)?,
            _ => cache.row(at, stream, row)?,
        };
        let data = form.message(time.saturating_add(shift), sample)?;
        writer.message(channel, log_time(time, shift), &data).map_err(cannot)?;
        messages += 1;
    }
    let file = writer.finish().map_err(cannot)?;
    let file = file.into_inner().map_err(|error| cannot(error.into_error()))?;
    file.sync_all().map_err(|error| file_error(path, "cannot sync", error))?;
    Ok(messages)
}

fn log_time(time: i64, shift: i64) -> u64 {
    u64::try_from(time.saturating_add(shift)).unwrap_or(0)
}
