//! What the bitstream of a track is, by its sample entry.

use robocache::{Error, ErrorKind, Result};

use super::boxes::{Fields, Kind, bad, children, find, name};

/// The codec and the size of the frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SampleEntry {
    pub(super) codec: String,
    pub(super) width: u16,
    pub(super) height: u16,
}

/// Reads `stsd`.
pub(super) fn sample_entry(stsd: &[u8]) -> Result<SampleEntry> {
    let (mut fields, _, _) = Fields::full(stsd, "stsd")?;
    let count = fields.u32()?;
    let mut first: Option<SampleEntry> = None;
    for entry in children(fields.rest(), "stsd").take(usize::try_from(count).unwrap_or(usize::MAX)) {
        let (kind, body) = entry?;
        let entry = read_entry(kind, body)?;
        match &first {
            None => first = Some(entry),
            Some(first) if *first == entry => {}
            Some(first) => {
                let text = format!("the track changes from {} to {}", first.text(), entry.text());
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        }
    }
    first.ok_or_else(|| bad("the track does not say its codec: \"stsd\" is empty"))
}

impl SampleEntry {
    fn text(&self) -> String {
        format!("{} {} x {}", self.codec, self.width, self.height)
    }
}

fn read_entry(kind: Kind, body: &[u8]) -> Result<SampleEntry> {
    let mut fields = Fields::new(body, "video sample entry");
    // Reserved, data reference, and what QuickTime kept before the size.
    fields.take(6 + 2 + 16)?;
    let (width, height) = (fields.u16()?, fields.u16()?);
    let codec = match &kind {
        b"avc1" | b"avc2" | b"avc3" | b"avc4" => "h264",
        b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" => "hevc",
        b"vvc1" | b"vvi1" => "vvc",
        b"av01" | b"dav1" => "av1",
        b"vp08" => "vp8",
        b"vp09" => "vp9",
        b"s263" | b"h263" | b"H263" => "h263",
        b"jpeg" | b"mjpa" | b"mjpb" | b"mjpg" | b"MJPG" => "mjpeg",
        b"png " => "png",
        b"raw " => "rawvideo",
        b"FFV1" => "ffv1",
        b"apch" | b"apcn" | b"apcs" | b"apco" | b"ap4h" | b"ap4x" => "prores",
        b"mp4v" => {
            // Resolution, reserved, frames per sample, compressor name, depth, colour table.
            fields.take(4 + 4 + 4 + 2 + 32 + 2 + 2)?;
            mpeg4_systems(fields.rest())?
        }
        b"encv" => return Err(Error::new(ErrorKind::Unsupported, "the video track is encrypted")),
        _ => return Ok(SampleEntry { codec: name(kind).trim().to_owned(), width, height }),
    };
    Ok(SampleEntry { codec: codec.to_owned(), width, height })
}

/// `mp4v` may hold many codecs; the object type in `esds` says which.
fn mpeg4_systems(extensions: &[u8]) -> Result<&'static str> {
    let Some(esds) = find(extensions, "mp4v", b"esds")? else { return Ok("mpeg4") };
    let (mut fields, _, _) = Fields::full(esds, "esds")?;
    if fields.u8()? == 3 {
        descriptor_length(&mut fields)?;
        fields.u16()?;
        let flags = fields.u8()?;
        if flags & 0x80 != 0 {
            fields.u16()?;
        }
        if flags & 0x40 != 0 {
            let url = fields.u8()?;
            fields.take(usize::from(url))?;
        }
        if flags & 0x20 != 0 {
            fields.u16()?;
        }
    } else {
        fields.u16()?;
    }
    if fields.u8()? != 4 {
        return Err(bad("\"esds\" does not say its decoder"));
    }
    descriptor_length(&mut fields)?;
    Ok(match fields.u8()? {
        0x21 => "h264",
        0x23 => "hevc",
        0x60..=0x65 => "mpeg2video",
        0x6a => "mpeg1video",
        0x6c => "mjpeg",
        0x6d => "png",
        _ => "mpeg4",
    })
}

fn descriptor_length(fields: &mut Fields<'_>) -> Result<()> {
    for _ in 0..4 {
        if fields.u8()? & 0x80 == 0 {
            break;
        }
    }
    Ok(())
}
