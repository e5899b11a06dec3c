//! Messages in JSON, decoded by the schema of their channel.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use robocache::DType;

use super::decoded::{Decoded, Field, FieldKind, Taken, named, nanoseconds};
use crate::Limits;
use crate::json::Json;

/// How to decode the messages of a schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) fields: Vec<Field>,
    /// Where each field is: keys from the outside in; several where it is made of several numbers.
    places: Vec<Place>,
    /// Paths of what is not read, each with the reason.
    pub(super) unread: Vec<(String, String)>,
    /// Keys of the stamp.
    stamp: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Place {
    keys: Vec<String>,
    kind: PlaceKind,
}

#[derive(Debug, Clone, PartialEq)]
enum PlaceKind {
    /// A number, or a list of them.
    Numbers,
    /// Numbers under these keys.
    Components(Vec<String>),
    Text,
    Base64,
    Time,
}

impl Plan {
    /// A plan for a JSON schema; `Err` says what is wrong with it.
    pub(super) fn new(schema: &[u8], depth: usize) -> Result<Self, String> {
        let limits = Limits { max_depth: depth, ..Limits::default() };
        let schema = Json::parse(Path::new(""), schema, &limits).map_err(|error| format!("its schema: {error}"))?;
        let mut plan = Self { fields: Vec::new(), places: Vec::new(), unread: Vec::new(), stamp: None };
        plan.object(&schema, &[], &mut Taken::default())?;
        if plan.fields.is_empty() {
            return Err("its JSON schema has no numbers and no texts".to_owned());
        }
        Ok(plan)
    }

