//! Columns as Arrow arrays, by the `parquet` crate's decoders over pages that were scanned and
//! decompressed here.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, new_empty_array};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection, RowSelector};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page as Decoded, PageIterator, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::ColumnDescriptor;
use robocache::{Error, ErrorKind, Result};

use super::ParquetFile;
use super::budget::Budget;
use super::cache::{Cache, Key};
use super::codec::Scratch;
use super::delta::sum_lengths;
use super::levels::{Levels, Run, Runs, unpack};
use super::pages::{Form, PLAIN, PLAIN_DICTIONARY, Page, Pages, Parts, RLE, RLE_DICTIONARY, Starts};
use super::source::Reads;
use super::thrift::Fault;
use crate::limits::{corrupt, exceeds, guarded};

const DELTA_BINARY_PACKED: i32 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i32 = 6;
const DELTA_BYTE_ARRAY: i32 = 7;
const BYTE_STREAM_SPLIT: i32 = 9;

/// Reads one top-level column.
///
/// `reserved` bytes of what the read may use are already in use.
pub(super) fn read_column(file: &ParquetFile, root: usize, rows: Range<u64>, reserved: u64) -> Result<ArrayRef> {
    let path = file.source.path();
    let levels = guarded(path, "the schema", || {
        parquet_to_arrow_field_levels(&file.descriptor, ProjectionMask::roots(&file.descriptor, [root]), None)
            .map_err(|error| corrupt(path, format!("the schema makes no sense: {error}")))
    })?;
    let count = rows.end.saturating_sub(rows.start);
    let groups: Vec<usize> = file.groups_of(&rows).collect();
    let first = groups.first().and_then(|group| file.groups.get(*group));
    let Some(first) = first else {
        return Ok(new_empty_array(file.schema.field(root).data_type()));
    };
    let skip = rows.start.saturating_sub(first.first_row);

    let failure = Arc::new(Mutex::new(None));
    let window = Window::new(file, root, &rows, &groups, reserved, &failure)?;
    let name = format!("column {:?}", file.schema.field(root).name());
    let fail = |what: &dyn std::fmt::Display| corrupt(path, format!("{name}: {what}"));
    let read = || {
        let (skip, count) = (window.usize(skip)?, window.usize(count)?);
        let selection = RowSelection::from(vec![RowSelector::skip(skip), RowSelector::select(count)]);
        let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &window, count, Some(selection));
        let batch = reader.map_err(|error| fail(&error))?.next().transpose().map_err(|error| fail(&error))?;
        let column = batch.and_then(|batch| batch.columns().first().cloned());
        let got = column.as_ref().map_or(0, |column| column.len());
        column
            .filter(|_| got == count)
            .ok_or_else(|| fail(&format_args!("expected {count} rows from row {}, got {got}", rows.start)))
    };
    // What stopped the pages is a better answer than what their reader made of it.
    guarded(path, &name, read)
        .map_err(|error| failure.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(error))
}

/// The row groups that a read touches.
struct Window<'a> {
    file: &'a ParquetFile,
    rows: usize,
    metadata: ParquetMetaData,
    /// Leaf, and its pages per row group.
    leaves: Vec<(usize, Vec<LeafPages>)>,
}

/// The pages of one leaf in one row group; those outside the wanted rows are never loaded.
#[derive(Clone)]
struct LeafPages {
    reads: Arc<Reads>,
    pages: Arc<Pages>,
    budget: Arc<Budget>,
    cache: Arc<Cache>,
    leaf: Arc<Leaf>,
    /// Row group and leaf.
    place: (usize, usize),
    /// The wanted rows of the row group, if not all.
    part: Option<Range<u64>>,
    failure: Arc<Mutex<Option<Error>>>,
    left: VecDeque<Option<usize>>,
    /// Lengths of the dictionary's entries, of byte arrays only.
    lengths: Arc<Mutex<Option<Lengths>>>,
}

