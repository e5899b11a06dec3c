//! Point clouds: the layout that their messages describe, and their points as rows.

use robocache::DType;

use super::decoded::{Decoded, Field, slot};

/// Columns of a cloud, and bytes of a point: more are no point's.
const MOST_COLUMNS: usize = 256;

/// Where the parts of a cloud's message are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CloudSlots {
    pub(super) height: Option<usize>,
    pub(super) width: Option<usize>,
    pub(super) names: usize,
    pub(super) offsets: usize,
    pub(super) types: usize,
    pub(super) counts: Option<usize>,
    pub(super) is_bigendian: Option<usize>,
    pub(super) point_step: usize,
    pub(super) row_step: Option<usize>,
    pub(super) data: usize,
    /// Types are numbered as Foxglove does, not as ROS does.
    pub(super) is_foxglove: bool,
}

impl CloudSlots {
    pub(super) fn of(fields: &[Field]) -> Option<Self> {
        let find = |path: &str| slot(fields, path);
        Some(Self {
            height: Some(find("height")?),
            width: Some(find("width")?),
            names: find("fields.name")?,
            offsets: find("fields.offset")?,
            types: find("fields.datatype")?,
            counts: Some(find("fields.count")?),
            is_bigendian: Some(find("is_bigendian")?),
            point_step: find("point_step")?,
            row_step: Some(find("row_step")?),
            data: find("data")?,
            is_foxglove: false,
        })
    }
}

/// A number of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: String,
    offset: usize,
    kind: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    F32,
    F64,
    /// A byte of a colour that is packed into 32 bits, by its place in the number.
    Byte(usize),
}

impl Part {
    const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 | Self::Byte(_) => 4,
            Self::F64 => 8,
        }
    }

    fn from_number(number: u8, is_foxglove: bool) -> Option<Self> {
        const ROS: [Part; 8] = [Part::I8, Part::U8, Part::I16, Part::U16, Part::I32, Part::U32, Part::F32, Part::F64];
        const FOXGLOVE: [Part; 8] =
            [Part::U8, Part::I8, Part::U16, Part::I16, Part::U32, Part::I32, Part::F32, Part::F64];
        let table = if is_foxglove { FOXGLOVE } else { ROS };
        table.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// How the points of a message lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CloudLayout {
    columns: Vec<Column>,
    pub(super) points: usize,
    width: usize,
    row_step: usize,
    point_step: usize,
    is_bigendian: bool,
}

impl CloudLayout {
    /// What a message says of its points.
    pub(super) fn read(slots: &CloudSlots, decoded: &Decoded, message: &[u8]) -> Result<Self, String> {
        let data = decoded.bytes(slots.data, message);
        let number = |slot: usize| decoded.u32(slot).map_or(0, |number| number as usize);
        let point_step = number(slots.point_step);
        if point_step == 0 && !data.is_empty() {
            return Err("points of 0 bytes".to_owned());
        }
        let (height, width, row_step) = match (slots.height, slots.width, slots.row_step) {
            (Some(height), Some(width), Some(row_step)) => (number(height), number(width), number(row_step)),
            _ => (1, data.len() / point_step.max(1), data.len()),
        };
        let points = height.checked_mul(width).ok_or("more points than memory holds")?;
        // Some drivers leave it 0.
        let row_step = if row_step == 0 { width.saturating_mul(point_step) } else { row_step };
        let needed = match (height, width) {
            (0, _) | (_, 0) => 0,
            _ => row_step.saturating_mul(height - 1).saturating_add(width.saturating_mul(point_step)),
        };
        if needed > data.len() || (height > 1 && row_step < width.saturating_mul(point_step)) {
            return Err(format!(
                "expected {needed} bytes for {height} x {width} points of {point_step} bytes, got {}",
                data.len()
            ));
        }
        let is_bigendian = slots.is_bigendian.and_then(|slot| decoded.u8(slot)).unwrap_or(0) != 0;
        let columns = columns(slots, decoded, message, point_step)?;
        Ok(Self { columns, points, width, row_step, point_step, is_bigendian })
    }

    /// Whether points of both have the same numbers.
    pub(super) fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// The type that holds all of its numbers: `float32`, or `float64` where some are.
    pub(super) fn dtype(&self) -> DType {
        let wide = |column: &Column| matches!(column.kind, Part::F64 | Part::I32 | Part::U32);
        if self.columns.iter().any(wide) { DType::F64 } else { DType::F32 }
    }

