//! The table of episodes, from any version's metadata. Columns, not objects: datasets have 100,000s.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use robocache::{DType, Error, ErrorKind, Result, Tensor};

use super::info::{Info, Version};
use super::root::Root;
use crate::check::codes;
use crate::files::look;
use crate::findings::Finding;
use crate::json::Json;
use crate::limits::{Limits, corrupt};
use crate::parquet::ParquetFile;

/// Which file of a kind: `(chunk, file)`, in version 2 `(chunk, episode)`.
pub(super) type FileId = (u64, u64);

/// Every episode, in the order of the metadata.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    pub(super) index: Vec<u64>,
    pub(super) length: Vec<u64>,
    pub(super) file: Vec<FileId>,
    /// The episode's first row in its file; version 2 has one file for each.
    pub(super) first_row: Vec<u64>,
    /// First and last + 1 of the rows of the whole dataset, in version 3.
    pub(super) range: Vec<(u64, u64)>,
    /// Per camera, in the order of the video features.
    pub(super) cameras: Vec<Camera>,
    /// Episodes of which a task is null, by their numbers.
    pub(super) null_tasks: Vec<u64>,
    task_ends: Vec<u32>,
    task_ids: Vec<u32>,
    texts: Texts,
}

/// Where a camera's pictures are.
#[derive(Debug)]
pub(super) struct Camera {
    pub(super) key: String,
    /// Version 3, by episode: file and start in it; `None` where the metadata does not know the camera.
    pub(super) places: Vec<Option<(FileId, f64)>>,
}

/// Every text once.
#[derive(Debug, Default)]
struct Texts {
    ids: HashMap<Arc<str>, u32>,
    all: Vec<Arc<str>>,
}

impl Texts {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.all.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }
}

impl Episodes {
    pub(super) fn read(root: &Root, info: &Info) -> Result<Self> {
        let keys = info.features.iter().filter(|feature| feature.dtype == "video").map(|feature| feature.name.clone());
        let cameras = keys.map(|key| Camera { key, places: Vec::new() }).collect();
        let mut episodes = Self { cameras, ..Self::default() };
        if look(&root.path.join(info.version.episodes()))?.is_none() {
            return episodes.without_files(root, info);
        }
        match info.version {
            Version::V30 => episodes.read_tables(root)?,
            _ => episodes.read_lines(root, info)?,
        }
        Ok(episodes)
    }

