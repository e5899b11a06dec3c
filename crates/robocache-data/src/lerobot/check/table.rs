//! The columns of a data file, and the pictures in it.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_schema::DataType;

use super::super::LeRobot;
use super::super::episodes::{has, is_text, strings};
use super::super::finding::finding_of;
use super::super::streams::BOOKKEEPING;
use super::exists;
use super::rows::Rows;
use crate::check::codes;
use crate::check::work::Stop;
use crate::findings::{Finding, Level};
use crate::image::image_header;
use crate::model::{Kind, StreamInfo};
use crate::parquet::ParquetFile;

/// Pictures that are read together.
const PICTURES: u64 = 64;

impl LeRobot {
    /// The columns of a file against what is declared.
    pub(super) fn check_columns(&self, path: &Path, table: &ParquetFile) -> Vec<Finding> {
        let mut found = Vec::new();
        for feature in self.info.features.iter().filter(|feature| feature.dtype != "video") {
            let name = feature.name.as_str();
            if !has(table, name) {
                let is_bookkeeping = BOOKKEEPING.contains(&name);
                // Without the columns that only number the samples, the samples are still there.
                let level = if is_bookkeeping { Level::Warning } else { Level::Error };
                let text = format!("expected a column {name:?}, the file has none");
                found.push(Finding::new(level, &codes::COLUMN_MISSING, text).stream(name));
            } else if let Some(stream) = self.streams.iter().find(|stream| stream.name == name) {
                found.extend(wrong_type(stream, table));
            } else if BOOKKEEPING.contains(&name)
                && let Some(stored) = table.number_type(name).filter(|stored| stored.name() != feature.dtype)
            {
                let text = format!("expected {} as declared, the file holds {stored}", feature.dtype);
                found.push(Finding::warning(&codes::DTYPE_DIFFERS, text).stream(name));
            }
        }
        for field in table.schema().fields() {
            let name = field.name();
            if !self.info.features.iter().any(|feature| feature.name == *name) {
                let text =
                    format!("expected declared columns only, the file also has {name:?} ({})", field.data_type());
                found.push(Finding::note(&codes::COLUMN_UNDECLARED, text).stream(name));
            }
        }
        found.into_iter().map(|finding| finding.path(self.root.shown(path))).collect()
    }

    /// Every picture's header: whether it is one, and its size.
    pub(super) fn check_pictures(&self, stream: &StreamInfo, rows: &Rows<'_>, stop: &Stop) -> Vec<Finding> {
        let mut found = Vec::new();
        if !has(rows.table, &stream.name) {
            return found;
        }
        for (_, part) in &rows.parts {
            let [start, end] = [part.rows.start, part.rows.end].map(|row| rows.range.start.saturating_add(row as u64));
            let mut from = start;
            while from < end && !stop.asked() {
                let to = end.min(from.saturating_add(PICTURES));
                let problem = match rows.table.read(&[&stream.name], from..to) {
                    Ok(columns) => {
                        columns.first().and_then(|column| self.wrong_picture(stream, rows, column, from - start))
                    }
                    Err(error) => Some(finding_of(&self.root, Level::Error, &codes::UNREADABLE_FILE, &error)),
                };
                if let Some(finding) = problem {
                    let finding = finding.episode(part.episode).stream(&stream.name);
                    found.push(finding.path(self.root.shown(rows.path)));
                    // One finding per episode.
                    break;
                }
                from = to;
            }
        }
        found
    }

    /// Every text: whether it can be read, and is there.
    pub(super) fn check_texts(&self, stream: &StreamInfo, rows: &Rows<'_>, stop: &Stop) -> Vec<Finding> {
        let mut found = Vec::new();
        // What is no text was reported with the columns of the file.
        if is_text(rows.table, &stream.name) != Some(true) {
            return found;
        }
        for (_, part) in &rows.parts {
            if stop.asked() {
                break;
            }
            let [start, end] = [part.rows.start, part.rows.end].map(|row| rows.range.start.saturating_add(row as u64));
            let problem = match rows.table.read(&[&stream.name], start..end) {
                Ok(columns) => columns.first().and_then(missing_texts),
                Err(error) => Some(finding_of(&self.root, Level::Error, &codes::UNREADABLE_FILE, &error)),
            };
            let place = |finding: Finding| finding.episode(part.episode).stream(&stream.name);
            found.extend(problem.map(|finding| place(finding).path(self.root.shown(rows.path))));
        }
        found
    }

