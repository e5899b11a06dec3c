//! The sample tables of a track: when each frame is shown, whether decoding can start there, and
//! whether its bytes are in the file.

use robocache::{Error, ErrorKind, Result};

use super::boxes::{Fields, bad, find, need, pair};
use crate::limits::Limits;

/// One coded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// When it is shown, in media units, before edits.
    pub(super) time: i64,
    /// Decoding can start here.
    pub(super) key: bool,
    /// All its bytes lie inside the file.
    pub(super) whole: bool,
}

/// Refuses more samples than the limit, or than a file of `len` bytes can hold, before they are kept.
pub(super) fn check_count(count: u64, len: u64, max_frames: u64) -> Result<()> {
    if count > len {
        return Err(bad(format!("the track says {count} frames in a file of {len} bytes")));
    }
    if count > max_frames {
        let text = format!("the video has {count} frames, more than max_frames = {max_frames}");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    Ok(())
}

/// Makes room for samples that `check_count` let pass.
pub(super) fn reserve(samples: &mut Vec<Sample>, count: usize) -> Result<()> {
    samples.try_reserve(count).map_err(|error| {
        Error::new(ErrorKind::OutOfMemory, format!("{count} entries of the video's index")).caused_by(error)
    })
}

/// Reads the tables in `stbl`. A fragmented file may leave them out or empty.
pub(super) fn read(stbl: &[u8], len: u64, limits: &Limits, fragmented: bool) -> Result<Vec<Sample>> {
    let sizes = match Sizes::read(stbl)? {
        Some(sizes) => sizes,
        None if fragmented => return Ok(Vec::new()),
        None => return Err(bad("box \"stsz\" is missing in \"stbl\"")),
    };
    check_count(u64::from(sizes.count), len, limits.max_frames)?;
    let count = usize::try_from(sizes.count).map_err(|_| bad("too many frames"))?;
    let mut samples = Vec::new();
    reserve(&mut samples, count)?;
    if count == 0 {
        return if fragmented { Ok(samples) } else { Err(bad("the video track has no frames")) };
    }
    read_times(stbl, count, &mut samples)?;
    add_offsets(stbl, &mut samples)?;
    mark_keys(stbl, &mut samples)?;
    mark_whole(stbl, &sizes, len, &mut samples)?;
    Ok(samples)
}

/// Decoding times, which composition offsets turn into times of showing.
fn read_times(stbl: &[u8], count: usize, samples: &mut Vec<Sample>) -> Result<()> {
    let (mut stts, _, _) = Fields::full(need(stbl, "stbl", b"stts")?, "stts")?;
    let mut time = 0_i64;
    let mut told = 0_u64;
    for &entry in stts.table::<8>()? {
        let (run, step) = pair(entry);
        told += u64::from(run);
        for _ in 0..run {
            if samples.len() == count {
                break;
            }
            samples.push(Sample { time, key: false, whole: false });
            time = time.checked_add(i64::from(step)).ok_or_else(|| bad("the frames' times overflow"))?;
        }
    }
    if told != count as u64 {
        return Err(bad(format!(
            "the track has {count} frames, but times for {told} (\"stsz\" and \"stts\" disagree)"
        )));
    }
    Ok(())
}

fn add_offsets(stbl: &[u8], samples: &mut [Sample]) -> Result<()> {
    let Some(ctts) = find(stbl, "stbl", b"ctts")? else { return Ok(()) };
    let (mut ctts, _, _) = Fields::full(ctts, "ctts")?;
    let total = samples.len();
    let mut rest = samples.iter_mut();
    let mut told = 0_u64;
    for &entry in ctts.table::<8>()? {
        let (run, offset) = pair(entry);
        told += u64::from(run);
        for sample in rest.by_ref().take(usize::try_from(run).unwrap_or(usize::MAX)) {
            // Version 0 says unsigned, but its writers store negative offsets too, and ffmpeg reads them so.
            let offset = i64::from(offset.cast_signed());
            sample.time = sample.time.checked_add(offset).ok_or_else(|| bad("the frames' times overflow"))?;
        }
    }
    if told != total as u64 {
        return Err(bad(format!(
            "the track has {total} frames, but offsets for {told} (\"stsz\" and \"ctts\" disagree)"
        )));
    }
    Ok(())
}

fn mark_keys(stbl: &[u8], samples: &mut [Sample]) -> Result<()> {
    let Some(stss) = find(stbl, "stbl", b"stss")? else {
        samples.iter_mut().for_each(|sample| sample.key = true);
        return Ok(());
    };
    let (mut stss, _, _) = Fields::full(stss, "stss")?;
    let total = samples.len();
    for &entry in stss.table::<4>()? {
        let number = u32::from_be_bytes(entry);
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let Some(sample) = index.and_then(|index| samples.get_mut(index)) else {
            return Err(bad(format!("keyframe {number} of {total} frames (\"stss\")")));
        };
        sample.key = true;
    }
    Ok(())
}

/// Follows chunks to the bytes of each sample.
fn mark_whole(stbl: &[u8], sizes: &Sizes<'_>, len: u64, samples: &mut [Sample]) -> Result<()> {
    let (mut stsc, _, _) = Fields::full(need(stbl, "stbl", b"stsc")?, "stsc")?;
    let runs = stsc.table::<12>()?;
    let chunks = Chunks::read(stbl)?;
    let total = samples.len();
    let mut rest = samples.iter_mut().enumerate();
    let mut runs = runs.iter().map(|&[a, b, c, d, e, f, g, h, ..]| pair([a, b, c, d, e, f, g, h])).peekable();
    let mut per_chunk = 0;
    for (number, chunk) in (1_u32..).zip(0..chunks.count()) {
        while let Some((_, count)) = runs.next_if(|&(first, _)| first <= number) {
            per_chunk = count;
        }
        let mut at = chunks.offset(chunk);
        for (index, sample) in rest.by_ref().take(usize::try_from(per_chunk).unwrap_or(usize::MAX)) {
            at = at.saturating_add(u64::from(sizes.of(index)));
            sample.whole = at <= len;
        }
    }
    match rest.next() {
        Some((index, _)) => Err(bad(format!("the track has {total} frames, but its chunks hold {index}"))),
        None => Ok(()),
    }
}

/// `stsz` or `stz2`.
struct Sizes<'a> {
    count: u32,
    table: SizeTable<'a>,
}

