//! The schema in the footer, checked and built into the types of the `parquet` crate.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{
    ConvertedType, DecimalType, IntType, LogicalType, Repetition, TimeType, TimeUnit, Type as Physical,
};
use parquet::errors::ParquetError;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use robocache::Result;

use super::thrift::{Fault, Kind, Parsed, Thrift, boolean, fault_in, typed};
use crate::Limits;
use crate::limits::{corrupt, exceeds};

/// Memory that one element of a schema takes at most in all its forms, without names.
const BYTES_PER_ELEMENT: usize = 2048;

/// One element of the flat list that a schema is written as.
struct Element<'a> {
    name: &'a str,
    physical: Option<Physical>,
    length: i32,
    repetition: Option<Repetition>,
    children: u32,
    converted: ConvertedType,
    logical: Option<LogicalType>,
    scale: i32,
    precision: i32,
}

/// A group whose children are still to come.
struct Group<'a> {
    element: Element<'a>,
    fields: Vec<TypePtr>,
    /// Bytes of the names from the root to here.
    path_bytes: usize,
}

/// Reads the list of elements that `thrift` stands at.
pub(super) fn read_schema(
    thrift: &mut Thrift<'_>,
    path: &Path,
    limits: &Limits,
    max_depth: usize,
) -> Result<SchemaDescriptor> {
    let fault = |thrift: &Thrift<'_>, fault| fault_in(path, "the schema", thrift.position(), fault);
    let mut left = thrift.structs().map_err(|f| fault(thrift, f))?;
    let budget = usize::try_from(limits.max_alloc).unwrap_or(usize::MAX);
    let too_large = || exceeds(path, format!("a schema of this size needs more than {budget} bytes (max_alloc)"));
    // A leaf keeps the names of all groups above it, so that long names under many leaves add up.
    let mut cost = 0usize;

    let mut open: Vec<Group<'_>> = Vec::new();
    loop {
        // A group with all its children becomes a child itself.
        if let Some(group) = open.pop_if(|group| group.element.children == 0) {
            let done = group.build(open.is_empty()).map_err(|error| damaged(path, &error))?;
            match open.last_mut() {
                Some(parent) => parent.fields.push(Arc::new(done)),
                None if left > 0 => return Err(corrupt(path, "the schema has more than one root")),
                None => return Ok(SchemaDescriptor::new(Arc::new(done))),
            }
            continue;
        }
        left =
            left.checked_sub(1).ok_or_else(|| corrupt(path, "the schema has fewer elements than its groups count"))?;
        let element = Element::read(thrift).map_err(|f| fault(thrift, f))?;
        let above = open.last_mut().map_or(0, |parent| {
            parent.element.children -= 1;
            parent.path_bytes
        });
        let path_bytes = above + element.name.len();
        cost = cost.checked_add(BYTES_PER_ELEMENT + path_bytes).filter(|cost| *cost <= budget).ok_or_else(too_large)?;
        let is_group = element.children > 0 || open.is_empty() || element.physical.is_none();
        if !is_group {
            let leaf = element.leaf().map_err(|error| damaged(path, &error))?;
            // The root is always a group, so there is a parent.
            open.last_mut().into_iter().for_each(|parent| parent.fields.push(Arc::clone(&leaf)));
            continue;
        }
        if open.len() >= max_depth {
            return Err(exceeds(path, format!("the schema is nested deeper than {max_depth} levels (max_depth)")));
        }
        if usize::try_from(element.children).is_ok_and(|children| children > left) {
            return Err(corrupt(path, format!("a group of the schema counts {} children", element.children)));
        }
        open.push(Group { element, fields: Vec::new(), path_bytes });
    }
}

fn damaged(path: &Path, error: &ParquetError) -> robocache::Error {
    corrupt(path, format!("the schema makes no sense: {error}"))
}