/// What is known of the dictionary once it was loaded.
struct Lengths {
    entries: usize,
    bytes: Vec<u32>,
}

/// The column that pages belong to.
struct Leaf {
    name: String,
    physical: Physical,
    width: u64,
    max_repetition: i16,
    max_definition: i16,
}

impl Leaf {
    fn new(column: &ColumnDescriptor) -> Self {
        let physical = column.physical_type();
        let width = match physical {
            Physical::BOOLEAN => 1,
            Physical::INT32 | Physical::FLOAT => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            // Offsets; their bytes are counted page by page.
            Physical::BYTE_ARRAY => 8,
            Physical::FIXED_LEN_BYTE_ARRAY => u64::try_from(column.type_length()).unwrap_or(1),
        };
        Self {
            name: column.path().string(),
            physical,
            width,
            max_repetition: column.max_rep_level(),
            max_definition: column.max_def_level(),
        }
    }
}

impl<'a> Window<'a> {
    fn new(
        file: &'a ParquetFile,
        root: usize,
        rows: &Range<u64>,
        groups: &[usize],
        reserved: u64,
        failure: &Arc<Mutex<Option<Error>>>,
    ) -> Result<Self> {
        let reads = Arc::new(file.source.open()?);
        let path = reads.path();
        let budget = file.budget();
        budget.take(reserved, file.schema.field(root).name(), path)?;
        let budget = Arc::new(budget);
        let mut leaves = Vec::new();
        for index in file.leaves_of(root) {
            let leaf = Arc::new(Leaf::new(&file.descriptor.column(index)));
            let mut parts = Vec::new();
            for place in groups {
                let pages = file.pages(&reads, *place, index)?;
                let group = file.groups.get(*place).ok_or_else(|| corrupt(path, "a row group is missing"))?;
                let wanted = |page: &Page| {
                    let first = group.first_row + page.first_row;
                    !pages.aligned || (first < rows.end && first + page.rows > rows.start)
                };
                let chosen = || pages.data.iter().filter(|page| wanted(page));
                // Output, levels and the growth of both.
                let per_value = leaf.width.saturating_mul(2).saturating_add(8);
                let values: u64 = chosen().map(|page| u64::from(page.values)).sum();
                let largest = chosen().map(|page| u64::from(page.uncompressed)).max().unwrap_or(0);
                let dictionary = pages.dictionary.map_or(0, |page| u64::from(page.uncompressed));
                budget.take(values.saturating_mul(per_value), &leaf.name, path)?;
                budget.take(largest.max(dictionary).saturating_mul(2), &leaf.name, path)?;
                budget.take(dictionary.saturating_mul(2), &leaf.name, path)?;
                let part = rows.start.saturating_sub(group.first_row)..(rows.end - group.first_row).min(group.rows);
                parts.push(LeafPages {
                    reads: Arc::clone(&reads),
                    budget: Arc::clone(&budget),
                    cache: Arc::clone(&file.cache),
                    place: (*place, index),
                    part: Some(part).filter(|part| part.end - part.start < group.rows),
                    leaf: Arc::clone(&leaf),
                    failure: Arc::clone(failure),
                    left: pages.dictionary.iter().map(|_| None).chain((0..pages.data.len()).map(Some)).collect(),
                    pages,
                    lengths: Arc::default(),
                });
            }
            leaves.push((index, parts));
        }
        let total = groups.iter().filter_map(|group| file.groups.get(*group)).map(|group| group.rows).sum::<u64>();
        let file_metadata = FileMetaData::new(2, 0, None, None, Arc::clone(&file.descriptor), None);
        let metadata = ParquetMetaData::new(file_metadata, Vec::new());
        let mut window = Self { file, rows: 0, metadata, leaves };
        window.rows = window.usize(total)?;
        Ok(window)
    }