enum SizeTable<'a> {
    Same(u32),
    Words(&'a [[u8; 4]]),
    /// Big-endian numbers of 4, 8 or 16 bits.
    Packed(&'a [u8], u8),
}

impl<'a> Sizes<'a> {
    fn read(stbl: &'a [u8]) -> Result<Option<Self>> {
        if let Some(stsz) = find(stbl, "stbl", b"stsz")? {
            let (mut stsz, _, _) = Fields::full(stsz, "stsz")?;
            let size = stsz.u32()?;
            let count = stsz.clone().u32()?;
            let table = if size == 0 { SizeTable::Words(stsz.table()?) } else { SizeTable::Same(size) };
            return Ok(Some(Self { count, table }));
        }
        let Some(stz2) = find(stbl, "stbl", b"stz2")? else { return Ok(None) };
        let (mut stz2, _, _) = Fields::full(stz2, "stz2")?;
        let [.., bits] = stz2.u32()?.to_be_bytes();
        let count = stz2.u32()?;
        if !matches!(bits, 4 | 8 | 16) {
            return Err(bad(format!("\"stz2\" has sizes of {bits} bits")));
        }
        let bytes = (u64::from(count) * u64::from(bits)).div_ceil(8);
        let bytes = stz2.take(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(Some(Self { count, table: SizeTable::Packed(bytes, bits) }))
    }

    fn of(&self, index: usize) -> u32 {
        let byte = |table: &[u8], index: usize| table.get(index).copied().map_or(0, u32::from);
        match self.table {
            SizeTable::Same(size) => size,
            SizeTable::Words(words) => words.get(index).copied().map_or(0, u32::from_be_bytes),
            SizeTable::Packed(table, 16) => (byte(table, index * 2) << 8) | byte(table, index * 2 + 1),
            SizeTable::Packed(table, 8) => byte(table, index),
            SizeTable::Packed(table, _) => (byte(table, index / 2) >> (4 - 4 * (index % 2))) & 15,
        }
    }
}

/// `stco` or `co64`.
enum Chunks<'a> {
    Short(&'a [[u8; 4]]),
    Long(&'a [[u8; 8]]),
}

impl<'a> Chunks<'a> {
    fn read(stbl: &'a [u8]) -> Result<Self> {
        if let Some(stco) = find(stbl, "stbl", b"stco")? {
            return Fields::full(stco, "stco")?.0.table().map(Self::Short);
        }
        Fields::full(need(stbl, "stbl", b"co64")?, "co64")?.0.table().map(Self::Long)
    }

    fn count(&self) -> usize {
        match self {
            Self::Short(table) => table.len(),
            Self::Long(table) => table.len(),
        }
    }

    fn offset(&self, chunk: usize) -> u64 {
        match self {
            Self::Short(table) => table.get(chunk).map_or(0, |&entry| u64::from(u32::from_be_bytes(entry))),
            Self::Long(table) => table.get(chunk).map_or(0, |&entry| u64::from_be_bytes(entry)),
        }
    }
}