    fn object(&mut self, schema: &Json, keys: &[String], taken: &mut Taken) -> Result<(), String> {
        let Some(properties) = schema.get("properties").and_then(Json::as_map) else { return Ok(()) };
        let path = keys.iter().map(|key| key.len() + 1).sum::<usize>();
        for (name, _) in properties {
            named(name)?;
            taken.bytes += path + name.len();
            taken.field()?;
        }
        let is_number = |(_, part): &(String, Json)| matches!(kind(part), Some("number"));
        if properties.len() > 1 && properties.iter().all(is_number) {
            let mut names: Vec<String> = properties.iter().map(|(name, _)| name.clone()).collect();
            // Writers sort keys; a quaternion has its w last.
            if names == ["w", "x", "y", "z"] {
                names.rotate_left(1);
            }
            let is_quaternion = names == ["x", "y", "z", "w"];
            self.add(keys, PlaceKind::Components(names.clone()), FieldKind::Numbers(DType::F64, Some(names.len())));
            if let Some(field) = self.fields.last_mut() {
                field.names = Some(names);
                field.quaternions = if is_quaternion { vec![0] } else { Vec::new() };
            }
            return Ok(());
        }
        for (name, part) in properties {
            let mut keys = keys.to_vec();
            keys.push(name.clone());
            let is_base64 = part.get("contentEncoding").and_then(Json::as_text) == Some("base64");
            match kind(part) {
                Some("object") if is_time(part) => {
                    let is_stamp = ["timestamp", "header.stamp", "stamp"].contains(&keys.join(".").as_str());
                    if is_stamp && self.stamp.is_none() {
                        self.stamp = Some(keys);
                    } else {
                        self.add(&keys, PlaceKind::Time, FieldKind::Numbers(DType::I64, Some(1)));
                    }
                }
                Some("object") => self.object(part, &keys, taken)?,
                Some("number") => self.add(&keys, PlaceKind::Numbers, FieldKind::Numbers(DType::F64, Some(1))),
                Some("integer") => self.add(&keys, PlaceKind::Numbers, FieldKind::Numbers(DType::I64, Some(1))),
                Some("boolean") => self.add(&keys, PlaceKind::Numbers, FieldKind::Numbers(DType::Bool, Some(1))),
                Some("string") if is_base64 => self.add(&keys, PlaceKind::Base64, FieldKind::Bytes),
                Some("string") => self.add(&keys, PlaceKind::Text, FieldKind::Text),
                Some("array") => {
                    let dtype = match part.get("items").and_then(kind) {
                        Some("number") => DType::F64,
                        Some("integer") => DType::I64,
                        Some("boolean") => DType::Bool,
                        other => {
                            let what = other.unwrap_or("any type");
                            let why = format!("lists of {:?} are not read", what.chars().take(40).collect::<String>());
                            self.unread.push((keys.join("."), why));
                            continue;
                        }
                    };
                    self.add(&keys, PlaceKind::Numbers, FieldKind::Numbers(dtype, None));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, keys: &[String], place: PlaceKind, kind: FieldKind) {
        self.fields.push(Field {
            path: keys.join("."),
            kind,
            names: None,
            quaternions: Vec::new(),
            is_repeated: false,
            is_list: matches!(kind, FieldKind::Numbers(_, None)),
        });
        self.places.push(Place { keys: keys.to_vec(), kind: place });
    }

    /// Decodes a message; `Err` says what in it is not as the schema says.
    pub(super) fn decode(&self, message: &[u8], out: &mut Decoded) -> Result<(), String> {
        out.clear(self.fields.len());
        let json =
            Json::parse_loosely(Path::new(""), message, &Limits::default()).map_err(|error| error.to_string())?;
        out.stamp = self.stamp.as_deref().and_then(|keys| find(&json, keys)).and_then(time);
        for ((place, field), slot) in self.places.iter().zip(&self.fields).zip(&mut out.slots) {
            // What is missing, or null, is no sample.
            let Some(value) = find(&json, &place.keys) else { continue };
            let bad = || format!("expected {:?} as its schema says, got {value}", field.path);
            let dtype = if let FieldKind::Numbers(dtype, _) = field.kind { dtype } else { DType::U8 };
            let done = match &place.kind {
                PlaceKind::Numbers => match value {
                    Json::List(list) => list.iter().try_for_each(|value| number(value, dtype, &mut slot.numbers)),
                    value => number(value, dtype, &mut slot.numbers),
                },
                PlaceKind::Components(names) => names
                    .iter()
                    .try_for_each(|name| number(value.get(name).unwrap_or(&Json::Null), dtype, &mut slot.numbers)),
                PlaceKind::Text => value.as_text().map(|text| slot.owned = Some(text.as_bytes().to_vec())),
                PlaceKind::Base64 => {
                    let bytes = value.as_text().and_then(|text| STANDARD.decode(text).ok());
                    bytes.map(|bytes| slot.owned = Some(bytes))
                }
                PlaceKind::Time => time(value).map(|time| slot.numbers.extend(time.to_le_bytes())),
            };
            done.ok_or_else(bad)?;
        }
        Ok(())
    }
}

/// The type that a schema names; of several the first that is not null.
fn kind(schema: &Json) -> Option<&str> {
    match schema.get("type")? {
        Json::Text(name) => Some(name),
        Json::List(names) => names.iter().filter_map(Json::as_text).find(|name| *name != "null"),
        _ => None,
    }
}

/// Seconds and nanoseconds, by the names that ROS 1, ROS 2 and Foxglove give them.
fn is_time(schema: &Json) -> bool {
    let properties = schema.get("properties");
    let has = |name: &str| properties.and_then(|all| all.get(name)).is_some();
    has("sec") && (has("nsec") || has("nanosec"))
}

fn time(value: &Json) -> Option<i64> {
    let whole = |value: Option<&Json>| match value? {
        Json::Integer(number) => Some(*number),
        _ => None,
    };
    nanoseconds(whole(value.get("sec"))?, whole(value.get("nsec").or_else(|| value.get("nanosec")))?)
}

fn find<'j>(json: &'j Json, keys: &[String]) -> Option<&'j Json> {
    keys.iter().try_fold(json, |json, key| json.get(key)).filter(|json| **json != Json::Null)
}

/// A null stands for what JSON cannot write: NaN.
fn number(value: &Json, dtype: DType, out: &mut Vec<u8>) -> Option<()> {
    match (dtype, value) {
        (DType::F64, Json::Null) => out.extend(f64::NAN.to_le_bytes()),
        (DType::F64, value) => out.extend(value.as_f64()?.to_le_bytes()),
        (DType::I64, Json::Integer(number)) => out.extend(number.to_le_bytes()),
        (DType::Bool, Json::Bool(value)) => out.push(u8::from(*value)),
        _ => return None,
    }
    Some(())
}
