//! Pages: their headers, scanned before anything is reserved or decompressed for them.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use robocache::{Error, ErrorKind, Result};

use super::footer::Chunk;
use super::source::Reads;
use super::thrift::{Fault, Kind, Parsed, Thrift, boolean, fault_in, typed};
use crate::Limits;
use crate::limits::{corrupt, exceeds};

/// Pages up to this size pass whatever they were compressed to: it is above what writers make of
/// a page, and long constant columns compress by any factor.
const RATIO_FLOOR: u64 = 2 << 20;
/// First guess of a header's size.
const HEADER: u64 = 256;

pub(super) const PLAIN: i32 = 0;
pub(super) const PLAIN_DICTIONARY: i32 = 2;
pub(super) const RLE: i32 = 3;
pub(super) const RLE_DICTIONARY: i32 = 8;

/// How the bytes of pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
    Zstd,
}

impl Codec {
    /// The codec of a column, by its number in the footer.
    pub(super) fn new(code: i32, column: &str, path: &Path) -> Result<Self> {
        let name = match code {
            0 => return Ok(Self::None),
            1 => return Ok(Self::Snappy),
            2 => return Ok(Self::Gzip),
            6 => return Ok(Self::Zstd),
            3 => "lzo",
            4 => "brotli",
            5 | 7 => "lz4",
            _ => return Err(corrupt(path, format!("column {column:?} has the unknown codec {code}"))),
        };
        let text = format!("column {column:?} is compressed with {name}; snappy, zstd and gzip can be read");
        Err(Error::new(ErrorKind::Unsupported, text).path(path))
    }
}

/// How the parts of a page's body are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Dictionary,
    V1 { rle_levels: (bool, bool) },
    V2 { nulls: u32, rows: u32, repetition: u32, definition: u32, compressed: bool },
}

/// One page, as its header describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    /// Where its body starts.
    pub(super) at: u64,
    pub(super) compressed: u32,
    pub(super) uncompressed: u32,
    /// Values and nulls.
    pub(super) values: u32,
    pub(super) encoding: i32,
    pub(super) form: Form,
    /// The checksum of its body as it is stored.
    pub(super) crc: Option<u32>,
    /// Values of the column chunk before this page.
    pub(super) first_value: u64,
    /// Rows of the row group before this page, where `Pages::aligned` says so.
    pub(super) first_row: u64,
    pub(super) rows: u64,
}

/// The pages of one column chunk.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) codec: Codec,
    pub(super) dictionary: Option<Page>,
    pub(super) data: Vec<Page>,
    /// Every page starts with a row, and which is known.
    pub(super) aligned: bool,
    /// How many leading pages were found to hold rows of this shape only.
    regular: Mutex<(Vec<usize>, usize)>,
    /// What was found in pages that are not aligned, by page.
    starts: Mutex<Vec<Option<Starts>>>,
}

/// The rows that start in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Starts {
    pub(super) rows: u64,
    /// One of them with its first value.
    pub(super) first: bool,
}

/// What the column is, for [`Pages::scan`].
pub(super) struct Column<'a> {
    pub(super) name: &'a str,
    pub(super) max_repetition: i16,
    pub(super) rows: u64,
}

impl Pages {
    /// Walks over the headers of a chunk.
    pub(super) fn scan(reads: &Reads, chunk: &Chunk, column: &Column<'_>, limits: &Limits) -> Result<Self> {
        let path = reads.path();
        let name = column.name;
        let codec = Codec::new(chunk.codec, name, path)?;
        let mut pages = Self {
            codec,
            dictionary: None,
            data: Vec::new(),
            aligned: false,
            regular: Mutex::default(),
            starts: Mutex::default(),
        };
        let end = chunk.start.saturating_add(chunk.bytes);
        let (mut at, mut values, mut rows) = (chunk.start, 0u64, 0u64);
        // Places of headers, which an index must have too.
        let indexed = column.max_repetition > 0 && chunk.index.is_some();
        let mut headers = Vec::new();
        let mut buffer = Vec::new();
        while at < end && values < chunk.values {
            let (header, header_bytes) = read_header(reads, at, end, limits, &mut buffer)?;
            let body = at.saturating_add(header_bytes);
            let next = body.saturating_add(u64::from(header.compressed));
            let place = || format!("column {name:?}: the page at byte {at}");
            if next > end {
                let text = format!("{} should hold {} bytes, {} remain", place(), header.compressed, end - body);
                return Err(corrupt(path, text));
            }
            check_sizes(&header, codec, limits)
                .map_err(|(kind, text)| Error::new(kind, format!("{} {text}", place())).path(path))?;
            if let Some(mut page) = header.page(body) {
                if page.form == Form::Dictionary {
                    if pages.dictionary.is_some() || !pages.data.is_empty() {
                        return Err(corrupt(path, format!("{} is a second dictionary", place())));
                    }
                    pages.dictionary = Some(page);
                } else {
                    page.first_value = values;
                    page.first_row = rows;
                    if let Form::V2 { rows: count, .. } = page.form {
                        page.rows = u64::from(count);
                    }
                    values += u64::from(page.values);
                    rows = rows.saturating_add(page.rows);
                    pages.data.push(page);
                    if indexed {
                        headers.push(at);
                    }
                    let bytes = pages.data.len().saturating_mul(2 * size_of::<Page>() + 16);
                    if u64::try_from(bytes).is_ok_and(|bytes| bytes > limits.max_alloc) {
                        return Err(exceeds(path, format!("column {name:?} has too many pages for max_alloc")));
                    }
                }
            }
            at = next;
        }
        if values != chunk.values {
            let text = format!("column {name:?} should hold {} values, its pages hold {values}", chunk.values);
            return Err(corrupt(path, text));
        }
        pages.align(reads, chunk, column, &headers, limits)?;
        Ok(pages)
    }

