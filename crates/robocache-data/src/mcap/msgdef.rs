//! Message definitions as ROS 2 writes them into recordings (`ros2msg`): text, one field a line.

use std::collections::HashMap;

use super::decoded::named;

/// A message type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) fields: Vec<Member>,
}

/// A field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) array: Array,
}

/// The type of a field, or of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number; its name in the definition.
    Number(Number),
    Text,
    /// Seconds and nanoseconds, of 32 bits each.
    Time,
    /// Another message, by its full name `package/Type`.
    Message(String),
}

/// How often a field is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Array {
    One,
    Fixed(u32),
    /// Their number comes first.
    Counted,
}

/// Primitive types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl Number {
    pub(super) const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "bool" | "boolean" => Self::Bool,
            "uint8" | "byte" | "char" | "octet" => Self::U8,
            "int8" => Self::I8,
            "uint16" => Self::U16,
            "int16" => Self::I16,
            "uint32" => Self::U32,
            "int32" => Self::I32,
            "uint64" => Self::U64,
            "int64" => Self::I64,
            "float32" | "float" => Self::F32,
            "float64" | "double" => Self::F64,
            _ => return None,
        })
    }
}

/// Types by their full names; the first is that of the channel.
#[derive(Debug, Clone, Default)]
pub(super) struct Definitions {
    /// The full name of the first.
    pub(super) name: String,
    pub(super) root: Definition,
    pub(super) types: HashMap<String, Definition>,
}

/// What stands in front of every type but the first.
const SEPARATOR: &str = "================";

impl Definitions {
    /// Reads the definition of `name` and of what it is made of.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut all = Self::default();
        let mut current = full_name(name, "");
        let mut definition = Definition::default();
        let mut is_root = true;
        for line in text.lines() {
            if line.starts_with(SEPARATOR) {
                all.add(&mut is_root, &current, std::mem::take(&mut definition));
                continue;
            }
            if let Some(name) = line.strip_prefix("MSG:") {
                current = full_name(name.trim(), "");
                continue;
            }
            let package = current.split('/').next().unwrap_or_default();
            if let Some(member) = member(line, package)? {
                definition.fields.push(member);
            }
        }
        all.add(&mut is_root, &current, definition);
        Ok(all)
    }

    fn add(&mut self, is_root: &mut bool, name: &str, definition: Definition) {
        if std::mem::take(is_root) {
            self.root = definition.clone();
            name.clone_into(&mut self.name);
        }
        self.types.entry(name.to_owned()).or_insert(definition);
    }
}

/// `package/Type`, without the `msg` between them that some writers put there.
fn full_name(name: &str, package: &str) -> String {
    let mut parts = name.split('/');
    match (parts.next(), parts.next_back()) {
        (Some(first), Some(last)) => format!("{first}/{last}"),
        (Some("Header"), None) => "std_msgs/Header".to_owned(),
        _ if package.is_empty() => name.to_owned(),
        _ => format!("{package}/{name}"),
    }
}

/// A field; `None` for comments, constants and empty lines.
fn member(line: &str, package: &str) -> Result<Option<Member>, String> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let Some((kind, rest)) = line.split_once(char::is_whitespace) else {
        return if line.is_empty() { Ok(None) } else { Err(format!("expected a type and a name, got {line:?}")) };
    };
    let rest = rest.trim_start();
    let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if rest.trim_start().starts_with('=') {
        return Ok(None);
    }
    named(name)?;
    named(kind)?;
    let (base, array) = array(kind)?;
    // Bounds on the length of a text change nothing in how it is written.
    let base = base.split("<=").next().unwrap_or(base);
    let kind = match base {
        "string" => Kind::Text,
        "wstring" => return Err("texts of type wstring are not read".to_owned()),
        "time" | "duration" | "builtin_interfaces/Time" | "builtin_interfaces/Duration" => Kind::Time,
        "builtin_interfaces/msg/Time" | "builtin_interfaces/msg/Duration" => Kind::Time,
        "Time" | "Duration" if package == "builtin_interfaces" => Kind::Time,
        other => match Number::from_name(other) {
            Some(number) => Kind::Number(number),
            None => Kind::Message(full_name(other, package)),
        },
    };
    Ok(Some(Member { name: name.to_owned(), kind, array }))
}

/// A type and how often it is there: `T`, `T[]`, `T[3]`, `T[<=3]`.
fn array(kind: &str) -> Result<(&str, Array), String> {
    let Some((base, rest)) = kind.split_once('[') else { return Ok((kind, Array::One)) };
    let count = rest.strip_suffix(']').ok_or_else(|| format!("expected a type, got {kind:?}"))?;
    if count.is_empty() || count.starts_with("<=") {
        return Ok((base, Array::Counted));
    }
    let count = count.parse().map_err(|_| format!("expected a number of elements, got {kind:?}"))?;
    Ok((base, Array::Fixed(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_understood() {
        let text = "# a comment\nstd_msgs/Header header\nuint8 A=1\nstring NAME = \"x\"\nfloat64[] a # why\n\
                    float32[<=4] b\nint16[3] c 7\nstring<=10 d \"x\"\nPoint p\nbuiltin_interfaces/msg/Time t\n\
                    ================================\nMSG: geometry_msgs/msg/Point\nfloat64 x\n";
        let all = Definitions::parse("geometry_msgs/msg/Any", text).unwrap();
        let shown: Vec<_> = all.root.fields.iter().map(|f| (f.name.as_str(), f.kind.clone(), f.array)).collect();
        let number = Kind::Number;
        assert_eq!(
            shown,
            [
                ("header", Kind::Message("std_msgs/Header".to_owned()), Array::One),
                ("a", number(Number::F64), Array::Counted),
                ("b", number(Number::F32), Array::Counted),
                ("c", number(Number::I16), Array::Fixed(3)),
                ("d", Kind::Text, Array::One),
                ("p", Kind::Message("geometry_msgs/Point".to_owned()), Array::One),
                ("t", Kind::Time, Array::One),
            ]
        );
        assert_eq!(all.types["geometry_msgs/Point"].fields.len(), 1);
        for bad in ["float64", "float64[ x", "float64[-1] x", "wstring x"] {
            assert!(Definitions::parse("a/B", bad).is_err(), "{bad}");
        }
    }
}
