//! Streams as the features of a dataset describe them, and how to interpolate between samples.

use robocache::DType;

use super::info::{Feature, Info};
use crate::model::{Interpolation, Kind, Span, StreamInfo};

/// Columns that number the samples; the stamps are made from them.
pub(super) const BOOKKEEPING: [&str; 4] = ["timestamp", "frame_index", "episode_index", "index"];

/// Types of text.
const TEXTS: [&str; 3] = ["string", "large_string", "str"];

/// A declared stream that is not read, and why.
pub(crate) type LeftOut = (String, String);

/// All streams of a dataset that can be read, and those that cannot. One of the latter must not keep
/// anybody from the former.
pub(super) fn streams(info: &Info) -> (Vec<StreamInfo>, Vec<LeftOut>) {
    let (mut streams, mut left_out) = (Vec::new(), Vec::new());
    for feature in info.features.iter().filter(|feature| !BOOKKEEPING.contains(&feature.name.as_str())) {
        match stream(feature, info.fps) {
            Ok(stream) => streams.push(stream),
            Err(why) => left_out.push((feature.name.clone(), why)),
        }
    }
    (streams, left_out)
}

fn stream(feature: &Feature, fps: f64) -> Result<StreamInfo, String> {
    let (kind, dtype) = match feature.dtype.as_str() {
        "video" if feature.is_depth && feature.depth.is_none() => {
            let text = "info.json does not say how the distances of the video were quantised: expected depth_min, \
                        depth_max, shift and use_log in \"info\"";
            return Err(text.to_owned());
        }
        "video" | "image" if feature.is_depth => (Kind::Depth, Some(DType::U16)),
        "video" => (Kind::Video, Some(DType::U8)),
        "image" => (Kind::Image, Some(DType::U8)),
        name if TEXTS.contains(&name) => (Kind::Text, None),
        // Parquet has no floats of 8 bits.
        name => match DType::ALL.iter().find(|dtype| dtype.name() == name && !dtype.is_stored()) {
            Some(&dtype) if feature.shape.iter().product::<usize>() == 1 => (Kind::Scalar, Some(dtype)),
            Some(&dtype) if is_cloud(&feature.name, &feature.shape, dtype) => (Kind::PointCloud, Some(dtype)),
            Some(&dtype) => (Kind::Vector, Some(dtype)),
            None => return Err(format!("streams of type {name:?} are not read")),
        },
    };
    let is_picture = kind.is_picture();
    let mut shape = if is_picture { picture_shape(feature) } else { feature.shape.clone() };
    if kind == Kind::Depth
        && let Some(channels) = shape.get_mut(2)
    {
        *channels = 1;
    }
    let width: usize = shape.iter().product();
    let names = (!is_picture && feature.names.len() == width).then(|| feature.names.clone());
    Ok(StreamInfo {
        // When all names are known.
        method: Vec::new(),
        name: feature.name.clone(),
        kind,
        dtype,
        shape,
        names,
        rate: Some(fps),
    })
}

/// Sets how values between samples are made, once the components have their names.
pub(super) fn set_methods(streams: &mut [StreamInfo]) {
    for stream in streams {
        stream.method = method(&stream.name, stream.kind, stream.dtype, stream.width(), stream.names.as_deref());
    }
}

/// Whether samples are points: `[points, 3 or more]` floats under a name with a word that says so. The format has no
/// type for clouds. Waypoints and keypoints are not, and neither is any action.
fn is_cloud(name: &str, shape: &[usize], dtype: DType) -> bool {
    let name = name.to_lowercase();
    let words: Vec<&str> = name.split(|letter: char| !letter.is_alphanumeric()).collect();
    let says_so = words.iter().any(|word| ["pointcloud", "points", "pcd", "lidar"].contains(word))
        || words.windows(2).any(|pair| pair == ["point", "cloud"]);
    says_so && words.first() != Some(&"action") && dtype.is_float() && matches!(shape, [_, 3..=32])
}

/// `[height, width, channels]`, from that order or from the one of torch.
fn picture_shape(feature: &Feature) -> Vec<usize> {
    let first_is_channels = match feature.names.first().map(String::as_str) {
        Some("channel" | "channels") => true,
        Some(_) => false,
        None => matches!(feature.shape.as_slice(), [1 | 3 | 4, _, last] if *last > 4),
    };
    match feature.shape.as_slice() {
        &[channels, height, width] if first_is_channels => vec![height, width, channels],
        shape => shape.to_vec(),
    }
}