    /// Whether a stream's pictures are in videos.
    pub(super) fn is_camera(&self, stream: &str) -> bool {
        self.episodes.cameras.iter().any(|camera| camera.key == stream)
    }

    fn wrong_picture(&self, stream: &StreamInfo, rows: &Rows<'_>, column: &ArrayRef, first: u64) -> Option<Finding> {
        let files = column.as_struct_opt().and_then(|fields| fields.column_by_name("path")).and_then(strings);
        let files: Vec<&str> = files.map(Iterator::collect).unwrap_or_default();
        let bytes = bytes_of(column);
        (first..).zip(0..column.len()).find_map(|(sample, row)| {
            match (bytes.filter(|bytes| !bytes.is_null(row)), files.get(row).filter(|file| !file.is_empty())) {
                (Some(bytes), _) => self.wrong_size(stream, rows, bytes.value(row), sample),
                (None, Some(file)) => self.wrong_file(file, sample),
                (None, None) => {
                    let text = format!("expected a picture in sample {sample}, got neither bytes nor a path");
                    Some(Finding::error(&codes::UNREADABLE_FILE, text))
                }
            }
        })
    }

    fn wrong_size(&self, stream: &StreamInfo, rows: &Rows<'_>, bytes: &[u8], sample: u64) -> Option<Finding> {
        let (size, bits) = match image_header(rows.path, bytes, &self.root.limits) {
            Ok((size, bits)) => ([size.height, size.width, size.channels], bits),
            Err(error) => {
                let mut finding = finding_of(&self.root, Level::Error, &codes::UNREADABLE_FILE, &error);
                finding.message = format!("expected a picture in sample {sample}: {}", finding.message);
                return Some(finding);
            }
        };
        if size != stream.shape.as_slice() {
            let text = format!("expected pictures of {:?} as declared, sample {sample} is {size:?}", stream.shape);
            return Some(Finding::error(&codes::SHAPE_DIFFERS, text));
        }
        let most = stream.dtype.map_or(1, |dtype| dtype.size()) * 8;
        let text = format!("expected pictures of {most} bits per value, sample {sample} has {bits}");
        (bits > most).then(|| Finding::error(&codes::DTYPE_DIFFERS, text))
    }

    /// A picture that is a file of its own: whether it is there. Its content is not looked at.
    fn wrong_file(&self, file: &str, sample: u64) -> Option<Finding> {
        match self.root.join(file) {
            Ok(path) if exists(&path) => None,
            Ok(_) => {
                let text = format!("expected a picture of sample {sample} in {file:?}, there is no such file");
                Some(Finding::error(&codes::MISSING_FILE, text))
            }
            Err(error) => Some(finding_of(&self.root, Level::Error, &codes::UNREADABLE_FILE, &error)),
        }
    }
}

/// A stream whose column does not hold what it should.
fn wrong_type(stream: &StreamInfo, table: &ParquetFile) -> Option<Finding> {
    let stored = table.number_type(&stream.name);
    let field = table.schema().field_with_name(&stream.name).ok()?;
    let expected = match stream.kind {
        Kind::Scalar | Kind::Vector | Kind::PointCloud => stream.dtype.filter(|_| stored != stream.dtype)?.name(),
        Kind::Image | Kind::Depth if stored.is_some() => "pictures",
        Kind::Text if is_text(table, &stream.name) == Some(false) => "text",
        _ => return None,
    };
    let text = format!(
        "expected {expected}, the file holds {}",
        stored.map_or(field.data_type().to_string(), |d| d.to_string())
    );
    Some(Finding::error(&codes::DTYPE_DIFFERS, text).stream(&stream.name))
}

/// Texts that are null.
fn missing_texts(column: &ArrayRef) -> Option<Finding> {
    let first = (0..column.len()).find(|&sample| column.is_null(sample))?;
    let text = format!(
        "expected a text in each of {} samples, {} are missing (null) and read as empty; first in sample {first}",
        column.len(),
        column.null_count()
    );
    Some(Finding::warning(&codes::TEXT_MISSING, text))
}

/// The bytes of pictures in a column; `None` where it holds something else.
fn bytes_of(column: &ArrayRef) -> Option<&BinaryArray> {
    match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>()),
        DataType::Struct(_) => {
            let bytes = column.as_struct().column_by_name("bytes")?;
            (bytes.data_type() == &DataType::Binary).then(|| bytes.as_binary::<i32>())
        }
        _ => None,
    }
}
