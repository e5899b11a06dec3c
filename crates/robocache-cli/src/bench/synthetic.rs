//! Datasets of LeRobot v3.0 to measure with: an arm of 14 joints, without cameras.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, FixedSizeListArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use robocache::{Error, ErrorKind, Result};
use serde_json::json;

use crate::demo::random::Random;

pub(super) const JOINTS: usize = 14;
const FPS: usize = 50;
const TASK: &str = "put the cube into the box";
const STATISTICS: [&str; 9] = ["min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"];
const COLUMNS: [(&str, usize); 7] = [
    ("observation.state", JOINTS),
    ("action", JOINTS),
    ("timestamp", 1),
    ("frame_index", 1),
    ("episode_index", 1),
    ("index", 1),
    ("task_index", 1),
];

/// How files are cut into row groups: writers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Groups {
    /// One per episode, and one per ten rows of metadata: as recorded.
    Small,
    /// One per file, and one per thousand rows of metadata: as converted from older versions.
    Large,
}

impl Groups {
    fn rows_of_metadata(self) -> usize {
        match self {
            Self::Small => 10,
            Self::Large => 1000,
        }
    }
}

/// What to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) episodes: usize,
    pub(super) frames: usize,
    pub(super) episodes_per_file: usize,
    /// Of the rows.
    pub(super) groups: Groups,
    /// Of the metadata.
    pub(super) metadata: Groups,
}

/// Writes a dataset; `go_on` is asked often and stops it by an error.
pub(super) fn write(folder: &Path, plan: &Plan, go_on: &dyn Fn() -> Result<()>) -> Result<()> {
    let make = |sub: &str| {
        let path = folder.join(sub);
        std::fs::create_dir_all(&path)
            .map_err(|error| Error::new(ErrorKind::FileError, "cannot make a folder").caused_by(error).path(&path))?;
        Ok::<_, Error>(path)
    };
    let (meta, episodes) = (make("meta")?, make("meta/episodes/chunk-000")?);
    let data = make("data/chunk-000")?;
    let info = serde_json::to_string(&info(plan)).unwrap_or_default();
    let path = meta.join("info.json");
    std::fs::write(&path, info).map_err(|error| failed(&path, error))?;
    let tasks: ArrayRef = Arc::new(StringArray::from(vec![TASK]));
    let path = meta.join("tasks.parquet");
    let mut file = Table::new(&path);
    file.add(vec![("task_index", integers([0])), ("task", tasks)])?;
    file.close()?;
    write_episodes(&episodes.join("file-000.parquet"), plan, go_on)?;
    let mut random = Random::new(7);
    for first in (0..plan.episodes).step_by(plan.episodes_per_file) {
        let path = data.join(format!("file-{:03}.parquet", first / plan.episodes_per_file));
        let mut file = Table::new(&path);
        for episode in first..plan.episodes.min(first + plan.episodes_per_file) {
            go_on()?;
            file.add(rows(plan, episode, &mut random)?)?;
            if plan.groups == Groups::Small {
                file.end_group()?;
            }
        }
        file.close()?;
    }
    Ok(())
}

fn info(plan: &Plan) -> serde_json::Value {
    let feature = |(name, width): (&str, usize)| {
        let dtype = match (width, name) {
            (JOINTS, _) | (_, "timestamp") => "float32",
            _ => "int64",
        };
        (name.to_owned(), json!({ "dtype": dtype, "shape": [width], "names": null }))
    };
    json!({
        "codebase_version": "v3.0",
        "robot_type": "aloha",
        "total_episodes": plan.episodes,
        "total_frames": plan.episodes * plan.frames,
        "total_tasks": 1,
        "chunks_size": 1000,
        "fps": FPS,
        "splits": { "train": format!("0:{}", plan.episodes) },
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": null,
        "features": COLUMNS.into_iter().map(feature).collect::<serde_json::Map<_, _>>(),
    })
}

/// The table of episodes, with the statistics that readers have to pass over.
fn write_episodes(path: &Path, plan: &Plan, go_on: &dyn Fn() -> Result<()>) -> Result<()> {
    let mut file = Table::new(path);
    let group = plan.metadata.rows_of_metadata();
    for first in (0..plan.episodes).step_by(group) {
        go_on()?;
        let all = || (first..plan.episodes.min(first + group)).map(|episode| episode as i64);
        let frames = plan.frames as i64;
        let mut tasks = ListBuilder::new(StringBuilder::new());
        all().for_each(|_| tasks.append_value([Some(TASK)]));
        let zeros = || integers(all().map(|_| 0));
        let mut columns: Vec<(String, ArrayRef)> = vec![
            ("episode_index".to_owned(), integers(all())),
            ("tasks".to_owned(), Arc::new(tasks.finish())),
            ("length".to_owned(), integers(all().map(|_| frames))),
            ("data/chunk_index".to_owned(), zeros()),
            ("data/file_index".to_owned(), integers(all().map(|episode| episode / plan.episodes_per_file as i64))),
            ("dataset_from_index".to_owned(), integers(all().map(|episode| episode * frames))),
            ("dataset_to_index".to_owned(), integers(all().map(|episode| (episode + 1) * frames))),
        ];
        for (feature, width) in COLUMNS {
            for (shift, statistic) in STATISTICS.iter().enumerate() {
                let value = |at: usize| (at % 97 + shift) as f64 * 0.01;
                let values = (0..all().len() * width).map(value);
                columns.push((format!("stats/{feature}/{statistic}"), list::<Float64Type>(values, width)?));
            }
            let counts = list::<Int64Type>(all().map(|_| frames), 1)?;
            columns.push((format!("stats/{feature}/count"), counts));
        }
        columns.extend(["chunk_index", "file_index"].map(|name| (format!("meta/episodes/{name}"), zeros())));
        file.add(columns)?;
        file.end_group()?;
    }
    file.close()
}