    fn usize(&self, count: u64) -> Result<usize> {
        let path = self.file.source.path();
        usize::try_from(count).map_err(|_| exceeds(path, format!("{count} rows are more than memory can hold")))
    }
}

impl RowGroups for Window<'_> {
    fn num_rows(&self) -> usize {
        self.rows
    }

    fn column_chunks(&self, leaf: usize) -> parquet::errors::Result<Box<dyn PageIterator>> {
        let (_, parts) = self
            .leaves
            .iter()
            .find(|(index, _)| *index == leaf)
            .ok_or_else(|| ParquetError::General(format!("column {leaf} was not asked for")))?;
        Ok(Box::new(Chunks(parts.clone().into_iter())))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::empty())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

struct Chunks(std::vec::IntoIter<LeafPages>);

impl Iterator for Chunks {
    type Item = parquet::errors::Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl PageIterator for Chunks {}

impl Iterator for LeafPages {
    type Item = parquet::errors::Result<Decoded>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for LeafPages {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Decoded>> {
        let Some(next) = self.left.pop_front() else { return Ok(None) };
        self.decode(next).map(Some).map_err(|error| {
            let text = error.to_string();
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            ParquetError::General(text)
        })
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        let Some(next) = self.left.front() else { return Ok(None) };
        let page = next.and_then(|index| self.pages.data.get(index));
        let rows = next.and_then(|index| self.pages.whole_rows(index));
        Ok(Some(PageMetadata {
            num_rows: rows.and_then(|rows| usize::try_from(rows).ok()),
            num_levels: page.map(|page| page.values as usize),
            is_dict: next.is_none(),
        }))
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        self.left.pop_front();
        Ok(())
    }

    fn at_record_boundary(&mut self) -> parquet::errors::Result<bool> {
        let next = self.left.front().copied().flatten();
        Ok(next.map_or(self.left.is_empty(), |next| self.pages.opens(next)))
    }
}

impl LeafPages {
    fn decode(&mut self, next: Option<usize>) -> Result<Decoded> {
        let path = self.reads.path().to_path_buf();
        let missing = || corrupt(&path, format!("a page of column {:?} is missing", self.leaf.name));
        let page = match next {
            None => self.pages.dictionary,
            Some(index) => self.pages.data.get(index).copied(),
        };
        let page = page.ok_or_else(missing)?;
        let body = self.unpack(next, &page)?;
        let place = |fault: Fault| {
            corrupt(&path, format!("column {:?}: the page at byte {}: {fault}", self.leaf.name, page.at))
        };
        if page.form == Form::Dictionary {
            self.check_dictionary(&page, &body).map_err(place)?;
            let encoding = Encoding::PLAIN;
            return Ok(Decoded::DictionaryPage { buf: body, num_values: page.values, encoding, is_sorted: false });
        }
        let has = (self.leaf.max_repetition > 0, self.leaf.max_definition > 0);
        if matches!(page.form, Form::V1 { rle_levels: (r, d) } if has.0 && !r || has.1 && !d) {
            let text = format!("column {:?} has levels in the deprecated bit-packed form", self.leaf.name);
            return Err(Error::new(ErrorKind::Unsupported, text).path(&path));
        }
        let parts = Parts::split(&body, page.form, has).map_err(place)?;
        if has.0 {
            let starts = self.check_rows(&page, parts.repetition).map_err(place)?;
            if let Some(index) = next.filter(|_| !self.pages.aligned) {
                self.pages.set_starts(index, starts);
            }
        }
        let encoding = self.encoding(&page)?;
        let present = self.count_values(&page, parts.definition).map_err(place)?;
        let bytes = self.check_values(&page, parts.values, present).map_err(place)?;
        self.budget.take(bytes, &self.leaf.name, &path)?;
        let buf = body;
        let num_values = page.values;
        let (def_level_encoding, rep_level_encoding, statistics) = (Encoding::RLE, Encoding::RLE, None);
        Ok(match page.form {
            Form::V2 { nulls, rows, repetition, definition, .. } => Decoded::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls: nulls,
                num_rows: rows,
                def_levels_byte_len: definition,
                rep_levels_byte_len: repetition,
                is_compressed: false,
                statistics,
            },
            _ => Decoded::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics },
        })
    }

