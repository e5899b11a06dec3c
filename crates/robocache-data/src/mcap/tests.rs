//! The samples beside the checkout, by what an independent decoder found in them, and recordings that are written
//! here and damaged. Numbers in names are those of docs/faults.md.

mod fields;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use robocache::ErrorKind;

use super::encode::Cdr;
use super::layout::Compression;
use super::write::McapWriter;
use crate::cache::{Cache, IngestOptions, ingest};
use crate::json::Json;
use crate::model::{Kind, Values};
use crate::{Dataset, Limits, Progress, RecordedClock, RecordedEpisodes, Recording};

fn sample(name: &str) -> Option<(PathBuf, Json)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = root.join("mcap").join(name);
    if !path.exists() {
        println!("skipped: no sample data {name}");
        return None;
    }
    let expected = root.join("expected.json");
    let expected = Json::parse(&expected, &std::fs::read(&expected).unwrap(), &Limits::default()).unwrap();
    Some((path, expected.get("mcap/ros2_arm.mcap").unwrap().clone()))
}

#[test]
fn the_sample_is_what_others_found() {
    let Some((path, expected)) = sample("ros2_arm.mcap") else { return };
    let dataset = Dataset::open(&path, &Limits::default()).unwrap();
    assert_eq!((dataset.format().as_str(), dataset.len()), ("mcap ros2", 1));
    for (topic, facts) in expected.as_map().unwrap() {
        let stream = dataset.streams().iter().position(|stream| stream.name.starts_with(topic)).unwrap();
        let samples = dataset.read(0, &[stream]).unwrap().remove(0);
        let count = |name: &str| facts.get(name).unwrap().as_count().unwrap();
        let times = [*samples.times.first().unwrap(), *samples.times.last().unwrap()];
        assert_eq!(samples.times.len() as u64, count("count"), "{topic}");
        assert_eq!(times.map(|time| time as u64), [count("first_stamp_ns"), count("last_stamp_ns")], "{topic}");
    }
    let joints = expected.get("/joint_states").unwrap();
    let stream = dataset.stream("/joint_states/position").unwrap();
    let samples = dataset.read(0, &[stream]).unwrap().remove(0);
    let Values::Numbers(tensor) = &samples.values else { panic!("numbers") };
    let numbers = tensor.as_slice::<f64>().unwrap();
    for (row, name) in [(0, "first_by_name"), (37, "index_37_by_name")] {
        let wanted: Vec<f64> = joints.get(name).unwrap().as_list().unwrap().iter().filter_map(Json::as_f64).collect();
        assert_eq!(&numbers[row * 7..row * 7 + 7], wanted, "{name}");
    }
    assert_eq!(dataset.streams()[stream].names.as_ref().unwrap()[6], "panda_joint7");
    let points = &dataset.streams()[dataset.stream("/points").unwrap()];
    assert_eq!((points.kind, points.shape.as_slice()), (Kind::PointCloud, &[500, 4][..]));
}

#[test]
fn a_cut_recording_is_read_to_its_last_whole_message_53() {
    let Some((path, _)) = sample("ros2_arm_truncated.mcap") else { return };
    let dataset = Dataset::open(&path, &Limits::default()).unwrap();
    let streams: Vec<usize> = (0..dataset.streams().len()).collect();
    let samples = dataset.read(0, &streams).unwrap();
    for (stream, samples) in dataset.streams().iter().zip(&samples) {
        assert!(!samples.times.is_empty(), "{}", stream.name);
    }
    let found = Dataset::check(&path, &Limits::default(), &Progress::default()).unwrap();
    assert!(found.iter().any(|finding| finding.code == "recording_cut"), "{found:?}");
}

/// `std_msgs/Float64MultiArray` without its layout, which is allowed to be any type.
const NUMBERS: &str = "std_msgs/Header header\nfloat64[] data\n================\nMSG: std_msgs/Header\n\
                       builtin_interfaces/Time stamp\nstring frame_id\n";

