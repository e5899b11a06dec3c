//! JSON as datasets hold it: keys in order, none twice, sizes bounded.

use std::cell::Cell;
use std::fmt;
use std::path::Path;

use robocache::Result;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::Limits;
use crate::limits::{corrupt, exceeds};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(f64),
    /// Whole numbers apart, so that large ones stay exact.
    Integer(i64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    /// Parses the text of a file. A mark of byte order in front is skipped, as editors leave one.
    pub(crate) fn parse(path: &Path, bytes: &[u8], limits: &Limits) -> Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes)
            .map_err(|error| corrupt(path, format!("expected JSON in UTF-8; byte {} is not", error.valid_up_to())))?;
        let cost = Cost { left: Cell::new(limits.max_alloc), max_depth: limits.max_depth, exceeded: Cell::new(None) };
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let parsed = Value { cost: &cost, depth: 0 }.deserialize(&mut deserializer);
        let parsed = parsed.and_then(|json| deserializer.end().map(|()| json));
        parsed.map_err(|error| match cost.exceeded.get() {
            Some(Limit::Memory) => exceeds(path, format!("this JSON needs more than max_alloc ({})", limits.max_alloc)),
            Some(Limit::Depth) => {
                exceeds(path, format!("JSON that is nested deeper than max_depth ({})", limits.max_depth))
            }
            None => corrupt(path, format!("expected JSON: {error}")),
        })
    }

    /// As [`Json::parse`], with the NaN and Infinity that Python writes read as null.
    pub(crate) fn parse_loosely(path: &Path, bytes: &[u8], limits: &Limits) -> Result<Self> {
        Self::parse(path, &without_nan(bytes), limits)
    }

    /// The value of a key; `None` also where this is not a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    pub(crate) fn as_map(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Integer(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// A count: whole and not negative.
    pub(crate) fn as_count(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            // Some writers keep counts as floats.
            Self::Number(number) if number.fract() == 0.0 && (0.0..9e15).contains(number) => Some(*number as u64),
            _ => None,
        }
    }
}

/// As it would be written, without the inside of lists and objects.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            // Large ones would fill a page with zeros.
            Self::Number(number) if *number != 0.0 && !(1e-6..1e16).contains(&number.abs()) => write!(f, "{number:e}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("an object"),
        }
    }
}

/// NaN, Infinity and -Infinity outside of strings, replaced by null.
fn without_nan(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let (mut rest, mut quoted) = (bytes, false);
    while let Some((&byte, after)) = rest.split_first() {
        let word = [&b"-Infinity"[..], b"Infinity", b"NaN"].into_iter().find(|word| !quoted && rest.starts_with(word));
        if let Some(word) = word {
            out.extend_from_slice(b"null");
            rest = rest.get(word.len()..).unwrap_or_default();
            continue;
        }
        out.push(byte);
        rest = after;
        match (byte, quoted, rest.split_first()) {
            (b'\\', true, Some((&escaped, after))) => {
                out.push(escaped);
                rest = after;
            }
            (b'"', ..) => quoted = !quoted,
            _ => {}
        }
    }
    out
}

/// Which limit a text exceeds.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Memory,
    Depth,
}

/// What the values of a text may still take: a few characters make a value that is many times larger.
struct Cost {
    left: Cell<u64>,
    max_depth: usize,
    exceeded: Cell<Option<Limit>>,
}

impl Cost {
    /// Vectors grow by doubling, from room for four.
    const GROWTH: usize = 2;
    const FIRST: usize = 4;
    const VALUE: usize = size_of::<Json>();
    /// With the key, and the key among those that were seen.
    const ENTRY: usize = size_of::<(String, Json)>() + 2 * size_of::<String>();

    fn take<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or_else(|| self.stop(Limit::Memory))
    }

    fn stop<E: serde::de::Error>(&self, limit: Limit) -> E {
        self.exceeded.set(Some(limit));
        E::custom("a limit is exceeded")
    }
}