impl<'a> Element<'a> {
    fn read(thrift: &mut Thrift<'a>) -> Parsed<Self> {
        let mut element = Self {
            name: "",
            physical: None,
            length: -1,
            repetition: None,
            children: 0,
            converted: ConvertedType::NONE,
            logical: None,
            scale: -1,
            precision: -1,
        };
        let (mut last, mut named) = (0, false);
        while let Some((id, kind)) = thrift.field(&mut last)? {
            match id {
                1 | 2 | 3 | 5 | 6 | 7 | 8 => typed(kind, Kind::I32)?,
                4 => typed(kind, Kind::Binary)?,
                10 => typed(kind, Kind::Struct)?,
                _ => {}
            }
            match id {
                1 => element.physical = Some(physical(thrift.i32()?)?),
                2 => element.length = thrift.i32()?,
                3 => element.repetition = Some(repetition(thrift.i32()?)?),
                4 => {
                    element.name = thrift.string()?;
                    named = true;
                }
                5 => element.children = thrift.count32()?,
                6 => element.converted = converted(thrift.i32()?)?,
                7 => element.scale = thrift.i32()?,
                8 => element.precision = thrift.i32()?,
                10 => element.logical = read_logical(thrift)?,
                _ => thrift.skip(kind)?,
            }
        }
        if named { Ok(element) } else { Err(Fault::Bad("an element of the schema has no name")) }
    }

    fn leaf(self) -> Result<TypePtr, ParquetError> {
        let physical = self.physical.ok_or_else(|| ParquetError::General("a column has no type".to_owned()))?;
        let length = match physical {
            Physical::FIXED_LEN_BYTE_ARRAY if self.length < 1 => {
                return Err(ParquetError::General(format!("column {:?} has values of no length", self.name)));
            }
            _ => self.length,
        };
        Type::primitive_type_builder(self.name, physical)
            .with_repetition(self.repetition.unwrap_or(Repetition::REQUIRED))
            .with_converted_type(self.converted)
            .with_logical_type(self.logical)
            .with_length(length)
            .with_precision(self.precision)
            .with_scale(self.scale)
            .build()
            .map(Arc::new)
    }
}

impl Group<'_> {
    fn build(self, is_root: bool) -> Result<Type, ParquetError> {
        let Element { name, repetition, converted, logical, .. } = self.element;
        let builder = Type::group_type_builder(name)
            .with_converted_type(converted)
            .with_logical_type(logical)
            .with_fields(self.fields);
        // A root has no repetition, whatever its writer says.
        if is_root { builder } else { builder.with_repetition(repetition.unwrap_or(Repetition::REQUIRED)) }.build()
    }
}

fn physical(code: i32) -> Parsed<Physical> {
    Ok(match code {
        0 => Physical::BOOLEAN,
        1 => Physical::INT32,
        2 => Physical::INT64,
        3 => Physical::INT96,
        4 => Physical::FLOAT,
        5 => Physical::DOUBLE,
        6 => Physical::BYTE_ARRAY,
        7 => Physical::FIXED_LEN_BYTE_ARRAY,
        _ => return Err(Fault::Bad("a column has an unknown type")),
    })
}

fn repetition(code: i32) -> Parsed<Repetition> {
    Ok(match code {
        0 => Repetition::REQUIRED,
        1 => Repetition::OPTIONAL,
        2 => Repetition::REPEATED,
        _ => return Err(Fault::Bad("a column has an unknown repetition")),
    })
}