/// A message of [`NUMBERS`].
fn numbers(stamp: u64, data: &[f64]) -> Vec<u8> {
    let mut out = vec![0, 1, 0, 0];
    out.extend(u32::try_from(stamp / 1_000_000_000).unwrap().to_le_bytes());
    out.extend(u32::try_from(stamp % 1_000_000_000).unwrap().to_le_bytes());
    out.extend([5, 0, 0, 0, b'b', b'a', b's', b'e', 0, 0, 0, 0]);
    out.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
    // Relative to the end of the header of 4 bytes.
    out.extend(std::iter::repeat_n(0, (out.len() - 4).next_multiple_of(8) - (out.len() - 4)));
    out.extend(data.iter().flat_map(|number| number.to_le_bytes()));
    out
}

const START: u64 = 1_760_000_000_000_000_000;
const STEP: u64 = 10_000_000;

/// A recording of `count` messages on `/a`, in chunks of ten.
fn recording(count: u64, compression: Compression) -> Vec<u8> {
    let mut writer = McapWriter::new(Vec::new(), "ros2", compression).unwrap();
    let schema = writer.schema("test_msgs/msg/Numbers", "ros2msg", NUMBERS.as_bytes());
    let channel = writer.channel(schema, "/a", "cdr");
    for at in 0..count {
        let stamp = START + at * STEP;
        writer.message(channel, stamp + 1_000_000, &numbers(stamp, &[at as f64, -1.5])).unwrap();
        if at % 10 == 9 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap()
}

/// A file that is removed when dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn with(bytes: &[u8]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("robocache-mcap-{}-{number}.mcap", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn open(&self) -> robocache::Result<Dataset> {
        Dataset::open(&self.0, &Limits::default())
    }

    fn cut(&self, episodes: RecordedEpisodes) -> robocache::Result<Dataset> {
        let recording = Recording { episodes, ..Recording::default() };
        Dataset::open_recording(&self.0, &recording, &Limits::default())
    }

    fn codes(&self) -> Vec<&'static str> {
        let found = Dataset::check(&self.0, &Limits::default(), &Progress::default()).unwrap();
        found.iter().filter(|finding| finding.code != "constant").map(|finding| finding.code).collect()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn rows(dataset: &Dataset, at: usize) -> robocache::Result<Vec<f64>> {
    let samples = dataset.read(at, &[dataset.stream("/a/data")?])?.remove(0);
    let Values::Numbers(tensor) = &samples.values else { panic!("numbers") };
    assert_eq!(tensor.shape(), [samples.times.len(), 2]);
    Ok(tensor.as_slice::<f64>().unwrap().iter().step_by(2).copied().collect())
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

#[test]
fn all_compressions_give_the_same() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let file = Temporary::with(&recording(25, compression));
        let dataset = file.open().unwrap();
        assert_eq!(rows(&dataset, 0).unwrap(), (0..25).map(f64::from).collect::<Vec<_>>());
        assert_eq!((file.codes().len(), dataset.episode(0).unwrap().length), (0, 25), "{:?}", file.codes());
    }
}

#[test]
fn wrong_checksums_cost_their_episode_49() {
    let whole = recording(30, Compression::None);
    let mut bytes = whole.clone();
    let value = find(&bytes, &15f64.to_le_bytes());
    bytes[value] ^= 1;
    let file = Temporary::with(&bytes);
    assert_eq!(file.codes(), ["crc_wrong", "crc_wrong"]);
    let error = rows(&file.open().unwrap(), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptData);
    assert!(error.to_string().contains("its checksum is"), "{error}");
    // Of three episodes one.
    let ranges = RecordedEpisodes::Ranges(vec![(0.0, 0.1), (0.1, 0.2), (0.2, 0.3)]);
    let dataset = file.cut(ranges).unwrap();
    let read: Vec<_> = (0..dataset.len()).map(|at| rows(&dataset, at).is_ok()).collect();
    assert_eq!(read, [true, false, true]);
    // No checksum at all.
    let mut bytes = whole;
    let head = find(&bytes, &START.wrapping_add(1_000_000).to_le_bytes());
    bytes[head + 24..head + 28].fill(0);
    assert_eq!(Temporary::with(&bytes).codes(), ["crc_missing", "crc_wrong"]);
}