    /// How many leading pages are known to hold rows of this shape only.
    pub(super) fn regular(&self, shape: &[usize]) -> usize {
        let known = self.regular.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 == shape { known.1 } else { 0 }
    }

    /// Remembers what [`Self::regular`] tells.
    pub(super) fn set_regular(&self, shape: &[usize], pages: usize) {
        let mut known = self.regular.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != shape {
            *known = (shape.to_vec(), pages);
        }
        known.1 = known.1.max(pages);
    }

    /// Remembers which rows start in a page.
    pub(super) fn set_starts(&self, page: usize, found: Starts) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.resize(self.data.len(), None);
        starts.get_mut(page).into_iter().for_each(|place| *place = Some(found));
    }

    /// Whether a row is known to end before a page.
    pub(super) fn opens(&self, page: usize) -> bool {
        let starts = || self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        self.aligned
            || page >= self.data.len()
            || starts().get(page).is_some_and(|known| known.is_some_and(|starts| starts.first))
    }

    /// How many rows a page has, if they are known to be whole.
    pub(super) fn whole_rows(&self, page: usize) -> Option<u64> {
        if self.aligned {
            return self.data.get(page).map(|page| page.rows);
        }
        if !self.opens(page) || !self.opens(page + 1) {
            return None;
        }
        let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.get(page).copied().flatten().map(|starts| starts.rows)
    }

    /// Finds the first row of every page, where that is known without decoding.
    fn align(&mut self, reads: &Reads, chunk: &Chunk, column: &Column<'_>, at: &[u64], limits: &Limits) -> Result<()> {
        let wrong = |rows: u64, what: &str| {
            let text = format!("column {:?} has {rows} rows by its {what}, its row group {}", column.name, column.rows);
            corrupt(reads.path(), text)
        };
        if column.max_repetition == 0 {
            if chunk.values != column.rows {
                return Err(wrong(chunk.values, "pages"));
            }
            for page in &mut self.data {
                (page.first_row, page.rows) = (page.first_value, u64::from(page.values));
            }
            self.aligned = true;
        } else if self.data.iter().all(|page| matches!(page.form, Form::V2 { .. })) {
            let rows = self.data.last().map_or(0, |page| page.first_row.saturating_add(page.rows));
            if rows != column.rows {
                return Err(wrong(rows, "pages"));
            }
            self.aligned = true;
        } else if let Some((start, bytes)) = chunk.index {
            let bytes = u64::from(bytes).min(limits.max_metadata);
            let index = reads.get(start, bytes)?;
            // An index that does not fit the pages is only a missed chance to skip.
            if let Ok(first_rows) = read_index(&mut Thrift::new(&index, limits.max_depth), at) {
                let ends = first_rows.iter().copied().skip(1).chain([column.rows]);
                let spans: Vec<_> = first_rows.iter().copied().zip(ends).collect();
                if spans.iter().all(|(first, end)| first <= end) && spans.first().is_none_or(|span| span.0 == 0) {
                    for (page, (first, end)) in self.data.iter_mut().zip(spans) {
                        (page.first_row, page.rows) = (first, end - first);
                    }
                    self.aligned = true;
                }
            }
        }
        Ok(())
    }
}

/// The fields of a page header.
#[derive(Default)]
struct Header {
    kind: i32,
    uncompressed: u32,
    compressed: u32,
    crc: Option<u32>,
    details: Option<(u32, i32, Option<Form>)>,
}