    /// A dataset that was only just created has no table of episodes yet.
    fn without_files(self, root: &Root, info: &Info) -> Result<Self> {
        if info.total_episodes == Some(0) {
            return Ok(self);
        }
        let count = info.total_episodes.map_or("episodes".to_owned(), |count| format!("{count} episodes"));
        let text = format!(
            "there is no table of episodes, but info.json speaks of {count}: the recording was perhaps cut off before \
             its end, or the copy of the dataset is not whole"
        );
        Err(Error::new(ErrorKind::FileError, text).path(root.path.join(info.version.episodes())))
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn tasks(&self, at: usize) -> Vec<String> {
        let end = |at: usize| self.task_ends.get(at).map_or(0, |&end| end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        let ids = self.task_ids.get(start..end(at)).unwrap_or_default();
        ids.iter().filter_map(|&id| self.texts.all.get(id as usize)).map(|text| text.to_string()).collect()
    }

    fn end_tasks(&mut self) {
        self.task_ends.push(u32::try_from(self.task_ids.len()).unwrap_or(u32::MAX));
    }

    /// Version 3: `meta/episodes/chunk-N/file-N.parquet`.
    fn read_tables(&mut self, root: &Root) -> Result<()> {
        for path in root.chunked_files("meta/episodes")? {
            let table = ParquetFile::open(&path, &root.limits)?;
            self.add_table(&path, &table)?;
        }
        // Rows are counted from the first of their file.
        let mut first: HashMap<FileId, u64> = HashMap::new();
        for (&file, &(from, _)) in self.file.iter().zip(&self.range) {
            first.entry(file).and_modify(|first| *first = from.min(*first)).or_insert(from);
        }
        let base = |file: &FileId| first.get(file).copied().unwrap_or(0);
        self.first_row = self.file.iter().zip(&self.range).map(|(file, &(from, _))| from - base(file)).collect();
        Ok(())
    }

    fn add_table(&mut self, path: &Path, table: &ParquetFile) -> Result<()> {
        let counts = |column: &str| counts(path, table, column);
        let index = counts("episode_index")?;
        let (from, to) = (counts("dataset_from_index")?, counts("dataset_to_index")?);
        let file = pairs(counts("data/chunk_index")?, counts("data/file_index")?);
        let length = match has(table, "length") {
            true => counts("length")?,
            false => from.iter().zip(&to).map(|(from, to)| to.saturating_sub(*from)).collect(),
        };
        for ((index, &from), &to) in index.iter().zip(&from).zip(&to) {
            if to < from {
                return Err(corrupt(path, format!("episode {index} ends at row {to}, before its start {from}")));
            }
        }
        for camera in &mut self.cameras {
            let column = |name: &str| format!("videos/{}/{name}", camera.key);
            if !has(table, &column("chunk_index")) {
                camera.places.resize(camera.places.len() + index.len(), None);
                continue;
            }
            let files = pairs(counts(&column("chunk_index"))?, counts(&column("file_index"))?);
            let starts = floats(path, table, &column("from_timestamp"))?;
            camera.places.extend(files.into_iter().zip(starts).map(Some));
        }
        let tasks = match has(table, "tasks") {
            true => Some(one(table.read(&["tasks"], 0..table.rows())?)?),
            false => None,
        };
        for (row, &number) in index.iter().enumerate() {
            if let Some(tasks) = &tasks {
                self.add_tasks(tasks, row, number);
            }
            self.end_tasks();
        }
        self.index.extend(index);
        self.length.extend(length);
        self.file.extend(file);
        self.range.extend(pairs(from, to));
        Ok(())
    }

    /// The tasks of a row: a list of texts, or one.
    fn add_tasks(&mut self, tasks: &ArrayRef, row: usize, number: u64) {
        if tasks.is_null(row) {
            self.null_tasks.push(number);
            return;
        }
        let texts = match tasks.data_type() {
            DataType::List(_) => tasks.as_list::<i32>().value(row),
            DataType::LargeList(_) => tasks.as_list::<i64>().value(row),
            _ => tasks.slice(row, 1),
        };
        for text in texts_of(&texts).into_iter().flatten() {
            match text {
                Some(text) => {
                    let id = self.texts.id(text);
                    self.task_ids.push(id);
                }
                None => self.null_tasks.push(number),
            }
        }
    }

    /// Version 2: `meta/episodes.jsonl`.
    fn read_lines(&mut self, root: &Root, info: &Info) -> Result<()> {
        let path = root.path.join("meta/episodes.jsonl");
        for_each_line(&path, &root.read(&path)?, &root.limits, |json| {
            let count = |key: &str| {
                let count = json.get(key).and_then(Json::as_count);
                count.ok_or_else(|| corrupt(&path, format!("expected {key:?}, a number")))
            };
            let index = count("episode_index")?;
            self.index.push(index);
            self.length.push(count("length")?);
            self.file.push((index / info.chunks_size, index));
            for task in json.get("tasks").and_then(Json::as_list).unwrap_or_default() {
                match task.as_text() {
                    Some(text) => {
                        let id = self.texts.id(text);
                        self.task_ids.push(id);
                    }
                    None => self.null_tasks.push(index),
                }
            }
            self.end_tasks();
            Ok(())
        })?;
        self.first_row = vec![0; self.index.len()];
        Ok(())
    }
}

/// The tasks by their numbers, and what is odd about them; numbers that are left out have no text.
pub(super) fn read_tasks(root: &Root, info: &Info) -> Result<(Vec<String>, Vec<Finding>)> {
    let mut pairs: Vec<(u64, Option<String>)> = Vec::new();
    let path = root.path.join(info.version.tasks());
    // A dataset that was only just created has none yet.
    if info.total_episodes == Some(0) && look(&root.path.join(info.version.tasks()))?.is_none() {
        return Ok(Default::default());
    }
    if info.version == Version::V30 {
        let table = ParquetFile::open(&path, &root.limits)?;
        // pandas keeps the text as an index, which it names or not.
        let text = ["task", "__index_level_0__"].into_iter().find(|name| has(&table, name));
        let text = text.ok_or_else(|| corrupt(&path, "expected a column \"task\""))?;
        let texts = one(table.read(&[text], 0..table.rows())?)?;
        let texts = texts_of(&texts).ok_or_else(|| corrupt(&path, format!("expected text in column {text:?}")))?;
        let texts = texts.map(|text| text.map(str::to_owned));
        pairs.extend(counts(&path, &table, "task_index")?.into_iter().zip(texts));
    } else {
        for_each_line(&path, &root.read(&path)?, &root.limits, |json| {
            let index = json.get("task_index").and_then(Json::as_count);
            let text = json.get("task").filter(|task| matches!(task, Json::Text(_) | Json::Null));
            let pair = index.zip(text).ok_or_else(|| corrupt(&path, "expected \"task_index\" and \"task\""))?;
            pairs.push((pair.0, pair.1.as_text().map(str::to_owned)));
            Ok(())
        })?;
    }
    let mut found = Vec::new();
    let mut tasks = Vec::new();
    for (number, text) in &pairs {
        let index = usize::try_from(*number).ok().filter(|&index| index < 2 * pairs.len() + 1024);
        let index = index.ok_or_else(|| corrupt(&path, format!("task {text:?} has a number far above the count")))?;
        if tasks.len() <= index {
            tasks.resize(index + 1, String::new());
        }
        let (Some(place), Some(text)) = (tasks.get_mut(index), text) else {
            let text = format!("expected words for task {number}, they are missing (null)");
            found.push(Finding::warning(&codes::TEXT_MISSING, text).path(root.shown(&path)));
            continue;
        };
        if !place.is_empty() && place != text {
            let text =
                format!("expected one task for each number, {number} is {place:?} and {text:?}; the last counts");
            found.push(Finding::warning(&codes::TASK_DUPLICATE, text).path(root.shown(&path)));
        }
        place.clone_from(text);
    }
    Ok((tasks, found))
}

/// Every line of a file as JSON; empty ones do not count.
pub(super) fn for_each_line(
    path: &Path,
    bytes: &[u8],
    limits: &Limits,
    mut each: impl FnMut(&Json) -> Result<()>,
) -> Result<()> {
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let place = |error: Error| error.while_doing(format!("reading line {}", number + 1));
        let json = Json::parse_loosely(path, line, limits).map_err(place)?;
        each(&json).map_err(place)?;
    }
    Ok(())
}

pub(super) fn has(table: &ParquetFile, column: &str) -> bool {
    table.schema().field_with_name(column).is_ok()
}

fn one(arrays: Vec<ArrayRef>) -> Result<ArrayRef> {
    arrays.into_iter().next().ok_or_else(|| Error::invalid("columns", "one column was asked for"))
}

fn pairs(first: Vec<u64>, second: Vec<u64>) -> Vec<(u64, u64)> {
    first.into_iter().zip(second).collect()
}

/// A column of texts; `None` for other types. Missing ones are empty.
pub(super) fn strings(array: &ArrayRef) -> Option<Box<dyn Iterator<Item = &str> + '_>> {
    Some(Box::new(texts_of(array)?.map(Option::unwrap_or_default)))
}