#[test]
fn sizes_are_not_believed_50_51() {
    let whole = recording(30, Compression::Zstd);
    let head = find(&whole, &START.wrapping_add(1_000_000).to_le_bytes());
    let with = |at: isize, value: &[u8]| {
        let mut bytes = whole.clone();
        let at = head.checked_add_signed(at).unwrap();
        bytes[at..at + value.len()].copy_from_slice(value);
        Temporary::with(&bytes)
    };
    // The name of the compression.
    let error = with(28, &1_700_000_000u32.to_le_bytes()).open().unwrap_err();
    assert!(error.to_string().contains("the name of its compression has 1700000000 bytes"), "{error}");
    // The size after decompression, smaller and larger, and beyond reason.
    for size in [1u64, 5000, 1 << 40] {
        let file = with(16, &size.to_le_bytes());
        assert!(file.codes().contains(&"unreadable_file"), "{:?}", file.codes());
        assert!(rows(&file.open().unwrap(), 0).is_err());
    }
    // The length of a record.
    let file = with(-8, &(1u64 << 63).to_le_bytes());
    assert_eq!(rows(&file.open().unwrap(), 0).unwrap().len(), 10);
    assert_eq!(file.codes(), ["recording_cut"]);
}

#[test]
fn the_index_is_checked_and_not_used_52() {
    let mut bytes = recording(30, Compression::None);
    // The start of a chunk in the last entry of the index.
    let chunk = (bytes.len() - 500..bytes.len()).rev().find(|&at| {
        bytes[at] == 8 && bytes.get(at + 1..at + 9).is_some_and(|length| length[1..].iter().all(|byte| *byte == 0))
    });
    let place = chunk.unwrap() + 9 + 16;
    for at in [u64::MAX, 3, (place - 25) as u64] {
        bytes[place..place + 8].copy_from_slice(&at.to_le_bytes());
        let file = Temporary::with(&bytes);
        assert_eq!(file.codes(), ["index_wrong"]);
        assert_eq!(rows(&file.open().unwrap(), 0).unwrap().len(), 30);
    }
}

#[test]
fn every_cut_is_recovered_53() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let whole = recording(30, compression.clone());
        let mut last = 0;
        for end in (8..whole.len()).step_by(37).chain([whole.len() - 1]) {
            let file = Temporary::with(&whole[..end]);
            let dataset = file.open().unwrap();
            let count = if dataset.is_empty() { 0 } else { rows(&dataset, 0).unwrap().len() };
            assert!(count >= last, "{compression:?}: {count} messages of {end} bytes, {last} of fewer");
            last = count;
            assert!(file.codes().contains(&"recording_cut"), "{end}");
        }
        assert_eq!(last, 30);
    }
    // Within a chunk that is not compressed, up to the message.
    let whole = recording(10, Compression::None);
    let cut = find(&whole, &7f64.to_le_bytes());
    assert_eq!(rows(&Temporary::with(&whole[..cut]).open().unwrap(), 0).unwrap().len(), 7);
}

#[test]
fn what_follows_the_end_is_told_54() {
    let whole = recording(5, Compression::None);
    let file = Temporary::with(&[whole.as_slice(), b"more"].concat());
    assert_eq!((file.codes(), rows(&file.open().unwrap(), 0).unwrap().len()), (vec!["trailing_bytes"], 5));
    let error = Temporary::with(&[whole.as_slice(), &whole].concat()).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(&format!("a second recording starts at byte {}", whole.len())), "{error}");
}

