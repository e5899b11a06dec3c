//! The footer: where it lies, what it may say, and the little of it that reading needs.
//!
//! The `parquet` crate never sees these bytes. What it needs of them, the schema, is rebuilt
//! from values that were checked here.

use std::collections::HashMap;
use std::path::Path;

use parquet::schema::types::SchemaDescriptor;
use robocache::{Error, ErrorKind, Result};

use super::schema::read_schema;
use super::source::Reads;
use super::thrift::{Fault, Kind, Parsed, Thrift, fault_in, typed};
use crate::Limits;
use crate::limits::{corrupt, exceeds, guarded};

const MAGIC: &[u8] = b"PAR1";
const MAGIC_ENCRYPTED: &[u8] = b"PARE";
/// Read with the last bytes at once, so that most footers cost one read.
const TAIL: u64 = 64 << 10;
/// Keys of the metadata; writers have a handful.
const MAX_PAIRS: usize = 4096;
/// Bytes that a row group is written in at least.
const MIN_GROUP: usize = 16;
/// Readers recurse over the schema; this bounds them whatever the limits say.
const DEEPEST: usize = 128;

/// What the footer says, checked.
pub(super) struct Footer {
    pub(super) rows: u64,
    pub(super) schema: SchemaDescriptor,
    pub(super) metadata: HashMap<String, String>,
    pub(super) groups: Vec<RowGroup>,
}

/// A run of rows that is stored together.
pub(super) struct RowGroup {
    pub(super) first_row: u64,
    pub(super) rows: u64,
    pub(super) chunks: Box<[Chunk]>,
}

/// Where one leaf column of a row group lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Values and nulls.
    pub(super) values: u64,
    pub(super) codec: i32,
    /// Where the offset index lies, if it was written.
    pub(super) index: Option<(u64, u32)>,
}

/// Reads and checks the footer of a file.
pub(super) fn read_footer(reads: &Reads, limits: &Limits) -> Result<Footer> {
    let path = reads.path();
    let file_bytes = reads.bytes();
    let too_short = || corrupt(path, format!("{file_bytes} bytes are no parquet file{}", hint(reads)));
    let mut tail = reads.get(file_bytes.saturating_sub(TAIL), file_bytes.min(TAIL))?;
    let (body, end) = tail.split_last_chunk::<8>().ok_or_else(too_short)?;
    let [l0, l1, l2, l3, magic @ ..] = *end;
    if magic == MAGIC_ENCRYPTED {
        return Err(Error::new(ErrorKind::Unsupported, "the parquet footer is encrypted").path(path));
    }
    if magic != MAGIC {
        let text = format!("expected PAR1 in the last four bytes of a parquet file, got {magic:02x?}{}", hint(reads));
        return Err(corrupt(path, text));
    }
    let length = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    // The magic at the start, the footer, its length and the magic at the end.
    let footer_start = file_bytes.checked_sub(8).and_then(|end| end.checked_sub(length)).filter(|start| *start >= 4);
    let footer_start = footer_start.ok_or_else(|| {
        corrupt(path, format!("the footer should be {length} bytes long, but the file has {file_bytes}"))
    })?;
    if length > limits.max_metadata {
        let text = format!("the footer has {length} bytes, max_metadata allows {}", limits.max_metadata);
        return Err(exceeds(path, text));
    }
    // Row groups, names and their copies take up to this many times the bytes they are written in.
    let needed = length.saturating_mul(8);
    if needed > limits.max_alloc.saturating_add(file_bytes) {
        let text = format!("a footer of {length} bytes may need {needed} bytes, max_alloc allows {}", limits.max_alloc);
        return Err(exceeds(path, text));
    }
    let have = u64::try_from(body.len()).unwrap_or(u64::MAX);
    if length > have {
        tail = reads.get(footer_start, length)?;
    } else {
        let skip = usize::try_from(have - length).unwrap_or(usize::MAX);
        tail.drain(..skip.min(tail.len()));
        tail.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    }
    if reads.get(0, 4)? != MAGIC {
        return Err(corrupt(path, "expected PAR1 in the first four bytes of a parquet file"));
    }

    let mut thrift = Thrift::new(&tail, limits.max_depth.min(DEEPEST));
    let place = Place { path, data_end: footer_start, limits };
    let parsed =
        Raw::read(&mut thrift, &place).map_err(|fault| fault_in(path, "the footer", thrift.position(), fault))?;
    parsed.check(&place)
}

