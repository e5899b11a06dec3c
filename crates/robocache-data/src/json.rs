//! JSON as datasets hold it: keys in order, none twice, sizes bounded.

use std::fmt;
use std::path::Path;

use robocache::Result;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::limits::corrupt;

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
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes)
            .map_err(|error| corrupt(path, format!("expected JSON in UTF-8; byte {} is not", error.valid_up_to())))?;
        serde_json::from_str(text).map_err(|error| corrupt(path, format!("expected JSON: {error}")))
    }

    /// As [`Json::parse`], with the NaN and Infinity that Python writes read as null.
    pub(crate) fn parse_loosely(path: &Path, bytes: &[u8]) -> Result<Self> {
        Self::parse(path, &without_nan(bytes))
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

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
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

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
            let value = access.next_value()?;
            entries.push((key, value));
        }
        Ok(Json::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json> {
        Json::parse(Path::new("info.json"), text.as_bytes())
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
        for (text, message) in [
            (r#"{"a": 1, "a": 2}"#, "twice"),
            (r#"{"a": NaN}"#, "expected JSON"),
            (deep.as_str(), "recursion limit"),
            ("", "expected JSON"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("info.json"), "{error}");
        }
        assert!(Json::parse(Path::new("x"), b"{\"a\": \"\xff\"}").unwrap_err().to_string().contains("byte 7"));
        assert_eq!(Json::parse(Path::new("x"), b"\xef\xbb\xbf{}").unwrap(), Json::Map(vec![]));
    }

    #[test]
    fn nan_of_python_is_null_outside_of_strings() {
        let loosely = |text: &str| Json::parse_loosely(Path::new("x"), text.as_bytes()).unwrap();
        assert_eq!(
            loosely(r#"{"NaN \" NaN": [NaN, -Infinity, 1]}"#),
            Json::Map(vec![("NaN \" NaN".to_owned(), Json::List(vec![Json::Null, Json::Null, Json::Integer(1)]))])
        );
    }
}
