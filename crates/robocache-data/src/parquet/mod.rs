//! Parquet files: opened with a scan that trusts nothing, read by column and range of rows.
//!
//! `source` reads bytes; `thrift`, `footer` and `schema` make sense of the metadata; `pages` scans
//! pages, `codec` decompresses them and `cache` keeps the last ones; `arrow` decodes any column with the `parquet` crate, and
//! `fast` decodes regular columns of numbers straight into a tensor.

mod arrow;
mod budget;
mod cache;
mod codec;
mod delta;
mod examine;
mod fast;
mod footer;
mod levels;
mod numbers;
mod pages;
mod schema;
mod source;
mod thrift;

#[cfg(test)]
mod speed;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ArrayRef;
use arrow_schema::Schema;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::schema::types::SchemaDescriptor;
use robocache::{DType, Error, Result, Tensor, ensure};

use crate::Limits;
use crate::limits::{corrupt, exceeds, guarded};
use budget::Budget;
use cache::Cache;
use fast::Plan;
use footer::RowGroup;
use pages::{Codec, Column, Pages};
use source::{Reads, Source};

pub(crate) use cache::Shared;
#[cfg(test)]
pub(crate) use examine::bits;
pub(crate) use examine::examine;
pub(crate) use numbers::Why;

/// In a row group of so many rows there may be several episodes, and then it is read again.
const MANY_ROWS: u64 = 1024;

/// A parquet file whose footer was checked. It stays open, and keeps the pages that were read last.
pub(crate) struct ParquetFile {
    source: Arc<Source>,
    limits: Limits,
    rows: u64,
    schema: Schema,
    descriptor: Arc<SchemaDescriptor>,
    groups: Vec<RowGroup>,
    leaves: Vec<LeafColumn>,
    cache: Arc<Cache>,
    /// How leaves were read last.
    plans: Mutex<HashMap<usize, Arc<Plan>>>,
    /// Scanned pages by row group and leaf, of chunks with more than one or with many rows.
    scanned: Mutex<HashMap<(usize, usize), Arc<Pages>>>,
}

/// Why numbers could not be read.
#[derive(Debug)]
pub(crate) struct Unfit {
    pub(crate) why: Why,
    pub(crate) error: Error,
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Self {
        Self { why: Why::Unreadable, error }
    }
}

/// One column of values.
struct LeafColumn {
    name: String,
    /// The top-level column that it belongs to.
    root: usize,
    max_repetition: i16,
}