impl Header {
    fn page(&self, at: u64) -> Option<Page> {
        let (values, encoding, form) = self.details?;
        let form = form?;
        let Self { compressed, uncompressed, crc, .. } = *self;
        Some(Page { at, compressed, uncompressed, values, encoding, form, crc, first_value: 0, first_row: 0, rows: 0 })
    }

    fn read(thrift: &mut Thrift<'_>) -> Parsed<Self> {
        let (mut last, mut header, mut seen) = (0, Self::default(), 0u32);
        let (mut v1, mut dictionary, mut v2) = (None, None, None);
        while let Some((id, kind)) = thrift.field(&mut last)? {
            match id {
                1..=3 => {
                    typed(kind, Kind::I32)?;
                    seen |= 1 << id;
                    match id {
                        1 => header.kind = thrift.i32()?,
                        2 => header.uncompressed = thrift.count32()?,
                        _ => header.compressed = thrift.count32()?,
                    }
                }
                4 => {
                    typed(kind, Kind::I32)?;
                    header.crc = Some(thrift.i32()?.cast_unsigned());
                }
                5 | 7 | 8 => {
                    typed(kind, Kind::Struct)?;
                    match id {
                        5 => v1 = Some(read_v1(thrift)?),
                        7 => dictionary = Some(read_dictionary(thrift)?),
                        _ => v2 = Some(read_v2(thrift)?),
                    }
                }
                _ => thrift.skip(kind)?,
            }
        }
        if seen != 0b1110 {
            return Err(Fault::Bad("type or size of a page is missing"));
        }
        header.details = match header.kind {
            0 => v1,
            1 => Some((0, 0, None)),
            2 => dictionary,
            3 => v2,
            _ => return Err(Fault::Bad("a page has an unknown type")),
        };
        if header.details.is_some() { Ok(header) } else { Err(Fault::Bad("the details of a page are missing")) }
    }
}

fn read_header(reads: &Reads, at: u64, end: u64, limits: &Limits, buffer: &mut Vec<u8>) -> Result<(Header, u64)> {
    let longest = (end - at).min(limits.max_metadata);
    let mut bytes = longest.min(HEADER);
    loop {
        let mut thrift = Thrift::new(reads.view(at, bytes, buffer)?, limits.max_depth);
        match Header::read(&mut thrift) {
            Ok(header) => return Ok((header, u64::try_from(thrift.position()).unwrap_or(u64::MAX))),
            // Statistics can make a header long.
            Err(Fault::End | Fault::Bad("a list is longer than the bytes left")) if bytes < longest => {
                bytes = longest.min(bytes * 8);
            }
            Err(fault) => {
                return Err(fault_in(reads.path(), &format!("the page header at byte {at}"), thrift.position(), fault));
            }
        }
    }
}

/// Reads a struct whose fields from 1 on are 32-bit numbers; booleans count as 0 and 1.
fn read_numbers<const N: usize>(thrift: &mut Thrift<'_>, required: usize) -> Parsed<[Option<i32>; N]> {
    let (mut last, mut numbers) = (0, [None; N]);
    while let Some((id, kind)) = thrift.field(&mut last)? {
        let slot = usize::try_from(id).ok().and_then(|id| numbers.get_mut(id.checked_sub(1)?));
        match (slot, kind) {
            (Some(slot), Kind::I32) => *slot = Some(thrift.i32()?),
            (Some(slot), Kind::True | Kind::False) => *slot = Some(i32::from(boolean(kind)?)),
            (Some(_), _) => return Err(Fault::Bad("a field has another type than the format gives it")),
            (None, _) => thrift.skip(kind)?,
        }
    }
    if numbers.iter().take(required).all(Option::is_some) {
        Ok(numbers)
    } else {
        Err(Fault::Bad("a number in a page header is missing"))
    }
}

fn positive(number: Option<i32>) -> Parsed<u32> {
    u32::try_from(number.unwrap_or(0)).map_err(|_| Fault::Bad("a count or size is negative"))
}

fn read_v1(thrift: &mut Thrift<'_>) -> Parsed<(u32, i32, Option<Form>)> {
    let [values, encoding, definition, repetition] = read_numbers(thrift, 4)?;
    let form = Form::V1 { rle_levels: (repetition == Some(RLE), definition == Some(RLE)) };
    Ok((positive(values)?, encoding.unwrap_or(-1), Some(form)))
}

fn read_dictionary(thrift: &mut Thrift<'_>) -> Parsed<(u32, i32, Option<Form>)> {
    let [values, encoding, _sorted] = read_numbers(thrift, 2)?;
    Ok((positive(values)?, encoding.unwrap_or(-1), Some(Form::Dictionary)))
}

