//! A reader of the thrift compact protocol that trusts nothing: every length is compared with
//! the bytes that remain, and skipping keeps its own stack instead of recursing.

use std::path::Path;

use robocache::Error;

use crate::limits::{corrupt, exceeds};

/// Why bytes are not what the protocol or the format asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end inside a value.
    End,
    /// A value that the format does not allow.
    Bad(&'static str),
    /// Nested deeper than the limit.
    Deep,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::End => "it ends inside a value",
            Self::Bad(what) => what,
            Self::Deep => "it is nested too deeply",
        })
    }
}

/// `Result` with [`Fault`].
pub(super) type Parsed<T> = Result<T, Fault>;

/// The type of a field or of a list's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    True,
    False,
    Byte,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List,
    Set,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    #[inline]
    fn new(code: u8) -> Parsed<Self> {
        Ok(match code {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4 => Self::I16,
            5 => Self::I32,
            6 => Self::I64,
            7 => Self::Double,
            8 => Self::Binary,
            9 => Self::List,
            10 => Self::Set,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(Fault::Bad("it has a field of an unknown thrift type")),
        })
    }
}

/// One container that is being skipped.
#[derive(Debug, Clone)]
enum Open {
    Struct,
    List { kind: Kind, left: usize },
    Map { key: Kind, value: Kind, left: usize },
}

/// A cursor over bytes.
#[derive(Debug, Clone)]
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
    max_depth: usize,
    /// What [`Self::skip`] is in; kept, so that it costs no memory each time.
    open: Vec<Open>,
}

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8], max_depth: usize) -> Self {
        Self { bytes, at: 0, max_depth, open: Vec::new() }
    }

    /// How many bytes were read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    #[inline]
    fn take(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or(Fault::End)?;
        let slice = self.bytes.get(self.at..end).ok_or(Fault::End)?;
        self.at = end;
        Ok(slice)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Parsed<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::End)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn varint(&mut self) -> Parsed<u64> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Parsed<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Bad("it has a number of more than 64 bits"))
    }

    pub(super) fn i64(&mut self) -> Parsed<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(super) fn i32(&mut self) -> Parsed<i32> {
        i32::try_from(self.i64()?).map_err(|_| Fault::Bad("it has a number of more than 32 bits"))
    }

    /// A number that counts something.
    pub(super) fn count(&mut self) -> Parsed<u64> {
        u64::try_from(self.i64()?).map_err(|_| Fault::Bad("a count or offset is negative"))
    }

    /// A 32-bit number that counts something.
    pub(super) fn count32(&mut self) -> Parsed<u32> {
        u32::try_from(self.i32()?).map_err(|_| Fault::Bad("a count or size is negative"))
    }

    pub(super) fn binary(&mut self) -> Parsed<&'a [u8]> {
        let length = usize::try_from(self.varint()?).map_err(|_| Fault::End)?;
        self.take(length)
    }

    pub(super) fn string(&mut self) -> Parsed<&'a str> {
        std::str::from_utf8(self.binary()?).map_err(|_| Fault::Bad("a name is not UTF-8"))
    }

    /// The next field of a struct, or `None` at its end. `last` starts at 0.
    #[inline]
    pub(super) fn field(&mut self, last: &mut i16) -> Parsed<Option<(i16, Kind)>> {
        let byte = self.byte()?;
        if byte & 0x0f == 0 {
            return if byte == 0 { Ok(None) } else { Err(Fault::Bad("it has a field of an unknown thrift type")) };
        }
        let kind = Kind::new(byte & 0x0f)?;
        let delta = i16::from(byte >> 4);
        let id = if delta == 0 { i16::try_from(self.i64()?).ok() } else { last.checked_add(delta) };
        *last = id.ok_or(Fault::Bad("a field id is out of range"))?;
        Ok(Some((*last, kind)))
    }

    /// The head of a list: element type and count. Every element takes at least one byte, so a
    /// count above the bytes that remain is a lie.
    pub(super) fn list(&mut self) -> Parsed<(Kind, usize)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Fault::Bad("a list is longer than the bytes left"))?,
            short => usize::from(short),
        };
        if count == 0 {
            // Some writers give an empty list no element type.
            return Ok((Kind::Byte, 0));
        }
        if count > self.remaining() {
            return Err(Fault::Bad("a list is longer than the bytes left"));
        }
        Ok((Kind::new(head & 0x0f)?, count))
    }

    /// The head of a list of structs.
    pub(super) fn structs(&mut self) -> Parsed<usize> {
        match self.list()? {
            (Kind::Struct, count) => Ok(count),
            (_, 0) => Ok(0),
            _ => Err(Fault::Bad("a list does not hold structs")),
        }
    }

    /// Passes over the value of a field.
    pub(super) fn skip(&mut self, kind: Kind) -> Parsed<()> {
        let mut open = std::mem::take(&mut self.open);
        open.clear();
        self.enter(kind, false, &mut open)?;
        while let Some(top) = open.last_mut() {
            let next = match top {
                Open::Struct => self.field(&mut 0)?.map(|(_, kind)| (kind, false)),
                Open::List { left: 0, .. } | Open::Map { left: 0, .. } => None,
                Open::List { kind, left } => {
                    *left -= 1;
                    Some((*kind, true))
                }
                Open::Map { key, value, left } => {
                    *left -= 1;
                    Some((if *left % 2 == 1 { *key } else { *value }, true))
                }
            };
            match next {
                Some((kind, element)) => self.enter(kind, element, &mut open)?,
                None => drop(open.pop()),
            }
        }
        self.open = open;
        Ok(())
    }

    /// Reads past a plain value, or opens a container.
    fn enter(&mut self, kind: Kind, element: bool, open: &mut Vec<Open>) -> Parsed<()> {
        let container = match kind {
            // A boolean field lies in its head; an element has a byte of its own.
            Kind::True | Kind::False if element => return self.take(1).map(drop),
            Kind::True | Kind::False => return Ok(()),
            Kind::Byte => return self.take(1).map(drop),
            Kind::I16 | Kind::I32 | Kind::I64 => return self.varint().map(drop),
            Kind::Double => return self.take(8).map(drop),
            Kind::Uuid => return self.take(16).map(drop),
            Kind::Binary => return self.binary().map(drop),
            Kind::Struct => Open::Struct,
            Kind::List | Kind::Set => {
                let (kind, left) = self.list()?;
                if !matches!(kind, Kind::List | Kind::Set | Kind::Map | Kind::Struct) {
                    for _ in 0..left {
                        self.enter(kind, true, open)?;
                    }
                    return Ok(());
                }
                Open::List { kind, left }
            }
            Kind::Map => {
                let count = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                let left = count.checked_mul(2).filter(|left| *left <= self.remaining());
                let left = left.ok_or(Fault::Bad("a map is longer than the bytes left"))?;
                Open::Map { key: Kind::new(kinds >> 4)?, value: Kind::new(kinds & 0x0f)?, left }
            }
        };
        if open.len() >= self.max_depth {
            return Err(Fault::Deep);
        }
        open.push(container);
        Ok(())
    }
}

