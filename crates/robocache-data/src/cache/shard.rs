//! One stream in one unit: an Arrow IPC file of the columns `time` and `value`.
//!
//! Rows come in record batches of whole episodes, so that any window of numbers is one contiguous
//! read; only pictures and texts, which are read one by one, may go on in the next batch.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, FixedSizeListArray, Int64Array, RecordBatch, StringArray, make_array};
use arrow_buffer::{Buffer, MutableBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_ipc::Block;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use robocache::{DType, Error, ErrorKind, Result};

use super::blocks::{BLOCK, Summed, Verified};
use super::footer::{Footer, TAIL, batch_bytes, footer_start, map, read_batch};
use super::fs::{FileOut, Fs};
use super::layout::{CachedStream, Encoding, ShardFile, path_in};
use crate::files::open_regular;
use crate::limits::{corrupt, file_error, guarded};

/// Buffers start at multiples of this, as direct uploads want it.
const ALIGNMENT: usize = 64;

/// The columns of a stream's file.
fn schema(stream: &CachedStream) -> Schema {
    let value = match (stream.encoding, stream.number_type()) {
        (Encoding::Text, _) | (_, None) => DataType::Utf8,
        (Encoding::Jpeg, _) => DataType::Binary,
        (Encoding::Raw, Some(dtype)) => {
            let item = Arc::new(Field::new("item", stored_type(dtype), false));
            let width: usize = stream.shape.iter().product();
            DataType::FixedSizeList(item, i32::try_from(width).unwrap_or(i32::MAX))
        }
    };
    let shape: Vec<String> = stream.shape.iter().map(ToString::to_string).collect();
    let metadata = [("robocache.dtype", stream.dtype.clone()), ("robocache.shape", shape.join(","))];
    let metadata: HashMap<String, String> = metadata.map(|(key, value)| (key.to_owned(), value)).into();
    let value = Field::new("value", value, false).with_metadata(metadata);
    Schema::new(vec![Field::new("time", DataType::Int64, false), value])
}

/// Arrow has no bfloat16 and no float8, and packs bool into bits: they are kept as what they are in memory.
fn stored_type(dtype: DType) -> DataType {
    match dtype {
        DType::F16 => DataType::Float16,
        DType::BF16 | DType::U16 => DataType::UInt16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        DType::U8 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => DataType::UInt8,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::U32 => DataType::UInt32,
        DType::I32 => DataType::Int32,
        DType::U64 => DataType::UInt64,
        DType::I64 => DataType::Int64,
    }
}

/// Writes a stream's file.
pub(crate) struct ShardWriter {
    writer: FileWriter<Summed<Box<dyn FileOut>>>,
    schema: SchemaRef,
    encoding: Encoding,
    file: String,
    stream: usize,
    times: Vec<i64>,
    bytes: MutableBuffer,
    /// Ends of items that differ in length.
    ends: Vec<i32>,
    batches: Vec<u64>,
    rows: u64,
}

impl ShardWriter {
    pub(crate) fn create(fs: &dyn Fs, folder: &Path, index: usize, stream: &CachedStream) -> Result<Self> {
        let file = stream.file_name();
        let path = folder.join(&file);
        let out = fs.create(&path).map_err(|error| file_error(&path, "cannot create", error))?;
        let schema = Arc::new(schema(stream));
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, arrow_ipc::MetadataVersion::V5);
        let writer = options.and_then(|options| FileWriter::try_new_with_options(Summed::new(out), &schema, options));
        Ok(Self {
            writer: writer.map_err(|error| cannot_write(&path, error))?,
            schema,
            encoding: stream.encoding,
            file,
            stream: index,
            times: Vec::new(),
            bytes: MutableBuffer::new(0),
            ends: vec![0],
            batches: Vec::new(),
            rows: 0,
        })
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// All samples of an episode, raw, together.
    pub(crate) fn push_episode(&mut self, folder: &Path, times: &[i64], bytes: &[u8]) -> Result<()> {
        if self.bytes.is_empty() {
            // A batch ends with the episode that fills it; growing to that would copy it several times.
            let more = if bytes.len() < BLOCK { BLOCK } else { 0 };
            self.bytes.reserve(bytes.len() + more);
        }
        self.times.extend_from_slice(times);
        self.bytes.extend_from_slice(bytes);
        self.rows += times.len() as u64;
        self.flush_if_full(folder)
    }

    /// One sample: a picture or a text.
    pub(crate) fn push(&mut self, folder: &Path, time: i64, bytes: &[u8]) -> Result<()> {
        self.times.push(time);
        self.bytes.extend_from_slice(bytes);
        if self.encoding != Encoding::Raw {
            let end = i32::try_from(self.bytes.len());
            self.ends.push(end.map_err(|_| Error::new(ErrorKind::LimitExceeded, "a sample is larger than 2 GiB"))?);
        }
        self.rows += 1;
        self.flush_if_full(folder)
    }

    fn flush_if_full(&mut self, folder: &Path) -> Result<()> {
        if self.bytes.len() + self.times.len() * 8 >= BLOCK { self.flush(folder) } else { Ok(()) }
    }

    fn flush(&mut self, folder: &Path) -> Result<()> {
        if self.times.is_empty() {
            return Ok(());
        }
        let rows = self.times.len();
        let times = Buffer::from_vec(std::mem::take(&mut self.times));
        let bytes = Buffer::from(std::mem::take(&mut self.bytes));
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        let batch = self.batch(rows, times.clone(), bytes.clone(), ends);
        let written = batch.and_then(|batch| self.writer.write(&batch));
        written.map_err(|error| cannot_write(&folder.join(&self.file), error))?;
        self.batches.push(rows as u64);
        // The next batch takes the memory of this one: new pages would cost as much as filling them.
        self.times = times.into_vec().unwrap_or_default();
        self.bytes = bytes.into_mutable().unwrap_or_default();
        self.times.clear();
        self.bytes.clear();
        Ok(())
    }

    fn batch(&self, rows: usize, times: Buffer, bytes: Buffer, ends: Vec<i32>) -> Result<RecordBatch, ArrowError> {
        let value: ArrayRef = match self.schema.field(1).data_type() {
            DataType::FixedSizeList(item, width) => {
                let count = rows * usize::try_from(*width).unwrap_or(0);
                let data = ArrayData::builder(item.data_type().clone()).len(count).add_buffer(bytes).build()?;
                Arc::new(FixedSizeListArray::try_new_with_length(
                    Arc::clone(item),
                    *width,
                    make_array(data),
                    None,
                    rows,
                )?)
            }
            DataType::Utf8 => Arc::new(StringArray::try_new(OffsetBuffer::new(ends.into()), bytes, None)?),
            _ => Arc::new(BinaryArray::try_new(OffsetBuffer::new(ends.into()), bytes, None)?),
        };
        let times = Int64Array::try_new(ScalarBuffer::new(times, 0, rows), None)?;
        RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(times), value])
    }

    /// Writes what is left. The file is sure to last when it was synced.
    pub(crate) fn finish(mut self, folder: &Path) -> Result<(ShardFile, Box<dyn FileOut>)> {
        self.flush(folder)?;
        let path = folder.join(&self.file);
        let summed = self.writer.into_inner().map_err(|error| cannot_write(&path, error))?;
        let (mut out, bytes, crc32c) = summed.finish();
        out.begin();
        Ok((ShardFile { stream: self.stream, file: self.file, bytes, batches: self.batches, crc32c }, out))
    }
}

