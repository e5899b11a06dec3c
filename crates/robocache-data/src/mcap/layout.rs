//! Where the parts of a file lie, found by walking over its records. The index at the end is not used to find
//! anything: it may be wrong, and a recorder that was killed leaves none.

use std::path::{Path, PathBuf};

use robocache::{Error, ErrorKind, Result};

use super::records::{Channel, ChunkHead, Fields, HEAD, MAGIC, Record, Records, Schema, kind};
use crate::Limits;
use crate::files::RegularFile;
use crate::limits::{corrupt, exceeds, file_error};

/// Records that are in no chunk are read together, so many bytes at a time.
const PIECE: u64 = 1 << 20;

/// How the records of a piece are compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Lz4,
    Zstd,
    Unknown(String),
}

/// Records that are read together: those of a chunk, or neighbours that are in no chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where the stored bytes start.
    pub(super) at: u64,
    pub(super) stored: u64,
    /// Bytes after decompression, as the file says.
    pub(super) size: u64,
    pub(super) compression: Compression,
    /// `None`: there is no checksum.
    pub(super) crc: Option<u32>,
    /// First and last log time, as the chunk says; of chunks only.
    pub(super) span: Option<(u64, u64)>,
    /// The file ends in it.
    pub(super) is_cut: bool,
}

/// A piece in one of the files, and why it cannot be read.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) file: usize,
    pub(super) piece: Piece,
    pub(super) fault: Option<String>,
}

/// What walking over a file found.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) profile: String,
    pub(super) pieces: Vec<Piece>,
    /// Definitions outside of chunks, those of the summary included.
    pub(super) schemas: Vec<Schema>,
    pub(super) channels: Vec<Channel>,
    /// Why the file ends before its end, where it does.
    pub(super) cut: Option<String>,
    /// Bytes after the end.
    pub(super) trailing: u64,
    /// Bytes of the data section and its checksum, where there is one.
    pub(super) data_crc: Option<(u64, u32)>,
    /// Messages, as the statistics count them.
    pub(super) counted: Option<u64>,
    /// Where the index says that chunks are.
    indexed: Vec<u64>,
    /// Where chunks are.
    chunks: Vec<u64>,
}