/// What a footer is checked against.
struct Place<'a> {
    path: &'a Path,
    data_end: u64,
    limits: &'a Limits,
}

/// What a missing footer most likely means.
fn hint(reads: &Reads) -> &'static str {
    if reads.get(0, 4).is_ok_and(|start| start == MAGIC) {
        ": the footer is missing. The recorder was probably killed before it closed the file; \
         its rows cannot be recovered, so record the episode again or drop it from the dataset"
    } else {
        ""
    }
}

/// The footer as it was written.
struct Raw<'a> {
    rows: u64,
    /// The bytes of the schema's list.
    schema: Thrift<'a>,
    /// The bytes of the row groups' list.
    groups: Thrift<'a>,
    /// What was made of both on the way, if nothing was wrong and they came in the usual order.
    checked: Option<(SchemaDescriptor, Vec<RowGroup>)>,
    metadata: HashMap<String, String>,
    encrypted: bool,
}

#[derive(Default)]
struct RawChunk {
    values: u64,
    codec: i32,
    bytes: u64,
    data: u64,
    dictionary: Option<u64>,
    index: Option<u64>,
    index_bytes: Option<u32>,
    elsewhere: bool,
    encrypted: bool,
}

impl<'a> Raw<'a> {
    fn read(thrift: &mut Thrift<'a>, place: &Place<'_>) -> Parsed<Self> {
        let (mut rows, mut schema, mut groups, mut metadata) = (None, None, None, HashMap::new());
        let mut checked = None;
        let (mut last, mut encrypted) = (0, false);
        while let Some((id, kind)) = thrift.field(&mut last)? {
            match id {
                2 => {
                    typed(kind, Kind::List)?;
                    schema = Some(thrift.clone());
                    checked = None;
                    thrift.skip(kind)?;
                }
                3 => {
                    typed(kind, Kind::I64)?;
                    rows = Some(thrift.count()?);
                }
                4 => {
                    typed(kind, Kind::List)?;
                    let start = thrift.clone();
                    // Thousands of row groups should be walked over once. What is wrong with them
                    // can wait: damage further on or encryption is the better answer.
                    checked = schema.clone().and_then(|mut schema| {
                        let schema = place.schema(&mut schema).ok()?;
                        let groups = place.groups(thrift, &schema).ok()?;
                        Some((schema, groups))
                    });
                    if checked.is_none() {
                        *thrift = start.clone();
                        thrift.skip(kind)?;
                    }
                    groups = Some(start);
                }
                5 => {
                    typed(kind, Kind::List)?;
                    let count = thrift.structs()?;
                    if count > MAX_PAIRS {
                        return Err(Fault::Bad("it has more metadata than anybody writes"));
                    }
                    for _ in 0..count {
                        let (key, value) = read_pair(thrift)?;
                        // The schema as Arrow wrote it: parquet's own is the one that counts.
                        if key != "ARROW:schema" {
                            metadata.insert(key.to_owned(), value.to_owned());
                        }
                    }
                }
                8 => {
                    encrypted = true;
                    thrift.skip(kind)?;
                }
                _ => thrift.skip(kind)?,
            }
        }
        let rows = rows.ok_or(Fault::Bad("the number of rows is missing"))?;
        let schema = schema.ok_or(Fault::Bad("the schema is missing"))?;
        let groups = groups.ok_or(Fault::Bad("the row groups are missing"))?;
        Ok(Self { rows, schema, groups, checked, metadata, encrypted })
    }