/// The rule of the documentation: quaternions turn, pictures and clouds take the nearest, what has
/// no meaning in between holds, all else is linear.
fn method(name: &str, kind: Kind, dtype: Option<DType>, width: usize, names: Option<&[String]>) -> Vec<Span> {
    let all = |method| vec![Span { method, start: 0, end: width }];
    match (kind, dtype) {
        (Kind::Image | Kind::Video | Kind::Depth | Kind::PointCloud, _) => return all(Interpolation::Nearest),
        (_, Some(dtype)) if dtype.is_float() => {}
        _ => return all(Interpolation::Previous),
    }
    let name = name.to_lowercase();
    let is_turning = ["quat", "orient"].iter().any(|word| name.contains(word));
    let Some(names) = names else {
        return match (is_turning && width.is_multiple_of(4) && width > 0, is_gripper(&name)) {
            (true, _) => all(Interpolation::Slerp),
            (_, true) => all(Interpolation::Previous),
            _ => all(Interpolation::Linear),
        };
    };
    let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    // The stream's own name speaks for components that only number or letter themselves. The pose of
    // a gripper is not its opening.
    let is_turning = is_turning || last_word(&name).starts_with("rot");
    let holds = is_gripper(&name) && !names.iter().any(|name| is_coordinate(name));
    let mut spans: Vec<Span> = Vec::new();
    let mut rest = names.as_slice();
    while let Some((first, after)) = rest.split_first() {
        let start = width - rest.len();
        let (method, count) = match rest.get(..4) {
            Some(four) if is_quaternion(four, is_turning) => (Interpolation::Slerp, 4),
            _ if holds || is_gripper(first) => (Interpolation::Previous, 1),
            _ => (Interpolation::Linear, 1),
        };
        match spans.last_mut() {
            Some(last) if last.method == method => last.end += count,
            _ => spans.push(Span { method, start, end: start + count }),
        }
        rest = rest.get(count..).unwrap_or(&after[after.len()..]);
    }
    if spans.is_empty() { all(Interpolation::Linear) } else { spans }
}

/// Whether four components are a quaternion: names that differ in a last letter x, y, z, w (in the
/// order xyzw or wxyz) and speak of a rotation, such as `qx` or `ee_quat_x`, or belong to a stream
/// that does; or that count on behind "quat".
fn is_quaternion(names: &[String], of_rotation: bool) -> bool {
    let letters: String = names.iter().filter_map(|name| name.chars().last()).collect();
    let stem = |name: &String| name.get(..name.len().saturating_sub(1)).unwrap_or_default().to_owned();
    let Some(first) = names.first().map(stem) else {
        return false;
    };
    let speaks_of_rotation = of_rotation
        || ["q", "quat", "rot", "orient"].iter().any(|word| first.trim_end_matches(SEPARATORS).ends_with(word))
        || ["quat", "orient"].iter().any(|word| first.contains(word));
    let lettered = matches!(letters.as_str(), "xyzw" | "wxyz") && names.iter().all(|name| stem(name) == first);
    lettered && speaks_of_rotation || counts_on_behind_quat(names, of_rotation)
}

/// Numbers one after the other behind the same words, "quat" among them.
fn counts_on_behind_quat(names: &[String], of_rotation: bool) -> bool {
    let split = |name: &String| {
        let words = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        let number = name.get(words.len()..)?.parse::<u32>().ok()?;
        Some((words, number))
    };
    let Some(parts) = names.iter().map(split).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let Some((words, first)) = parts.first() else {
        return false;
    };
    let in_order =
        (0..).zip(&parts).all(|(at, (other, number))| other == words && number.checked_sub(*first) == Some(at));
    // Rotations of six numbers are counted as well, but not called quaternions.
    in_order && (words.contains("quat") || of_rotation && words.chars().all(|c| c == 'q' || SEPARATORS.contains(&c)))
}

/// What stands between the words of a name.
const SEPARATORS: [char; 4] = ['_', '.', '-', '/'];

fn last_word(name: &str) -> &str {
    name.rsplit(SEPARATORS).next().unwrap_or(name)
}

/// Whether a component is a place or an angle in space.
fn is_coordinate(name: &str) -> bool {
    matches!(
        last_word(name),
        "x" | "y"
            | "z"
            | "w"
            | "px"
            | "py"
            | "pz"
            | "qx"
            | "qy"
            | "qz"
            | "qw"
            | "rx"
            | "ry"
            | "rz"
            | "roll"
            | "pitch"
            | "yaw"
    )
}

