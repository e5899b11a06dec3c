//! A sketch as text: base64 of numbers in seven-bit groups, each sorted run as differences.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{LEVELS, ROOM, Real, Sketch};

/// What is written is the settled form.
impl<T: Real> Serialize for Sketch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut settled = self.clone();
        settled.settle();
        let mut bytes = Vec::new();
        put(&mut bytes, settled.turns);
        for run in &settled.levels {
            put(&mut bytes, run.len() as u64);
            let mut before = 0;
            for key in run.iter().map(|&key| key.into()) {
                put(&mut bytes, key - before);
                before = key;
            }
        }
        serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

impl<'de, T: Real> Deserialize<'de> for Sketch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(|error| D::Error::custom(format!("sketch: {error}")))?;
        parse(&bytes).ok_or_else(|| D::Error::custom("sketch: expected sorted runs of finite numbers"))
    }
}

fn parse<T: Real>(bytes: &[u8]) -> Option<Sketch<T>> {
    let mut rest = bytes;
    let mut sketch = Sketch { turns: take(&mut rest)?, ..Sketch::default() };
    while !rest.is_empty() {
        // No number takes less than a byte, so this also bounds what is reserved.
        let len = usize::try_from(take(&mut rest)?).ok().filter(|&len| len <= ROOM.min(rest.len()))?;
        let mut run = Vec::with_capacity(len);
        let mut key = 0u64;
        for _ in 0..len {
            key = key.checked_add(take(&mut rest)?)?;
            let own = T::Key::try_from(key).ok().filter(|&own| T::from_key(own).into().is_finite())?;
            run.push(own);
        }
        sketch.held += (len as u64) << sketch.levels.len();
        sketch.levels.push(run);
        if sketch.levels.len() > LEVELS {
            return None;
        }
    }
    Some(sketch)
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for group in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth group has room for one bit.
        value |= if group < 9 || bits < 2 { bits << (7 * group) } else { return None };
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