impl std::fmt::Debug for ParquetFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetFile")
            .field("path", &self.source.path())
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl ParquetFile {
    /// Opens a file and checks its footer.
    pub(crate) fn open(path: &Path, limits: &Limits) -> Result<Self> {
        Self::open_among(path, limits, &Shared::new(limits.max_alloc))
    }

    /// Opens one of many files, which share what they keep.
    pub(crate) fn open_among(path: &Path, limits: &Limits, shared: &Arc<Shared>) -> Result<Self> {
        let source = Arc::new(Source::new(path)?);
        let footer = footer::read_footer(&source.open()?, limits)?;
        let schema = guarded(path, "the schema", || {
            parquet_to_arrow_schema(&footer.schema, None)
                .map_err(|error| corrupt(path, format!("the schema makes no sense: {error}")))
        })?;
        let leaf = |index: usize| {
            let column = footer.schema.column(index);
            let root = footer.schema.get_column_root_idx(index);
            LeafColumn { name: column.path().string(), root, max_repetition: column.max_rep_level() }
        };
        Ok(Self {
            leaves: (0..footer.schema.num_columns()).map(leaf).collect(),
            cache: Cache::new(limits.max_alloc, shared),
            plans: Mutex::default(),
            source,
            limits: *limits,
            rows: footer.rows,
            schema: schema.with_metadata(footer.metadata),
            descriptor: Arc::new(footer.schema),
            groups: footer.groups,
            scanned: Mutex::default(),
        })
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Names and types of the columns, and the key-value metadata. Types are those of parquet:
    /// a fixed-size list reads as a list.
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Refuses a file in which every column is compressed in a way that is not known here.
    pub(crate) fn ensure_known_codec(&self) -> Result<()> {
        let chunks = self.groups.iter().flat_map(|group| group.chunks.iter().zip(&self.leaves));
        let mut codecs = chunks.map(|(chunk, leaf)| Codec::new(chunk.codec, &leaf.name, self.source.path()));
        match codecs.next() {
            Some(Err(error)) if codecs.all(|codec| codec.is_err()) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whole arrays of columns, by top-level name, for a range of rows.
    pub(crate) fn read(&self, columns: &[&str], rows: Range<u64>) -> Result<Vec<ArrayRef>> {
        let rows = self.range(rows)?;
        columns.iter().map(|column| arrow::read_column(self, self.column(column)?, rows.clone(), 0)).collect()
    }

    /// The dtype of a column of numbers, through lists; `None` for other columns.
    pub(crate) fn number_type(&self, column: &str) -> Option<DType> {
        numbers::number_type(self.schema.field_with_name(column).ok()?.data_type())
    }

    /// A column of numbers as a tensor `[rows, shape...]`. Every row must hold values of exactly
    /// this shape, and none may be missing.
    pub(crate) fn numbers(&self, column: &str, rows: Range<u64>, shape: &[usize]) -> Result<Tensor> {
        self.fitting_numbers(column, rows, shape).map_err(|unfit| unfit.error)
    }

    /// As [`Self::numbers`], and says in which way the rows do not fit.
    pub(crate) fn fitting_numbers(
        &self,
        column: &str,
        rows: Range<u64>,
        shape: &[usize],
    ) -> std::result::Result<Tensor, Unfit> {
        let rows = self.range(rows)?;
        let root = self.column(column)?;
        let mut tensor = self.room(column, &rows, shape)?;
        if tensor.view().layout().count() == 0 || fast::fill(self, root, &rows, shape, &mut tensor)? {
            return Ok(tensor);
        }
        let reserved = tensor.view().layout().count().saturating_mul(tensor.dtype().size());
        let reserved = u64::try_from(reserved).unwrap_or(u64::MAX);
        let array = arrow::read_column(self, root, rows.clone(), reserved)?;
        numbers::fill(&array, shape, &mut tensor).map_err(|misfit| {
            let row = rows.start.saturating_add(u64::try_from(misfit.row).unwrap_or(u64::MAX));
            let error = corrupt(self.source.path(), format!("column {column:?}, row {row}: {}", misfit.what));
            Unfit { why: misfit.why, error }
        })?;
        Ok(tensor)
    }

    /// Memory for the result of [`Self::numbers`], if the file may cost that much.
    fn room(&self, column: &str, rows: &Range<u64>, shape: &[usize]) -> Result<Tensor> {
        let dtype = self.number_type(column).ok_or_else(|| {
            let type_name = self.schema.field_with_name(column).map(|field| field.data_type().to_string());
            let text = format!("column {column:?} holds {}, not numbers", type_name.unwrap_or_default());
            Error::invalid("column", text).path(self.source.path())
        })?;
        let allowed = self.limits.max_alloc.saturating_add(self.source.bytes());
        let count = rows.end - rows.start;
        let bytes = [count].into_iter().chain(shape.iter().map(|size| u64::try_from(*size).unwrap_or(u64::MAX)));
        let bytes = bytes.chain([u64::try_from(dtype.size()).unwrap_or(8)]).try_fold(1u64, u64::checked_mul);
        let dims: Option<Vec<usize>> = usize::try_from(count).ok().map(|count| [&[count], shape].concat());
        match (bytes.filter(|bytes| *bytes <= allowed), dims) {
            (Some(_), Some(dims)) => Tensor::zeros(&dims, dtype).map_err(|error| error.path(self.source.path())),
            _ => {
                let text = format!("{count} rows of column {column:?} need more than {allowed} bytes (max_alloc)");
                Err(exceeds(self.source.path(), text))
            }
        }
    }

    fn range(&self, rows: Range<u64>) -> Result<Range<u64>> {
        ensure!(
            rows.start <= rows.end && rows.end <= self.rows,
            "rows",
            "expected rows within 0..{}, got {rows:?}",
            self.rows
        );
        Ok(rows)
    }

    /// The place of a top-level column.
    fn column(&self, name: &str) -> Result<usize> {
        let mut found = self.schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
        let Some((index, _)) = found.next() else {
            return Err(corrupt(self.source.path(), format!("column {name:?} is missing")));
        };
        if found.next().is_some() {
            return Err(corrupt(self.source.path(), format!("there are two columns {name:?}")));
        }
        Ok(index)
    }

    /// The leaf columns under a top-level one.
    fn leaves_of(&self, root: usize) -> impl Iterator<Item = usize> {
        self.leaves.iter().enumerate().filter(move |(_, leaf)| leaf.root == root).map(|(index, _)| index)
    }

    /// The row groups that hold some of these rows.
    fn groups_of(&self, rows: &Range<u64>) -> impl Iterator<Item = usize> {
        let (start, end) = (rows.start, rows.end);
        let first = self.groups.partition_point(|group| group.first_row + group.rows <= start);
        let groups = self.groups.iter().enumerate().skip(first);
        groups.take_while(move |(_, group)| group.first_row < end && start < end).map(|(index, _)| index)
    }

    /// What one read may use.
    fn budget(&self) -> Budget {
        Budget::new(&self.limits, self.source.bytes(), &self.cache)
    }

    /// The pages of a leaf column in a row group.
    fn pages(&self, reads: &Reads, group: usize, leaf: usize) -> Result<Arc<Pages>> {
        let lock = || self.scanned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pages) = lock().get(&(group, leaf)) {
            return Ok(Arc::clone(pages));
        }
        let place =
            self.groups.get(group).and_then(|group| Some((group, group.chunks.get(leaf)?, self.leaves.get(leaf)?)));
        let (row_group, chunk, leaf_column) =
            place.ok_or_else(|| corrupt(self.source.path(), "a column is missing"))?;
        let LeafColumn { name, max_repetition, .. } = leaf_column;
        let column = Column { name, max_repetition: *max_repetition, rows: row_group.rows };
        let pages = Arc::new(Pages::scan(reads, chunk, &column, &self.limits)?);
        if pages.data.len() > 1 || row_group.rows >= MANY_ROWS {
            lock().insert((group, leaf), Arc::clone(&pages));
        }
        Ok(pages)
    }
}
