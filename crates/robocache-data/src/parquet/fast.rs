//! Numbers straight from pages into a tensor, for columns whose rows all have the same shape and
//! no nulls. Anything else is left to `arrow`, which also finds the words for what is wrong.

use std::convert::identity;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use half::f16;
use parquet::basic::Type as Physical;
use parquet::schema::types::ColumnDescriptor;
use robocache::{DType, Element, Result, Tensor};

use super::ParquetFile;
use super::budget::Budget;
use super::cache::{Key, Unpacked};
use super::codec::{Scratch, Unpacker};
use super::levels::{Pattern, Run, Runs, unpack};
use super::pages::{Form, PLAIN, PLAIN_DICTIONARY, Page, Pages, Parts, RLE_DICTIONARY};
use super::source::Reads;

/// A number as parquet stores it in `WIDTH` bytes.
trait Stored: Element {
    const WIDTH: usize;
    const PHYSICAL: Physical;

    /// Decodes as many numbers as both sides hold.
    fn copy(from: &[u8], to: &mut [Self]);

    /// Decodes one number of many.
    fn entry(from: &[u8], index: u32) -> Option<Self>;

    /// Decodes the numbers at some places, if they are all there.
    fn gather(from: &[u8], indices: &[u32], to: &mut [Self]) -> Option<()>;
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

            #[inline]
            fn entry(from: &[u8], index: u32) -> Option<Self> {
                let (chunks, _) = from.as_chunks::<$width>();
                chunks.get(index as usize).map(|bytes| $convert(<$raw>::from_le_bytes(*bytes)))
            }

            #[inline]
            fn gather(from: &[u8], indices: &[u32], to: &mut [Self]) -> Option<()> {
                let (chunks, _) = from.as_chunks::<$width>();
                for (slot, index) in to.iter_mut().zip(indices) {
                    *slot = $convert(<$raw>::from_le_bytes(*chunks.get(*index as usize)?));
                }
                Some(())
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
        DType::BF16 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => Ok(false),
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
    let Some(plan) = Plan::of::<T>(file, leaf, shape) else { return Ok(false) };
    let out = out.as_mut_slice::<T>()?;
    let mut reader = Reader { file, reads: file.source.open()?, leaf, plan: &plan, budget: file.budget(), largest: 0 };
    reader.take(u64::try_from(size_of_val(out)).unwrap_or(u64::MAX))?;
    Scratch::with(|scratch| {
        let filled = reader.fill(rows, out, scratch);
        scratch.ahead = reader.reads.into_buffer();
        filled
    })
}

/// What the levels of a column are, if its rows are all of one shape.
pub(super) struct Plan {
    shape: Vec<usize>,
    /// Values per row.
    period: u64,
    repetition: Option<Pattern>,
    definition: Option<Pattern>,
}

impl Plan {
    /// `None` when the column's type is not of the simple kind.
    fn of<T: Stored>(file: &ParquetFile, leaf: usize, shape: &[usize]) -> Option<Arc<Self>> {
        /// Larger ones would take more memory than they save time.
        const KEPT: u64 = 4096;
        let column = file.descriptor.column(leaf);
        let stored = column.physical_type() == T::PHYSICAL
            && (T::PHYSICAL != Physical::FIXED_LEN_BYTE_ARRAY || usize::try_from(column.type_length()) == Ok(T::WIDTH));
        if !stored {
            return None;
        }
        let plans = || file.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans().get(&leaf).filter(|plan| plan.shape == shape) {
            return Some(Arc::clone(plan));
        }
        let plan = Arc::new(Self::new(&column, shape)?);
        if plan.period <= KEPT {
            plans().insert(leaf, Arc::clone(&plan));
        }
        Some(plan)
    }

    fn new(column: &ColumnDescriptor, shape: &[usize]) -> Option<Self> {
        let depth = usize::try_from(column.max_rep_level()).unwrap_or(usize::MAX);
        let period = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        let period = u64::try_from(period).ok()?;
        let fits = if depth == 0 { period == 1 } else { depth == shape.len() };
        if !fits {
            return None;
        }
        let repetition = if depth > 0 { Some(Pattern::of_shape(shape)?) } else { None };
        let definition = match column.max_def_level() {
            0 => None,
            max => Some(Pattern::constant(max)?),
        };
        Some(Self { shape: shape.to_vec(), period, repetition, definition })
    }