fn read_v2(thrift: &mut Thrift<'_>) -> Parsed<(u32, i32, Option<Form>)> {
    let [values, nulls, rows, encoding, definition, repetition, compressed] = read_numbers(thrift, 6)?;
    let form = Form::V2 {
        nulls: positive(nulls)?,
        rows: positive(rows)?,
        repetition: positive(repetition)?,
        definition: positive(definition)?,
        compressed: compressed != Some(0),
    };
    Ok((positive(values)?, encoding.unwrap_or(-1), Some(form)))
}

/// Compares the declared with the actual size of a page.
fn check_sizes(header: &Header, codec: Codec, limits: &Limits) -> Result<(), (ErrorKind, String)> {
    let (mut from, mut to) = (u64::from(header.compressed), u64::from(header.uncompressed));
    let mut packed = codec != Codec::None;
    if let Some((values, _, Some(Form::V2 { nulls, repetition, definition, compressed, .. }))) = header.details {
        let levels = u64::from(repetition) + u64::from(definition);
        if levels > from || levels > to || nulls > values {
            return Err((ErrorKind::CorruptData, "has levels or nulls that do not fit into it".to_owned()));
        }
        (from, to) = (from - levels, to - levels);
        packed &= compressed;
    }
    if !packed && from != to {
        let text = format!("is not compressed, but should grow from {from} to {to} bytes");
        return Err((ErrorKind::CorruptData, text));
    }
    let allowed = RATIO_FLOOR.max(from.saturating_mul(limits.max_ratio));
    if packed && to > allowed {
        let text = format!("should become {to} bytes of {from}; max_ratio {} allows {allowed}", limits.max_ratio);
        return Err((ErrorKind::LimitExceeded, text));
    }
    if packed && to > limits.max_alloc {
        let text = format!("should become {to} bytes; max_alloc allows {}", limits.max_alloc);
        return Err((ErrorKind::LimitExceeded, text));
    }
    Ok(())
}

/// The first rows in an offset index, if its places are those of the pages.
fn read_index(thrift: &mut Thrift<'_>, headers: &[u64]) -> Parsed<Vec<u64>> {
    let (mut last, mut rows) = (0, Vec::new());
    while let Some((id, kind)) = thrift.field(&mut last)? {
        if id != 1 {
            thrift.skip(kind)?;
            continue;
        }
        typed(kind, Kind::List)?;
        if thrift.structs()? != headers.len() {
            return Err(Fault::Bad("the offset index has another number of pages"));
        }
        for header in headers {
            let (mut last, mut place, mut row) = (0, None, None);
            while let Some((id, kind)) = thrift.field(&mut last)? {
                match id {
                    1 | 3 => {
                        typed(kind, Kind::I64)?;
                        *if id == 1 { &mut place } else { &mut row } = Some(thrift.count()?);
                    }
                    _ => thrift.skip(kind)?,
                }
            }
            if place != Some(*header) {
                return Err(Fault::Bad("the offset index has a page at another place"));
            }
            rows.push(row.ok_or(Fault::Bad("a row of the offset index is missing"))?);
        }
    }
    if rows.len() == headers.len() { Ok(rows) } else { Err(Fault::Bad("the offset index is empty")) }
}

/// The three parts of a data page's body.
pub(super) struct Parts<'a> {
    pub(super) repetition: &'a [u8],
    pub(super) definition: &'a [u8],
    pub(super) values: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Splits a body; `has` says which levels the column has: repetition, definition.
    pub(super) fn split(body: &'a [u8], form: Form, has: (bool, bool)) -> Parsed<Self> {
        let mut rest = body;
        let mut cut = |bytes: usize| {
            let (head, tail) = rest.split_at_checked(bytes).ok_or(Fault::Bad("the levels do not fit into the page"))?;
            rest = tail;
            Ok::<_, Fault>(head)
        };
        let mut section = |present: bool| {
            if !present {
                return Ok([].as_slice());
            }
            let Some(length) = cut(4)?.first_chunk::<4>() else { return Err(Fault::End) };
            cut(u32::from_le_bytes(*length) as usize)
        };
        let (repetition, definition) = match form {
            Form::V2 { repetition, definition, .. } => (cut(repetition as usize)?, cut(definition as usize)?),
            Form::V1 { .. } => (section(has.0)?, section(has.1)?),
            Form::Dictionary => ([].as_slice(), [].as_slice()),
        };
        Ok(Self { repetition, definition, values: rest })
    }
}
