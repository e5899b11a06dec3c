//! Replays the saved corpora of the fuzz targets for pictures, videos, datasets and caches.
//! `ROBOCACHE_WRITE_CORPUS=1` writes them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{Field, Schema};
use build::{Movie, boxed, words};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use robocache::{ErrorKind, Result};
use robocache_data::cache::{Choice, Images, IngestOptions, ingest};
use robocache_data::fuzzing::{self, Samples};
use robocache_data::{Limits, Progress};

#[path = "../src/video/tests/build.rs"]
mod build;

/// As many streams as `fuzzing::index` expects.
const TWO: [&str; 2] = ["observation.state", "next.reward"];
/// Bytes of a corpus.
const LARGEST: usize = 100 << 10;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Looks at every file of a corpus, after writing it where that was asked for. All must be read but those called
/// `unsupported-*`, and `crash-*`, which a fuzz run added.
fn replay(name: &str, written: impl FnOnce() -> Vec<(String, Vec<u8>)>, look: impl Fn(&[u8]) -> Result<()>) {
    let folder = root().join("fuzz/corpus").join(name);
    if std::env::var_os("ROBOCACHE_WRITE_CORPUS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in written() {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
    let mut total = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        total += bytes.len();
        let outcome = look(&bytes);
        let name = path.file_name().unwrap().to_string_lossy();
        let as_told = match &outcome {
            Err(error) if name.starts_with("unsupported-") => error.kind() == ErrorKind::Unsupported,
            outcome => outcome.is_ok(),
        };
        assert!(as_told || name.starts_with("crash-"), "{}: {outcome:?}", path.display());
    }
    assert!((1..LARGEST).contains(&total), "{name}: {total} bytes");
}

fn named(name: impl Into<String>, bytes: Vec<u8>) -> (String, Vec<u8>) {
    (name.into(), bytes)
}

fn pictures() -> Vec<(String, Vec<u8>)> {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    use png::{BitDepth, ColorType as PngColor};
    let (width, height) = (18, 13);
    let bytes = |count: usize| -> Vec<u8> { (0..count).map(|at| (at * 37 % 251) as u8).collect() };
    let mut list = Vec::new();
    for (name, colour, channels) in
        [("gray", ColorType::Luma, 1), ("colour", ColorType::Rgb, 3), ("unsupported-cmyk", ColorType::Cmyk, 4)]
    {
        for progressive in [false, true] {
            let mut out = Vec::new();
            let mut encoder = Encoder::new(&mut out, 60);
            encoder.set_progressive(progressive);
            encoder.set_sampling_factor(SamplingFactor::F_2_2);
            if progressive {
                encoder.set_restart_interval(2);
            }
            encoder.encode(&bytes(width * height * channels), width as u16, height as u16, colour).unwrap();
            list.push(named(format!("{name}-{progressive}.jpg"), out));
        }
    }
    for (name, colour, depth, row) in [
        ("gray-1", PngColor::Grayscale, BitDepth::One, width.div_ceil(8)),
        ("gray-16", PngColor::Grayscale, BitDepth::Sixteen, 2 * width),
        ("gray-alpha", PngColor::GrayscaleAlpha, BitDepth::Eight, 2 * width),
        ("palette-4", PngColor::Indexed, BitDepth::Four, width.div_ceil(2)),
        ("rgb", PngColor::Rgb, BitDepth::Eight, 3 * width),
        ("rgba-16", PngColor::Rgba, BitDepth::Sixteen, 8 * width),
    ] {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, width as u32, height as u32);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if colour == PngColor::Indexed {
            encoder.set_palette(bytes(48));
            encoder.set_trns(bytes(3));
        }
        encoder.write_header().unwrap().write_image_data(&bytes(row * height)).unwrap();
        list.push(named(format!("{name}.png"), out));
    }
    list
}

fn videos() -> Vec<(String, Vec<u8>)> {
    let mut list = Vec::new();
    for moov_first in [false, true] {
        list.push(named(format!("small-{moov_first}"), Movie { moov_first, ..Movie::small() }.bytes()));
    }
    // Four frames in a fragment behind an index without frames.
    let mut pieces = Movie::small();
    pieces.mvex = Some(boxed(b"trex", &words(&[0, 7, 1, 100, 10, 0])));
    (pieces.stts, pieces.ctts, pieces.stss) = (words(&[0, 0]), None, None);
    (pieces.stsz, pieces.stsc, pieces.chunks) = (words(&[0, 0, 0]), words(&[0, 0]), Vec::new());
    let run = words(&[0x0000_0f01, 4, 100, 100, 10, 0, 0, 100, 10, 1 << 16, 200, 100, 10, 1 << 16, 0, 100, 10, 0, 0]);
    let traf = [
        boxed(b"tfhd", &words(&[0x0002_0038, 7, 100, 10, 0])),
        boxed(b"tfdt", &words(&[0x0100_0000, 0, 0])),
        boxed(b"trun", &run),
    ];
    let header = boxed(b"mfhd", &words(&[0, 1]));
    let moof = boxed(b"moof", &[header, boxed(b"traf", &traf.concat())].concat());
    list.push(named("fragments", [pieces.bytes(), moof, boxed(b"mdat", &[1; 40])].concat()));
    for (name, path) in [
        ("h264", "lerobot_v21/videos/chunk-000/observation.images.top/episode_000001.mp4"),
        ("whole", "lerobot_v30/videos/observation.images.top/chunk-000/file-002.mp4"),
    ] {
        list.push(named(name, std::fs::read(root().join("testdata").join(path)).unwrap()));
    }
    list
}

