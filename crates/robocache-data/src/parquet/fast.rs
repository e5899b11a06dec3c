//! Numbers straight from pages into a tensor, for columns whose rows all have the same shape and
//! no nulls. Anything else is left to `arrow`, which also finds the words for what is wrong.

use std::convert::identity;
use std::marker::PhantomData;
use std::ops::Range;

use half::f16;
use parquet::basic::Type as Physical;
use robocache::{DType, Element, Result, Tensor};

use super::ParquetFile;
use super::budget::Budget;
use super::codec::Unpacker;
use super::levels::{Pattern, Run, Runs, unpack};
use super::pages::{Form, PLAIN, PLAIN_DICTIONARY, Page, Pages, Parts, RLE_DICTIONARY};
use super::source::Reads;

/// A number as parquet stores it in `WIDTH` bytes.
trait Stored: Element + Default {
    const WIDTH: usize;
    const PHYSICAL: Physical;

    /// Decodes as many numbers as both sides hold.
    fn copy(from: &[u8], to: &mut [Self]);
}

macro_rules! stored {
    ($($type:ty: $physical:ident $raw:ty, $width:literal, $convert:path;)+) => {$(
        impl Stored for $type {
            const WIDTH: usize = $width;
            const PHYSICAL: Physical = Physical::$physical;

            fn copy(from: &[u8], to: &mut [Self]) {
                let (chunks, _) = from.as_chunks::<$width>();
                for (slot, bytes) in to.iter_mut().zip(chunks) {
                    *slot = $convert(<$raw>::from_le_bytes(*bytes));
                }
            }
        }
    )+};
}

// The narrow integers are stored in 32 bits, of which a reader keeps the low ones.
mod narrow {
    pub(super) fn u8(wide: i32) -> u8 {
        wide as u8
    }
    pub(super) fn i8(wide: i32) -> i8 {
        wide as i8
    }
    pub(super) fn u16(wide: i32) -> u16 {
        wide as u16
    }
    pub(super) fn i16(wide: i32) -> i16 {
        wide as i16
    }
}

stored! {
    f32: FLOAT f32, 4, identity;
    f64: DOUBLE f64, 8, identity;
    i32: INT32 i32, 4, identity;
    u32: INT32 u32, 4, identity;
    i64: INT64 i64, 8, identity;
    u64: INT64 u64, 8, identity;
    f16: FIXED_LEN_BYTE_ARRAY f16, 2, identity;
    u8: INT32 i32, 4, narrow::u8;
    i8: INT32 i32, 4, narrow::i8;
    u16: INT32 i32, 4, narrow::u16;
    i16: INT32 i32, 4, narrow::i16;
}

/// Fills `out` with these rows; `false` when the column is not of the simple kind. Then `out` may
/// be filled in part.
pub(super) fn fill(
    file: &ParquetFile,
    root: usize,
    rows: &Range<u64>,
    shape: &[usize],
    out: &mut Tensor,
) -> Result<bool> {
    match out.dtype() {
        DType::F16 => fill_as::<f16>(file, root, rows, shape, out),
        DType::F32 => fill_as::<f32>(file, root, rows, shape, out),
        DType::F64 => fill_as::<f64>(file, root, rows, shape, out),
        DType::U8 => fill_as::<u8>(file, root, rows, shape, out),
        DType::I8 => fill_as::<i8>(file, root, rows, shape, out),
        DType::U16 => fill_as::<u16>(file, root, rows, shape, out),
        DType::I16 => fill_as::<i16>(file, root, rows, shape, out),
        DType::U32 => fill_as::<u32>(file, root, rows, shape, out),
        DType::I32 => fill_as::<i32>(file, root, rows, shape, out),
        DType::U64 => fill_as::<u64>(file, root, rows, shape, out),
        DType::I64 => fill_as::<i64>(file, root, rows, shape, out),
        DType::BF16 | DType::Bool => Ok(false),
    }
}

fn fill_as<T: Stored>(
    file: &ParquetFile,
    root: usize,
    rows: &Range<u64>,
    shape: &[usize],
    out: &mut Tensor,
) -> Result<bool> {
    let mut leaves = file.leaves_of(root);
    let (Some(leaf), None) = (leaves.next(), leaves.next()) else { return Ok(false) };
    let Some(reader) = Reader::<T>::new(file, leaf, shape)? else { return Ok(false) };
    let out = out.as_mut_slice::<T>()?;
    reader.budget.take(u64::try_from(size_of_val(out)).unwrap_or(u64::MAX), &reader.name, file.source.path())?;
    reader.fill(rows, out)
}

