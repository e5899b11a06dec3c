//! ROS 2 messages (CDR), decoded by a plan that is made of their definition.

use robocache::DType;

use super::decoded::{Decoded, Field, FieldKind, Taken, nanoseconds};
use super::msgdef::{Array, Definition, Definitions, Kind, Member, Number};

/// How to decode the messages of a type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    steps: Vec<Step>,
    pub(super) fields: Vec<Field>,
    /// Whether there is a header with a stamp.
    pub(super) has_stamp: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// Numbers of a size that lie together.
    Numbers {
        size: usize,
        count: usize,
        slot: usize,
    },
    CountedNumbers {
        size: usize,
        slot: usize,
    },
    /// Bytes that may be many: they stay where they are.
    Bytes {
        slot: usize,
        count: Option<usize>,
    },
    Text {
        slot: usize,
    },
    Time {
        slot: usize,
    },
    /// The stamp of the message.
    Stamp,
    Loop {
        count: Option<usize>,
        body: Vec<Step>,
    },
}

const fn dtype(number: Number) -> DType {
    match number {
        Number::Bool => DType::Bool,
        Number::U8 => DType::U8,
        Number::I8 => DType::I8,
        Number::U16 => DType::U16,
        Number::I16 => DType::I16,
        Number::U32 => DType::U32,
        Number::I32 => DType::I32,
        Number::U64 => DType::U64,
        Number::I64 => DType::I64,
        Number::F32 => DType::F32,
        Number::F64 => DType::F64,
    }
}

impl Plan {
    /// A plan for a type; `Err` says what of its definition is not understood.
    pub(super) fn new(definitions: &Definitions, depth: usize) -> Result<Self, String> {
        let mut maker = Maker { definitions, depth, fields: Vec::new(), has_stamp: false, taken: Taken::default() };
        let mut steps = Vec::new();
        maker.message(&definitions.root, &definitions.name, "", 0, false, &mut steps)?;
        Ok(Self { steps, fields: maker.fields, has_stamp: maker.has_stamp })
    }

    /// Decodes a message; `Err` says where it ends too early, or what in it makes no sense.
    pub(super) fn decode(&self, message: &[u8], out: &mut Decoded) -> Result<(), String> {
        out.clear(self.fields.len());
        let Some(&[_, kind, _, _]) = message.first_chunk::<4>() else {
            return Err(format!("expected a header of 4 bytes, the message has {}", message.len()));
        };
        let most_align = match kind {
            0 | 1 => 8,
            6..=11 if self.steps.iter().any(Step::is_sequence) => {
                return Err(format!("sequences in the second version of CDR (representation {kind}) are not read"));
            }
            // The second version aligns to 4 at most.
            6 | 7 => 4,
            other => return Err(format!("expected CDR (0, 1, 6 or 7), got the representation {other}")),
        };
        let mut cursor = Cursor { bytes: message, at: 4, is_little: kind & 1 == 1, most_align };
        for step in &self.steps {
            step.run(&mut cursor, out)?;
        }
        Ok(())
    }
}

struct Maker<'a> {
    definitions: &'a Definitions,
    depth: usize,
    fields: Vec<Field>,
    has_stamp: bool,
    taken: Taken,
}

/// The components of a message that is nothing but numbers of one type.
struct Uniform {
    number: Number,
    names: Vec<String>,
    quaternions: Vec<usize>,
}