fn cannot_write(path: &Path, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => file_error(path, "cannot write", source),
        error => Error::new(ErrorKind::FileError, "cannot write").caused_by(error).path(path),
    }
}

/// A stream's file, mapped. Blocks are verified when they are first touched.
pub(crate) struct Shard {
    map: bytes::Bytes,
    verified: Verified,
    decoder: FileDecoder,
    places: Vec<Block>,
    /// The first row of each batch, and the number of rows after the last.
    starts: Vec<u64>,
    decoded: Vec<OnceLock<RecordBatch>>,
    path: std::path::PathBuf,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Rows that lie together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowsRef<'a> {
    pub(crate) times: &'a [i64],
    /// The samples, one after the other.
    pub(crate) values: &'a [u8],
}

impl Shard {
    pub(crate) fn open(folder: &Path, facts: &ShardFile, stream: &CachedStream) -> Result<Self> {
        let path = path_in(folder, &facts.file)?;
        let (file, metadata) = open_regular(&path)?;
        let length = metadata.len();
        if length != facts.bytes {
            return Err(corrupt(&path, format!("expected {} bytes, the file has {length}", facts.bytes)));
        }
        if facts.crc32c.len() as u64 != length.div_ceil(BLOCK as u64) {
            return Err(corrupt(&path, format!("{length} bytes have {} checksums", facts.crc32c.len())));
        }
        let map = map(&path, &file)?;
        let verified = Verified::new(facts.crc32c.clone());
        let mut shard = Self {
            verified,
            decoder: FileDecoder::new(Arc::new(Schema::empty()), arrow_ipc::MetadataVersion::V5),
            places: Vec::new(),
            starts: vec![0],
            decoded: facts.batches.iter().map(|_| OnceLock::new()).collect(),
            map,
            path,
        };
        let found = guarded(&shard.path.clone(), "footer", || shard.read_footer())?;
        if found.fields() != schema(stream).fields() {
            return Err(corrupt(&shard.path, "its columns are not those of the stream"));
        }
        if shard.places.len() != facts.batches.len() {
            let text = format!("expected {} record batches, got {}", facts.batches.len(), shard.places.len());
            return Err(corrupt(&shard.path, text));
        }
        for rows in &facts.batches {
            let end = shard.starts.last().copied().unwrap_or(0).saturating_add(*rows);
            shard.starts.push(end);
        }
        // Readers reserve memory for rows: there cannot be more than fit into the file.
        let row = 8 + if stream.encoding == Encoding::Raw { stream.row_bytes() as u64 } else { 0 };
        if shard.len().checked_mul(row).is_none_or(|bytes| bytes > length) {
            return Err(corrupt(&shard.path, format!("{} rows do not fit into {length} bytes", shard.len())));
        }
        Ok(shard)
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn read_footer(&mut self) -> Result<SchemaRef> {
        let bad = |error: String| corrupt(&self.path, format!("expected an Arrow file: {error}"));
        let length = self.map.len();
        self.touch(length.saturating_sub(TAIL), length)?;
        let start = footer_start(&self.map).map_err(bad)?;
        self.touch(start, length)?;
        let Footer { schema, decoder, places } = Footer::read(&self.map, start).map_err(bad)?;
        (self.decoder, self.places) = (decoder, places);
        Ok(schema)
    }

    /// Verifies the blocks of some bytes.
    fn touch(&self, start: usize, end: usize) -> Result<()> {
        self.verified.ensure(&self.map, start, end).map_err(|block| self.bad_block(block))
    }

    fn bad_block(&self, block: usize) -> Error {
        corrupt(&self.path, format!("the checksum of block {block} (bytes from {}) is wrong", block * BLOCK))
    }

    /// Reads every block anew; the numbers of the bad ones.
    pub(crate) fn verify(&self) -> Vec<usize> {
        (0..self.verified.len()).filter(|&block| self.verified.verify(&self.map, block).is_err()).collect()
    }

    /// The rows of a block of bytes, roughly: of the batches that it has a part in.
    pub(crate) fn rows_of_block(&self, block: usize) -> Vec<std::ops::Range<u64>> {
        let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
        let touches = |place: &Block| batch_bytes(place).is_none_or(|(start, end)| start < to && end > from);
        let batches = self.places.iter().zip(self.starts.windows(2));
        batches.filter(|(place, _)| touches(place)).map(|(_, edge)| edge[0]..edge[1]).collect()
    }

    fn batch(&self, batch: usize) -> Result<&RecordBatch> {
        let (Some(slot), Some(place)) = (self.decoded.get(batch), self.places.get(batch)) else {
            return Err(corrupt(&self.path, format!("there is no record batch {batch}")));
        };
        if let Some(decoded) = slot.get() {
            return Ok(decoded);
        }
        let bad = |what: String| corrupt(&self.path, format!("record batch {batch}: {what}"));
        let (start, end) = batch_bytes(place)
            .filter(|&(_, end)| end <= self.map.len())
            .ok_or_else(|| bad("outside of the file".to_owned()))?;
        self.touch(start, end)?;
        let decoded = guarded(&self.path, "record batch", || read_batch(&self.decoder, &self.map, place).map_err(bad))?;
        let rows = self.starts.get(batch + 1).zip(self.starts.get(batch)).map(|(end, start)| end - start);
        if rows != Some(decoded.num_rows() as u64) {
            return Err(bad(format!("{} rows, expected {rows:?}", decoded.num_rows())));
        }
        Ok(slot.get_or_init(|| decoded))
    }

    /// The batch with a row, and the row's place in it.
    fn find(&self, row: u64) -> Result<(usize, usize)> {
        let after = self.starts.partition_point(|&start| start <= row);
        let found = after.checked_sub(1).and_then(|batch| Some((batch, row - self.starts.get(batch)?)));
        let found = found.filter(|_| after < self.starts.len());
        let (batch, place) = found.ok_or_else(|| corrupt(&self.path, format!("there is no row {row}")))?;
        Ok((batch, usize::try_from(place).unwrap_or(usize::MAX)))
    }

    /// Rows of a raw stream that lie in one batch, without a copy.
    pub(crate) fn rows(&self, first: u64, count: usize, row_bytes: usize) -> Result<RowsRef<'_>> {
        if count == 0 {
            return Ok(RowsRef { times: &[], values: &[] });
        }
        let (batch, place) = self.find(first)?;
        let decoded = self.batch(batch)?;
        let bad = || corrupt(&self.path, format!("rows {first} to {} are not in one batch", first + count as u64));
        let times = decoded.column(0).as_primitive_opt::<arrow_array::types::Int64Type>().ok_or_else(bad)?;
        let list = decoded.column(1).as_fixed_size_list_opt().ok_or_else(bad)?;
        let data = list.values().to_data();
        let bytes = data.buffers().first().map(Buffer::as_slice).ok_or_else(bad)?;
        let (start, end) = (place * row_bytes, (place + count) * row_bytes);
        let values = bytes.get(start..end).ok_or_else(bad)?;
        // SAFETY: the buffer is a part of the map, or of a copy that `decoded` keeps, and `self`
        // keeps both; `data` above is only another handle to it.
        let values = unsafe { std::slice::from_raw_parts(values.as_ptr(), values.len()) };
        Ok(RowsRef { times: times.values().get(place..place + count).ok_or_else(bad)?, values })
    }