    /// The values of a page, if its levels say that they are all there. `known` says that they do.
    fn values<'a>(&self, body: &'a [u8], page: &Page, known: bool) -> Option<&'a [u8]> {
        let has = (self.repetition.is_some(), self.definition.is_some());
        if matches!(page.form, Form::V1 { rle_levels: (r, d) } if has.0 && !r || has.1 && !d) {
            return None;
        }
        let parts = Parts::split(body, page.form, has).ok()?;
        let count = page.values as usize;
        let start = usize::try_from(page.first_value % self.period).unwrap_or(usize::MAX);
        let matches = |pattern: &Option<Pattern>, bytes: &[u8], start: usize| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(bytes, count, start).unwrap_or(false))
        };
        let regular = known
            || matches(&self.repetition, parts.repetition, start) && matches(&self.definition, parts.definition, 0);
        regular.then_some(parts.values)
    }
}

/// A page that is kept, or lies in memory that is used again.
enum Loaded<'a> {
    Kept(Arc<Unpacked>),
    Scratch(&'a [u8]),
}

impl Loaded<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept(page) => &page.bytes,
            Self::Scratch(bytes) => bytes,
        }
    }
}

/// One column, while it is read.
struct Reader<'a> {
    file: &'a ParquetFile,
    reads: Reads,
    leaf: usize,
    plan: &'a Plan,
    budget: Budget,
    /// Size of the largest page so far, which the budget has paid for.
    largest: u64,
}

