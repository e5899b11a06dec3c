//! What the messages of a topic mean: which of their fields become streams.

use robocache::DType;

use super::camera::CameraSlots;
use super::cdr::Plan;
use super::cloud::CloudSlots;
use super::decoded::{Decoded, Field, FieldKind, slot};
use super::foxglove::Foxglove;
use super::json;
use super::msgdef::Definitions;
use super::picture::PictureSlots;
use super::records::{Channel, Schema};

/// A topic whose messages are read.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) decoder: Decoder,
    pub(super) role: Role,
}

/// How its messages are decoded.
#[derive(Debug)]
pub(super) enum Decoder {
    Cdr(Plan),
    Json(json::Plan),
    Foxglove(Foxglove),
}

/// What its messages are, beyond their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Each field is a stream.
    Plain,
    /// The numbers belong to joints, whose names are in a field.
    Joints {
        names: usize,
    },
    /// Several poses, each with its own stamp.
    Transforms {
        stamps: usize,
        parents: usize,
        children: usize,
        poses: usize,
    },
    Cloud(CloudSlots),
    Picture(PictureSlots),
    /// How a camera sees; no stream.
    Camera(CameraSlots),
}

/// Which of a topic's messages belong together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    All,
    /// Those with these joints, in natural order.
    Joints(Vec<String>),
    /// Those with the pose of a frame.
    Frame(String),
}

impl Topic {
    /// A topic, or why it is not read.
    pub(super) fn new(channel: &Channel, schema: Option<&Schema>, depth: usize) -> Result<Self, String> {
        let Some(schema) = schema else {
            return Err(format!("its messages ({}) have no schema", channel.encoding));
        };
        let decoder = decoder(channel, schema, depth)?;
        // `package/msg/Type` and `package/Type` are one.
        let kind = schema.name.replace("/msg/", "/");
        let role = role(&kind, &decoder)?;
        Ok(Self { name: channel.topic.clone(), decoder, role })
    }

    pub(super) fn fields(&self) -> &[Field] {
        match &self.decoder {
            Decoder::Cdr(plan) => &plan.fields,
            Decoder::Json(plan) => &plan.fields,
            Decoder::Foxglove(kind) => kind.fields(),
        }
    }

    /// Paths of what is in its messages and has no field, each with the reason.
    pub(super) fn unread(&self) -> &[(String, String)] {
        match &self.decoder {
            Decoder::Json(plan) => &plan.unread,
            Decoder::Cdr(_) | Decoder::Foxglove(_) => &[],
        }
    }

    pub(super) fn decode(&self, message: &[u8], out: &mut Decoded) -> Result<(), String> {
        match &self.decoder {
            Decoder::Cdr(plan) => plan.decode(message, out),
            Decoder::Json(plan) => plan.decode(message, out),
            Decoder::Foxglove(kind) => kind.decode(message, out),
        }
    }

    /// The frame that the message is in, by the slot of its name.
    pub(super) fn frame_slot(&self) -> Option<usize> {
        self.fields().iter().position(|field| field.path == "header.frame_id" || field.path == "frame_id")
    }

    /// Whether a field becomes a stream of its own.
    pub(super) fn is_stream(&self, field: usize) -> bool {
        let Some(found) = self.fields().get(field) else { return false };
        match self.role {
            Role::Cloud(_) | Role::Picture(_) | Role::Camera(_) => false,
            Role::Transforms { poses, .. } => field == poses,
            Role::Joints { names } => field != names && is_signal(found),
            Role::Plain => is_signal(found),
        }
    }
}

/// Names of frames and layouts of arrays are no signals.
fn is_signal(field: &Field) -> bool {
    let last = field.path.rsplit('.').next().unwrap_or_default();
    let is_layout = field.path.starts_with("layout.");
    !matches!(last, "frame_id" | "child_frame_id" | "structure_needs_at_least_one_member") && !is_layout
}

fn decoder(channel: &Channel, schema: &Schema, depth: usize) -> Result<Decoder, String> {
    match (channel.encoding.as_str(), schema.encoding.as_str()) {
        ("cdr", "ros2msg") => {
            let text = String::from_utf8_lossy(&schema.data);
            let definitions = Definitions::parse(&schema.name, &text)?;
            Ok(Decoder::Cdr(Plan::new(&definitions, depth)?))
        }
        ("json", "jsonschema" | "json") => Ok(Decoder::Json(json::Plan::new(&schema.data, depth)?)),
        ("protobuf", "protobuf") => match Foxglove::named(&schema.name) {
            Some(kind) => Ok(Decoder::Foxglove(kind)),
            None => Err(format!("protobuf messages of type {:?} are not read", schema.name)),
        },
        (encoding, definition) => Err(format!("{encoding:?} messages with {definition:?} definitions are not read")),
    }
}

