//! Reads the tables of an MP4 file: where its boxes are, and what its video track says.

use std::io;
use std::path::Path;

use robocache::{Error, ErrorKind, Result};

use super::boxes::{Fields, Kind, bad, children, find, name, need};
use super::codec::{SampleEntry, sample_entry};
use super::fragments;
use super::samples::{self, Sample};
use crate::files::RegularFile;
use crate::limits::{Limits, corrupt, exceeds, file_error};

/// Top-level boxes that are looked at before a file is refused.
const MAX_BOXES: usize = 1 << 20;

/// What the tables say.
pub(super) struct Index {
    pub(super) track: u32,
    pub(super) entry: SampleEntry,
    /// Media units per second.
    pub(super) timescale: u32,
    pub(super) edits: Edits,
    /// In decoding order.
    pub(super) samples: Vec<Sample>,
    /// Why the file is shorter than it says, where it is.
    pub(super) short: Option<String>,
}

/// The part of the track that is shown, in media units.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edits {
    /// Whether the track has an edit.
    pub(super) listed: bool,
    /// Nothing is shown for this long.
    pub(super) delay: i64,
    /// Where the part starts.
    pub(super) start: i64,
    /// Where it ends, exclusive.
    pub(super) end: i64,
}

/// What a fragment needs to know of its track.
pub(super) struct TrackDefaults {
    pub(super) track: u32,
    pub(super) duration: u32,
    pub(super) size: u32,
    pub(super) flags: u32,
}

struct TopBox {
    kind: Kind,
    /// Offset of the first byte of the box.
    start: u64,
    body: u64,
    /// Exclusive; at most the length of the file.
    end: u64,
}

/// Reads the index. `len` is the length of the file.
pub(super) fn read(path: &Path, file: &RegularFile, len: u64, limits: &Limits) -> Result<Index> {
    let layout = Layout::scan(path, file, len)?;
    let Some(moov) = layout.boxes.iter().find(|one| one.kind == *b"moov") else {
        return Err(layout.no_moov(path));
    };
    if moov.end == len && layout.overrun.as_ref().is_some_and(|over| over.kind == *b"moov") {
        return Err(corrupt(path, "the index (box \"moov\") is cut off by the end of the file"));
    }
    let bytes = load(path, file, moov, limits)?;
    let mut index = read_moov(&bytes, len, limits)?;
    if let Some((defaults, index)) = index.fragmented() {
        let mut spent = moov.end - moov.start;
        let mut clock = None;
        for moof in layout.boxes.iter().filter(|one| one.kind == *b"moof") {
            spent += moof.end - moof.start;
            if spent > limits.max_metadata {
                return Err(metadata_limit(path, spent, limits));
            }
            let bytes = load(path, file, moof, limits)?;
            fragments::read(&bytes, moof.start, len, limits.max_frames, defaults, &mut clock, &mut index.samples)?;
        }
    }
    let index = index.index;
    let cut = index.samples.iter().filter(|sample| !sample.whole).count();
    let short = if cut > 0 {
        Some(format!("{cut} of {} frames lie past the end of the file, which has {len} bytes", index.samples.len()))
    } else {
        layout.overrun.map(|over| {
            let (kind, needed) = (name(over.kind), over.missing);
            format!("box {kind:?} reaches {needed} bytes past the end of the file")
        })
    };
    Ok(Index { short, ..index })
}

struct Parsed {
    index: Index,
    defaults: Option<TrackDefaults>,
}

impl Parsed {
    fn fragmented(&mut self) -> Option<(&TrackDefaults, &mut Index)> {
        Some((self.defaults.as_ref()?, &mut self.index))
    }
}

struct Overrun {
    kind: Kind,
    missing: u64,
}

struct Layout {
    boxes: Vec<TopBox>,
    /// A box that says it is longer than the file.
    overrun: Option<Overrun>,
    /// Where bytes were found that are no box.
    garbage: Option<u64>,
    has_data: bool,
}