impl Reader<'_> {
    fn take(&self, bytes: u64) -> Result<()> {
        let name = self.file.leaves.get(self.leaf).map_or("", |leaf| &leaf.name);
        self.budget.take(bytes, name, self.reads.path())
    }

    fn fill<T: Stored>(&mut self, rows: &Range<u64>, out: &mut [T], scratch: &mut Scratch) -> Result<bool> {
        let period = self.plan.period;
        let mut rest = out;
        for index in self.file.groups_of(rows) {
            let Some(group) = self.file.groups.get(index) else { return Ok(false) };
            let start = rows.start.saturating_sub(group.first_row);
            let end = (rows.end - group.first_row).min(group.rows);
            // Of a group that is read in part the pages may be kept already.
            if let Some(chunk) = group.chunks.get(self.leaf)
                && end - start == group.rows
            {
                self.reads.prefetch(chunk.start, chunk.bytes, &mut scratch.ahead)?;
            }
            let pages = self.file.pages(&self.reads, index, self.leaf)?;
            let total = group.rows.checked_mul(period);
            if pages.data.last().map(|page| page.first_value + u64::from(page.values)) != total {
                return Ok(false);
            }
            let wanted = start * period..end * period;
            let count = usize::try_from(wanted.end - wanted.start).unwrap_or(usize::MAX);
            let Some((part, tail)) = std::mem::take(&mut rest).split_at_mut_checked(count) else { return Ok(false) };
            rest = tail;
            if !self.fill_group(index, &pages, wanted, part, scratch)? {
                return Ok(false);
            }
        }
        Ok(rest.is_empty())
    }

    /// Fills `out` with values `wanted` of a column chunk.
    fn fill_group<T: Stored>(
        &mut self,
        group: usize,
        pages: &Pages,
        wanted: Range<u64>,
        out: &mut [T],
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let period = self.plan.period;
        let reach = |page: &Page| page.first_value..page.first_value + u64::from(page.values);
        let first = pages.data.partition_point(|page| reach(page).end <= wanted.start);
        let last = pages.data.partition_point(|page| page.first_value < wanted.end);
        let mut regular = pages.regular(&self.plan.shape);
        // Where rows are found by counting values, what lies before the wanted ones matters, and
        // a row that ends with its page might go on in the next.
        let cut =
            last.checked_sub(1).and_then(|page| pages.data.get(page)).is_some_and(|page| reach(page).end == wanted.end);
        let (from, until) = if pages.aligned { (first, last) } else { (regular.min(first), last + usize::from(cut)) };
        let used = || pages.data.iter().take(until).skip(from).chain(&pages.dictionary);
        let largest = used().map(|page| u64::from(page.uncompressed)).max().unwrap_or(0);
        self.take(largest.saturating_sub(self.largest))?;
        self.largest = self.largest.max(largest);
        let is_plain = |page: &Page| match page.encoding {
            PLAIN => Some(true),
            PLAIN_DICTIONARY | RLE_DICTIONARY => Some(false),
            _ => None,
        };
        // Found now, no page is unpacked in vain.
        if pages.data.iter().take(until).skip(from).any(|page| is_plain(page).is_none()) {
            return Ok(false);
        }
        let Scratch { unpacker, page: page_memory, dictionary: dictionary_memory, .. } = scratch;
        let all =
            pages.data.first().map_or(0, |page| page.first_value)..pages.data.last().map_or(0, |page| reach(page).end);
        let indexed = pages.data.iter().take(last).skip(first).any(|page| is_plain(page) == Some(false));
        let dictionary = match pages.dictionary.filter(|page| indexed && is_plain_dictionary(page)) {
            Some(page) => {
                let key = Key { group, leaf: self.leaf, page: None };
                let keep = wanted != all;
                let loaded = self.load(key, keep, pages, &page, unpacker, dictionary_memory)?;
                if (page.values as usize).checked_mul(T::WIDTH).is_none_or(|bytes| bytes > loaded.bytes().len()) {
                    return Ok(false);
                }
                Some((loaded, page.values as usize * T::WIDTH))
            }
            None => None,
        };
        let entries = dictionary.as_ref().and_then(|(page, bytes)| page.bytes().get(..*bytes));
        let mut rest = out;
        for (index, page) in pages.data.iter().enumerate().take(until).skip(from) {
            if pages.aligned && page.first_value != page.first_row * period {
                return Ok(false);
            }
            let plain = is_plain(page) == Some(true);
            let wanted_here = index >= first && index < last;
            if !wanted_here && index < regular {
                continue;
            }
            // The next read will want what this one leaves of a page.
            let keep = index >= first && (page.first_value < wanted.start || reach(page).end > wanted.end);
            let key = Key { group, leaf: self.leaf, page: Some(index) };
            let loaded = self.load(key, keep, pages, page, unpacker, page_memory)?;
            let shape = self.plan.shape.as_slice();
            let known =
                matches!(&loaded, Loaded::Kept(page) if page.shape.get().is_some_and(|known| **known == *shape));
            let Some(values) = self.plan.values(loaded.bytes(), page, known) else { return Ok(false) };
            if let Loaded::Kept(page) = &loaded
                && !known
            {
                let _ = page.shape.set(shape.into());
            }
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
                entries.and_then(|entries| gather(values, entries, skip, page.values as usize, part))
            };
            if done.is_none() {
                return Ok(false);
            }
        }
        pages.set_regular(&self.plan.shape, regular);
        Ok(rest.is_empty())
    }

    /// The body of a page, which is kept for the next read or not.
    fn load<'m>(
        &'m self,
        key: Key,
        keep: bool,
        pages: &Pages,
        page: &Page,
        unpacker: &mut Unpacker,
        memory: &'m mut Vec<u8>,
    ) -> Result<Loaded<'m>> {
        if !keep {
            return unpacker.load(&self.reads, pages.codec, page, memory).map(Loaded::Scratch);
        }
        let unpack = |memory| unpacker.take(&self.reads, pages.codec, page, memory);
        let bytes = u64::from(page.uncompressed);
        self.file.cache.get(key, bytes, &self.budget, unpack).map(Loaded::Kept)
    }
}

fn is_plain_dictionary(page: &Page) -> bool {
    matches!(page.encoding, PLAIN | PLAIN_DICTIONARY)
}

/// Writes the entries that indices stand for, from value `skip` on.
fn gather<T: Stored>(values: &[u8], dictionary: &[u8], skip: usize, count: usize, out: &mut [T]) -> Option<()> {
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
        // Most of a page lies before the rows that are wanted.
        if take == 0 {
            continue;
        }
        match run {
            Run::Repeat { value, .. } => part.fill(T::entry(dictionary, value)?),
            Run::Packed { bytes, .. } => {
                let mut slots = part;
                unpack(bytes, width, from, from + take, |indices| {
                    let (here, later) = std::mem::take(&mut slots).split_at_mut_checked(indices.len()).ok_or(())?;
                    slots = later;
                    T::gather(dictionary, indices, here).ok_or(())
                })
                .ok()?;
            }
        }
    }
    Some(())
}
