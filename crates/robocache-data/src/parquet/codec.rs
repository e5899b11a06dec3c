//! The bodies of pages, decompressed into memory that their headers had to justify.

use std::io::Read;
use std::path::Path;

use robocache::{Error, ErrorKind, Result};

use super::pages::{Form, Page};
use super::source::Reads;
use crate::limits::{corrupt, guarded};

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

/// Decompresses pages, with buffers that are used again.
#[derive(Default)]
pub(super) struct Unpacker {
    raw: Vec<u8>,
    page: Vec<u8>,
    snappy: snap::raw::Decoder,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    /// Makes the buffers large enough for all of these pages at once.
    pub(super) fn prepare<'a>(&mut self, path: &Path, pages: impl Iterator<Item = &'a Page>) -> Result<()> {
        let sizes = pages.map(|page| (page.compressed as usize, page.uncompressed as usize));
        let (raw, page) = sizes.fold((0, 0), |most, size| (most.0.max(size.0), most.1.max(size.1)));
        grow(&mut self.raw, raw, path)?;
        grow(&mut self.page, page, path)
    }

    /// The body of a page: for a page of the second kind levels, then values.
    pub(super) fn load(&mut self, reads: &Reads, codec: Codec, page: &Page) -> Result<&[u8]> {
        let path = reads.path();
        let fail = |what: &str| {
            let text =
                format!("the page at byte {} does not decompress to {} bytes: {what}", page.at, page.uncompressed);
            corrupt(path, text)
        };
        let size = page.compressed as usize;
        grow(&mut self.raw, size, path)?;
        let raw = self.raw.get_mut(..size).ok_or_else(|| fail("no memory"))?;
        reads.read(page.at, raw)?;
        if let Some(expected) = page.crc {
            let mut crc = flate2::Crc::new();
            crc.update(raw);
            if crc.sum() != expected {
                let text =
                    format!("the page at byte {} has the checksum {:08x}, not {expected:08x}", page.at, crc.sum());
                return Err(corrupt(path, text));
            }
        }
        if !is_packed(codec, page) {
            return Ok(raw);
        }
        let levels = match page.form {
            Form::V2 { repetition, definition, .. } => repetition as usize + definition as usize,
            _ => 0,
        };
        let total = page.uncompressed as usize;
        grow(&mut self.page, total, path)?;
        let all = self.page.get_mut(..total).ok_or_else(|| fail("no memory"))?;
        let (head, body) = raw.split_at_checked(levels).ok_or_else(|| fail("its levels are cut"))?;
        let (place, out) = all.split_at_mut_checked(levels).ok_or_else(|| fail("its levels are cut"))?;
        place.copy_from_slice(head);
        if !out.is_empty() {
            let (snappy, zstd) = (&mut self.snappy, &mut self.zstd);
            let written = guarded(path, "decompressing a page", || {
                decompress(codec, body, out, snappy, zstd).map_err(|what| fail(&what))
            })?;
            if written != out.len() {
                return Err(fail(&format!("got {written} bytes")));
            }
        }
        Ok(all)
    }

    /// As [`Self::load`], given away.
    pub(super) fn take(mut self, reads: &Reads, codec: Codec, page: &Page) -> Result<Vec<u8>> {
        let size = self.load(reads, codec, page)?.len();
        let mut body = if is_packed(codec, page) { self.page } else { self.raw };
        body.truncate(size);
        Ok(body)
    }
}

/// Makes a buffer at least this long; what it holds is lost.
fn grow(buffer: &mut Vec<u8>, size: usize, path: &Path) -> Result<()> {
    if buffer.len() < size {
        buffer.clear();
        buffer.try_reserve_exact(size).map_err(|error| {
            let text = format!("cannot reserve {size} bytes for a page");
            Error::new(ErrorKind::OutOfMemory, text).caused_by(error).path(path)
        })?;
        buffer.resize(size, 0);
    }
    Ok(())
}

/// Fills `out` and returns how many bytes there are, which is more than fit if the page lies.
fn decompress(
    codec: Codec,
    body: &[u8],
    out: &mut [u8],
    snappy: &mut snap::raw::Decoder,
    zstd: &mut Option<zstd::bulk::Decompressor<'static>>,
) -> Result<usize, String> {
    match codec {
        Codec::None => Ok(body.len()),
        Codec::Snappy => snappy.decompress(body, out).map_err(|error| error.to_string()),
        Codec::Zstd => {
            let zstd = match zstd {
                Some(zstd) => zstd,
                none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?),
            };
            zstd.decompress_to_buffer(body, out).map_err(|error| error.to_string())
        }
        Codec::Gzip => {
            let mut reader = flate2::read::MultiGzDecoder::new(body);
            reader.read_exact(out).map_err(|error| error.to_string())?;
            let more = reader.read(&mut [0]).map_err(|error| error.to_string())?;
            Ok(out.len() + more)
        }
    }
}

fn is_packed(codec: Codec, page: &Page) -> bool {
    codec != Codec::None && !matches!(page.form, Form::V2 { compressed: false, .. })
}