fn role(kind: &str, decoder: &Decoder) -> Result<Role, String> {
    if let Decoder::Foxglove(kind) = decoder {
        return Ok(foxglove(*kind));
    }
    let fields = match decoder {
        Decoder::Cdr(plan) => plan.fields.as_slice(),
        Decoder::Json(plan) => plan.fields.as_slice(),
        Decoder::Foxglove(kind) => kind.fields(),
    };
    let missing = || format!("its definition is not that of {kind}");
    match kind {
        "sensor_msgs/PointCloud2" => CloudSlots::of(fields).map(Role::Cloud).ok_or_else(missing),
        "sensor_msgs/CompressedImage" | "sensor_msgs/Image" => {
            PictureSlots::of(fields).map(Role::Picture).ok_or_else(missing)
        }
        "sensor_msgs/CameraInfo" => CameraSlots::of(fields).map(Role::Camera).ok_or_else(missing),
        "tf2_msgs/TFMessage" => {
            let find = |path: &str| slot(fields, path);
            let all = (|| {
                Some(Role::Transforms {
                    stamps: find("transforms.header.stamp")?,
                    parents: find("transforms.header.frame_id")?,
                    children: find("transforms.child_frame_id")?,
                    poses: find("transforms.transform")?,
                })
            })();
            all.ok_or_else(missing)
        }
        _ => Ok(joints(fields).map_or(Role::Plain, |names| Role::Joints { names })),
    }
}

/// The fields of Foxglove's messages have fixed places.
fn foxglove(kind: Foxglove) -> Role {
    match kind {
        Foxglove::PoseInFrame => Role::Plain,
        Foxglove::PointCloud => Role::Cloud(CloudSlots {
            height: None,
            width: None,
            names: 2,
            offsets: 3,
            types: 4,
            counts: None,
            is_bigendian: None,
            point_step: 1,
            row_step: None,
            data: 5,
            is_foxglove: true,
        }),
        Foxglove::CompressedImage => Role::Picture(PictureSlots { format: Some(1), raw: None, data: 2 }),
    }
}

/// The field with the names of joints, where there is one.
fn joints(fields: &[Field]) -> Option<usize> {
    let is_names = |field: &Field| {
        field.kind == FieldKind::Texts && matches!(field.path.as_str(), "name" | "names" | "joint_names")
    };
    fields.iter().position(is_names)
}

/// Numbers in a slot, by their type.
pub(super) fn count(field: &Field, decoded: &Decoded, slot: usize) -> usize {
    match field.kind {
        FieldKind::Numbers(dtype, _) => decoded.numbers(slot).len() / dtype.size().max(1),
        FieldKind::Text => 1,
        FieldKind::Texts => decoded.slots.get(slot).map_or(0, |slot| slot.texts.len()),
        FieldKind::Bytes => decoded.slots.get(slot).map_or(0, |slot| match &slot.owned {
            Some(owned) => owned.len(),
            None => slot.bytes.1 - slot.bytes.0,
        }),
    }
}

/// The type of a field's numbers; bytes are numbers too.
pub(super) fn number_type(field: &Field) -> Option<DType> {
    match field.kind {
        FieldKind::Numbers(dtype, _) => Some(dtype),
        FieldKind::Bytes => Some(DType::U8),
        FieldKind::Text | FieldKind::Texts => None,
    }
}

/// Where each of `names` goes in natural order; `None` where a name is there twice.
pub(super) fn natural_order(names: &[String]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by(|&a, &b| natural(&names[a], &names[b]));
    order.windows(2).all(|pair| names[pair[0]] != names[pair[1]]).then_some(order)
}

/// Names with numbers in the order of the numbers.
pub(super) fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (x, y) = (digits(left), digits(right));
        if x > 0 && y > 0 {
            let (one, other) = (left[..x].trim_start_matches('0'), right[..y].trim_start_matches('0'));
            let order = one.len().cmp(&other.len()).then_with(|| one.cmp(other));
            if order.is_ne() {
                return order;
            }
            (left, right) = (&left[x..], &right[y..]);
            continue;
        }
        let (mut one, mut other) = (left.chars(), right.chars());
        match (one.next(), other.next()) {
            (Some(x), Some(y)) if x == y => (left, right) = (one.as_str(), other.as_str()),
            (None, None) => return a.cmp(b),
            (x, y) => return x.cmp(&y),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_their_numbers() {
        let names = ["j10", "j2", "j1", "a", "j02", "j2b"].map(str::to_owned);
        let order = natural_order(&names).unwrap();
        let sorted: Vec<_> = order.iter().map(|&at| names[at].as_str()).collect();
        assert_eq!(sorted, ["a", "j1", "j02", "j2", "j2b", "j10"]);
        assert_eq!(natural_order(&["x".to_owned(), "x".to_owned()]), None);
    }
}