#[test]
fn channels_must_be_defined_once_55() {
    let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::None).unwrap();
    let schema = writer.schema("test_msgs/msg/Numbers", "ros2msg", NUMBERS.as_bytes());
    let channel = writer.channel(schema, "/a", "cdr");
    let bare = writer.channel(0, "/bare", "cdr");
    writer.message(channel, START, &numbers(START, &[1.0, 2.0])).unwrap();
    writer.message(bare, START, b"x").unwrap();
    writer.message(99, START, b"x").unwrap();
    let bytes = writer.finish().unwrap();
    let file = Temporary::with(&bytes);
    assert_eq!(file.codes(), ["channel_unknown", "stream_left_out"]);
    assert!(file.open().unwrap().left_out()[0].1.contains("no schema"));
    // The definition in the chunk is another than that at the end.
    let mut twice = bytes;
    let topic = find(&twice, b"/bare");
    twice[topic + 1] = b'B';
    let crc = find(&twice, &START.to_le_bytes()) + 24;
    twice[crc..crc + 4].fill(0);
    let error = Temporary::with(&twice).open().unwrap_err();
    assert!(error.to_string().contains("channel 1 is defined twice, differently"), "{error}");
}

#[test]
fn times_of_all_kinds_56() {
    let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::Lz4).unwrap();
    let schema = writer.schema("test_msgs/msg/Numbers", "ros2msg", NUMBERS.as_bytes());
    let channel = writer.channel(schema, "/a", "cdr");
    // Recorded late, without a stamp, twice.
    for (stamp, log) in [(START + STEP, 1), (START, 2), (0, 3), (START + STEP, 4)] {
        writer.message(channel, START + log * STEP, &numbers(stamp, &[log as f64, 0.0])).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let file = Temporary::with(&bytes);
    let dataset = file.open().unwrap();
    assert_eq!(rows(&dataset, 0).unwrap(), [2.0, 1.0, 4.0, 3.0]);
    assert_eq!(file.codes(), ["stamps_unset", "stamps_unsorted", "stamps_duplicate"]);
    let by_log = Recording { clock: RecordedClock::Log, ..Recording::default() };
    let dataset = Dataset::open_recording(&file.0, &by_log, &Limits::default()).unwrap();
    assert_eq!(rows(&dataset, 0).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::Lz4).unwrap();
    let schema = writer.schema("test_msgs/msg/Numbers", "ros2msg", NUMBERS.as_bytes());
    let channel = writer.channel(schema, "/a", "cdr");
    writer.message(channel, START, &numbers(START, &[0.0, 0.0])).unwrap();
    writer.message(channel, u64::MAX, &numbers(START + STEP, &[0.0, 0.0])).unwrap();
    let file = Temporary::with(&writer.finish().unwrap());
    assert!(file.codes().contains(&"message_unreadable"), "{:?}", file.codes());
}

#[test]
fn clocks_that_jump_or_disagree_are_told() {
    const SECOND: u64 = 1_000_000_000;
    let codes = |ahead: &dyn Fn(u64) -> u64| {
        let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::Lz4).unwrap();
        let schema = writer.schema("test_msgs/msg/Numbers", "ros2msg", NUMBERS.as_bytes());
        let channel = writer.channel(schema, "/a", "cdr");
        for index in 0..9 {
            let log = START + index * STEP;
            writer.message(channel, log, &numbers(log + ahead(index), &[index as f64, 0.0])).unwrap();
        }
        Temporary::with(&writer.finish().unwrap()).codes()
    };
    assert!(codes(&|_| 0).is_empty());
    assert_eq!(codes(&|_| 10 * SECOND), ["clocks_disagree"]);
    let jumped = codes(&|index| if index < 7 { 0 } else { 100 * SECOND });
    assert!(jumped.contains(&"stamps_jump"), "{jumped:?}");
}