/// A column of texts, some of which may be missing; `None` for other types.
fn texts_of(array: &ArrayRef) -> Option<Box<dyn Iterator<Item = Option<&str>> + '_>> {
    match array.data_type() {
        DataType::Utf8 => Some(Box::new(array.as_string::<i32>().iter())),
        DataType::LargeUtf8 => Some(Box::new(array.as_string::<i64>().iter())),
        _ => None,
    }
}

/// Whether a file has a column of texts; `None` where it has no such column.
pub(super) fn is_text(table: &ParquetFile, column: &str) -> Option<bool> {
    let field = table.schema().field_with_name(column).ok()?;
    Some(matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8))
}

/// A whole column of whole numbers.
pub(super) fn counts(path: &Path, table: &ParquetFile, column: &str) -> Result<Vec<u64>> {
    let numbers = integers(path, table, column, 0..table.rows())?;
    let negative = |row| corrupt(path, format!("column {column:?} is negative in row {row}"));
    numbers.iter().enumerate().map(|(row, &n)| u64::try_from(n).map_err(|_| negative(row))).collect()
}

/// Whole numbers, as they were read or widened.
#[derive(Debug)]
pub(super) enum Integers {
    /// Of `i64`.
    Read(Tensor),
    Made(Vec<i64>),
}