impl Layout {
    /// What is wrong with the index of chunks, where there is one.
    pub(super) fn index_fault(&self) -> Option<String> {
        let strays = self.indexed.iter().filter(|at| !self.chunks.contains(at)).count();
        let missing = self.chunks.iter().filter(|at| !self.indexed.contains(at)).count();
        if self.indexed.is_empty() || strays + missing == 0 {
            return None;
        }
        let first = self.indexed.iter().find(|at| !self.chunks.contains(at));
        let first = first.map(|at| format!("; the first is said to be at byte {at}")).unwrap_or_default();
        Some(format!(
            "expected an index of {} chunks, {strays} of its entries lead to no chunk and {missing} chunks are not in it{first}",
            self.chunks.len()
        ))
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct McapFile {
    pub(super) path: PathBuf,
    pub(super) file: RegularFile,
}

impl McapFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_path_buf(), file: RegularFile::open(path)? })
    }

    /// Bytes of the file when it was opened.
    pub(super) fn size(&self) -> u64 {
        self.file.metadata().len()
    }

    /// Some bytes, which must be in the file: no more than it has are reserved.
    pub(super) fn read(&self, at: u64, count: u64, limits: &Limits) -> Result<Vec<u8>> {
        if count > limits.max_alloc {
            let text = format!("{count} bytes at byte {at} exceed max_alloc ({})", limits.max_alloc);
            return Err(exceeds(&self.path, text));
        }
        if at.checked_add(count).is_none_or(|end| end > self.size()) {
            return Err(corrupt(&self.path, format!("{count} bytes at byte {at} are past the end")));
        }
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| file_error(&self.path, "cannot read", error))?;
        Ok(bytes)
    }

    /// Up to so many bytes.
    fn peek(&self, at: u64, most: u64, limits: &Limits) -> Result<Vec<u8>> {
        self.read(at, most.min(self.size().saturating_sub(at)), limits)
    }

    /// Walks over all records.
    pub(super) fn layout(&self, limits: &Limits) -> Result<Layout> {
        let size = self.size();
        let start = self.peek(0, 8, limits)?;
        if start != MAGIC {
            let text = format!("expected an MCAP file, got {size} bytes that start with \"{}\"", start.escape_ascii());
            return Err(corrupt(&self.path, text));
        }
        let mut walk = Walk { file: self, limits, layout: Layout::default(), metadata: 0, in_summary: false };
        let end = walk.records(MAGIC.len() as u64)?;
        let mut layout = walk.layout;
        if layout.cut.is_none() {
            let tail = self.peek(end, MAGIC.len() as u64, limits)?;
            if tail == MAGIC {
                layout.trailing = size - end - MAGIC.len() as u64;
                let next = self.peek(end + MAGIC.len() as u64, MAGIC.len() as u64, limits)?;
                if next == MAGIC {
                    let at = end + MAGIC.len() as u64;
                    let text = format!("a second recording starts at byte {at}; split the file there");
                    return Err(Error::new(ErrorKind::Unsupported, text).path(&self.path));
                }
            } else {
                layout.cut = Some("the magic bytes at its end are missing".to_owned());
            }
        }
        Ok(layout)
    }

    /// Whether the checksum of the data section is that of its bytes; `None` where there is none.
    pub(super) fn data_crc_is_right(&self, layout: &Layout, interrupted: &dyn Fn() -> bool) -> Result<Option<bool>> {
        let Some((end, expected)) = layout.data_crc else { return Ok(None) };
        let mut crc = flate2::Crc::new();
        let mut at = 0;
        while at < end {
            if interrupted() {
                return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
            }
            let bytes = self.peek(at, (end - at).min(PIECE), &Limits::default())?;
            crc.update(&bytes);
            at += bytes.len() as u64;
        }
        Ok(Some(crc.sum() == expected))
    }
}

struct Walk<'a> {
    file: &'a McapFile,
    limits: &'a Limits,
    layout: Layout,
    /// Bytes of definitions so far.
    metadata: u64,
    in_summary: bool,
}

