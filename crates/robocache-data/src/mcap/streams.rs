//! The streams of a recording: fields of topics, clouds and pictures.

use robocache::DType;

use super::decoded::{Field, FieldKind};
use super::picture::PictureShape;
use super::scan::Scan;
use super::topic::{Key, Role, Topic, number_type};
use super::track::{CloudFacts, Lengths, Track};
use crate::model::{Interpolation, Kind, Span, StreamInfo};

/// Where the samples of a stream are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) track: usize,
    pub(super) content: Content,
}

/// What of a message is a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// Where `moved` is not 0, so many numbers belong to each joint, and go where its name goes.
    Numbers {
        field: usize,
        width: usize,
        dtype: DType,
        moved: usize,
    },
    Text {
        field: usize,
    },
    Cloud {
        points: usize,
        columns: usize,
        dtype: DType,
    },
    Picture(PictureShape),
}

/// Streams, where they are, and fields that are none, each with the reason.
pub(super) type Streams = (Vec<StreamInfo>, Vec<Place>, Vec<(String, String)>);

/// All streams, by name.
pub(super) fn streams(scan: &Scan) -> Streams {
    let mut found: Vec<(StreamInfo, Place)> = Vec::new();
    let mut left_out = scan.left_out.clone();
    for (at, track) in scan.tracks.iter().enumerate() {
        let Some(topic) = scan.topics.get(track.topic) else { continue };
        let suffix = suffix(scan, track);
        let mut add = |name: String, made: Result<(StreamInfo, Content), String>| match made {
            Ok((mut info, content)) => {
                info.name = name;
                found.push((info, Place { track: at, content }));
            }
            Err(why) => left_out.push((name, why)),
        };
        match topic.role {
            Role::Camera(_) => {}
            Role::Picture(_) => {
                if let Some(shape) = &track.picture {
                    add(topic.name.clone(), shape.clone().map(|shape| (picture(&shape), Content::Picture(shape))));
                }
            }
            Role::Cloud(_) => {
                if let Some(facts) = &track.cloud {
                    add(topic.name.clone(), cloud(facts));
                }
            }
            Role::Plain | Role::Joints { .. } | Role::Transforms { .. } => {
                for (place, field) in topic.fields().iter().enumerate().filter(|(place, _)| topic.is_stream(*place)) {
                    let name = match &track.key {
                        Key::Frame(child) => format!("{}/{}", topic.name, child.trim_start_matches('/')),
                        _ => name(topic, &field.path, &suffix),
                    };
                    if let Some(made) = numbers(track, place, field).transpose() {
                        add(name, made);
                    }
                }
            }
        }
    }
    for topic in scan.topics.iter().filter(|topic| topic.role == Role::Plain) {
        left_out.extend(topic.unread().iter().map(|(path, why)| (name(topic, path, ""), why.clone())));
    }
    for (&topic, count) in &scan.bad_counts {
        let has_stream = |(_, place): &(_, Place)| scan.tracks.get(place.track).is_some_and(|at| at.topic == topic);
        // What has a stream is told by episode.
        if let (Some(named), false) = (scan.topics.get(topic), found.iter().any(has_stream)) {
            let first = scan.bad.iter().find(|bad| bad.topic == topic).map_or("", |bad| &bad.why);
            left_out.push((named.name.clone(), format!("{count} of its messages cannot be read; the first: {first}")));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    // Two types on one topic, or a field that is called as another topic is.
    let mut streams: Vec<StreamInfo> = Vec::new();
    let mut places = Vec::new();
    for (info, place) in found {
        if streams.last().is_some_and(|last| last.name == info.name) {
            left_out.push((info.name, "another stream has this name".to_owned()));
            continue;
        }
        streams.push(info);
        places.push(place);
    }
    (streams, places, left_out)
}

/// `/topic/field`, with slashes between nested names.
fn name(topic: &Topic, path: &str, suffix: &str) -> String {
    let path = path.replace('.', "/");
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{}{slash}{path}{suffix}", topic.name)
}

/// What tells the joints of a track from others of the same topic: nothing for those with the most messages, the
/// first and the last name for the others.
fn suffix(scan: &Scan, track: &Track) -> String {
    let Key::Joints(names) = &track.key else { return String::new() };
    let same_topic = || scan.tracks.iter().filter(|other| other.topic == track.topic);
    let rank = |track: &Track| (track.entries.len(), std::cmp::Reverse(track.key.clone()));
    if same_topic().map(rank).max() == Some(rank(track)) {
        return String::new();
    }
    let ends = |names: &[String]| (names.first().cloned(), names.last().cloned());
    let alike = |other: &&Track| matches!(&other.key, Key::Joints(others) if ends(others) == ends(names));
    let count = if same_topic().filter(alike).count() > 1 { format!(" {}", names.len()) } else { String::new() };
    match names.as_slice() {
        [] => ":none".to_owned(),
        [one] => format!(":{one}{count}"),
        [first, .., last] => format!(":{first}..{last}{count}"),
    }
}

fn info(kind: Kind, dtype: Option<DType>, shape: Vec<usize>) -> StreamInfo {
    let method = if matches!(kind, Kind::Text) { Interpolation::Previous } else { Interpolation::Nearest };
    let end = shape.iter().product();
    let method = vec![Span { method, start: 0, end }];
    StreamInfo { name: String::new(), kind, dtype, shape, names: None, rate: None, method }
}

fn picture(shape: &PictureShape) -> StreamInfo {
    let kind = if shape.is_depth { Kind::Depth } else { Kind::Image };
    info(kind, Some(shape.dtype), shape.shape.to_vec())
}

fn cloud(facts: &CloudFacts) -> Result<(StreamInfo, Content), String> {
    if let Some(others) = &facts.others {
        let others = others.iter().take(16).collect::<Vec<_>>();
        return Err(format!("expected points of {:?} in all messages, some have {others:?}", facts.names));
    }
    // A cloud without points is padding.
    let (points, columns, dtype) = (facts.most_points.max(1), facts.names.len(), facts.dtype);
    let info = info(Kind::PointCloud, Some(dtype), vec![points, columns]);
    Ok((info, Content::Cloud { points, columns, dtype }))
}

/// A stream of numbers or texts; nothing where no message has any.
fn numbers(track: &Track, place: usize, field: &Field) -> Result<Option<(StreamInfo, Content)>, String> {
    let lengths = track.lengths.get(place).copied().unwrap_or_default();
    if field.kind == FieldKind::Text {
        return Ok(Some((info(Kind::Text, None, vec![1]), Content::Text { field: place })));
    }
    if lengths.present == 0 {
        return Ok(None);
    }
    let Some(dtype) = number_type(field) else { return Err("lists of texts are not read".to_owned()) };
    if lengths.least != lengths.most {
        return Err(format!("its messages have from {} to {} numbers", lengths.least, lengths.most));
    }
    let width = lengths.most;
    let mut names = field.names.clone();
    let mut shape = vec![width];
    let mut each = names.as_ref().map_or(0, Vec::len);
    let mut moved = 0;
    if let Key::Joints(joints) = &track.key {
        moved = numbers_of_joint(joints.len(), field, &lengths)?;
        match moved {
            0 => {}
            1 => (names, each) = (Some(joints.clone()), joints.len()),
            row => each = row,
        }
    }
    // An array of points, of poses, of steps of joints, or a row for each joint.
    if field.is_repeated && each > 1 && width > each && width.is_multiple_of(each) {
        shape = vec![width / each, each];
    }
    let kind = if width == 1 { Kind::Scalar } else { Kind::Vector };
    let mut info = info(kind, Some(dtype), shape);
    info.method = methods(field, dtype, width, each.max(1), names.as_deref());
    info.names = names.filter(|names| names.len() == width);
    Ok(Some((info, Content::Numbers { field: place, width, dtype, moved })))
}

/// How many numbers that lie together belong to each of the joints; 0 where the field has none for each.
fn numbers_of_joint(joints: usize, field: &Field, lengths: &Lengths) -> Result<usize, String> {
    let rows = lengths.lists.max(1);
    let each = lengths.most / rows;
    if !field.is_repeated {
        return Ok(usize::from((field.is_list || rows > 1) && lengths.most == joints));
    }
    // Nothing changes places.
    if joints < 2 {
        return Ok(0);
    }
    // A `JointTrajectory` has points, and those a list of the joints each; other messages have a row for each joint.
    let is_of_points = field.path.starts_with("points.");
    let is_of_joints = field.is_list && each == joints;
    match () {
        () if !lengths.is_even => Err(format!("expected as many numbers for each of the {joints} joints")),
        () if is_of_joints && (is_of_points || rows != joints) => Ok(1),
        () if is_of_points && !field.is_list && field.names.is_none() => Ok(0),
        () if !is_of_points && !is_of_joints && rows == joints => Ok(each),
        () => Err(format!(
            "expected a number for each of the {joints} joints, or a row for each, its messages have {rows} rows of \
             {each}, which does not say of which joint they are"
        )),
    }
}

/// How values between samples are made: quaternions turn, what is no float and grippers hold, the rest is linear.
fn methods(field: &Field, dtype: DType, width: usize, each: usize, names: Option<&[String]>) -> Vec<Span> {
    let is_gripper = |name: &str| name.to_lowercase().contains("gripper");
    let mut spans: Vec<Span> = Vec::new();
    let mut start = 0;
    while start < width {
        let named = names.and_then(|names| names.get(start % each)).is_some_and(|name| is_gripper(name));
        let (method, count) = match () {
            () if !dtype.is_float() => (Interpolation::Previous, width),
            () if field.quaternions.contains(&(start % each)) && start + 4 <= width => (Interpolation::Slerp, 4),
            () if named => (Interpolation::Previous, 1),
            () => (Interpolation::Linear, 1),
        };
        match spans.last_mut() {
            Some(last) if last.method == method => last.end += count,
            _ => spans.push(Span { method, start, end: start + count }),
        }
        start += count;
    }
    spans
}
