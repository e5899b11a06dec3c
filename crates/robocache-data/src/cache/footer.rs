//! Where the parts of a mapped Arrow file are. What is read here must be verified before.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{Block, convert::try_fb_to_schema, root_as_footer};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use memmap2::Mmap;
use robocache::Result;

use crate::limits::file_error;

/// Bytes at the end of an Arrow file: length of the footer and magic.
pub(crate) const TAIL: usize = 10;

/// Maps a file of a cache.
pub(crate) fn map(path: &Path, file: &File) -> Result<Bytes> {
    // SAFETY: files of a cache are never written again; `gc` and removal only unlink. Truncation by
    // someone else is the one exception, which the documentation states.
    let map = unsafe { Mmap::map(file) }.map_err(|error| file_error(path, "cannot map", error))?;
    Ok(Bytes::from_owner(map))
}

/// Where the footer starts, from the last bytes of a file.
pub(crate) fn footer_start(file: &[u8]) -> Result<usize, String> {
    let end = file.len().saturating_sub(TAIL);
    let tail = file.get(end..).and_then(|tail| <[u8; TAIL]>::try_from(tail).ok());
    let footer = read_footer_length(tail.ok_or("it is too short")?).map_err(|error| error.to_string())?;
    end.checked_sub(footer).ok_or_else(|| "no footer".to_owned())
}

/// What the footer says.
pub(crate) struct Footer {
    pub(crate) schema: SchemaRef,
    pub(crate) decoder: FileDecoder,
    /// Of the record batches.
    pub(crate) places: Vec<Block>,
}

impl Footer {
    /// Reads the footer, which starts there.
    pub(crate) fn read(file: &[u8], start: usize) -> Result<Self, String> {
        let bytes = file.get(start..file.len().saturating_sub(TAIL)).unwrap_or_default();
        let footer = root_as_footer(bytes).map_err(|error| error.to_string())?;
        let schema = footer.schema().ok_or("no schema")?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err("its numbers have another order of bytes".to_owned());
        }
        let schema = Arc::new(try_fb_to_schema(schema).map_err(|error| error.to_string())?);
        let decoder = FileDecoder::new(Arc::clone(&schema), footer.version()).with_require_alignment(true);
        let places = footer.recordBatches().map(|blocks| blocks.iter().copied().collect()).unwrap_or_default();
        Ok(Self { schema, decoder, places })
    }
}

/// Where a batch's metadata and body are.
pub(crate) fn batch_bytes(place: &Block) -> Option<(usize, usize)> {
    let start = usize::try_from(place.offset()).ok()?;
    let length =
        usize::try_from(place.metaDataLength()).ok()?.checked_add(usize::try_from(place.bodyLength()).ok()?)?;
    Some((start, start.checked_add(length)?))
}

/// Decodes a batch; its numbers stay in the map.
pub(crate) fn read_batch(decoder: &FileDecoder, map: &Bytes, place: &Block) -> Result<RecordBatch, String> {
    let (start, end) =
        batch_bytes(place).filter(|&(start, end)| start <= end && end <= map.len()).ok_or("outside of the file")?;
    let buffer = Buffer::from(map.slice(start..end));
    let decoded = decoder.read_record_batch(place, &buffer).map_err(|error| error.to_string())?;
    decoded.ok_or_else(|| "is empty".to_owned())
}