fn converted(code: i32) -> Parsed<ConvertedType> {
    const ALL: [ConvertedType; 22] = [
        ConvertedType::UTF8,
        ConvertedType::MAP,
        ConvertedType::MAP_KEY_VALUE,
        ConvertedType::LIST,
        ConvertedType::ENUM,
        ConvertedType::DECIMAL,
        ConvertedType::DATE,
        ConvertedType::TIME_MILLIS,
        ConvertedType::TIME_MICROS,
        ConvertedType::TIMESTAMP_MILLIS,
        ConvertedType::TIMESTAMP_MICROS,
        ConvertedType::UINT_8,
        ConvertedType::UINT_16,
        ConvertedType::UINT_32,
        ConvertedType::UINT_64,
        ConvertedType::INT_8,
        ConvertedType::INT_16,
        ConvertedType::INT_32,
        ConvertedType::INT_64,
        ConvertedType::JSON,
        ConvertedType::BSON,
        ConvertedType::INTERVAL,
    ];
    usize::try_from(code).ok().and_then(|code| ALL.get(code).copied()).ok_or(Fault::Bad("a column has an unknown type"))
}

/// Reads the union; logical types that this version does not know leave the physical one.
fn read_logical(thrift: &mut Thrift<'_>) -> Parsed<Option<LogicalType>> {
    let (mut last, mut logical) = (0, None);
    while let Some((id, kind)) = thrift.field(&mut last)? {
        typed(kind, Kind::Struct)?;
        logical = match id {
            5 | 7 | 8 | 10 => Some(read_detailed(thrift, id)?),
            _ => {
                thrift.skip(kind)?;
                match id {
                    1 => Some(LogicalType::String),
                    2 => Some(LogicalType::Map),
                    3 => Some(LogicalType::List),
                    4 => Some(LogicalType::Enum),
                    6 => Some(LogicalType::Date),
                    11 => Some(LogicalType::Unknown),
                    12 => Some(LogicalType::Json),
                    13 => Some(LogicalType::Bson),
                    14 => Some(LogicalType::Uuid),
                    15 => Some(LogicalType::Float16),
                    _ => None,
                }
            }
        };
    }
    Ok(logical)
}

/// A logical type with two properties: decimal, time, timestamp or integer.
fn read_detailed(thrift: &mut Thrift<'_>, of: i16) -> Parsed<LogicalType> {
    let (mut last, mut first, mut second) = (0, 0, 0);
    let (mut flag, mut unit) = (false, TimeUnit::MILLIS);
    while let Some((id, kind)) = thrift.field(&mut last)? {
        match (of, id) {
            (5, 1 | 2) => {
                typed(kind, Kind::I32)?;
                *if id == 1 { &mut first } else { &mut second } = thrift.i32()?;
            }
            (7 | 8, 1) | (10, 2) => flag = boolean(kind)?,
            (7 | 8, 2) => {
                typed(kind, Kind::Struct)?;
                unit = read_unit(thrift)?;
            }
            (10, 1) => {
                typed(kind, Kind::Byte)?;
                first = i32::from(thrift.byte()?);
            }
            _ => thrift.skip(kind)?,
        }
    }
    Ok(match of {
        5 => LogicalType::Decimal(DecimalType { scale: first, precision: second }),
        7 => LogicalType::Time(TimeType { is_adjusted_to_u_t_c: flag, unit }),
        8 => LogicalType::Timestamp(TimeType { is_adjusted_to_u_t_c: flag, unit }),
        _ => {
            let bit_width = i8::try_from(first).ok().filter(|width| matches!(width, 8 | 16 | 32 | 64));
            let bit_width = bit_width.ok_or(Fault::Bad("an integer has an impossible width"))?;
            LogicalType::Integer(IntType { bit_width, is_signed: flag })
        }
    })
}

fn read_unit(thrift: &mut Thrift<'_>) -> Parsed<TimeUnit> {
    let (mut last, mut unit) = (0, Err(Fault::Bad("a time has no unit")));
    while let Some((id, kind)) = thrift.field(&mut last)? {
        unit = match id {
            1 => Ok(TimeUnit::MILLIS),
            2 => Ok(TimeUnit::MICROS),
            3 => Ok(TimeUnit::NANOS),
            _ => Err(Fault::Bad("a time has an unknown unit")),
        };
        thrift.skip(kind)?;
    }
    unit
}
