//! Writes MCAP files: chunks with checksums and message indices, and a summary at the end.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::layout::Compression;
use super::records::{MAGIC, kind};

/// Bytes of records that a chunk holds before it is written.
const CHUNK: usize = 1 << 20;
const MESSAGE_INDEX: u8 = 0x07;

/// A file that is written.
pub(crate) struct McapWriter<W: Write> {
    out: W,
    /// Bytes that were written, and their checksum.
    at: u64,
    crc: flate2::Crc,
    compression: Compression,
    chunk: Vec<u8>,
    /// Of the chunk: first and last log time, and where the messages of each channel are.
    span: Option<(u64, u64)>,
    places: BTreeMap<u16, Vec<(u64, u64)>>,
    /// Of the file.
    all: Option<(u64, u64)>,
    counts: BTreeMap<u16, u64>,
    schemas: Vec<Vec<u8>>,
    channels: Vec<Vec<u8>>,
    chunks: Vec<Vec<u8>>,
}

impl<W: Write> std::fmt::Debug for McapWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McapWriter").field("at", &self.at).finish_non_exhaustive()
    }
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(text);
}

fn record(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend((body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
}

impl<W: Write> McapWriter<W> {
    pub(crate) fn new(out: W, profile: &str, compression: Compression) -> io::Result<Self> {
        let mut writer = Self {
            out,
            at: 0,
            crc: flate2::Crc::new(),
            compression,
            chunk: Vec::new(),
            span: None,
            places: BTreeMap::new(),
            all: None,
            counts: BTreeMap::new(),
            schemas: Vec::new(),
            channels: Vec::new(),
            chunks: Vec::new(),
        };
        writer.put(MAGIC)?;
        let mut body = Vec::new();
        text(&mut body, profile.as_bytes());
        text(&mut body, concat!("robocache ", env!("CARGO_PKG_VERSION")).as_bytes());
        writer.put_record(kind::HEADER, &body)?;
        Ok(writer)
    }

    /// Defines a schema; its number.
    pub(crate) fn schema(&mut self, name: &str, encoding: &str, data: &[u8]) -> u16 {
        let id = u16::try_from(self.schemas.len() + 1).unwrap_or(u16::MAX);
        let mut body = id.to_le_bytes().to_vec();
        [name.as_bytes(), encoding.as_bytes(), data].iter().for_each(|part| text(&mut body, part));
        record(&mut self.chunk, kind::SCHEMA, &body);
        self.schemas.push(body);
        id
    }

    /// Defines a channel; its number.
    pub(crate) fn channel(&mut self, schema: u16, topic: &str, encoding: &str) -> u16 {
        let id = u16::try_from(self.channels.len()).unwrap_or(u16::MAX);
        let mut body = [id.to_le_bytes(), schema.to_le_bytes()].concat();
        [topic.as_bytes(), encoding.as_bytes()].iter().for_each(|part| text(&mut body, part));
        body.extend(0u32.to_le_bytes());
        record(&mut self.chunk, kind::CHANNEL, &body);
        self.channels.push(body);
        id
    }

    pub(crate) fn message(&mut self, channel: u16, log: u64, data: &[u8]) -> io::Result<()> {
        let count = self.counts.entry(channel).or_default();
        let mut head = channel.to_le_bytes().to_vec();
        head.extend(u32::try_from(*count % (1 << 32)).unwrap_or(0).to_le_bytes());
        *count += 1;
        head.extend(log.to_le_bytes());
        head.extend(log.to_le_bytes());
        self.places.entry(channel).or_default().push((log, self.chunk.len() as u64));
        self.chunk.push(kind::MESSAGE);
        self.chunk.extend(((head.len() + data.len()) as u64).to_le_bytes());
        self.chunk.extend_from_slice(&head);
        self.chunk.extend_from_slice(data);
        let grown = |span: Option<(u64, u64)>| {
            let (first, last) = span.unwrap_or((log, log));
            Some((first.min(log), last.max(log)))
        };
        (self.span, self.all) = (grown(self.span), grown(self.all));
        if self.chunk.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        self.crc.update(bytes);
        Ok(())
    }

    fn put_record(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut head = vec![kind];
        head.extend((body.len() as u64).to_le_bytes());
        self.put(&head)?;
        self.put(body)
    }

    /// Writes the chunk.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.chunk);
        let mut crc = flate2::Crc::new();
        crc.update(&chunk);
        let (name, stored) = match self.compression {
            Compression::Zstd => ("zstd", zstd::bulk::compress(&chunk, 1)?),
            Compression::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(&chunk)?;
                ("lz4", encoder.finish().map_err(io::Error::other)?)
            }
            _ => ("", chunk.clone()),
        };
        let (first, last) = self.span.take().unwrap_or_default();
        let size = (chunk.len() as u64).to_le_bytes();
        let mut body = [first.to_le_bytes(), last.to_le_bytes(), size].concat();
        body.extend(crc.sum().to_le_bytes());
        text(&mut body, name.as_bytes());
        body.extend((stored.len() as u64).to_le_bytes());
        body.extend_from_slice(&stored);
        let start = self.at;
        self.put_record(kind::CHUNK, &body)?;
        let length = self.at - start;
        let indices = self.at;
        let mut offsets = Vec::new();
        for (channel, places) in std::mem::take(&mut self.places) {
            offsets.extend(channel.to_le_bytes());
            offsets.extend(self.at.to_le_bytes());
            let mut body = channel.to_le_bytes().to_vec();
            let list: Vec<u8> =
                places.iter().flat_map(|(log, at)| [log.to_le_bytes(), at.to_le_bytes()].concat()).collect();
            text(&mut body, &list);
            self.put_record(MESSAGE_INDEX, &body)?;
        }
        let mut index = [first, last, start, length].map(u64::to_le_bytes).concat();
        text(&mut index, &offsets);
        index.extend((self.at - indices).to_le_bytes());
        text(&mut index, name.as_bytes());
        index.extend((stored.len() as u64).to_le_bytes());
        index.extend(size);
        self.chunks.push(index);
        Ok(())
    }

    /// Writes the rest and the summary.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let sum = self.crc.sum();
        self.put_record(kind::DATA_END, &sum.to_le_bytes())?;
        let start = self.at;
        self.crc = flate2::Crc::new();
        let definitions =
            [(kind::SCHEMA, std::mem::take(&mut self.schemas)), (kind::CHANNEL, std::mem::take(&mut self.channels))];
        let [(_, schemas), (_, channels)] = &definitions;
        let mut statistics = self.counts.values().sum::<u64>().to_le_bytes().to_vec();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        statistics.extend(u16::try_from(schemas.len()).unwrap_or(u16::MAX).to_le_bytes());
        statistics.extend(number(channels.len()).to_le_bytes());
        // No attachments, no metadata.
        statistics.extend([0; 8]);
        statistics.extend(number(self.chunks.len()).to_le_bytes());
        let (first, last) = self.all.unwrap_or_default();
        statistics.extend([first.to_le_bytes(), last.to_le_bytes()].concat());
        let counts: Vec<u8> = self
            .counts
            .iter()
            .flat_map(|(channel, count)| [channel.to_le_bytes().as_slice(), &count.to_le_bytes()].concat())
            .collect();
        text(&mut statistics, &counts);
        for (kind, bodies) in &definitions {
            bodies.iter().try_for_each(|body| self.put_record(*kind, body))?;
        }
        self.put_record(kind::STATISTICS, &statistics)?;
        for index in std::mem::take(&mut self.chunks) {
            self.put_record(kind::CHUNK_INDEX, &index)?;
        }
        // The checksum covers the footer up to itself.
        let mut footer = vec![kind::FOOTER];
        footer.extend(20u64.to_le_bytes());
        footer.extend(start.to_le_bytes());
        footer.extend(0u64.to_le_bytes());
        self.put(&footer)?;
        let sum = self.crc.sum();
        self.put(&sum.to_le_bytes())?;
        self.put(MAGIC)?;
        self.out.flush()?;
        Ok(self.out)
    }
}