/// One column, while it is read.
struct Reader<'a, T> {
    file: &'a ParquetFile,
    reads: Reads,
    leaf: usize,
    name: String,
    shape: Vec<usize>,
    /// Values per row.
    period: u64,
    repetition: Option<Pattern>,
    definition: Option<Pattern>,
    budget: Budget,
    unpacker: Unpacker,
    /// Size of the largest page so far, which the budget has paid for.
    largest: u64,
    number: PhantomData<T>,
}

impl<'a, T: Stored> Reader<'a, T> {
    /// `None` when the column's type is not of the simple kind.
    fn new(file: &'a ParquetFile, leaf: usize, shape: &[usize]) -> Result<Option<Self>> {
        let column = file.descriptor.column(leaf);
        let depth = usize::try_from(column.max_rep_level()).unwrap_or(usize::MAX);
        let product = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        let Some(period) = product.and_then(|product| u64::try_from(product).ok()) else { return Ok(None) };
        let fits = if depth == 0 { period == 1 } else { depth == shape.len() };
        let stored = column.physical_type() == T::PHYSICAL
            && (T::PHYSICAL != Physical::FIXED_LEN_BYTE_ARRAY || usize::try_from(column.type_length()) == Ok(T::WIDTH));
        let repetition = if depth > 0 { Pattern::of_shape(shape) } else { None };
        let definition = if column.max_def_level() > 0 { Pattern::constant(column.max_def_level()) } else { None };
        let patterns = (depth == 0 || repetition.is_some()) && (column.max_def_level() == 0 || definition.is_some());
        if !fits || !stored || !patterns {
            return Ok(None);
        }
        let reads = file.source.open()?;
        Ok(Some(Self {
            file,
            leaf,
            name: column.path().string(),
            shape: shape.to_vec(),
            period,
            repetition,
            definition,
            budget: Budget::new(&file.limits, &reads),
            reads,
            unpacker: Unpacker::default(),
            largest: 0,
            number: PhantomData,
        }))
    }

    fn fill(mut self, rows: &Range<u64>, out: &mut [T]) -> Result<bool> {
        let mut rest = out;
        for index in self.file.groups_of(rows) {
            let Some(group) = self.file.groups.get(index) else { return Ok(false) };
            if let Some(chunk) = group.chunks.get(self.leaf) {
                self.reads.prefetch(chunk.start, chunk.bytes)?;
            }
            let pages = self.file.pages(&self.reads, index, self.leaf)?;
            let total = group.rows.checked_mul(self.period);
            if pages.data.last().map(|page| page.first_value + u64::from(page.values)) != total {
                return Ok(false);
            }
            let start = rows.start.saturating_sub(group.first_row) * self.period;
            let end = (rows.end - group.first_row).min(group.rows) * self.period;
            let count = usize::try_from(end - start).unwrap_or(usize::MAX);
            let Some((part, tail)) = std::mem::take(&mut rest).split_at_mut_checked(count) else { return Ok(false) };
            rest = tail;
            if !self.fill_group(&pages, start..end, part)? {
                return Ok(false);
            }
        }
        Ok(rest.is_empty())
    }

    /// Fills `out` with values `wanted` of a column chunk.
    fn fill_group(&mut self, pages: &Pages, wanted: Range<u64>, out: &mut [T]) -> Result<bool> {
        let reach = |page: &Page| page.first_value..page.first_value + u64::from(page.values);
        let first = pages.data.partition_point(|page| reach(page).end <= wanted.start);
        let last = pages.data.partition_point(|page| page.first_value < wanted.end);
        let mut regular = pages.regular(&self.shape);
        // Where rows are found by counting values, what lies before the wanted ones matters, and
        // a row that ends with its page might go on in the next.
        let cut =
            last.checked_sub(1).and_then(|page| pages.data.get(page)).is_some_and(|page| reach(page).end == wanted.end);
        let (from, until) = if pages.aligned { (first, last) } else { (regular.min(first), last + usize::from(cut)) };
        let used = || pages.data.iter().take(until).skip(from).chain(&pages.dictionary);
        let largest = used().map(|page| u64::from(page.uncompressed)).max().unwrap_or(0);
        self.budget.take(largest.saturating_sub(self.largest), &self.name, self.reads.path())?;
        self.largest = self.largest.max(largest);
        self.unpacker.prepare(self.reads.path(), used())?;
        let mut dictionary = None;
        let mut rest = out;
        for (index, page) in pages.data.iter().enumerate().take(until).skip(from) {
            let starts_row = page.first_value % self.period;
            if pages.aligned && (starts_row != 0 || page.first_value != page.first_row * self.period) {
                return Ok(false);
            }
            let plain = match page.encoding {
                PLAIN => true,
                PLAIN_DICTIONARY | RLE_DICTIONARY => false,
                _ => return Ok(false),
            };
            let wanted_here = index >= first && index < last;
            if !wanted_here && index < regular {
                continue;
            }
            if !plain && wanted_here && dictionary.is_none() {
                dictionary = self.load_dictionary(pages)?;
            }
            let Some(values) = self.load(pages, page, starts_row)? else { return Ok(false) };
            regular = regular.max(index + 1);
            if !wanted_here {
                continue;
            }
            let skip = usize::try_from(wanted.start.saturating_sub(page.first_value)).unwrap_or(usize::MAX);
            let take = usize::try_from(reach(page).end.min(wanted.end) - page.first_value).unwrap_or(0);
            let Some((part, tail)) = std::mem::take(&mut rest).split_at_mut_checked(take.saturating_sub(skip)) else {
                return Ok(false);
            };
            rest = tail;
            let done = if plain {
                let bytes = skip.saturating_mul(T::WIDTH)..take.saturating_mul(T::WIDTH);
                values.get(bytes).map(|bytes| T::copy(bytes, part))
            } else {
                dictionary.as_deref().and_then(|entries| gather(values, entries, skip, page.values as usize, part))
            };
            if done.is_none() {
                return Ok(false);
            }
        }
        pages.set_regular(&self.shape, regular);
        Ok(rest.is_empty())
    }