fn is_gripper(name: &str) -> bool {
    name.contains("gripper")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(names: &[&str]) -> Vec<(&'static str, usize, usize)> {
        spans_of("observation.state", names)
    }

    fn spans_of(stream: &str, names: &[&str]) -> Vec<(&'static str, usize, usize)> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let found = method(stream, Kind::Vector, Some(DType::F32), names.len(), Some(&names));
        found.iter().map(|span| (span.method.name(), span.start, span.end)).collect()
    }

    #[test]
    fn component_names_decide_the_interpolation() {
        assert_eq!(spans(&["j0", "j1"]), [("linear", 0, 2)]);
        assert_eq!(
            spans(&["x", "y", "z", "qx", "qy", "qz", "qw", "gripper"]),
            [("linear", 0, 3), ("slerp", 3, 7), ("previous", 7, 8)]
        );
        assert_eq!(spans(&["ee_quat_w", "ee_quat_x", "ee_quat_y", "ee_quat_z"]), [("slerp", 0, 4)]);
        assert_eq!(spans(&["left_gripper.pos", "a"]), [("previous", 0, 1), ("linear", 1, 2)]);
        // Positions end in the same letters.
        assert_eq!(spans(&["px", "py", "pz", "pw"]), [("linear", 0, 4)]);
    }

    #[test]
    fn the_streams_name_speaks_for_its_components() {
        let letters = ["x", "y", "z", "w"];
        for stream in ["observation.ee_quat", "observation.orientation", "obs.rot", "left.rotation"] {
            assert_eq!(spans_of(stream, &letters), [("slerp", 0, 4)], "{stream}");
        }
        assert_eq!(spans_of("obs.rot", &["rx", "ry", "rz", "rw"]), [("slerp", 0, 4)]);
        assert_eq!(spans_of("both_quats", &["q0", "q1", "q2", "q3", "w", "x", "y", "z"]), [("slerp", 0, 8)]);
        assert_eq!(spans_of("observation.orientation", &["roll", "pitch", "yaw", "none"]), [("linear", 0, 4)]);
        assert_eq!(spans_of("robot", &letters), [("linear", 0, 4)]);
        assert_eq!(spans_of("rotation_6d", &["r0", "r1", "r2", "r3", "r4", "r5"]), [("linear", 0, 6)]);
        assert_eq!(spans_of("observation.gripper", &["width"]), [("previous", 0, 1)]);
        assert_eq!(spans_of("gripper_pose", &["x", "y", "z"]), [("linear", 0, 3)]);
        // As GR00T's parts name them.
        assert_eq!(
            spans(&["arm.0", "ee_quat.1", "ee_quat.2", "ee_quat.3", "ee_quat.4", "left_gripper.5"]),
            [("linear", 0, 1), ("slerp", 1, 5), ("previous", 5, 6)]
        );
    }

    #[test]
    fn clouds_are_known_by_name_and_shape() {
        assert!(is_cloud("observation.point_cloud", &[1024, 6], DType::F32));
        assert!(is_cloud("observation.lidar.Points", &[1, 3], DType::F16));
        assert!(!is_cloud("observation.points", &[3], DType::F32), "one point is a vector");
        assert!(!is_cloud("observation.points", &[1024, 2], DType::F32), "pixels");
        assert!(!is_cloud("observation.points", &[1024, 3], DType::I64), "no coordinates");
        for name in ["observation.state", "observation.keypoints", "waypoints", "setpoints.left", "action.points"] {
            assert!(!is_cloud(name, &[1024, 3], DType::F32), "{name}");
        }
    }

    #[test]
    fn kinds_decide_without_names() {
        let of = |name: &str, kind, dtype, width| method(name, kind, dtype, width, None)[0].method;
        assert_eq!(of("cam", Kind::Video, Some(DType::U8), 12), Interpolation::Nearest);
        assert_eq!(of("next.done", Kind::Scalar, Some(DType::Bool), 1), Interpolation::Previous);
        assert_eq!(of("task_index", Kind::Scalar, Some(DType::I64), 1), Interpolation::Previous);
        assert_eq!(of("words", Kind::Text, None, 1), Interpolation::Previous);
        assert_eq!(of("ee.orientation", Kind::Vector, Some(DType::F64), 4), Interpolation::Slerp);
        assert_eq!(of("gripper", Kind::Scalar, Some(DType::F32), 1), Interpolation::Previous);
        assert_eq!(of("action", Kind::Vector, Some(DType::F32), 7), Interpolation::Linear);
    }
}