    fn check(mut self, place: &Place<'_>) -> Result<Footer> {
        let path = place.path;
        if self.encrypted {
            return Err(Error::new(ErrorKind::Unsupported, "the columns of this parquet file are encrypted").path(path));
        }
        let (schema, groups) = match self.checked {
            Some(checked) => checked,
            None => {
                let schema = place.schema(&mut self.schema)?;
                let groups = place.groups(&mut self.groups, &schema)?;
                (schema, groups)
            }
        };
        let rows = groups.last().map_or(0, |group| group.first_row.saturating_add(group.rows));
        if rows != self.rows {
            let text = format!("the footer counts {} rows, its row groups {rows}", self.rows);
            return Err(corrupt(path, text));
        }
        Ok(Footer { rows: self.rows, schema, metadata: self.metadata, groups })
    }
}

impl Place<'_> {
    fn schema(&self, thrift: &mut Thrift<'_>) -> Result<SchemaDescriptor> {
        let depth = self.limits.max_depth.min(DEEPEST);
        guarded(self.path, "the schema", || read_schema(thrift, self.path, self.limits, depth))
    }

    fn groups(&self, thrift: &mut Thrift<'_>, schema: &SchemaDescriptor) -> Result<Vec<RowGroup>> {
        let path = self.path;
        let count = thrift.structs().map_err(|fault| fault_in(path, "the footer", 0, fault))?;
        let mut first_row = 0u64;
        let mut groups = Vec::with_capacity(count.min(thrift.remaining() / MIN_GROUP));
        for index in 0..count {
            let place = |column: usize| {
                let name = (column < schema.num_columns()).then(|| schema.column(column).path().string());
                name.map_or(format!("row group {index}"), |name| format!("column {name:?} of row group {index}"))
            };
            let read = read_group(thrift, schema.num_columns(), self.data_end);
            let (rows, chunks) = read.map_err(|(column, wrong)| match wrong {
                Wrong::Fault(fault) => fault_in(path, "the footer", thrift.position(), fault),
                Wrong::Chunk(kind, text) => Error::new(kind, format!("{}: {text}", place(column))).path(path),
            })?;
            groups.push(RowGroup { first_row, rows, chunks });
            first_row = first_row
                .checked_add(rows)
                .ok_or_else(|| corrupt(path, "the row groups have more rows than a 64-bit number can count"))?;
        }
        Ok(groups)
    }
}

fn read_pair<'a>(thrift: &mut Thrift<'a>) -> Parsed<(&'a str, &'a str)> {
    let (mut last, mut key, mut value) = (0, None, "");
    while let Some((id, kind)) = thrift.field(&mut last)? {
        match id {
            1 => {
                typed(kind, Kind::Binary)?;
                key = Some(thrift.string()?);
            }
            2 => {
                typed(kind, Kind::Binary)?;
                value = thrift.string()?;
            }
            _ => thrift.skip(kind)?,
        }
    }
    Ok((key.ok_or(Fault::Bad("a key of the metadata is missing"))?, value))
}

/// Rows and columns of a row group.
type Columns = (u64, Box<[Chunk]>);

/// What is wrong with a row group.
enum Wrong {
    Fault(Fault),
    Chunk(ErrorKind, String),
}

/// Reads the rows and the columns of a row group; an error comes with the column it is about.
fn read_group(thrift: &mut Thrift<'_>, columns: usize, data_end: u64) -> Result<Columns, (usize, Wrong)> {
    let fault = |fault| (columns, Wrong::Fault(fault));
    let (mut last, mut rows, mut chunks) = (0, None, None);
    while let Some((id, kind)) = thrift.field(&mut last).map_err(fault)? {
        match id {
            1 => {
                typed(kind, Kind::List).map_err(fault)?;
                let count = thrift.structs().map_err(fault)?;
                if count != columns {
                    let text = format!("it has {count} columns, the schema {columns}");
                    return Err((columns, Wrong::Chunk(ErrorKind::CorruptData, text)));
                }
                let mut all = Vec::with_capacity(count);
                for column in 0..count {
                    let chunk = read_chunk(thrift).map_err(fault)?;
                    let chunk = chunk.check(data_end).map_err(|(kind, text)| (column, Wrong::Chunk(kind, text)))?;
                    all.push(chunk);
                }
                chunks = Some(all.into_boxed_slice());
            }
            3 => {
                typed(kind, Kind::I64).map_err(fault)?;
                rows = Some(thrift.count().map_err(fault)?);
            }
            _ => thrift.skip(kind).map_err(fault)?,
        }
    }
    let rows = rows.ok_or(fault(Fault::Bad("the number of rows of a row group is missing")))?;
    Ok((rows, chunks.ok_or(fault(Fault::Bad("the columns of a row group are missing")))?))
}