impl std::ops::Deref for Integers {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        match self {
            Self::Read(tensor) => tensor.as_slice().unwrap_or_default(),
            Self::Made(numbers) => numbers,
        }
    }
}

/// Whole numbers of any size.
pub(super) fn integers(path: &Path, table: &ParquetFile, column: &str, rows: std::ops::Range<u64>) -> Result<Integers> {
    let tensor = match table.number_type(column) {
        Some(_) => table.numbers(column, rows, &[])?,
        None if has(table, column) => return Err(corrupt(path, format!("column {column:?} does not hold numbers"))),
        None => return Err(corrupt(path, format!("column {column:?} is missing"))),
    };
    if tensor.dtype() == DType::I64 {
        return Ok(Integers::Read(tensor));
    }
    macro_rules! widen {
        ($($variant:ident => $type:ty),+) => {
            match tensor.dtype() {
                $(DType::$variant => tensor.as_slice::<$type>()?.iter().map(|&n| i64::try_from(n).ok()).collect(),)+
                // Some writers keep numbers of files as floats.
                DType::F64 => tensor.as_slice::<f64>()?.iter().map(|&n| whole(n)).collect(),
                DType::F32 => tensor.as_slice::<f32>()?.iter().map(|&n| whole(f64::from(n))).collect(),
                _ => None,
            }
        };
    }
    let numbers: Option<Vec<i64>> =
        widen!(I32 => i32, I16 => i16, I8 => i8, U64 => u64, U32 => u32, U16 => u16, U8 => u8);
    let numbers = numbers.ok_or_else(|| corrupt(path, format!("column {column:?} does not hold whole numbers")))?;
    Ok(Integers::Made(numbers))
}

fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
}

/// A whole column of seconds.
fn floats(path: &Path, table: &ParquetFile, column: &str) -> Result<Vec<f64>> {
    let seconds = seconds(path, table, column, 0..table.rows())?;
    match seconds.iter().position(|second| !second.is_finite()) {
        Some(row) => Err(corrupt(path, format!("column {column:?} is not a number in row {row}"))),
        None => Ok(seconds),
    }
}

/// Numbers as f64.
pub(super) fn seconds(path: &Path, table: &ParquetFile, column: &str, rows: std::ops::Range<u64>) -> Result<Vec<f64>> {
    match table.number_type(column) {
        Some(DType::F64) => Ok(table.numbers(column, rows, &[])?.as_slice::<f64>()?.to_vec()),
        Some(DType::F32) => {
            Ok(table.numbers(column, rows, &[])?.as_slice::<f32>()?.iter().map(|&x| x.into()).collect())
        }
        _ => Ok(integers(path, table, column, rows)?.iter().map(|&second| second as f64).collect()),
    }
}