#[test]
fn unknown_compressions_are_named_57() {
    let mut bytes = recording(5, Compression::Zstd);
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(4).position(|window| window == b"zstd") {
        bytes[from + at..from + at + 4].copy_from_slice(b"zst9");
        from += at + 4;
    }
    let file = Temporary::with(&bytes);
    let found = Dataset::check(&file.0, &Limits::default(), &Progress::default()).unwrap();
    let text = "expected lz4, zstd or no compression, got \"zst9\"";
    assert!(found.iter().any(|finding| finding.message.contains(text)), "{found:?}");
}

#[test]
fn recordings_are_cut_into_episodes() {
    const TEXT: &str = "string data\n";
    let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::Zstd).unwrap();
    let schema = writer.schema("test_msgs/msg/Numbers", "ros2msg", NUMBERS.as_bytes());
    let words = writer.schema("std_msgs/msg/String", "ros2msg", TEXT.as_bytes());
    let channel = writer.channel(schema, "/a", "cdr");
    let task = writer.channel(words, "/task", "cdr");
    for at in 0..30u64 {
        let stamp = START + at * STEP + at / 10 * 5_000_000_000;
        let say = match at {
            2 => Some("pick\0"),
            12 => Some("place\0"),
            22 => Some("\0"),
            _ => None,
        };
        if let Some(text) = say {
            let mut data = vec![0, 1, 0, 0];
            data.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            data.extend(text.as_bytes());
            writer.message(task, stamp, &data).unwrap();
        }
        writer.message(channel, stamp, &numbers(stamp, &[at as f64, 0.0])).unwrap();
    }
    let file = Temporary::with(&writer.finish().unwrap());
    let lengths =
        |dataset: &Dataset| -> Vec<usize> { (0..dataset.len()).map(|at| rows(dataset, at).unwrap().len()).collect() };
    assert_eq!(lengths(&file.open().unwrap()), [30]);
    assert_eq!(lengths(&file.cut(RecordedEpisodes::Gap(1.0)).unwrap()), [10, 10, 10]);
    let ranges = RecordedEpisodes::Ranges(vec![(0.0, 0.05), (5.0, 12.0)]);
    assert_eq!(lengths(&file.cut(ranges).unwrap()), [5, 20]);
    let marked = file.cut(RecordedEpisodes::Topic("/task".to_owned())).unwrap();
    assert_eq!((lengths(&marked), marked.tasks()), (vec![10, 10], &["pick".to_owned(), "place".to_owned()][..]));
    let error = file.cut(RecordedEpisodes::Topic("/tsk".to_owned())).unwrap_err();
    assert!(error.to_string().contains("/task"), "{error}");
    for bad in [RecordedEpisodes::Gap(0.0), RecordedEpisodes::Gap(f64::NAN), RecordedEpisodes::Ranges(vec![(2.0, 1.0)])]
    {
        assert_eq!(file.cut(bad).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn tiny_files_are_refused_39() {
    for bytes in [&b""[..], b"\x89", super::records::MAGIC] {
        let file = Temporary::with(bytes);
        match file.open() {
            Ok(dataset) => assert!(dataset.is_empty() && bytes.len() == 8),
            Err(error) => assert_eq!(error.kind(), ErrorKind::CorruptData),
        }
    }
}

/// A `CameraInfo` without what is not read.
const CAMERA: &str = "std_msgs/Header header\nuint32 height\nuint32 width\nstring distortion_model\nfloat64[] d\n\
                      float64[9] k\n================\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\n\
                      string frame_id\n";
const TRANSFORMS: &str = "geometry_msgs/TransformStamped[] transforms\n================\n\
                          MSG: geometry_msgs/TransformStamped\nstd_msgs/Header header\nstring child_frame_id\n\
                          Transform transform\n================\nMSG: geometry_msgs/Transform\nVector3 translation\n\
                          Quaternion rotation\n================\nMSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\n\
                          float64 z\n================\nMSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\n\
                          float64 z\nfloat64 w\n================\nMSG: std_msgs/Header\n\
                          builtin_interfaces/Time stamp\nstring frame_id\n";

#[test]
fn cameras_have_their_calibration_and_place() {
    let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::Lz4).unwrap();
    let picture = "std_msgs/Header header\nstring format\nuint8[] data\n================\nMSG: std_msgs/Header\n\
                   builtin_interfaces/Time stamp\nstring frame_id\n";
    let picture = writer.schema("sensor_msgs/msg/CompressedImage", "ros2msg", picture.as_bytes());
    let picture = writer.channel(picture, "/front/image", "cdr");
    let camera = writer.schema("sensor_msgs/msg/CameraInfo", "ros2msg", CAMERA.as_bytes());
    let camera = writer.channel(camera, "/front/camera_info", "cdr");
    let fixed = writer.schema("tf2_msgs/msg/TFMessage", "ros2msg", TRANSFORMS.as_bytes());
    let fixed = writer.channel(fixed, "/tf_static", "cdr");
    let header = |frame: &[u8]| {
        let mut cdr = Cdr::new();
        cdr.numbers(4, &[0; 8]);
        cdr.text(frame);
        cdr
    };
    let mut message = Cdr::new();
    message.size(2);
    let half = std::f64::consts::FRAC_1_SQRT_2;
    // The lens looks along x of the mast, which stands 1 m above the base.
    for (parent, child, pose) in
        [("base", "mast", [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]), ("mast", "lens", [0.1, 0.0, 0.0, 0.0, half, 0.0, half])]
    {
        message.numbers(4, &[0; 8]);
        message.text(parent.as_bytes());
        message.text(child.as_bytes());
        message.numbers(8, &pose.map(f64::to_le_bytes).concat());
    }
    writer.message(fixed, START, &message.into_bytes()).unwrap();
    let mut message = header(b"lens");
    message.size(4);
    message.size(6);
    message.text(b"plumb_bob");
    message.f64s(&[0.1, -0.2]);
    let intrinsics = [50.0, 0.0, 3.0, 0.0, 51.0, 2.0, 0.0, 0.0, 1.0];
    message.numbers(8, &intrinsics.map(f64::to_le_bytes).concat());
    writer.message(camera, START, &message.into_bytes()).unwrap();
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, 6, 4);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&[7; 24]).unwrap();
    for at in 0..3 {
        let mut message = header(b"lens");
        message.text(b"png");
        message.bytes(&png);
        writer.message(picture, START + at * STEP, &message.into_bytes()).unwrap();
    }
    let file = Temporary::with(&writer.finish().unwrap());
    let cameras = file.open().unwrap().cameras(0).unwrap();
    let [camera] = cameras.as_slice() else { panic!("{cameras:?}") };
    assert_eq!((camera.stream.as_str(), camera.size, camera.intrinsics), ("/front/image", [4, 6], intrinsics));
    assert_eq!((camera.distortion_model.as_str(), camera.distortion.as_slice()), ("plumb_bob", &[0.1, -0.2][..]));
    assert_eq!((camera.frame.as_str(), camera.base.as_deref()), ("lens", Some("base")));
    let matrix = camera.extrinsics.unwrap();
    let expected = [0.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    assert!(matrix.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-12), "{matrix:?}");
    // In a cache, for pictures of half the size.
    let out = file.0.with_extension("cache");
    let options = IngestOptions { image_size: Some((2, 3)), ..IngestOptions::default() };
    let _ = std::fs::remove_dir_all(&out);
    ingest(&file.0, &out, &options, &Limits::default(), &Progress::default()).unwrap();
    let cached = Cache::open(&out).unwrap().cameras(0).unwrap();
    assert_eq!((cached[0].size, cached[0].intrinsics[..6].to_vec()), ([2, 3], vec![25.0, 0.0, 1.5, 0.0, 25.5, 1.0]));
    assert_eq!(cached[0].extrinsics, camera.extrinsics);
    std::fs::remove_dir_all(&out).unwrap();
}