/// The rows of an episode. The state comes from encoders of 4096 steps per turn and repeats; the
/// action has all digits.
fn rows(plan: &Plan, episode: usize, random: &mut Random) -> Result<Vec<(&'static str, ArrayRef)>> {
    const STEP: f64 = std::f64::consts::TAU / 4096.0;
    let waves: Vec<[f64; 3]> = (0..JOINTS)
        .map(|_| [random.between(0.2, 1.5), random.between(0.2, 2.0), random.between(0.0, std::f64::consts::TAU)])
        .collect();
    let mut state = Vec::with_capacity(plan.frames * JOINTS);
    let mut action = Vec::with_capacity(plan.frames * JOINTS);
    for frame in 0..plan.frames {
        let seconds = frame as f64 / FPS as f64;
        for [size, speed, phase] in &waves {
            let angle = size * (speed * seconds + phase).sin();
            state.push(((angle / STEP).round() * STEP) as f32);
            action.push((angle + random.between(-1e-3, 1e-3)) as f32);
        }
    }
    let frames = || (0..plan.frames).map(|frame| frame as i64);
    let seconds = frames().map(|frame| frame as f32 / FPS as f32);
    let first = (episode * plan.frames) as i64;
    Ok(vec![
        ("observation.state", list::<Float32Type>(state, JOINTS)?),
        ("action", list::<Float32Type>(action, JOINTS)?),
        ("timestamp", Arc::new(PrimitiveArray::<Float32Type>::from_iter_values(seconds))),
        ("frame_index", integers(frames())),
        ("episode_index", integers(frames().map(|_| episode as i64))),
        ("index", integers(frames().map(|frame| first + frame))),
        ("task_index", integers(frames().map(|_| 0))),
    ])
}

fn integers(numbers: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(numbers))
}

/// Rows of `width` numbers.
fn list<T: ArrowPrimitiveType>(numbers: impl IntoIterator<Item = T::Native>, width: usize) -> Result<ArrayRef> {
    let values = PrimitiveArray::<T>::from_iter_values(numbers);
    let field = Arc::new(Field::new_list_field(T::DATA_TYPE, true));
    let width = i32::try_from(width).unwrap_or(i32::MAX);
    let list = FixedSizeListArray::try_new(field, width, Arc::new(values), None);
    list.map(|list| Arc::new(list) as ArrayRef).map_err(unfit)
}

/// A parquet file that is being written.
struct Table<'a> {
    path: &'a Path,
    /// Made with the first rows, which say what the columns are.
    writer: Option<ArrowWriter<File>>,
}

impl<'a> Table<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, writer: None }
    }

    fn add(&mut self, columns: Vec<(impl AsRef<str>, ArrayRef)>) -> Result<()> {
        let batch = RecordBatch::try_from_iter(columns).map_err(unfit)?;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let file = File::create(self.path).map_err(|error| failed(self.path, error))?;
                // As pyarrow writes by default, which LeRobot does.
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .set_statistics_enabled(EnabledStatistics::Chunk)
                    .set_offset_index_disabled(true)
                    .build();
                let writer = ArrowWriter::try_new(file, batch.schema(), Some(properties));
                none.insert(writer.map_err(|error| failed(self.path, error))?)
            }
        };
        writer.write(&batch).map_err(|error| failed(self.path, error))
    }

    fn end_group(&mut self) -> Result<()> {
        let path = self.path;
        self.writer.as_mut().map_or(Ok(()), |writer| writer.flush().map_err(|error| failed(path, error)))
    }

    fn close(self) -> Result<()> {
        let path = self.path;
        let closed = self.writer.map(ArrowWriter::close).transpose();
        closed.map(|_| ()).map_err(|error: ParquetError| failed(path, error))
    }
}

fn failed(path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::FileError, "cannot write").caused_by(error).path(path)
}

fn unfit(error: ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, "columns do not fit together").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::folder::Folder;
    use robocache_data::{Dataset, Limits, Values};

    #[test]
    fn what_is_written_can_be_read() {
        let folder = Folder::new().unwrap();
        for groups in [Groups::Small, Groups::Large] {
            let plan = Plan { episodes: 25, frames: 30, episodes_per_file: 10, groups, metadata: groups };
            let path = folder.path().join(format!("{groups:?}"));
            write(&path, &plan, &|| Ok(())).unwrap();
            let dataset = Dataset::open(&path, &Limits::default()).unwrap();
            assert_eq!((dataset.len(), dataset.format().as_str()), (25, "lerobot v3.0"));
            assert_eq!(dataset.tasks(), [TASK]);
            let episode = dataset.episode(24).unwrap();
            assert_eq!((episode.index, episode.length, episode.tasks), (24, 30, vec![TASK.to_owned()]));
            let samples = dataset.read(24, &[0, 1]).unwrap();
            assert_eq!((samples[1].times.len(), samples[1].times[1]), (30, 20_000_000));
            let Values::Numbers(state) = &samples[0].values else { panic!("expected numbers") };
            assert_eq!(state.view().shape(), [30, JOINTS]);
        }
    }

    #[test]
    fn writing_stops_when_asked_to() {
        let folder = Folder::new().unwrap();
        let plan =
            Plan { episodes: 5, frames: 3, episodes_per_file: 5, groups: Groups::Large, metadata: Groups::Large };
        let stop = || Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        let error = write(&folder.path().join("x"), &plan, &stop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
}