    /// The values of a page, if its levels say that they are all there.
    fn load(&mut self, pages: &Pages, page: &Page, starts_row: u64) -> Result<Option<&[u8]>> {
        let has = (self.repetition.is_some(), self.definition.is_some());
        if matches!(page.form, Form::V1 { rle_levels: (r, d) } if has.0 && !r || has.1 && !d) {
            return Ok(None);
        }
        let body = self.unpacker.load(&self.reads, pages.codec, page)?;
        let Ok(parts) = Parts::split(body, page.form, has) else { return Ok(None) };
        let count = page.values as usize;
        let start = usize::try_from(starts_row).unwrap_or(usize::MAX);
        let matches = |pattern: &Option<Pattern>, bytes: &[u8], start: usize| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(bytes, count, start).unwrap_or(false))
        };
        let regular =
            matches(&self.repetition, parts.repetition, start) && matches(&self.definition, parts.definition, 0);
        Ok(regular.then_some(parts.values))
    }

    fn load_dictionary(&mut self, pages: &Pages) -> Result<Option<Vec<T>>> {
        let Some(page) = pages.dictionary.filter(|page| matches!(page.encoding, PLAIN | PLAIN_DICTIONARY)) else {
            return Ok(None);
        };
        let body = self.unpacker.load(&self.reads, pages.codec, &page)?;
        let entries = page.values as usize;
        if entries.checked_mul(T::WIDTH).is_none_or(|bytes| bytes > body.len()) {
            return Ok(None);
        }
        let bytes = entries.saturating_mul(size_of::<T>());
        self.budget.take(u64::try_from(bytes).unwrap_or(u64::MAX), &self.name, self.reads.path())?;
        let mut dictionary = vec![T::default(); entries];
        T::copy(body, &mut dictionary);
        Ok(Some(dictionary))
    }
}

/// Writes the entries that indices stand for, from value `skip` on.
fn gather<T: Copy>(values: &[u8], dictionary: &[T], skip: usize, count: usize, out: &mut [T]) -> Option<()> {
    let (width, bytes) = values.split_first()?;
    let width = u32::from(*width);
    if width > 32 {
        return None;
    }
    let mut runs = Runs::new(bytes, width, count);
    let mut skip = skip;
    let mut rest = out;
    while !rest.is_empty() {
        let run = runs.next().ok()??;
        let (Run::Repeat { count, .. } | Run::Packed { count, .. }) = run;
        let from = skip.min(count);
        skip -= from;
        let take = (count - from).min(rest.len());
        let (part, tail) = std::mem::take(&mut rest).split_at_mut_checked(take)?;
        rest = tail;
        match run {
            Run::Repeat { value, .. } if take > 0 => part.fill(*dictionary.get(value as usize)?),
            Run::Repeat { .. } => {}
            Run::Packed { bytes, .. } => {
                let mut slots = part;
                unpack(bytes, width, from, from + take, |indices| {
                    let (here, later) = std::mem::take(&mut slots).split_at_mut_checked(indices.len()).ok_or(())?;
                    slots = later;
                    for (slot, index) in here.iter_mut().zip(indices) {
                        *slot = *dictionary.get(*index as usize).ok_or(())?;
                    }
                    Ok::<_, ()>(())
                })
                .ok()?;
            }
        }
    }
    Some(())
}
