//! The table of all episodes of a cache, an Arrow file too: a million of them open at once.

use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, Float64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use robocache::Result;

use super::blocks::{BLOCK, Summed, Verified};
use super::footer::{Footer, footer_start, map, read_batch};
use super::layout::{Plan, UnitManifest};
use crate::files::open_regular;
use crate::limits::{corrupt, guarded};

/// Columns before those of the streams.
const FIXED: usize = 6;

/// The table.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    table: RecordBatch,
}

/// What the cache knows of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedEpisode {
    /// Its number in its source.
    pub index: u64,
    /// Its source's number.
    pub source: usize,
    /// Samples of the main clock.
    pub length: u64,
    /// Seconds.
    pub duration: f64,
    /// What the robot was told to do.
    pub tasks: Vec<String>,
}

fn schema(streams: usize) -> Schema {
    let text = Arc::new(Field::new("item", DataType::Utf8, true));
    let mut fields = vec![
        Field::new("episode_index", DataType::UInt64, false),
        Field::new("source", DataType::UInt32, false),
        Field::new("unit", DataType::UInt32, false),
        Field::new("length", DataType::UInt64, false),
        Field::new("duration", DataType::Float64, false),
        Field::new("tasks", DataType::List(text), false),
    ];
    for stream in 0..streams {
        fields.push(Field::new(format!("first/{stream}"), DataType::UInt64, false));
        fields.push(Field::new(format!("rows/{stream}"), DataType::UInt64, false));
    }
    Schema::new(fields)
}

impl Index {
    /// The episodes of units that are done, in the plan's order.
    pub(crate) fn from_units(plan: &Plan, units: &[UnitManifest]) -> Result<Self> {
        let episodes = || units.iter().flat_map(|unit| unit.episodes.iter().map(move |episode| (unit, episode)));
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let mut tasks = ListBuilder::new(StringBuilder::new());
        for (_, episode) in episodes() {
            episode.tasks.iter().for_each(|task| tasks.values().append_value(task));
            tasks.append(true);
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from_iter_values(episodes().map(|(_, episode)| episode.index))),
            Arc::new(UInt32Array::from_iter_values(episodes().map(|(unit, _)| number(unit.unit.source)))),
            Arc::new(UInt32Array::from_iter_values(episodes().map(|(unit, _)| number(unit.unit.unit)))),
            Arc::new(UInt64Array::from_iter_values(episodes().map(|(_, episode)| episode.length))),
            Arc::new(Float64Array::from_iter_values(episodes().map(|(_, episode)| episode.duration))),
            Arc::new(tasks.finish()),
        ];
        for stream in 0..plan.streams.len() {
            // A unit has files for the streams of its source only.
            let rows = || {
                units.iter().flat_map(move |unit| {
                    let file = unit.files.iter().position(|file| file.stream == stream);
                    unit.episodes
                        .iter()
                        .map(move |episode| file.and_then(|file| episode.rows.get(file).copied()).unwrap_or_default())
                })
            };
            columns.push(Arc::new(UInt64Array::from_iter_values(rows().map(|(first, _)| first))));
            columns.push(Arc::new(UInt64Array::from_iter_values(rows().map(|(_, rows)| rows))));
        }
        let table = RecordBatch::try_new(Arc::new(schema(plan.streams.len())), columns);
        let table = table.map_err(|error| robocache::Error::invalid("index", error.to_string()))?;
        Ok(Self { table })
    }

    /// The bytes of its file and their checksums.
    pub(crate) fn to_file(&self) -> Result<(Vec<u8>, Vec<u32>)> {
        let write = || -> Result<Vec<u8>, ArrowError> {
            let mut writer = FileWriter::try_new(Vec::new(), &self.table.schema())?;
            writer.write(&self.table)?;
            writer.into_inner()
        };
        let bytes = write().map_err(|error| robocache::Error::invalid("index", error.to_string()))?;
        let mut summed = Summed::new(std::io::sink());
        std::io::Write::write_all(&mut summed, &bytes)
            .map_err(|error| robocache::Error::invalid("index", error.to_string()))?;
        Ok((bytes, summed.finish().2))
    }

    /// Maps the file, whose checksums must be these: all of it is verified here, since what asks for an
    /// episode cannot fail. Reading it into memory instead would take four times as long.
    pub(crate) fn open(path: &Path, sums: &[u32], streams: usize, sources: usize) -> Result<Self> {
        let (file, metadata) = open_regular(path)?;
        if sums.len() as u64 != metadata.len().div_ceil(BLOCK as u64) {
            return Err(corrupt(path, format!("{} bytes have {} checksums", metadata.len(), sums.len())));
        }
        let map = map(path, &file)?;
        let verified = Verified::new(sums.to_vec());
        if (0..verified.len()).any(|block| verified.verify(&map, block).is_err()) {
            return Err(corrupt(path, "its checksum is wrong"));
        }
        let bad = |error: String| corrupt(path, format!("expected an Arrow file: {error}"));
        let (found, table) = guarded(path, "index", || {
            let footer = footer_start(&map).and_then(|start| Footer::read(&map, start)).map_err(bad)?;
            let table = footer.places.first().map(|place| read_batch(&footer.decoder, &map, place)).transpose();
            Ok((footer.schema, table.map_err(bad)?))
        })?;
        if found.fields() != schema(streams).fields() {
            return Err(corrupt(path, "its columns are not those of this version"));
        }
        let index = Self { table: table.unwrap_or_else(|| RecordBatch::new_empty(found)) };
        match (0..index.len()).map(|at| index.u32(1, at)).find(|&source| source >= sources) {
            None => Ok(index),
            Some(source) => Err(corrupt(path, format!("an episode is of source {source}, there are {sources}"))),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.num_rows()
    }

    fn u64(&self, column: usize, at: usize) -> u64 {
        self.table.column(column).as_primitive_opt::<UInt64Type>().map_or(0, |column| column.value(at))
    }

    fn u32(&self, column: usize, at: usize) -> usize {
        self.table.column(column).as_primitive_opt::<UInt32Type>().map_or(0, |column| column.value(at) as usize)
    }

    /// An episode; `at` is below `len`.
    pub(crate) fn episode(&self, at: usize) -> CachedEpisode {
        let tasks = self.table.column(5).as_list_opt::<i32>().map(|tasks| tasks.value(at));
        let tasks = tasks.as_ref().and_then(|tasks| tasks.as_string_opt::<i32>());
        CachedEpisode {
            index: self.u64(0, at),
            source: self.u32(1, at),
            length: self.u64(3, at),
            duration: self.table.column(4).as_primitive_opt::<Float64Type>().map_or(0.0, |column| column.value(at)),
            tasks: tasks.map(|tasks| tasks.iter().flatten().map(str::to_owned).collect()).unwrap_or_default(),
        }
    }

    /// The unit with an episode's rows.
    pub(crate) fn unit(&self, at: usize) -> usize {
        self.u32(2, at)
    }

    /// The first row and the number of rows of a stream in an episode.
    pub(crate) fn rows(&self, at: usize, stream: usize) -> (u64, u64) {
        (self.u64(FIXED + 2 * stream, at), self.u64(FIXED + 2 * stream + 1, at))
    }
}