    /// The stamps of rows, through as many batches as they lie in.
    pub(crate) fn times(&self, first: u64, count: usize) -> Result<Vec<i64>> {
        let mut times = Vec::with_capacity(count.min(1 << 20));
        while times.len() < count {
            let (batch, place) = self.find(first + times.len() as u64)?;
            let column = self.batch(batch)?.column(0);
            let bad = || corrupt(&self.path, "the column `time` is not int64");
            let all = column.as_primitive_opt::<arrow_array::types::Int64Type>().ok_or_else(bad)?.values();
            let rest = all.get(place..).unwrap_or_default();
            times.extend_from_slice(rest.get(..rest.len().min(count - times.len())).unwrap_or_default());
        }
        Ok(times)
    }

    /// One sample that differs in length: a JPEG or a text.
    pub(crate) fn item(&self, row: u64) -> Result<&[u8]> {
        let (batch, place) = self.find(row)?;
        let value = self.batch(batch)?.column(1);
        let bad = || corrupt(&self.path, "the column `value` is not what the manifest says");
        match value.data_type() {
            DataType::Binary => Ok(value.as_binary_opt::<i32>().ok_or_else(bad)?.value(place)),
            DataType::Utf8 => Ok(value.as_string_opt::<i32>().ok_or_else(bad)?.value(place).as_bytes()),
            _ => Err(bad()),
        }
    }
}
