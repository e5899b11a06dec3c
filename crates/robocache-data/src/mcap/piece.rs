//! The records of a piece, decompressed into memory that the file had to justify.

use std::io::Read;
use std::path::Path;

use robocache::{Error, ErrorKind, Result};

use super::layout::{Compression, McapFile, Piece};
use crate::Limits;
use crate::limits::{corrupt, exceeds, guarded};

/// Memory that is reserved before anything was decompressed; more is as it comes.
const STEP: usize = 4 << 20;

/// The records of a piece. Of one that is cut there is as much as could be decompressed.
pub(super) fn load(file: &McapFile, piece: &Piece, limits: &Limits) -> Result<Vec<u8>> {
    let path = &file.path;
    let bad = |what: String| corrupt(path, format!("the chunk at byte {}: {what}", piece.at));
    if let Compression::Unknown(name) = &piece.compression {
        let shown = name.escape_debug();
        let text = format!("the chunk at byte {}: expected lz4, zstd or no compression, got \"{shown}\"", piece.at);
        return Err(Error::new(ErrorKind::Unsupported, text).path(path));
    }
    ensure_size(path, piece, limits)?;
    let stored = file.read(piece.at, piece.stored, limits)?;
    let (bytes, failure) = match piece.compression {
        Compression::Lz4 => {
            guarded(path, "lz4", || Ok(read_up_to(piece.size, lz4_flex::frame::FrameDecoder::new(stored.as_slice()))))?
        }
        Compression::Zstd => match zstd::stream::read::Decoder::new(stored.as_slice()) {
            Ok(decoder) => read_up_to(piece.size, decoder),
            Err(error) => return Err(bad(error.to_string())),
        },
        _ => (stored, None),
    };
    if piece.is_cut {
        return Ok(bytes);
    }
    if let Some(why) = failure {
        return Err(bad(format!("it does not decompress to {} bytes: {why}", piece.size)));
    }
    if bytes.len() as u64 != piece.size {
        let more = if bytes.len() as u64 > piece.size { "more" } else { "fewer" };
        return Err(bad(format!("expected {} bytes after decompression, got {more}", piece.size)));
    }
    if let Some(expected) = piece.crc {
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        if crc.sum() != expected {
            return Err(bad(format!("its checksum is {:08x}, expected {expected:08x}", crc.sum())));
        }
    }
    Ok(bytes)
}

/// What a piece claims must be possible.
fn ensure_size(path: &Path, piece: &Piece, limits: &Limits) -> Result<()> {
    let place = format!("the chunk at byte {} claims {} bytes", piece.at, piece.size);
    if piece.size > limits.max_alloc {
        return Err(exceeds(path, format!("{place}, more than max_alloc ({})", limits.max_alloc)));
    }
    if piece.size > piece.stored.saturating_mul(limits.max_ratio) && !piece.is_cut {
        let text = format!("{place} of {}, more than max_ratio ({}) to one", piece.stored, limits.max_ratio);
        return Err(exceeds(path, text));
    }
    if piece.compression == Compression::None && piece.size != piece.stored && !piece.is_cut {
        return Err(corrupt(path, format!("{place} without compression, it has {}", piece.stored)));
    }
    Ok(())
}

/// Reads up to one byte more than `most`, and why that ended early, where it did.
fn read_up_to(most: u64, from: impl Read) -> (Vec<u8>, Option<String>) {
    let mut bytes = Vec::new();
    let first = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1).min(STEP);
    if bytes.try_reserve_exact(first).is_err() {
        return (bytes, Some("no memory".to_owned()));
    }
    let failure = from.take(most.saturating_add(1)).read_to_end(&mut bytes).err();
    (bytes, failure.map(|error| error.to_string()))
}
