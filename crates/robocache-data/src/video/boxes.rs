//! The boxes that an MP4 file is made of, in memory. Nothing here trusts a length.

use robocache::{Error, ErrorKind, Result};

/// The four letters that name a box.
pub(super) type Kind = [u8; 4];

/// Corrupt data; `VideoFile::open` adds the path.
#[cold]
pub(super) fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::CorruptData, message)
}

/// The name of a box or codec as text.
pub(super) fn name(kind: Kind) -> String {
    kind.escape_ascii().to_string()
}

/// The boxes inside a box, in order.
pub(super) fn children<'a>(body: &'a [u8], parent: &'static str) -> impl Iterator<Item = Result<(Kind, &'a [u8])>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        // Fewer bytes than a header are padding, which some writers leave.
        if rest.len() < 8 {
            return None;
        }
        let child = split_child(rest, parent);
        rest = child.as_ref().map_or(&[], |&(_, _, after)| after);
        Some(child.map(|(kind, body, _)| (kind, body)))
    })
}

fn split_child<'a>(bytes: &'a [u8], parent: &str) -> Result<(Kind, &'a [u8], &'a [u8])> {
    let mut fields = Fields::new(bytes, "box header");
    let short = fields.u32()?;
    let kind = fields.array()?;
    let size = match short {
        0 => bytes.len() as u64,
        1 => fields.u64()?,
        short => u64::from(short),
    };
    let header = bytes.len() - fields.rest.len();
    let end = usize::try_from(size).ok().filter(|&end| end >= header);
    let split = end.and_then(|end| Some((bytes.get(header..end)?, bytes.get(end..)?)));
    let Some((body, after)) = split else {
        let name = name(kind);
        return Err(bad(format!("box {name:?} in {parent:?} says {size} bytes; {} remain in {parent:?}", bytes.len())));
    };
    Ok((kind, body, after))
}

/// The first child of a kind.
pub(super) fn find<'a>(body: &'a [u8], parent: &'static str, wanted: &Kind) -> Result<Option<&'a [u8]>> {
    for child in children(body, parent) {
        let (kind, body) = child?;
        if kind == *wanted {
            return Ok(Some(body));
        }
    }
    Ok(None)
}

/// The first child of a kind that must be there.
pub(super) fn need<'a>(body: &'a [u8], parent: &'static str, wanted: &Kind) -> Result<&'a [u8]> {
    find(body, parent, wanted)?.ok_or_else(|| bad(format!("box {:?} is missing in {parent:?}", name(*wanted))))
}

/// Big-endian fields of one box, read from front to back.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    of: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(body: &'a [u8], of: &'static str) -> Self {
        Self { rest: body, of }
    }

    /// A "full box": returns its version and flags.
    pub(super) fn full(body: &'a [u8], of: &'static str) -> Result<(Self, u8, u32)> {
        let mut fields = Self::new(body, of);
        let word = fields.u32()?;
        let [version, ..] = word.to_be_bytes();
        Ok((fields, version, word & 0x00ff_ffff))
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.rest.split_at_checked(count) else {
            let of = self.of;
            return Err(bad(format!("{of:?} ends too early: {count} bytes expected, {} remain", self.rest.len())));
        };
        self.rest = tail;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A field that is wider in version 1 of its box.
    pub(super) fn wide(&mut self, version: u8) -> Result<u64> {
        if version == 1 { self.u64() } else { self.u32().map(u64::from) }
    }

    /// A count of entries and the entries, which must all be there.
    pub(super) fn table<const ENTRY: usize>(&mut self) -> Result<&'a [[u8; ENTRY]]> {
        let count = self.u32()?;
        let (entries, _) = self.rest.as_chunks();
        let of = self.of;
        usize::try_from(count).ok().and_then(|count| entries.get(..count)).ok_or_else(|| {
            bad(format!("{of:?} says {count} entries of {ENTRY} bytes; {} bytes remain", self.rest.len()))
        })
    }
}

/// Two big-endian words of a table entry.
pub(super) fn pair(entry: [u8; 8]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = entry;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}
