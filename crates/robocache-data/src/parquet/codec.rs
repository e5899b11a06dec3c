//! The bodies of pages, decompressed into memory that their headers had to justify.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;

use robocache::Result;

use super::pages::{Codec, Form, Page};
use super::source::{Reads, grow};
use crate::limits::{corrupt, guarded};

/// Decompresses pages, with memory that is used again.
#[derive(Default)]
pub(super) struct Unpacker {
    raw: Vec<u8>,
    snappy: snap::raw::Decoder,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    /// The body of a page: for a page of the second kind levels, then values. It lies in `out`,
    /// unless it is there already.
    pub(super) fn load<'a>(
        &mut self,
        reads: &'a Reads,
        codec: Codec,
        page: &Page,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        #[cfg(test)]
        reads.note_unpacked(page.at);
        let path = reads.path();
        if !is_packed(codec, page) {
            let body = reads.view(page.at, u64::from(page.compressed), out)?;
            check_crc(page, body, path)?;
            return Ok(body);
        }
        let fail = |what: &str| {
            let text =
                format!("the page at byte {} does not decompress to {} bytes: {what}", page.at, page.uncompressed);
            corrupt(path, text)
        };
        let raw = reads.view(page.at, u64::from(page.compressed), &mut self.raw)?;
        check_crc(page, raw, path)?;
        let levels = match page.form {
            Form::V2 { repetition, definition, .. } => repetition as usize + definition as usize,
            _ => 0,
        };
        let total = page.uncompressed as usize;
        grow(out, total, path)?;
        let all = out.get_mut(..total).ok_or_else(|| fail("no memory"))?;
        let (head, body) = raw.split_at_checked(levels).ok_or_else(|| fail("its levels are cut"))?;
        let (place, rest) = all.split_at_mut_checked(levels).ok_or_else(|| fail("its levels are cut"))?;
        place.copy_from_slice(head);
        if !rest.is_empty() {
            let (snappy, zstd) = (&mut self.snappy, &mut self.zstd);
            let written = guarded(path, "decompressing a page", || {
                decompress(codec, body, rest, snappy, zstd).map_err(|what| fail(&what))
            })?;
            if written != rest.len() {
                return Err(fail(&format!("got {written} bytes")));
            }
        }
        Ok(all)
    }

    /// As [`Self::load`], in `memory` or new one.
    pub(super) fn take(&mut self, reads: &Reads, codec: Codec, page: &Page, mut memory: Vec<u8>) -> Result<Vec<u8>> {
        let body = self.load(reads, codec, page, &mut memory)?;
        let size = body.len();
        // A body that was read ahead is not in the memory that was given for it.
        let ahead = reads.is_ahead(body).then(|| body.to_vec());
        if let Some(body) = ahead {
            return Ok(body);
        }
        memory.truncate(size);
        Ok(memory)
    }
}

/// Memory of this thread that reads use again.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) unpacker: Unpacker,
    pub(super) page: Vec<u8>,
    pub(super) dictionary: Vec<u8>,
    pub(super) ahead: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Scratch {
    /// Runs a read with the memory of this thread; a read within a read has its own.
    pub(super) fn with<T>(read: impl FnOnce(&mut Self) -> T) -> T {
        /// What stays with a thread.
        const MOST: usize = 2 << 20;
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let result = read(&mut scratch);
        let Self { unpacker, page, dictionary, ahead } = &mut *scratch;
        for buffer in [&mut unpacker.raw, page, dictionary, ahead] {
            if buffer.capacity() > MOST {
                *buffer = Vec::new();
            }
        }
        SCRATCH.set(Some(scratch));
        result
    }
}

fn check_crc(page: &Page, raw: &[u8], path: &Path) -> Result<()> {
    let Some(expected) = page.crc else { return Ok(()) };
    let mut crc = flate2::Crc::new();
    crc.update(raw);
    if crc.sum() == expected {
        return Ok(());
    }
    Err(corrupt(path, format!("the page at byte {} has the checksum {:08x}, not {expected:08x}", page.at, crc.sum())))
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