    /// Writes the points as rows of this type behind `out`.
    pub(super) fn write(&self, data: &[u8], dtype: DType, out: &mut Vec<u8>) {
        let is_plain = dtype == DType::F32
            && !self.is_bigendian
            && self.columns.iter().enumerate().all(|(at, column)| column.kind == Part::F32 && column.offset == at * 4);
        for point in 0..self.points {
            let row = point.checked_div(self.width).unwrap_or(0);
            let start = row * self.row_step + (point - row * self.width) * self.point_step;
            let point = data.get(start..).unwrap_or_default();
            if is_plain && let Some(bytes) = point.get(..self.columns.len() * 4) {
                out.extend_from_slice(bytes);
                continue;
            }
            for column in &self.columns {
                let value = column.value(point, self.is_bigendian);
                match dtype {
                    DType::F64 => out.extend(value.to_le_bytes()),
                    _ => out.extend((value as f32).to_le_bytes()),
                }
            }
        }
    }
}

impl Column {
    fn value(&self, point: &[u8], is_bigendian: bool) -> f64 {
        let size = self.kind.size();
        let mut bytes = [0; 8];
        let Some(found) = self.offset.checked_add(size).and_then(|end| point.get(self.offset..end)) else {
            return f64::NAN;
        };
        bytes.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
        if is_bigendian {
            bytes[..size].reverse();
        }
        let low = u64::from_le_bytes(bytes);
        match self.kind {
            Part::I8 => f64::from(low as i8),
            Part::U8 => f64::from(low as u8),
            Part::I16 => f64::from(low as i16),
            Part::U16 => f64::from(low as u16),
            Part::I32 => f64::from(low as i32),
            Part::U32 => f64::from(low as u32),
            Part::F32 => f64::from(f32::from_bits(low as u32)),
            Part::F64 => f64::from_bits(low),
            Part::Byte(place) => f64::from((low >> (place * 8)) as u8),
        }
    }
}

/// The columns of a cloud: x, y, z first, then the others as they come; colours as r, g, b of 0 to 255.
fn columns(slots: &CloudSlots, decoded: &Decoded, message: &[u8], step: usize) -> Result<Vec<Column>, String> {
    let u32s =
        |slot: usize| decoded.numbers(slot).as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let names = decoded.texts(slots.names, message);
    let offsets: Vec<usize> = u32s(slots.offsets).collect();
    let counts: Vec<usize> = slots.counts.map(|slot| u32s(slot).collect()).unwrap_or_default();
    let types = decoded.numbers(slots.types);
    let mut columns = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let (Some(&offset), Some(&kind)) = (offsets.get(at), types.get(at)) else {
            return Err(format!("the field {name:?} has no offset or type"));
        };
        let kind = Part::from_number(kind, slots.is_foxglove)
            .ok_or_else(|| format!("expected fields of types 1 to 8, {name:?} has {kind}"))?;
        // Drivers write 0 for 1.
        let count = counts.get(at).copied().unwrap_or(1).max(1);
        let end = count.checked_mul(kind.size()).and_then(|size| size.checked_add(offset));
        if end.is_none_or(|end| end > step) || columns.len() + count > MOST_COLUMNS {
            return Err(format!("the field {name:?} is not within its point of {step} bytes"));
        }
        if kind.size() == 4 && count == 1 && matches!(name.as_str(), "rgb" | "rgba") {
            for (letter, place) in [("r", 2), ("g", 1), ("b", 0)] {
                columns.push(Column { name: letter.to_owned(), offset, kind: Part::Byte(place) });
            }
            continue;
        }
        for place in 0..count {
            let name = if count == 1 { name.clone() } else { format!("{name}.{place}") };
            columns.push(Column { name, offset: offset + place * kind.size(), kind });
        }
    }
    let rank = |column: &Column| ["x", "y", "z"].iter().position(|name| *name == column.name).unwrap_or(3);
    columns.sort_by_key(rank);
    if columns.iter().take(3).map(rank).ne(0..3) {
        return Err(format!("expected points with x, y and z, got {names:?}"));
    }
    Ok(columns)
}