fn read_chunk(thrift: &mut Thrift<'_>) -> Parsed<RawChunk> {
    let (mut last, mut chunk, mut seen) = (0, RawChunk::default(), false);
    while let Some((id, kind)) = thrift.field(&mut last)? {
        match id {
            1 => {
                chunk.elsewhere = true;
                thrift.skip(kind)?;
            }
            3 => {
                typed(kind, Kind::Struct)?;
                read_chunk_metadata(thrift, &mut chunk)?;
                seen = true;
            }
            4 => {
                typed(kind, Kind::I64)?;
                chunk.index = Some(thrift.count()?);
            }
            5 => {
                typed(kind, Kind::I32)?;
                chunk.index_bytes = Some(thrift.count32()?);
            }
            8 | 9 => {
                chunk.encrypted = true;
                thrift.skip(kind)?;
            }
            _ => thrift.skip(kind)?,
        }
    }
    if seen || chunk.encrypted { Ok(chunk) } else { Err(Fault::Bad("the metadata of a column is missing")) }
}

fn read_chunk_metadata(thrift: &mut Thrift<'_>, chunk: &mut RawChunk) -> Parsed<()> {
    let (mut last, mut seen) = (0, 0u32);
    while let Some((id, kind)) = thrift.field(&mut last)? {
        let mut number = |thrift: &mut Thrift<'_>| {
            typed(kind, Kind::I64)?;
            seen |= 1 << id;
            thrift.count()
        };
        match id {
            4 => {
                typed(kind, Kind::I32)?;
                seen |= 1 << id;
                chunk.codec = thrift.i32()?;
            }
            5 => chunk.values = number(thrift)?,
            7 => chunk.bytes = number(thrift)?,
            9 => chunk.data = number(thrift)?,
            11 => chunk.dictionary = Some(number(thrift)?),
            _ => thrift.skip(kind)?,
        }
    }
    let required = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 9;
    if seen & required == required {
        Ok(())
    } else {
        Err(Fault::Bad("codec, size, place or count of a column is missing"))
    }
}

impl RawChunk {
    fn check(&self, data_end: u64) -> Result<Chunk, (ErrorKind, String)> {
        if self.elsewhere {
            return Err((ErrorKind::Unsupported, "its data lie in another file".to_owned()));
        }
        if self.encrypted {
            return Err((ErrorKind::Unsupported, "it is encrypted".to_owned()));
        }
        // Some writers say 0 where there is no dictionary.
        let start = self.dictionary.filter(|at| *at > 0 && *at < self.data).unwrap_or(self.data);
        let inside = |start: u64, bytes: u64| start >= 4 && start.checked_add(bytes).is_some_and(|end| end <= data_end);
        // A column without values may have no pages, and then its place means nothing.
        let bytes = if self.values == 0 { 0 } else { self.bytes };
        if bytes > 0 && !inside(start, bytes) {
            let text = format!("{bytes} bytes at {start} do not lie in the {data_end} bytes of data");
            return Err((ErrorKind::CorruptData, text));
        }
        let index = self.index.zip(self.index_bytes).filter(|(at, bytes)| inside(*at, u64::from(*bytes)));
        Ok(Chunk { start, bytes, values: self.values, codec: self.codec, index })
    }
}
