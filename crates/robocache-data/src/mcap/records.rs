//! The records that an MCAP file is made of.

/// What a file starts and ends with.
pub(super) const MAGIC: &[u8; 8] = b"\x89MCAP0\r\n";
/// Bytes before the body of a record: its kind and its length.
pub(super) const HEAD: u64 = 9;

/// Kinds of records.
pub(super) mod kind {
    pub(in crate::mcap) const HEADER: u8 = 0x01;
    pub(in crate::mcap) const FOOTER: u8 = 0x02;
    pub(in crate::mcap) const SCHEMA: u8 = 0x03;
    pub(in crate::mcap) const CHANNEL: u8 = 0x04;
    pub(in crate::mcap) const MESSAGE: u8 = 0x05;
    pub(in crate::mcap) const CHUNK: u8 = 0x06;
    pub(in crate::mcap) const CHUNK_INDEX: u8 = 0x08;
    pub(in crate::mcap) const STATISTICS: u8 = 0x0b;
    pub(in crate::mcap) const DATA_END: u8 = 0x0f;
}

/// The little-endian fields of a record, one after the other. `None` where the record is too short.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes behind their number, of 32 bits.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.u32()?).ok()?;
        self.take(count)
    }

    /// Text; what is no UTF-8 is replaced.
    pub(super) fn text(&mut self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// How the messages of some channels are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Schema {
    pub(super) id: u16,
    pub(super) name: String,
    pub(super) encoding: String,
    pub(super) data: Vec<u8>,
}

impl Schema {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        Some(Self { id: fields.u16()?, name: fields.text()?, encoding: fields.text()?, data: fields.bytes()?.to_vec() })
    }
}

/// A channel: the messages of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Channel {
    pub(super) id: u16,
    /// 0: it has none.
    pub(super) schema: u16,
    pub(super) topic: String,
    pub(super) encoding: String,
}

impl Channel {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        Some(Self { id: fields.u16()?, schema: fields.u16()?, topic: fields.text()?, encoding: fields.text()? })
    }
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) channel: u16,
    /// When it was recorded, in nanoseconds.
    pub(super) log: u64,
    pub(super) data: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let channel = fields.u16()?;
        let _sequence = fields.u32()?;
        let log = fields.u64()?;
        let _publish = fields.u64()?;
        Some(Self { channel, log, data: fields.0 })
    }
}

/// What a chunk says of itself, without its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) size: u64,
    pub(super) crc: u32,
    pub(super) compression: String,
    /// Bytes of the records as they are stored.
    pub(super) stored: u64,
    /// Bytes of this head.
    pub(super) length: u64,
}

impl ChunkHead {
    /// Bytes that a head can have: names of compressions are short.
    pub(super) const MOST: usize = 8 * 4 + 4 + 4 + LONGEST_NAME;

    /// `Err` tells why the head cannot be used.
    pub(super) fn parse(start_of_body: &[u8]) -> Result<Self, String> {
        let mut fields = Fields(start_of_body);
        let short = || "it is too short for a chunk".to_owned();
        let mut read = || Some((fields.u64()?, fields.u64()?, fields.u64()?, fields.u32()?, fields.u32()?));
        let (start, end, size, crc, name) = read().ok_or_else(short)?;
        let name = usize::try_from(name).unwrap_or(usize::MAX);
        if name > LONGEST_NAME {
            return Err(format!("the name of its compression has {name} bytes"));
        }
        let compression = String::from_utf8_lossy(fields.take(name).ok_or_else(short)?).into_owned();
        let stored = fields.u64().ok_or_else(short)?;
        Ok(Self { start, end, size, crc, compression, stored, length: 40 + name as u64 })
    }
}

/// Longest name of a compression that is looked at.
const LONGEST_NAME: usize = 64;

/// A record in bytes that hold many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Where it starts.
    pub(super) at: usize,
    pub(super) kind: u8,
    pub(super) body: &'a [u8],
}

/// The records in some bytes, up to the last whole one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The record that starts at a place.
    pub(super) fn at(bytes: &'a [u8], at: usize) -> Option<Record<'a>> {
        Self { bytes, at }.next()
    }

    /// Bytes after the last whole record.
    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let mut fields = Fields(self.bytes.get(self.at..)?);
        let kind = *fields.take(1)?.first()?;
        let length = usize::try_from(fields.u64()?).ok()?;
        let record = Record { at: self.at, kind, body: fields.take(length)? };
        self.at = self.bytes.len() - fields.0.len();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_at_the_last_whole_one() {
        let mut bytes = vec![kind::MESSAGE, 2, 0, 0, 0, 0, 0, 0, 0, 7, 8];
        bytes.extend([kind::SCHEMA, 200, 0, 0, 0, 0, 0, 0, 0, 1]);
        let mut records = Records::new(&bytes);
        assert_eq!(records.next(), Some(Record { at: 0, kind: kind::MESSAGE, body: &[7, 8] }));
        assert_eq!((records.next(), records.left()), (None, 10));
        bytes[12..20].fill(0xff);
        assert_eq!(Records::at(&bytes, 11), None);
        assert_eq!(Records::at(&bytes, 1000), None);
    }

    #[test]
    fn lengths_of_chunks_are_not_believed_50() {
        let mut head = vec![0; 28];
        head.extend(1_700_000_000u32.to_le_bytes());
        let error = ChunkHead::parse(&head).unwrap_err();
        assert_eq!(error, "the name of its compression has 1700000000 bytes");
        assert_eq!(ChunkHead::parse(&head[..9]).unwrap_err(), "it is too short for a chunk");
    }
}