/// Fails unless a known field has the type that the format gives it: a reader that believes the
/// id and one that believes the type would go on at different bytes.
pub(super) fn typed(kind: Kind, expected: Kind) -> Parsed<()> {
    if kind == expected { Ok(()) } else { Err(Fault::Bad("a field has another type than the format gives it")) }
}

/// The value of a boolean field.
pub(super) fn boolean(kind: Kind) -> Parsed<bool> {
    match kind {
        Kind::True => Ok(true),
        Kind::False => Ok(false),
        _ => Err(Fault::Bad("a field has another type than the format gives it")),
    }
}

/// A fault as an error that says where.
pub(super) fn fault_in(path: &Path, what: &str, position: usize, fault: Fault) -> Error {
    match fault {
        Fault::Deep => exceeds(path, format!("{what}: {fault} at its byte {position}, max_depth is exceeded")),
        _ => corrupt(path, format!("{what} is damaged: {fault} (at its byte {position})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag_and_bounded() {
        assert_eq!(Thrift::new(&[0x01], 4).i64(), Ok(-1));
        assert_eq!(Thrift::new(&[0xfe, 0xff, 0xff, 0xff, 0x0f], 4).i32(), Ok(i32::MAX));
        assert_eq!(Thrift::new(&[0x80], 4).i64(), Err(Fault::End));
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Thrift::new(&longest, 4).i64(), Ok(i64::MIN));
        assert!(matches!(Thrift::new(&[0xff; 12], 4).i64(), Err(Fault::Bad(_))));
    }

    #[test]
    fn a_list_cannot_be_longer_than_what_is_left() {
        // 2^31 - 1 structs in ten bytes.
        let bytes = [0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0, 0];
        assert!(matches!(Thrift::new(&bytes, 4).list(), Err(Fault::Bad(_))));
        assert_eq!(Thrift::new(&[0x2c, 0, 0], 4).list(), Ok((Kind::Struct, 2)));
    }

    #[test]
    fn skipping_passes_every_type_and_stops_at_the_depth() {
        // {1: true, 2: i32, 3: "ab", 4: [i16; 2], 5: {i32: binary}, 6: {}, 7: double, 8: [true, false]} and a 9 after it.
        let bytes = [
            0x11, 0x15, 0x02, 0x18, 2, b'a', b'b', 0x19, 0x24, 2, 4, 0x1b, 1, 0x58, 6, 1, b'x', 0x1c, 0, 0x17, 0, 0, 0,
            0, 0, 0, 0, 0, 0x19, 0x21, 1, 2, 0, 9,
        ];
        let mut thrift = Thrift::new(&bytes, 4);
        assert_eq!(thrift.skip(Kind::Struct), Ok(()));
        assert_eq!(thrift.byte(), Ok(9));

        let deep = [0x1c; 100_000];
        assert_eq!(Thrift::new(&deep, 64).skip(Kind::Struct), Err(Fault::Deep));
        assert_eq!(Thrift::new(&deep[..60], 64).skip(Kind::Struct), Err(Fault::End));
    }
}