    /// The body of a page, kept for the next read if this one leaves some of it.
    fn unpack(&self, next: Option<usize>, page: &Page) -> Result<Bytes> {
        let unpack =
            |memory| Scratch::with(|scratch| scratch.unpacker.take(&self.reads, self.pages.codec, page, memory));
        let covered = |part: &Range<u64>| {
            let aligned = self.pages.aligned && next.is_some();
            aligned && part.start <= page.first_row && page.first_row + page.rows <= part.end
        };
        if self.part.as_ref().is_none_or(covered) {
            return unpack(Vec::new()).map(Bytes::from);
        }
        let key = Key { group: self.place.0, leaf: self.place.1, page: next };
        let page = self.cache.get(key, u64::from(page.uncompressed), &self.budget, unpack)?;
        Ok(page.bytes.clone())
    }

    fn encoding(&self, page: &Page) -> Result<Encoding> {
        Ok(match page.encoding {
            PLAIN => Encoding::PLAIN,
            PLAIN_DICTIONARY | RLE_DICTIONARY => Encoding::RLE_DICTIONARY,
            RLE => Encoding::RLE,
            DELTA_BINARY_PACKED => Encoding::DELTA_BINARY_PACKED,
            DELTA_LENGTH_BYTE_ARRAY => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            BYTE_STREAM_SPLIT => Encoding::BYTE_STREAM_SPLIT,
            DELTA_BYTE_ARRAY => Encoding::DELTA_BYTE_ARRAY,
            code => {
                let text = format!("column {:?} is written in the unknown encoding {code}", self.leaf.name);
                return Err(Error::new(ErrorKind::Unsupported, text).path(self.reads.path()));
            }
        })
    }

    /// The entries that a dictionary claims must lie in its bytes.
    fn check_dictionary(&self, page: &Page, body: &[u8]) -> Result<(), Fault> {
        const SHORT: Fault = Fault::Bad("the dictionary is shorter than its entries");
        if !matches!(page.encoding, PLAIN | PLAIN_DICTIONARY) {
            return Err(Fault::Bad("the dictionary is not written plainly"));
        }
        let mut lengths = Lengths { entries: page.values as usize, bytes: Vec::new() };
        if self.leaf.physical == Physical::BYTE_ARRAY {
            let mut rest = body;
            for _ in 0..page.values {
                let (length, tail) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
                let length = u32::from_le_bytes(*length);
                rest = tail.get(length as usize..).ok_or(SHORT)?;
                lengths.bytes.push(length);
            }
        } else {
            let needed = u64::from(page.values).saturating_mul(self.leaf.width);
            if u64::try_from(body.len()).is_ok_and(|have| needed > have) {
                return Err(SHORT);
            }
        }
        *self.lengths.lock().unwrap_or_else(PoisonError::into_inner) = Some(lengths);
        Ok(())
    }

    /// Rows that a header or an index counts must be those that the levels start.
    fn check_rows(&self, page: &Page, repetition: &[u8]) -> Result<Starts, Fault> {
        let levels = Levels::read(repetition, self.leaf.max_repetition, page.values as usize)?;
        let opens = page.first_value == 0 || self.pages.aligned;
        if opens && levels.first.is_some_and(|level| level > 0) {
            return Err(Fault::Bad("its first value continues a row, but there is none before it"));
        }
        if self.pages.aligned && u64::try_from(levels.zeros) != Ok(page.rows) {
            return Err(Fault::Bad("it holds another number of rows than its header or index says"));
        }
        let rows = u64::try_from(levels.zeros).unwrap_or(u64::MAX);
        Ok(Starts { rows, first: levels.first == Some(0) })
    }