impl Layout {
    fn scan(path: &Path, file: &RegularFile, len: u64) -> Result<Self> {
        let mut layout = Self { boxes: Vec::new(), overrun: None, garbage: None, has_data: false };
        let mut at = 0;
        for count in 0.. {
            if len - at < 8 {
                if at == 0 {
                    return Err(corrupt(path, format!("not an MP4 file: it has {len} bytes")));
                }
                break;
            }
            if count == MAX_BOXES {
                return Err(exceeds(path, format!("more than {MAX_BOXES} boxes")));
            }
            let mut header = [0; 16];
            let wanted = usize::try_from(len - at).map_or(16, |left| left.min(16));
            let header = header.get_mut(..wanted).unwrap_or_default();
            file.read_exact_at(header, at).map_err(|error| cannot_read(path, "cannot read a box header", error))?;
            let mut fields = Fields::new(header, "box header");
            let short = fields.u32()?;
            let kind: Kind = fields.array()?;
            if at == 0
                && !matches!(
                    &kind,
                    b"ftyp" | b"moov" | b"mdat" | b"free" | b"skip" | b"wide" | b"styp" | b"uuid" | b"pnot"
                )
            {
                let start: &[u8] = header.get(..8).unwrap_or_default();
                let start = start.escape_ascii();
                return Err(corrupt(path, format!("not an MP4 file: it starts with \"{start}\"")));
            }
            let (size, head) = match short {
                0 => (len - at, 8),
                1 => (fields.u64().map_err(|error| error.path(path))?, 16),
                short => (u64::from(short), 8),
            };
            if size < head || !kind.iter().all(|byte| (0x20..0x7f).contains(byte) || *byte == 0xa9) {
                layout.garbage = Some(at);
                break;
            }
            let end = at.saturating_add(size);
            if end > len {
                layout.overrun = Some(Overrun { kind, missing: end - len });
            }
            layout.has_data |= kind == *b"mdat";
            if matches!(&kind, b"moov" | b"moof") {
                layout.boxes.push(TopBox { kind, start: at, body: at + head, end: end.min(len) });
            }
            if end >= len {
                break;
            }
            at = end;
        }
        Ok(layout)
    }

    fn no_moov(&self, path: &Path) -> Error {
        let mut text = String::from("the file has no index (box \"moov\")");
        if let Some(at) = self.garbage {
            text += &format!("; at byte {at} there is no box");
        }
        if self.has_data {
            text += ": the recorder was probably killed before it closed the file";
        }
        corrupt(path, text)
    }
}

fn metadata_limit(path: &Path, size: u64, limits: &Limits) -> Error {
    exceeds(path, format!("the video's index has {size} bytes, more than max_metadata = {}", limits.max_metadata))
}

fn load(path: &Path, file: &RegularFile, one: &TopBox, limits: &Limits) -> Result<Vec<u8>> {
    let size = one.end.saturating_sub(one.body);
    if size > limits.max_metadata {
        return Err(metadata_limit(path, size, limits));
    }
    let mut bytes = Vec::new();
    // The file has these bytes, so they may be reserved.
    let wanted = usize::try_from(size).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(wanted).map_err(|error| {
        Error::new(ErrorKind::OutOfMemory, format!("{size} bytes for the video's index")).caused_by(error)
    })?;
    bytes.resize(wanted, 0);
    let read = file.read_exact_at(&mut bytes, one.body);
    read.map_err(|error| cannot_read(path, "cannot read the video's index", error))?;
    Ok(bytes)
}

fn cannot_read(path: &Path, what: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => file_error(path, "the file became shorter while it was read", error),
        _ => file_error(path, what, error),
    }
}

fn read_moov(moov: &[u8], len: u64, limits: &Limits) -> Result<Parsed> {
    let movie_scale = {
        let (mut fields, version, _) = Fields::full(need(moov, "moov", b"mvhd")?, "mvhd")?;
        fields.take(if version == 1 { 16 } else { 8 })?;
        fields.u32()?
    };
    let mut others = Vec::new();
    for child in children(moov, "moov") {
        let (kind, trak) = child?;
        if kind != *b"trak" {
            continue;
        }
        let mdia = need(trak, "trak", b"mdia")?;
        let (mut hdlr, _, _) = Fields::full(need(mdia, "mdia", b"hdlr")?, "hdlr")?;
        hdlr.take(4)?;
        let handler: Kind = hdlr.array()?;
        if handler == *b"vide" {
            return read_track(moov, trak, mdia, movie_scale, len, limits);
        }
        others.push(name(handler));
    }
    let found = if others.is_empty() { "none".into() } else { others.join(", ") };
    Err(bad(format!("the file has no video track; tracks found: {found}")))
}