/// A value to come, inside of so many others.
#[derive(Clone, Copy)]
struct Value<'c> {
    cost: &'c Cost,
    depth: usize,
}

impl Value<'_> {
    /// A value inside of this one.
    fn inside<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth.saturating_add(1);
        if depth > self.cost.max_depth { Err(self.cost.stop(Limit::Depth)) } else { Ok(Self { depth, ..self }) }
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Number(value as f64), Json::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Json, E> {
        self.cost.take(value.len())?;
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let inside = self.inside()?;
        self.cost.take(Cost::FIRST * Cost::VALUE)?;
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(inside)? {
            self.cost.take(Cost::GROWTH * Cost::VALUE)?;
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let inside = self.inside()?;
        self.cost.take(Cost::FIRST * Cost::ENTRY)?;
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            self.cost.take(Cost::GROWTH * (Cost::ENTRY + key.len()))?;
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
            let value = access.next_value_seed(inside)?;
            entries.push((key, value));
        }
        Ok(Json::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json> {
        Json::parse(Path::new("info.json"), text.as_bytes(), &Limits::default())
    }

    #[test]
    fn keys_keep_their_order_and_large_numbers_their_digits() {
        let json = parse(r#"{"b": 9007199254740993, "a": [1.5, true, null, "x"]}"#).unwrap();
        let keys: Vec<_> = json.as_map().unwrap().iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["b", "a"]);
        assert_eq!(json.get("b"), Some(&Json::Integer(9_007_199_254_740_993)));
    }

    #[test]
    fn hostile_texts_are_errors_61() {
        let deep = "[".repeat(100_000);
        let bytes = |bytes: &[u8]| Json::parse(Path::new("x"), bytes, &Limits::default());
        for (text, message) in [
            (r#"{"a": 1, "a": 2}"#, "twice"),
            (r#"{"a": NaN}"#, "expected JSON"),
            (deep.as_str(), "max_depth (64)"),
            ("", "expected JSON"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("info.json"), "{error}");
        }
        assert!(bytes(b"{\"a\": \"\xff\"}").unwrap_err().to_string().contains("byte 7"));
        assert_eq!(bytes(b"\xef\xbb\xbf{}").unwrap(), Json::Map(vec![]));
    }

    #[test]
    fn values_cost_what_they_take_in_memory_61() {
        let limits = Limits { max_alloc: 1 << 20, max_depth: 3, ..Limits::default() };
        let parse = |text: &str| Json::parse(Path::new("x"), text.as_bytes(), &limits);
        // A tenth of the limit as text, several times the limit as values.
        for text in [format!("[{}0]", "[0],".repeat(25_000)), format!("[{}0]", "{},".repeat(30_000))] {
            let error = parse(&text).unwrap_err();
            assert_eq!(error.kind(), robocache::ErrorKind::LimitExceeded);
            assert!(error.to_string().contains("max_alloc (1048576)"), "{error}");
        }
        assert!(parse(&format!("[{}0]", "0,".repeat(10_000))).is_ok());
        assert!(parse("[[{}]]").is_ok());
        let error = parse("[[{\"a\": []}]]").unwrap_err();
        assert!(error.to_string().contains("deeper than max_depth (3)"), "{error}");
    }

    #[test]
    fn numbers_are_shown_short() {
        let shown = |text: &str| parse(text).unwrap().to_string();
        assert_eq!([shown("1e300"), shown("2.5"), shown("1e-300"), shown("0.0")], ["1e300", "2.5", "1e-300", "0"]);
    }

    #[test]
    fn nan_of_python_is_null_outside_of_strings() {
        let loosely = |text: &str| Json::parse_loosely(Path::new("x"), text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(
            loosely(r#"{"NaN \" NaN": [NaN, -Infinity, 1]}"#),
            Json::Map(vec![("NaN \" NaN".to_owned(), Json::List(vec![Json::Null, Json::Null, Json::Integer(1)]))])
        );
    }
}