    /// How many values of a page are there, which are not null.
    fn count_values(&self, page: &Page, definition: &[u8]) -> Result<u64, Fault> {
        let present = match self.leaf.max_definition {
            0 => page.values as usize,
            max => Levels::read(definition, max, page.values as usize)?.full,
        };
        let present = u64::try_from(present).unwrap_or(u64::MAX);
        match page.form {
            // What lies in empty lists is counted as a null by some writers only.
            Form::V2 { nulls, .. } if u64::from(page.values - nulls.min(page.values)) < present => {
                Err(Fault::Bad("it holds more values than its header says"))
            }
            _ => Ok(present),
        }
    }

    /// Checks what decoders trust, and returns the bytes that byte arrays will take.
    fn check_values(&self, page: &Page, values: &[u8], present: u64) -> Result<u64, Fault> {
        const SHORT: Fault = Fault::Bad("it holds fewer values than its levels say");
        let size = u64::try_from(values.len()).unwrap_or(u64::MAX);
        let needed = match self.leaf.physical {
            Physical::BOOLEAN => present.div_ceil(8),
            Physical::BYTE_ARRAY => present.saturating_mul(4),
            _ => present.saturating_mul(self.leaf.width),
        };
        let most = u64::from(page.values);
        match page.encoding {
            PLAIN_DICTIONARY | RLE_DICTIONARY => {
                let lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
                let lengths = lengths.as_ref().ok_or(Fault::Bad("its dictionary is missing"))?;
                check_indices(values, page.values as usize, lengths)
            }
            PLAIN | BYTE_STREAM_SPLIT if needed > size => Err(SHORT),
            BYTE_STREAM_SPLIT if needed != size => Err(Fault::Bad("it holds more bytes than values")),
            DELTA_LENGTH_BYTE_ARRAY => {
                sum_lengths(&mut &*values, most)?;
                Ok(size.saturating_mul(2).saturating_add(most.saturating_mul(4)))
            }
            DELTA_BYTE_ARRAY => {
                let mut rest = values;
                let prefixes = sum_lengths(&mut rest, most)?;
                let total = prefixes.saturating_add(sum_lengths(&mut rest, most)?);
                Ok(total.saturating_mul(2).saturating_add(most.saturating_mul(8)))
            }
            _ if self.leaf.physical == Physical::BYTE_ARRAY => Ok(size.saturating_mul(2)),
            _ => Ok(0),
        }
    }
}

/// Checks indices against the dictionary, and sums the bytes that they stand for.
fn check_indices(values: &[u8], count: usize, lengths: &Lengths) -> Result<u64, Fault> {
    const OUTSIDE: Fault = Fault::Bad("an index lies outside the dictionary");
    let Some((width, rest)) = values.split_first() else {
        return if count == 0 { Ok(0) } else { Err(Fault::Bad("the dictionary indices are missing")) };
    };
    let width = u32::from(*width);
    if width > 32 {
        return Err(Fault::Bad("dictionary indices have more than 32 bits"));
    }
    let mut total = 0u64;
    let mut add = |index: u32, times: usize| {
        let index = index as usize;
        if index >= lengths.entries {
            return Err(OUTSIDE);
        }
        let bytes = lengths.bytes.get(index).copied().map_or(0, u64::from);
        total = total.saturating_add(bytes.saturating_mul(u64::try_from(times).unwrap_or(u64::MAX)));
        Ok(())
    };
    let mut runs = Runs::new(rest, width, count);
    // Nulls have no index, so the runs may end early.
    while !runs.is_spent() {
        match runs.next()? {
            None => break,
            Some(Run::Repeat { value, count }) => add(value, count)?,
            Some(Run::Packed { bytes, count }) => {
                unpack(bytes, width, 0, count, |some| some.iter().try_for_each(|index| add(*index, 1)))?
            }
        }
    }
    Ok(total.saturating_mul(2))
}
