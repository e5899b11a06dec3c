//! The messages of Foxglove that are read, in the encoding of protobuf: their field numbers are fixed.

use std::sync::LazyLock;

use robocache::DType;

use super::decoded::{Decoded, Field, FieldKind, nanoseconds};

/// A message type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foxglove {
    PoseInFrame,
    PointCloud,
    CompressedImage,
}

/// A value on the wire.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message: their numbers and values. `Err` where it is cut or of another kind.
struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn fixed<const N: usize>(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(bytes.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)))
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(self.fixed::<8>()?),
            5 => Value::Number(self.fixed::<4>()?),
            2 => {
                let count = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(count)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    /// Tells every field.
    fn each(mut self, mut tell: impl FnMut(u64, Value<'a>) -> Option<()>) -> Option<()> {
        while !self.0.is_empty() {
            let (number, value) = self.field()?;
            tell(number, value)?;
        }
        Some(())
    }
}

fn field(path: &str, kind: FieldKind) -> Field {
    let is_repeated = path.contains('.');
    Field { path: path.to_owned(), kind, names: None, quaternions: Vec::new(), is_repeated, is_list: false }
}

static POSE: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let names = ["position.x", "position.y", "position.z"].into_iter();
    let names = names.chain(["orientation.x", "orientation.y", "orientation.z", "orientation.w"]);
    let mut pose = field("pose", FieldKind::Numbers(DType::F64, Some(7)));
    pose.names = Some(names.map(str::to_owned).collect());
    pose.quaternions = vec![3];
    vec![field("frame_id", FieldKind::Text), pose]
});

static CLOUD: LazyLock<Vec<Field>> = LazyLock::new(|| {
    vec![
        field("frame_id", FieldKind::Text),
        field("point_stride", FieldKind::Numbers(DType::U32, Some(1))),
        field("fields.name", FieldKind::Texts),
        field("fields.offset", FieldKind::Numbers(DType::U32, None)),
        field("fields.type", FieldKind::Numbers(DType::U8, None)),
        field("data", FieldKind::Bytes),
    ]
});

static IMAGE: LazyLock<Vec<Field>> = LazyLock::new(|| {
    vec![field("frame_id", FieldKind::Text), field("format", FieldKind::Text), field("data", FieldKind::Bytes)]
});

impl Foxglove {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "foxglove.PoseInFrame" => Some(Self::PoseInFrame),
            "foxglove.PointCloud" => Some(Self::PointCloud),
            "foxglove.CompressedImage" => Some(Self::CompressedImage),
            _ => None,
        }
    }

    pub(super) fn fields(self) -> &'static [Field] {
        match self {
            Self::PoseInFrame => &POSE,
            Self::PointCloud => &CLOUD,
            Self::CompressedImage => &IMAGE,
        }
    }

    pub(super) fn decode(self, message: &[u8], out: &mut Decoded) -> Result<(), String> {
        out.clear(self.fields().len());
        let place = |bytes: &[u8]| {
            let start = bytes.as_ptr().addr() - message.as_ptr().addr();
            (start, start + bytes.len())
        };
        let mut pose = [0.0; 7];
        let done = Wire(message).each(|number, value| {
            match (self, number, value) {
                (_, 1, Value::Bytes(time)) => out.stamp = timestamp(time)?,
                (Self::PoseInFrame | Self::PointCloud, 2, Value::Bytes(frame))
                | (Self::CompressedImage, 4, Value::Bytes(frame)) => out.slots.get_mut(0)?.texts.push(place(frame)),
                (Self::PoseInFrame, 3, Value::Bytes(bytes)) => read_pose(bytes, &mut pose)?,
                (Self::PointCloud, 4, Value::Number(stride)) => {
                    out.slots.get_mut(1)?.numbers.extend(u32::try_from(stride).ok()?.to_le_bytes());
                }
                (Self::PointCloud, 5, Value::Bytes(bytes)) => {
                    let (mut name, mut offset, mut kind) = (&message[..0], 0, 0);
                    Wire(bytes).each(|number, value| {
                        match (number, value) {
                            (1, Value::Bytes(bytes)) => name = bytes,
                            (2, Value::Number(number)) => offset = u32::try_from(number).ok()?,
                            (3, Value::Number(number)) => kind = u8::try_from(number).ok()?,
                            _ => {}
                        }
                        Some(())
                    })?;
                    out.slots.get_mut(2)?.texts.push(place(name));
                    out.slots.get_mut(3)?.numbers.extend(offset.to_le_bytes());
                    out.slots.get_mut(4)?.numbers.push(kind);
                }
                (Self::PointCloud, 6, Value::Bytes(data)) => out.slots.get_mut(5)?.bytes = place(data),
                (Self::CompressedImage, 2, Value::Bytes(data)) => out.slots.get_mut(2)?.bytes = place(data),
                (Self::CompressedImage, 3, Value::Bytes(format)) => out.slots.get_mut(1)?.texts.push(place(format)),
                _ => {}
            }
            Some(())
        });
        done.ok_or_else(|| "expected protobuf, the message is cut or of another kind".to_owned())?;
        if self == Self::PoseInFrame {
            out.slots.iter_mut().skip(1).take(1).for_each(|slot| {
                slot.numbers.extend(pose.iter().flat_map(|number| number.to_le_bytes()));
            });
        }
        Ok(())
    }
}

/// `Some(None)` for a time that is too far away.
fn timestamp(bytes: &[u8]) -> Option<Option<i64>> {
    let (mut seconds, mut nanos) = (0i64, 0i64);
    Wire(bytes).each(|number, value| {
        match (number, value) {
            (1, Value::Number(number)) => seconds = number.cast_signed(),
            (2, Value::Number(number)) => nanos = number.cast_signed(),
            _ => {}
        }
        Some(())
    })?;
    Some(nanoseconds(seconds, nanos))
}

/// Position, then orientation; what is not there is 0.
fn read_pose(bytes: &[u8], pose: &mut [f64; 7]) -> Option<()> {
    Wire(bytes).each(|part, value| {
        let first = match part {
            1 => 0,
            2 => 3,
            _ => return Some(()),
        };
        let Value::Bytes(numbers) = value else { return None };
        Wire(numbers).each(|number, value| {
            let place = usize::try_from(number).ok()?.checked_sub(1)?;
            if let (Some(to), Value::Number(bits)) = (pose.get_mut(first + place), value) {
                *to = f64::from_bits(bits);
            }
            Some(())
        })
    })
}
