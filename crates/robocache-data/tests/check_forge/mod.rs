//! Small LeRobot datasets with nothing wrong, that tests then break.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch,
    StringArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

pub(crate) const FPS: i64 = 10;
pub(crate) const LENGTHS: [i64; 3] = [40, 30, 50];
pub(crate) const CAMERA: &str = "observation.images.top";
pub(crate) const STATE: &str = "observation.state";
pub(crate) const NAMES: [&str; 6] = ["x", "qx", "qy", "qz", "qw", "y"];

/// A column of a table.
#[derive(Clone)]
pub(crate) enum Column {
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    /// So many per row.
    Vectors(i32, Vec<f32>),
    /// Any number per row.
    Lists(Vec<Vec<f32>>),
    Texts(Vec<Vec<String>>),
    Text(Vec<String>),
    /// Some of them missing.
    Words(Vec<Option<String>>),
    Bytes(Vec<Vec<u8>>),
}

impl Column {
    /// Adds the rows of another of this kind.
    pub(crate) fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::I64(all), Self::I64(other)) => all.extend(other),
            (Self::F32(all), Self::F32(other)) => all.extend(other),
            (Self::Vectors(_, all), Self::Vectors(_, other)) => all.extend(other),
            (Self::Texts(all), Self::Texts(other)) => all.extend(other),
            (Self::Text(all), Self::Text(other)) => all.extend(other),
            (Self::Words(all), Self::Words(other)) => all.extend(other),
            _ => panic!("columns of one kind"),
        }
    }

    fn array(&self) -> ArrayRef {
        match self {
            Self::I64(values) => Arc::new(Int64Array::from(values.clone())),
            Self::F32(values) => Arc::new(Float32Array::from(values.clone())),
            Self::F64(values) => Arc::new(Float64Array::from(values.clone())),
            Self::Vectors(width, values) => {
                let item = Arc::new(Field::new("element", DataType::Float32, true));
                Arc::new(FixedSizeListArray::new(item, *width, Arc::new(Float32Array::from(values.clone())), None))
            }
            Self::Lists(rows) => {
                let item = Arc::new(Field::new("element", DataType::Float32, true));
                let values = Arc::new(Float32Array::from(rows.concat()));
                Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(rows.iter().map(Vec::len)), values, None))
            }
            Self::Texts(rows) => {
                let item = Arc::new(Field::new("element", DataType::Utf8, true));
                let values = Arc::new(StringArray::from(rows.concat()));
                Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(rows.iter().map(Vec::len)), values, None))
            }
            Self::Text(values) => Arc::new(StringArray::from(values.clone())),
            Self::Words(values) => Arc::new(StringArray::from(values.clone())),
            Self::Bytes(values) => Arc::new(BinaryArray::from_iter_values(values)),
        }
    }
}

/// A parquet file in the making.
#[derive(Clone, Default)]
pub(crate) struct Table(pub(crate) Vec<(String, Column)>);

impl Table {
    pub(crate) fn with(mut self, name: &str, column: Column) -> Self {
        self.0.push((name.to_owned(), column));
        self
    }

    pub(crate) fn column(&mut self, name: &str) -> &mut Column {
        let found = self.0.iter_mut().find(|(known, _)| known == name);
        &mut found.unwrap_or_else(|| panic!("no column {name}")).1
    }

    pub(crate) fn integers(&mut self, name: &str) -> &mut Vec<i64> {
        match self.column(name) {
            Column::I64(values) => values,
            _ => panic!("{name} holds no integers"),
        }
    }

    /// Numbers of any shape, flat.
    pub(crate) fn floats(&mut self, name: &str) -> &mut Vec<f32> {
        match self.column(name) {
            Column::F32(values) | Column::Vectors(_, values) => values,
            _ => panic!("{name} holds no floats"),
        }
    }

    pub(crate) fn doubles(&mut self, name: &str) -> &mut Vec<f64> {
        match self.column(name) {
            Column::F64(values) => values,
            _ => panic!("{name} holds no doubles"),
        }
    }