/// An ingest of a sample, or of some streams of it, for its files.
fn cache_of(streams: Option<&[&str]>, work: impl FnOnce(&Path) -> Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let out = std::env::temp_dir().join(format!("robocache-corpora-{}-{number}", std::process::id()));
    let choice = |name: &&str| Choice { from: (*name).to_owned(), to: None, dtype: None };
    let streams = streams.map(|names| names.iter().map(choice).collect());
    let options = IngestOptions { streams, images: Images::Skip, unit_frames: Some(1), ..IngestOptions::default() };
    let source = root().join("testdata/lerobot_v21");
    ingest(&source, &out, &options, &Limits::default(), &Progress::default()).unwrap();
    let list = work(&out);
    std::fs::remove_dir_all(&out).unwrap();
    list
}

/// A stream's file as the cache writes it, of what the sample has none of.
fn shard_of(dtype: &str, shape: &str, values: ArrayRef) -> Vec<u8> {
    let metadata = [("robocache.dtype", dtype), ("robocache.shape", shape)];
    let metadata: HashMap<String, String> = metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let times = Int64Array::from_iter_values(0..values.len() as i64);
    let value = Field::new("value", values.data_type().clone(), false).with_metadata(metadata);
    let schema = Schema::new(vec![Field::new("time", times.data_type().clone(), false), value]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(times), values]).unwrap();
    let options = IpcWriteOptions::try_new(64, false, arrow_ipc::MetadataVersion::V5).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn shards() -> Vec<(String, Vec<u8>)> {
    let mut list = cache_of(Some(&TWO), |out| {
        vec![named("numbers", std::fs::read(out.join("shards/unit-000001/observation.state.arrow")).unwrap())]
    });
    let texts = StringArray::from(vec!["pick", "", "place"]);
    list.push(named("texts", shard_of("string", "", Arc::new(texts))));
    let pictures = BinaryArray::from_vec(vec![b"\xff\xd8\xff", b"", b"\x89PNG"]);
    list.push(named("pictures", shard_of("uint8", "8,8,3", Arc::new(pictures))));
    list
}

fn indices() -> Vec<(String, Vec<u8>)> {
    cache_of(Some(&TWO), |out| {
        let entries = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
        let index = entries.filter(|path| path.extension().is_some_and(|end| end == "arrow"));
        index.map(|path| named("good", std::fs::read(path).unwrap())).collect()
    })
}

/// The JSON files of a cache without their checksums.
fn cache_files() -> Vec<(String, Vec<u8>)> {
    cache_of(None, |out| {
        let file = |name: &str| {
            let text = std::fs::read_to_string(out.join(name)).unwrap();
            let text = text.replace(root().canonicalize().unwrap().to_str().unwrap(), "");
            let (body, _) = text.rsplit_once(",\n  \"crc32c\"").unwrap();
            named(name.replace('/', "-"), body.as_bytes().to_vec())
        };
        ["manifest.json", "plan.json", "shards/unit-000000/unit.json"].map(file).into()
    })
}

/// A table without the columns of statistics, which are most of it.
fn without_stats(path: &Path) -> Vec<u8> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
    let fields = builder.schema().fields().iter().enumerate();
    let kept: Vec<usize> = fields.filter(|(_, field)| !field.name().starts_with("stats/")).map(|(at, _)| at).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), kept);
    let batch = builder.with_projection(mask).build().unwrap().next().unwrap().unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn dataset_files() -> Vec<(String, Vec<u8>)> {
    let modality = br#"{"state": {"arm": {"start": 0, "end": 7}}, "action": {"hand": {"start": 7, "end": 8}}}"#;
    let files = fuzzing::REPLACED.iter().enumerate().map(|(place, name)| {
        let path = root().join("testdata").join(name);
        let bytes = match name.rsplit('/').next() {
            Some("modality.json") => modality.to_vec(),
            Some("file-000.parquet") => without_stats(&path),
            _ => std::fs::read(&path).unwrap(),
        };
        named(name.replace('/', "-"), [&[place as u8], bytes.as_slice()].concat())
    });
    files.collect()
}

#[test]
fn pictures_are_an_error_or_an_image() {
    replay("image", pictures, fuzzing::image);
}

#[test]
fn urdfs_are_an_error_or_a_robot() {
    replay("urdf", Vec::new, fuzzing::urdf);
}

/// Written by `testdata/make_mcap.py`.
#[test]
fn recordings_are_read() {
    replay("mcap", Vec::new, fuzzing::mcap);
}

#[test]
fn videos_are_an_error_or_an_index() {
    replay("video", videos, fuzzing::video);
}

#[test]
fn shards_are_an_error_or_rows() {
    replay("shard", shards, fuzzing::shard);
}

#[test]
fn tables_of_episodes_are_an_error_or_episodes() {
    replay("index", indices, fuzzing::index);
}

#[test]
fn datasets_are_an_error_or_checked() {
    let samples = Samples::new(&root().join("testdata")).unwrap();
    replay("dataset", dataset_files, |bytes| samples.dataset(bytes));
}

#[test]
fn files_of_caches_are_an_error_or_a_cache() {
    let samples = Samples::new(&root().join("testdata")).unwrap();
    replay("cache_json", cache_files, |bytes| samples.cache_json(bytes));
}
