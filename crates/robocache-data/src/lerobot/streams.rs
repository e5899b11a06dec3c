//! Streams as the features of a dataset describe them, and how to interpolate between samples.

use robocache::DType;

use super::info::{Feature, Info};
use crate::model::{Interpolation, Kind, Span, StreamInfo};

/// Columns that number the samples; the stamps are made from them.
pub(super) const BOOKKEEPING: [&str; 4] = ["timestamp", "frame_index", "episode_index", "index"];

/// All streams of a dataset.
pub(super) fn streams(info: &Info) -> Vec<StreamInfo> {
    let recorded = info.features.iter().filter(|feature| !BOOKKEEPING.contains(&feature.name.as_str()));
    recorded.map(|feature| stream(feature, info.fps)).collect()
}

fn stream(feature: &Feature, fps: f64) -> StreamInfo {
    let (kind, dtype) = match feature.dtype.as_str() {
        "video" | "image" if feature.is_depth => (Kind::Depth, Some(DType::U16)),
        "video" => (Kind::Video, Some(DType::U8)),
        "image" => (Kind::Image, Some(DType::U8)),
        name => match DType::ALL.iter().find(|dtype| dtype.name() == name) {
            Some(&dtype) if feature.shape.iter().product::<usize>() == 1 => (Kind::Scalar, Some(dtype)),
            Some(&dtype) => (Kind::Vector, Some(dtype)),
            None => (Kind::Text, None),
        },
    };
    let is_picture = matches!(kind, Kind::Image | Kind::Video | Kind::Depth);
    let mut shape = if is_picture { picture_shape(feature) } else { feature.shape.clone() };
    if kind == Kind::Depth
        && let Some(channels) = shape.get_mut(2)
    {
        *channels = 1;
    }
    let width: usize = shape.iter().product();
    let names = (!is_picture && feature.names.len() == width).then(|| feature.names.clone());
    StreamInfo {
        method: method(&feature.name, kind, dtype, width, names.as_deref()),
        name: feature.name.clone(),
        kind,
        dtype,
        shape,
        names,
        rate: Some(fps),
    }
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
    let Some(names) = names else {
        let name = name.to_lowercase();
        let is_quaternion =
            (name.contains("quat") || name.contains("orientation")) && width.is_multiple_of(4) && width > 0;
        return match (is_quaternion, is_gripper(&name)) {
            (true, _) => all(Interpolation::Slerp),
            (_, true) => all(Interpolation::Previous),
            _ => all(Interpolation::Linear),
        };
    };
    let mut spans: Vec<Span> = Vec::new();
    let mut rest = names;
    while let Some((first, after)) = rest.split_first() {
        let start = width - rest.len();
        let (method, count) = match rest.get(..4) {
            Some(four) if is_quaternion(four) => (Interpolation::Slerp, 4),
            _ if is_gripper(&first.to_lowercase()) => (Interpolation::Previous, 1),
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
/// order xyzw or wxyz) and speak of a rotation, such as `qx` or `ee_quat_x`.
fn is_quaternion(names: &[String]) -> bool {
    let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let letters: String = names.iter().filter_map(|name| name.chars().last()).collect();
    let stem = |name: &String| name.get(..name.len().saturating_sub(1)).unwrap_or_default().to_owned();
    let Some(first) = names.first().map(stem) else {
        return false;
    };
    let speaks_of_rotation =
        ["q", "quat", "rot", "orient"].iter().any(|word| first.trim_end_matches(['_', '.', '-']).ends_with(word))
            || ["quat", "orient"].iter().any(|word| first.contains(word));
    matches!(letters.as_str(), "xyzw" | "wxyz") && names.iter().all(|name| stem(name) == first) && speaks_of_rotation
}

fn is_gripper(name: &str) -> bool {
    name.contains("gripper")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(names: &[&str]) -> Vec<(&'static str, usize, usize)> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let found = method("observation.state", Kind::Vector, Some(DType::F32), names.len(), Some(&names));
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
