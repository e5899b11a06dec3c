//! What every encoding of messages is decoded to: numbers and texts in slots, one slot for each field.

use robocache::DType;

/// Fields of a plan, and bytes of their names: a definition of a few lines may nest to more than memory holds.
pub(super) const MOST_FIELDS: usize = 1 << 14;
pub(super) const MOST_NAME_BYTES: usize = 1 << 20;
/// Bytes of the name of a field or a type.
pub(super) const LONGEST_NAME: usize = 255;

/// What a plan takes so far.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) fields: usize,
    pub(super) bytes: usize,
}

impl Taken {
    /// Counts a field; `Err` where the plan takes too much.
    pub(super) fn field(&mut self) -> Result<(), String> {
        self.fields += 1;
        match () {
            () if self.fields > MOST_FIELDS => Err(format!("the type has more than {MOST_FIELDS} fields")),
            () if self.bytes > MOST_NAME_BYTES => {
                Err(format!("the names of its fields take more than {MOST_NAME_BYTES} bytes"))
            }
            () => Ok(()),
        }
    }
}

/// A name of reasonable length.
pub(super) fn named(name: &str) -> Result<(), String> {
    if name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let start: String = name.chars().take(40).collect();
    Err(format!("expected names of at most {LONGEST_NAME} bytes, {start:?}... has {}", name.len()))
}

/// A field of a message that may become a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// Its name in the message, with points between the names of nested ones.
    pub(super) path: String,
    pub(super) kind: FieldKind,
    /// Names of the components, where the definition has them.
    pub(super) names: Option<Vec<String>>,
    /// The first components of quaternions.
    pub(super) quaternions: Vec<usize>,
    /// Whether it is in an array of messages.
    pub(super) is_repeated: bool,
    /// Whether it is an array of numbers itself, which may have one for each joint.
    pub(super) is_list: bool,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// Numbers, as many as the definition says where it does.
    Numbers(DType, Option<usize>),
    /// One text.
    Text,
    /// Several texts.
    Texts,
    /// Bytes that are kept where they are.
    Bytes,
}

/// The content of a field in one message.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot {
    /// Little-endian, one after the other.
    pub(super) numbers: Vec<u8>,
    /// How many lists the numbers are from, and how long the longest is.
    pub(super) lists: usize,
    pub(super) longest: usize,
    /// Where texts start and end in the message.
    pub(super) texts: Vec<(usize, usize)>,
    /// Where bytes start and end in the message.
    pub(super) bytes: (usize, usize),
    /// Text or bytes that are not in the message as they are, such as escaped ones.
    pub(super) owned: Option<Vec<u8>>,
}

impl Slot {
    /// Notes that so many numbers come, as one list.
    pub(super) fn note_list(&mut self, count: usize) {
        self.lists += 1;
        self.longest = self.longest.max(count);
    }
}

/// A message, decoded; used again for the next.
#[derive(Debug, Clone, Default)]
pub(super) struct Decoded {
    pub(super) slots: Vec<Slot>,
    /// The stamp of its header, in nanoseconds.
    pub(super) stamp: Option<i64>,
}

impl Decoded {
    /// Makes it empty, with as many slots.
    pub(super) fn clear(&mut self, slots: usize) {
        self.stamp = None;
        self.slots.resize_with(slots, Slot::default);
        for slot in &mut self.slots {
            slot.numbers.clear();
            (slot.lists, slot.longest) = (0, 0);
            slot.texts.clear();
            slot.bytes = (0, 0);
            slot.owned = None;
        }
    }

    /// The numbers of a slot.
    pub(super) fn numbers(&self, slot: usize) -> &[u8] {
        self.slots.get(slot).map_or(&[], |slot| &slot.numbers)
    }

    /// How many lists the `count` numbers of a slot are from, and whether all are as long.
    pub(super) fn lists(&self, slot: usize, count: usize) -> (usize, bool) {
        match self.slots.get(slot) {
            Some(slot) if slot.lists > 1 => (slot.lists, slot.lists.saturating_mul(slot.longest) == count),
            _ => (1, true),
        }
    }

    /// The bytes of a slot.
    pub(super) fn bytes<'a>(&'a self, slot: usize, message: &'a [u8]) -> &'a [u8] {
        let Some(slot) = self.slots.get(slot) else { return &[] };
        slot.owned.as_deref().unwrap_or_else(|| message.get(slot.bytes.0..slot.bytes.1).unwrap_or_default())
    }

    /// The texts of a slot; what is no UTF-8 is replaced.
    pub(super) fn texts(&self, slot: usize, message: &[u8]) -> Vec<String> {
        let Some(slot) = self.slots.get(slot) else { return Vec::new() };
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match &slot.owned {
            Some(text) => vec![lossy(text)],
            None => slot.texts.iter().map(|&(from, to)| lossy(message.get(from..to).unwrap_or_default())).collect(),
        }
    }

    /// Adds the texts of a slot, each with a zero behind it.
    pub(super) fn join_names(&self, slot: usize, message: &[u8], out: &mut Vec<u8>) {
        for &(from, to) in self.slots.get(slot).iter().flat_map(|slot| &slot.texts) {
            out.extend_from_slice(message.get(from..to).unwrap_or_default());
            out.push(0);
        }
    }

    /// Whether the texts of a slot are those that [`Self::join_names`] has put together.
    pub(super) fn names_are(&self, slot: usize, message: &[u8], mut joined: &[u8]) -> bool {
        for &(from, to) in self.slots.get(slot).iter().flat_map(|slot| &slot.texts) {
            let rest = joined.strip_prefix(message.get(from..to).unwrap_or_default());
            match rest.and_then(<[u8]>::split_first) {
                Some((0, rest)) => joined = rest,
                _ => return false,
            }
        }
        joined.is_empty()
    }

    /// The only text of a slot.
    pub(super) fn text(&self, slot: usize, message: &[u8]) -> Option<String> {
        self.texts(slot, message).into_iter().next()
    }

    /// The first whole number of a slot of 32 bits.
    pub(super) fn u32(&self, slot: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.numbers(slot).first_chunk()?))
    }

    /// The first byte of a slot.
    pub(super) fn u8(&self, slot: usize) -> Option<u8> {
        self.numbers(slot).first().copied()
    }
}

/// Seconds and nanoseconds as nanoseconds; `None` where that is too far from 0 for the differences of stamps.
pub(super) fn nanoseconds(seconds: i64, nanos: i64) -> Option<i64> {
    const FARTHEST: u64 = 1 << 62;
    let all = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (all.unsigned_abs() < FARTHEST).then_some(all)
}

/// The place of the field at a path.
pub(super) fn slot(fields: &[Field], path: &str) -> Option<usize> {
    fields.iter().position(|field| field.path == path)
}