impl Walk<'_> {
    /// Goes over the records from a place on, to the footer or to where the file is cut; where that is.
    fn records(&mut self, start: u64) -> Result<u64> {
        let size = self.file.size();
        let mut at = start;
        // Heads lie close together where records are small: several are read at once.
        let (mut window, mut window_at) = (Vec::new(), 0u64);
        while at < size {
            let have = |window: &Vec<u8>, window_at: u64| {
                let from = usize::try_from(at.checked_sub(window_at)?).ok()?;
                window.get(from..).map(<[u8]>::len)
            };
            let wanted = (HEAD + ChunkHead::MOST as u64).min(size - at);
            if have(&window, window_at).is_none_or(|have| (have as u64) < wanted) {
                window = self.file.peek(at, 64 << 10, self.limits)?;
                window_at = at;
            }
            let place = usize::try_from(at - window_at).unwrap_or(usize::MAX);
            let mut head = Fields(window.get(place..).unwrap_or_default());
            let (Some(&[kind]), Some(length)) = (head.take(1), head.u64()) else {
                self.cut(format!("it ends within a record, at byte {at}"));
                return Ok(at);
            };
            let body = at + HEAD;
            let Some(end) = body.checked_add(length).filter(|&end| end <= size) else {
                if kind == kind::CHUNK {
                    self.chunk(at, size - body, head.0, true)?;
                }
                self.cut(format!("the record at byte {at} claims {length} bytes, {} are left", size - body));
                return Ok(at);
            };
            match kind {
                kind::FOOTER => return Ok(end),
                kind::CHUNK => self.chunk(at, length, head.0, false)?,
                kind::MESSAGE => self.loose(at, end),
                kind::SCHEMA | kind::CHANNEL if !self.in_summary => {
                    self.definition(at, kind, length)?;
                    self.loose(at, end);
                }
                kind::HEADER | kind::SCHEMA | kind::CHANNEL | kind::CHUNK_INDEX | kind::STATISTICS | kind::DATA_END => {
                    self.definition(at, kind, length)?;
                }
                // What is not known is skipped, as the format asks for.
                _ => {}
            }
            at = end;
        }
        self.cut("there is no footer".to_owned());
        Ok(at)
    }

    fn cut(&mut self, why: String) {
        self.layout.cut.get_or_insert(why);
    }

    fn chunk(&mut self, at: u64, length: u64, start: &[u8], is_cut: bool) -> Result<()> {
        let body = at + HEAD;
        let start = start.get(..start.len().min(usize::try_from(length).unwrap_or(usize::MAX))).unwrap_or_default();
        let head = match ChunkHead::parse(start) {
            Ok(head) => head,
            // Cut within its head: there is nothing to recover.
            Err(_) if is_cut => return Ok(()),
            Err(why) => return Err(corrupt(&self.file.path, format!("the chunk at byte {at}: {why}"))),
        };
        let room = length.saturating_sub(head.length);
        if head.stored > room && !is_cut {
            let text = format!("the chunk at byte {at} claims {} bytes of records, {room} are left", head.stored);
            return Err(corrupt(&self.file.path, text));
        }
        self.layout.chunks.push(at);
        self.layout.pieces.push(Piece {
            at: body + head.length,
            stored: head.stored.min(room),
            size: head.size,
            compression: match head.compression.as_str() {
                "" => Compression::None,
                "lz4" => Compression::Lz4,
                "zstd" => Compression::Zstd,
                other => Compression::Unknown(other.to_owned()),
            },
            crc: (head.crc != 0).then_some(head.crc),
            span: Some((head.start, head.end)),
            is_cut,
        });
        Ok(())
    }

    /// A record that is in no chunk.
    fn loose(&mut self, at: u64, end: u64) {
        if let Some(last) = self.layout.pieces.last_mut()
            && last.span.is_none()
            && last.at + last.stored == at
            && end - last.at <= PIECE
        {
            last.stored = end - last.at;
            last.size = last.stored;
            return;
        }
        self.layout.pieces.push(Piece {
            at,
            stored: end - at,
            size: end - at,
            compression: Compression::None,
            crc: None,
            span: None,
            is_cut: false,
        });
    }

    fn definition(&mut self, at: u64, kind: u8, length: u64) -> Result<()> {
        self.metadata = self.metadata.saturating_add(length);
        if self.metadata > self.limits.max_metadata {
            let text = format!("definitions and index exceed max_metadata ({})", self.limits.max_metadata);
            return Err(exceeds(&self.file.path, text));
        }
        let bytes = self.file.read(at, HEAD + length, self.limits)?;
        let record = Records::at(&bytes, 0).map(|Record { body, .. }| body).unwrap_or_default();
        let layout = &mut self.layout;
        let mut fields = Fields(record);
        let parsed = match kind {
            kind::HEADER => fields.text().map(|profile| layout.profile = profile),
            kind::SCHEMA => Schema::parse(record).map(|schema| layout.schemas.push(schema)),
            kind::CHANNEL => Channel::parse(record).map(|channel| layout.channels.push(channel)),
            kind::CHUNK_INDEX => {
                let _span = (fields.u64(), fields.u64());
                fields.u64().map(|at| layout.indexed.push(at))
            }
            kind::STATISTICS => fields.u64().map(|count| layout.counted = Some(count)),
            _ => {
                self.in_summary = true;
                fields.u32().map(|crc| layout.data_crc = (crc != 0).then_some((at, crc)))
            }
        };
        parsed.ok_or_else(|| corrupt(&self.file.path, format!("the record at byte {at} is too short for its kind")))
    }
}