    pub(crate) fn drop(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    fn write(&self, path: &Path) {
        let columns = self.0.iter().map(|(name, column)| (name.as_str(), column.array()));
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

/// An MP4 file of frames that nobody can decode: for the index only. Durations are in 1/1000 s.
#[derive(Clone)]
pub(crate) struct Movie {
    pub(crate) codec: [u8; 4],
    pub(crate) size: (u16, u16),
    pub(crate) durations: Vec<u32>,
    /// Bytes that are cut off at the end.
    pub(crate) cut: usize,
}

impl Movie {
    pub(crate) fn new(frames: i64) -> Self {
        let durations = vec![1000 / u32::try_from(FPS).unwrap(); usize::try_from(frames).unwrap()];
        Self { codec: *b"avc1", size: (64, 48), durations, cut: 0 }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let boxed = |kind: &[u8; 4], body: &[u8]| {
            let size = u32::try_from(body.len() + 8).unwrap();
            [&size.to_be_bytes()[..], kind, body].concat()
        };
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let count = u32::try_from(self.durations.len()).unwrap();
        let whole: u32 = self.durations.iter().sum();
        let size = [self.size.0.to_be_bytes(), self.size.1.to_be_bytes()].concat();
        let entry = boxed(&self.codec, &[vec![0; 24], size, vec![0; 50]].concat());
        let times: Vec<u32> = self.durations.iter().flat_map(|&duration| [1, duration]).collect();
        let ftyp = boxed(b"ftyp", b"isom\0\0\0\0isom");
        let moov = |start: u32| {
            let stbl = [
                boxed(b"stsd", &[words(&[0, 1]), entry.clone()].concat()),
                boxed(b"stts", &[words(&[0, count]), words(&times)].concat()),
                boxed(b"stsz", &words(&[0, 10, count])),
                boxed(b"stsc", &words(&[0, 1, 1, count, 1])),
                boxed(b"stco", &words(&[0, 1, start])),
            ];
            let minf = boxed(b"minf", &boxed(b"stbl", &stbl.concat()));
            let hdlr = boxed(b"hdlr", &[words(&[0, 0]), b"vide".to_vec(), vec![0; 13]].concat());
            let mdia = boxed(b"mdia", &[boxed(b"mdhd", &words(&[0, 0, 0, 1000, whole, 0])), hdlr, minf].concat());
            let trak = boxed(b"trak", &[boxed(b"tkhd", &words(&[0, 0, 0, 1])), mdia].concat());
            boxed(b"moov", &[boxed(b"mvhd", &words(&[0, 0, 0, 1000, whole])), trak].concat())
        };
        let start = u32::try_from(ftyp.len() + moov(0).len() + 8).unwrap();
        let mut bytes = [ftyp, moov(start), boxed(b"mdat", &vec![0xab; self.durations.len() * 10])].concat();
        bytes.truncate(bytes.len() - self.cut);
        bytes
    }
}

/// A dataset that is not written yet.
pub(crate) struct Forge {
    pub(crate) info: Value,
    /// Version 3.
    pub(crate) episodes: Table,
    /// Version 2.
    pub(crate) lines: Vec<Value>,
    pub(crate) tasks: Vec<(i64, String)>,
    pub(crate) data: Vec<(String, Table)>,
    pub(crate) videos: Vec<(String, Movie)>,
    pub(crate) stats: Option<Value>,
    pub(crate) episode_stats: Option<Vec<Value>>,
    /// Written last, over the others.
    pub(crate) raw: Vec<(String, Vec<u8>)>,
}

/// A signal that moves and meets its ends rarely.
fn wave(at: i64, speed: f32) -> f32 {
    (at as f32 * speed + at as f32 * at as f32 * 1e-4).sin() * (1.0 + at as f32 * 1e-3)
}

fn rows(episode: i64, first: i64) -> Table {
    let length = LENGTHS[usize::try_from(episode).unwrap()];
    let each = |value: &dyn Fn(i64) -> i64| Column::I64((0..length).map(value).collect());
    let state = |at: i64| {
        let angle = (first + at) as f32 * 0.02;
        let (sin, cos) = angle.sin_cos();
        [wave(first + at, 0.31), sin * 0.6, sin * 0.64, sin * 0.48, cos, wave(first + at, 0.17)]
    };
    Table::default()
        .with(STATE, Column::Vectors(6, (0..length).flat_map(state).collect()))
        .with("action", Column::F32((0..length).map(|at| wave(first + at, 0.23)).collect()))
        .with("timestamp", Column::F32((0..length).map(|at| at as f32 / FPS as f32).collect()))
        .with("frame_index", each(&|at| at))
        .with("episode_index", each(&|_| episode))
        .with("index", each(&|at| first + at))
        .with("task_index", each(&|_| episode % 2))
}

fn append(mut all: Table, other: Table) -> Table {
    all.0.iter_mut().zip(other.0).for_each(|((_, all), (_, other))| all.append(other));
    all
}

/// The statistics that LeRobot would write.
fn stats(tables: &[&Table]) -> Value {
    let of = |name: &str, width: usize| {
        let column = |table: &&Table| match &table.0.iter().find(|(known, _)| known == name).unwrap().1 {
            Column::F32(values) | Column::Vectors(_, values) => {
                values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()
            }
            Column::I64(values) => values.iter().map(|&x| x as f64).collect(),
            _ => panic!("numbers"),
        };
        let all: Vec<f64> = tables.iter().flat_map(column).collect();
        let count = all.len() / width;
        let each = |make: &dyn Fn(&[f64]) -> f64| {
            let component = |at: usize| all.iter().skip(at).step_by(width).copied().collect::<Vec<_>>();
            (0..width).map(|at| make(&component(at))).collect::<Vec<f64>>()
        };
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let std = |x: &[f64]| (x.iter().map(|v| (v - mean(x)).powi(2)).sum::<f64>() / x.len() as f64).sqrt();
        json!({
            "min": each(&|x| x.iter().copied().fold(f64::INFINITY, f64::min)),
            "max": each(&|x| x.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            "mean": each(&mean),
            "std": each(&std),
            "count": [count],
        })
    };
    json!({STATE: of(STATE, 6), "action": of("action", 1), "task_index": of("task_index", 1)})
}

impl Forge {
    /// `"v3.0"`: two episodes in the first file, one in the second; one video. `"v2.1"` and
    /// `"v2.0"`: one file for each.
    pub(crate) fn new(version: &str) -> Self {
        let is_v3 = version == "v3.0";
        let starts = [0, LENGTHS[0], LENGTHS[0] + LENGTHS[1]];
        let parts: Vec<Table> =
            (0..3).map(|episode| rows(episode, starts[usize::try_from(episode).unwrap()])).collect();
        let total: i64 = LENGTHS.iter().sum();
        let number = |dtype: &str| json!({"dtype": dtype, "shape": [1], "names": null});
        let mut info = json!({
            "codebase_version": version, "fps": FPS, "total_episodes": 3, "total_frames": total, "total_tasks": 2,
            "chunks_size": 1000, "splits": {"train": "0:3"},
            "features": {
                STATE: {"dtype": "float32", "shape": [6], "names": NAMES},
                CAMERA: {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"],
                         "info": {"video.codec": "h264"}},
            },
        });
        for (name, dtype) in [("action", "float32"), ("timestamp", "float32")] {
            info["features"][name] = number(dtype);
        }
        for name in ["frame_index", "episode_index", "index", "task_index"] {
            info["features"][name] = number("int64");
        }
        let words = |episode: i64| vec![["pick", "place"][usize::try_from(episode % 2).unwrap()].to_owned()];
        let tables: Vec<&Table> = parts.iter().collect();
        let per_episode = parts.iter().enumerate();
        let per_episode = per_episode.map(|(at, part)| json!({"episode_index": at, "stats": stats(&[part])})).collect();
        let mut forge = Self {
            info,
            episodes: Table::default(),
            lines: (0..3)
                .zip(LENGTHS)
                .map(|(e, n)| json!({"episode_index": e, "tasks": words(e), "length": n}))
                .collect(),
            tasks: vec![(0, "pick".to_owned()), (1, "place".to_owned())],
            data: Vec::new(),
            videos: Vec::new(),
            stats: (version != "v2.1").then(|| stats(&tables)),
            episode_stats: (version == "v2.1").then_some(per_episode),
            raw: Vec::new(),
        };
        if is_v3 {
            let ends: Vec<i64> = starts.iter().zip(LENGTHS).map(|(start, length)| start + length).collect();
            let seconds = |frames: &[i64]| Column::F64(frames.iter().map(|&n| n as f64 / FPS as f64).collect());
            let video = |name: &str| format!("videos/{CAMERA}/{name}");
            forge.episodes = Table::default()
                .with("episode_index", Column::I64(vec![0, 1, 2]))
                .with("tasks", Column::Texts((0..3).map(words).collect()))
                .with("length", Column::I64(LENGTHS.to_vec()))
                .with("data/chunk_index", Column::I64(vec![0; 3]))
                .with("data/file_index", Column::I64(vec![0, 0, 1]))
                .with("dataset_from_index", Column::I64(starts.to_vec()))
                .with("dataset_to_index", Column::I64(ends.clone()))
                .with(&video("chunk_index"), Column::I64(vec![0; 3]))
                .with(&video("file_index"), Column::I64(vec![0; 3]))
                .with(&video("from_timestamp"), seconds(&starts))
                .with(&video("to_timestamp"), seconds(&ends));
            let mut parts = parts.into_iter();
            let first = append(parts.next().unwrap(), parts.next().unwrap());
            let name = |file: usize| format!("data/chunk-000/file-{file:03}.parquet");
            forge.data = vec![(name(0), first), (name(1), parts.next().unwrap())];
            forge.videos = vec![(format!("videos/{CAMERA}/chunk-000/file-000.mp4"), Movie::new(total))];
        } else {
            let name = |folder: &str, at: usize, end: &str| format!("{folder}/episode_{at:06}.{end}");
            let parts = parts.into_iter().enumerate();
            forge.data = parts.map(|(at, part)| (name("data/chunk-000", at, "parquet"), part)).collect();
            let folder = format!("videos/chunk-000/{CAMERA}");
            let videos = LENGTHS.iter().enumerate();
            forge.videos = videos.map(|(at, &length)| (name(&folder, at, "mp4"), Movie::new(length))).collect();
        }
        forge
    }

    pub(crate) fn write(&self) -> Folder {
        let folder = Folder::new();
        let lines = |all: &[Value]| all.iter().map(|line| format!("{line}\n")).collect::<String>();
        folder.file("meta/info.json", self.info.to_string().as_bytes());
        if self.info["codebase_version"] == "v3.0" {
            self.episodes.write(&folder.place("meta/episodes/chunk-000/file-000.parquet"));
            let (numbers, words) = self.tasks.iter().cloned().unzip();
            let tasks = Table::default().with("task_index", Column::I64(numbers)).with("task", Column::Text(words));
            tasks.write(&folder.place("meta/tasks.parquet"));
        } else {
            folder.file("meta/episodes.jsonl", lines(&self.lines).as_bytes());
            let tasks = self.tasks.iter().map(|(number, text)| json!({"task_index": number, "task": text}));
            folder.file("meta/tasks.jsonl", lines(&tasks.collect::<Vec<_>>()).as_bytes());
        }
        if let Some(stats) = &self.stats {
            folder.file("meta/stats.json", stats.to_string().as_bytes());
        }
        if let Some(stats) = &self.episode_stats {
            folder.file("meta/episodes_stats.jsonl", lines(stats).as_bytes());
        }
        for (name, table) in &self.data {
            table.write(&folder.place(name));
        }
        for (name, movie) in &self.videos {
            folder.file(name, &movie.bytes());
        }
        for (name, bytes) in &self.raw {
            folder.file(name, bytes);
        }
        folder
    }
}

/// A folder that goes away with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("robocache-check-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A path below, whose folder exists.
    fn place(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.place(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