fn read_track(moov: &[u8], trak: &[u8], mdia: &[u8], movie_scale: u32, len: u64, limits: &Limits) -> Result<Parsed> {
    let (mut tkhd, version, _) = Fields::full(need(trak, "trak", b"tkhd")?, "tkhd")?;
    tkhd.take(if version == 1 { 16 } else { 8 })?;
    let track = tkhd.u32()?;
    let (mut mdhd, version, _) = Fields::full(need(mdia, "mdia", b"mdhd")?, "mdhd")?;
    mdhd.take(if version == 1 { 16 } else { 8 })?;
    let timescale = mdhd.u32()?;
    if timescale == 0 || timescale > i32::MAX.unsigned_abs() {
        return Err(bad(format!("the track's time scale is {timescale} units per second")));
    }
    let stbl = need(need(mdia, "mdia", b"minf")?, "minf", b"stbl")?;
    let entry = sample_entry(need(stbl, "stbl", b"stsd")?)?;
    let pixels = u64::from(entry.width) * u64::from(entry.height);
    if pixels == 0 {
        return Err(bad(format!("the track's frames are {} x {} pixels", entry.width, entry.height)));
    }
    if pixels > limits.max_pixels {
        let text = format!("frames of {} x {} exceed max_pixels = {}", entry.width, entry.height, limits.max_pixels);
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let defaults = read_defaults(moov, track)?;
    let samples = samples::read(stbl, len, limits, defaults.is_some())?;
    let mut edits = read_edits(trak, timescale, movie_scale)?;
    if defaults.is_some() {
        // The edit was written before the fragments, so it does not know how long they are.
        edits.end = i64::MAX;
    }
    Ok(Parsed { index: Index { track, entry, timescale, edits, samples, short: None }, defaults })
}

/// The defaults of a track's fragments, where the file says that it may have some.
fn read_defaults(moov: &[u8], track: u32) -> Result<Option<TrackDefaults>> {
    let Some(mvex) = find(moov, "moov", b"mvex")? else { return Ok(None) };
    for child in children(mvex, "mvex") {
        let (kind, trex) = child?;
        if kind != *b"trex" {
            continue;
        }
        let (mut trex, _, _) = Fields::full(trex, "trex")?;
        if trex.u32()? == track {
            trex.u32()?;
            let (duration, size, flags) = (trex.u32()?, trex.u32()?, trex.u32()?);
            return Ok(Some(TrackDefaults { track, duration, size, flags }));
        }
    }
    Ok(Some(TrackDefaults { track, duration: 0, size: 0, flags: 0 }))
}

/// Empty edits and one edit of the media at normal speed is what cameras and ffmpeg write.
fn read_edits(trak: &[u8], timescale: u32, movie_scale: u32) -> Result<Edits> {
    let mut edits = Edits { listed: false, delay: 0, start: i64::MIN, end: i64::MAX };
    let Some(edts) = find(trak, "trak", b"edts")? else { return Ok(edits) };
    let Some(elst) = find(edts, "edts", b"elst")? else { return Ok(edits) };
    let (mut elst, version, _) = Fields::full(elst, "elst")?;
    let unsupported = |text: &str| Error::new(ErrorKind::Unsupported, format!("the track's edit list {text}"));
    // The movie's units become the track's, to the nearest: what ffmpeg does, so times agree with it.
    let rescale = |duration: u64| -> Result<i64> {
        let (to, from) = (i128::from(timescale), i128::from(movie_scale.max(1)));
        let units = (i128::from(duration) * to * 2 + from) / (from * 2);
        i64::try_from(units).map_err(|_| bad(format!("an edit of {duration} units at {movie_scale} per second")))
    };
    for _ in 0..elst.u32()? {
        let duration = elst.wide(version)?;
        let start = if version == 1 { elst.u64()?.cast_signed() } else { i64::from(elst.i32()?) };
        let (rate, fraction) = (elst.u16()?, elst.u16()?);
        let duration = rescale(duration)?;
        match start {
            -1 if !edits.listed => {
                edits.delay = edits.delay.checked_add(duration).ok_or_else(|| bad("empty edits of endless length"))?;
            }
            -1 => return Err(unsupported("has a pause in the middle")),
            ..-1 => return Err(bad(format!("the track's edit list starts at {start}"))),
            _ if edits.listed => return Err(unsupported("shows several parts of the track")),
            _ if (rate, fraction) != (1, 0) => return Err(unsupported("changes the speed")),
            _ => {
                edits.listed = true;
                edits.start = start;
                edits.end = if duration == 0 { i64::MAX } else { start.saturating_add(duration) };
            }
        }
    }
    Ok(edits)
}