impl Maker<'_> {
    fn message(
        &mut self,
        definition: &Definition,
        name: &str,
        path: &str,
        level: usize,
        is_repeated: bool,
        out: &mut Vec<Step>,
    ) -> Result<(), String> {
        if level > self.depth {
            return Err(format!("types are nested more than {} deep", self.depth));
        }
        // Its own fields are the components where it is a point, a twist or the like.
        if let Some(uniform) = self.uniform(definition, name, level)?.filter(|uniform| uniform.names.len() > 1) {
            return self.numbers(path, &uniform, is_repeated, out);
        }
        if definition.fields.is_empty() {
            // An empty message has one byte.
            let uniform = Uniform { number: Number::U8, names: vec![String::new()], quaternions: Vec::new() };
            self.numbers(&join(path, "structure_needs_at_least_one_member"), &uniform, is_repeated, out)?;
            return Ok(());
        }
        for member in &definition.fields {
            self.member(member, path, level, is_repeated, out)?;
        }
        Ok(())
    }

    fn member(
        &mut self,
        member: &Member,
        path: &str,
        level: usize,
        is_repeated: bool,
        out: &mut Vec<Step>,
    ) -> Result<(), String> {
        self.taken.field()?;
        let path = &join(path, &member.name);
        let count = match member.array {
            Array::One => Some(1),
            Array::Fixed(count) => Some(count as usize),
            Array::Counted => None,
        };
        // Nothing is written for it; a loop over many such steps would take long for few bytes.
        if count == Some(0) {
            return Ok(());
        }
        let is_one = member.array == Array::One;
        match &member.kind {
            Kind::Number(Number::U8) if !is_one && !is_repeated => {
                let slot = self.slot(path, FieldKind::Bytes, None, false);
                if let Some(field) = self.fields.last_mut() {
                    field.is_list = true;
                }
                out.push(Step::Bytes { slot, count });
            }
            Kind::Number(number) => {
                let kind = FieldKind::Numbers(dtype(*number), count);
                let slot = self.slot(path, kind, None, is_repeated);
                if let Some(field) = self.fields.last_mut() {
                    field.is_list = !is_one;
                }
                out.push(match count {
                    Some(count) => Step::Numbers { size: number.size(), count, slot },
                    None => Step::CountedNumbers { size: number.size(), slot },
                });
            }
            Kind::Text => {
                let kind = if is_one && !is_repeated { FieldKind::Text } else { FieldKind::Texts };
                let slot = self.slot(path, kind, None, is_repeated);
                repeat(member.array, count, vec![Step::Text { slot }], out);
            }
            Kind::Time => {
                let slot = self.slot(path, FieldKind::Numbers(DType::I64, count), None, is_repeated);
                repeat(member.array, count, vec![Step::Time { slot }], out);
            }
            Kind::Message(name) if name == "std_msgs/Header" && is_one && path == "header" => {
                self.has_stamp = true;
                let slot = self.slot("header.frame_id", FieldKind::Text, None, false);
                out.extend([Step::Stamp, Step::Text { slot }]);
            }
            Kind::Message(name) if name == "std_msgs/Header" => {
                let mut body = Vec::new();
                let is_repeated = is_repeated || !is_one;
                let slot = self.slot(&join(path, "stamp"), FieldKind::Numbers(DType::I64, None), None, is_repeated);
                body.push(Step::Time { slot });
                let kind = if is_repeated { FieldKind::Texts } else { FieldKind::Text };
                let slot = self.slot(&join(path, "frame_id"), kind, None, is_repeated);
                body.push(Step::Text { slot });
                repeat(member.array, count, body, out);
            }
            Kind::Message(name) => {
                let definitions = self.definitions;
                let Some(definition) = definitions.types.get(name) else {
                    return Err(format!("{path:?} is of a type {name:?} that is not defined"));
                };
                let mut body = Vec::new();
                self.message(definition, name, path, level + 1, is_repeated || !is_one, &mut body)?;
                repeat(member.array, count, body, out);
            }
        }
        Ok(())
    }

    /// A field, and its place.
    fn slot(&mut self, path: &str, kind: FieldKind, names: Option<Vec<String>>, is_repeated: bool) -> usize {
        // How often it comes is not known.
        let kind = match kind {
            FieldKind::Numbers(dtype, _) if is_repeated => FieldKind::Numbers(dtype, None),
            kind => kind,
        };
        self.taken.bytes += path.len();
        self.fields.push(Field {
            path: path.to_owned(),
            kind,
            names,
            quaternions: Vec::new(),
            is_repeated,
            is_list: false,
        });
        self.fields.len() - 1
    }

    fn numbers(&mut self, path: &str, uniform: &Uniform, is_repeated: bool, out: &mut Vec<Step>) -> Result<(), String> {
        let count = uniform.names.len();
        let kind = FieldKind::Numbers(dtype(uniform.number), Some(count));
        let slot = self.slot(path, kind, Some(uniform.names.clone()), is_repeated);
        if let Some(field) = self.fields.last_mut() {
            field.quaternions.clone_from(&uniform.quaternions);
        }
        out.push(Step::Numbers { size: uniform.number.size(), count, slot });
        Ok(())
    }

    /// The components of a message that has nothing but single numbers of one type, at any level.
    fn uniform(&mut self, definition: &Definition, name: &str, level: usize) -> Result<Option<Uniform>, String> {
        if level > self.depth {
            return Err(format!("types are nested more than {} deep", self.depth));
        }
        let mut all: Option<Uniform> = None;
        for member in &definition.fields {
            self.taken.field()?;
            let part = match (&member.kind, member.array) {
                (Kind::Number(number), Array::One) => {
                    Uniform { number: *number, names: vec![member.name.clone()], quaternions: Vec::new() }
                }
                (Kind::Message(name), Array::One) => {
                    let definitions = self.definitions;
                    let Some(inner) = definitions.types.get(name) else { return Ok(None) };
                    let Some(mut part) = self.uniform(inner, name, level + 1)? else { return Ok(None) };
                    part.names.iter_mut().for_each(|name| *name = join(&member.name, name));
                    self.taken.bytes += part.names.iter().map(String::len).sum::<usize>();
                    part
                }
                _ => return Ok(None),
            };
            let all = all.get_or_insert(Uniform { number: part.number, names: Vec::new(), quaternions: Vec::new() });
            if all.number != part.number || part.names.is_empty() {
                return Ok(None);
            }
            let start = all.names.len();
            all.quaternions.extend(part.quaternions.iter().map(|at| at + start));
            all.names.extend(part.names);
        }
        if let Some(all) = &mut all
            && name == "geometry_msgs/Quaternion"
            && all.names == ["x", "y", "z", "w"]
        {
            all.quaternions = vec![0];
        }
        Ok(all)
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn repeat(array: Array, count: Option<usize>, body: Vec<Step>, out: &mut Vec<Step>) {
    match array {
        Array::One => out.extend(body),
        _ => out.push(Step::Loop { count, body }),
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    is_little: bool,
    most_align: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, align: usize, count: usize) -> Result<&'a [u8], String> {
        // Relative to the end of the header of 4 bytes.
        let align = align.min(self.most_align);
        let start = (self.at - 4).next_multiple_of(align) + 4;
        let taken = start.checked_add(count).and_then(|end| self.bytes.get(start..end));
        let taken = taken.ok_or_else(|| self.short(start, count))?;
        self.at = start + count;
        Ok(taken)
    }

    #[cold]
    fn short(&self, start: usize, count: usize) -> String {
        format!("expected {count} bytes at byte {start}, the message has {}", self.bytes.len())
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.take(4, 4)?.first_chunk().copied().unwrap_or_default();
        Ok(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn count(&mut self) -> Result<usize, String> {
        Ok(usize::try_from(self.u32()?).unwrap_or(usize::MAX))
    }

    /// Seconds and nanoseconds of 32 bits each.
    fn time(&mut self) -> Result<i64, String> {
        let seconds = i64::from(self.u32()?.cast_signed());
        let nanos = i64::from(self.u32()?);
        // 32 bits of seconds are 68 years.
        Ok(nanoseconds(seconds, nanos).unwrap_or(0))
    }

    /// Where a text is, without the zero at its end.
    fn text(&mut self) -> Result<(usize, usize), String> {
        let count = self.count()?;
        let start = self.at;
        let bytes = self.take(1, count)?;
        Ok((start, start + count - usize::from(bytes.last() == Some(&0))))
    }

    fn numbers(&mut self, size: usize, count: usize, out: &mut Vec<u8>) -> Result<(), String> {
        // Nothing is aligned for nothing.
        if count == 0 {
            return Ok(());
        }
        let bytes = self.take(size, count.saturating_mul(size))?;
        let start = out.len();
        out.extend_from_slice(bytes);
        if !self.is_little && size > 1 {
            out.get_mut(start..).unwrap_or_default().chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}

impl Step {
    /// Whether the second version of CDR may write it another way, such as with its size in front.
    const fn is_sequence(&self) -> bool {
        matches!(self, Self::Loop { .. } | Self::CountedNumbers { .. } | Self::Bytes { count: None, .. })
    }

    fn run(&self, cursor: &mut Cursor<'_>, out: &mut Decoded) -> Result<(), String> {
        match *self {
            Self::Numbers { size, count, slot } => {
                let Some(slot) = out.slots.get_mut(slot) else { return Ok(()) };
                slot.note_list(count);
                cursor.numbers(size, count, &mut slot.numbers)
            }
            Self::CountedNumbers { size, slot } => {
                let count = cursor.count()?;
                let Some(slot) = out.slots.get_mut(slot) else { return Ok(()) };
                slot.note_list(count);
                cursor.numbers(size, count, &mut slot.numbers)
            }
            Self::Bytes { slot, count } => {
                let count = count.map_or_else(|| cursor.count(), Ok)?;
                let start = cursor.at;
                cursor.take(1, count)?;
                out.slots.iter_mut().skip(slot).take(1).for_each(|slot| slot.bytes = (start, start + count));
                Ok(())
            }
            Self::Text { slot } => {
                let text = cursor.text()?;
                out.slots.iter_mut().skip(slot).take(1).for_each(|slot| slot.texts.push(text));
                Ok(())
            }
            Self::Time { slot } => {
                let time = cursor.time()?;
                let bytes = time.to_le_bytes();
                let Some(slot) = out.slots.get_mut(slot) else { return Ok(()) };
                slot.note_list(1);
                slot.numbers.extend(bytes);
                Ok(())
            }
            Self::Stamp => {
                out.stamp = Some(cursor.time()?);
                Ok(())
            }
            Self::Loop { count, ref body } => {
                let count = count.map_or_else(|| cursor.count(), Ok)?;
                for _ in 0..count {
                    let start = cursor.at;
                    for step in body {
                        step.run(cursor, out)?;
                    }
                    // Elements without bytes may be any number.
                    if cursor.at == start {
                        break;
                    }
                }
                Ok(())
            }
        }
    }
}
