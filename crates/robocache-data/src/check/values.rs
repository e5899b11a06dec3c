//! The numbers of a stream: what is wrong in an episode, and in all of them together.

use robocache::{DType, Result, Tensor, for_each_dtype};

use super::channels::{Channels, Number};
use super::codes;
use super::quaternions::{Place, Quaternion};
use crate::findings::{Finding, Level};
use crate::model::{Interpolation, Kind, Span, StreamInfo};

/// Above this share of samples at an end of its range, a component is saturated. A normal signal
/// meets its ends once or a few times.
const SATURATED_SHARE: f64 = 0.05;
/// In fewer samples the share says nothing.
const SATURATED_SAMPLES: u64 = 20;
/// How far a quaternion's length may be from 1: far above rounding, also of numbers written as text.
const OFF_SPHERE: f64 = 1e-3;
const OFF_SPHERE_16_BITS: f64 = 1e-2;
/// Components that are named in one message.
const NAMED: usize = 12;

/// What was seen of a stream, in one episode or in many.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) channels: Channels,
    /// In the order of the spans that are rotations.
    quaternions: Vec<Quaternion>,
}

impl Seen {
    /// Bytes that are needed for a stream of so many components, for a part and for the whole.
    pub(crate) fn bytes(width: usize) -> u64 {
        const EACH: u64 = 2 * 9 * 8;
        u64::try_from(width).unwrap_or(u64::MAX).saturating_mul(EACH)
    }

    /// Of the rows of an episode.
    fn of<T: Number>(stream: &StreamInfo, values: &[T], episode: u64) -> Self {
        let width = stream.width();
        let quaternions = starts(stream).map(|start| Quaternion::of(values, width, start, episode)).collect();
        Self { channels: Channels::of(values, width), quaternions }
    }

    /// Adds what a later part of the stream showed.
    pub(crate) fn merge(&mut self, later: &Self) {
        self.channels.merge(&later.channels);
        self.quaternions.iter_mut().zip(&later.quaternions).for_each(|(ours, theirs)| ours.merge(theirs));
    }
}

/// An episode's rows in a tensor of several.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) episode: u64,
    pub(crate) rows: std::ops::Range<usize>,
}

/// Looks at the rows of each episode in a tensor `[rows, shape...]`.
pub(crate) fn look(stream: &StreamInfo, tensor: &Tensor, parts: &[Part]) -> Result<Vec<Look>> {
    macro_rules! dispatch {
        ($(($variant:ident, $type:ty, $name:literal, $class:ident)),+) => {
            match tensor.dtype() {
                $(DType::$variant => Ok(look_at(stream, tensor.as_slice::<$type>()?, parts)),)+
            }
        };
    }
    for_each_dtype!(dispatch)
}

/// What makes an episode unusable, in a tensor of its rows. Where nothing does, which is nearly always, a
/// glance is enough.
pub(crate) fn errors(stream: &StreamInfo, tensor: &Tensor, episode: u64) -> Result<Vec<Finding>> {
    fn errors_in<T: Number>(stream: &StreamInfo, values: &[T], episode: u64) -> Vec<Finding> {
        let width = stream.width();
        // Clouds are filled up with NaN where there are fewer points.
        let is_cloud = stream.kind == Kind::PointCloud;
        // Not one by one: to stop at the first would cost more than to look at all.
        let finite = |values: &[T]| values.iter().fold(true, |all, value| all & value.wide().is_finite());
        let is_good =
            |values: &[T]| finite(values) || is_cloud && !values.iter().any(|value| value.wide().is_infinite());
        let is_zero = |start| Quaternion::of(values, width, start, episode).zero_at.is_some();
        if values.chunks(1024).all(is_good) && !starts(stream).any(is_zero) {
            return Vec::new();
        }
        let rows = values.len().checked_div(width).unwrap_or(0);
        look_at(stream, values, &[Part { episode, rows: 0..rows }]).into_iter().flat_map(|look| look.findings).collect()
    }
    macro_rules! dispatch {
        ($(($variant:ident, $type:ty, $name:literal, $class:ident)),+) => {
            match tensor.dtype() {
                $(DType::$variant => Ok(errors_in(stream, tensor.as_slice::<$type>()?, episode)),)+
            }
        };
    }
    for_each_dtype!(dispatch)
}

/// An episode of a stream, looked at.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) seen: Seen,
    pub(crate) findings: Vec<Finding>,
}

fn look_at<T: Number>(stream: &StreamInfo, values: &[T], parts: &[Part]) -> Vec<Look> {
    let width = stream.width();
    let look = |part: &Part| {
        let values = values.get(part.rows.start * width..part.rows.end * width).unwrap_or_default();
        let seen = Seen::of(stream, values, part.episode);
        let findings = in_episode(stream, values, &seen);
        let place = |finding: Finding| finding.episode(part.episode).stream(&stream.name);
        Look { findings: findings.into_iter().map(place).collect(), seen }
    };
    parts.iter().map(look).collect()
}

/// What makes an episode unusable.
fn in_episode<T: Number>(stream: &StreamInfo, values: &[T], seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    let (nan, infinite): (u64, u64) = (seen.channels.nan.iter().sum(), seen.channels.infinite.iter().sum());
    let is_cloud = stream.kind == Kind::PointCloud;
    if infinite > 0 || (nan > 0 && !is_cloud) {
        let is_bad = |value: f64| value.is_infinite() || (value.is_nan() && !is_cloud);
        let first = values.iter().position(|value| is_bad(value.wide())).unwrap_or(0);
        let width = stream.width().max(1);
        let text = format!(
            "expected finite numbers, got {nan} NaN and {infinite} infinite; first in sample {}{}",
            first / width,
            of_component(stream, first % width)
        );
        found.push(Finding::error(&codes::NOT_FINITE, text));
    }
    for (start, quaternion) in starts(stream).zip(&seen.quaternions) {
        if let Some(place) = quaternion.zero_at {
            let text = format!(
                "expected quaternions of length 1, {} are 0; first in sample {}{}",
                quaternion.zeros,
                place.sample,
                of_component(stream, start)
            );
            found.push(Finding::error(&codes::QUATERNION_NORM, text));
        }
    }
    found
}

/// What is wrong with a stream over all episodes.
pub(crate) fn over_all(stream: &StreamInfo, seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    if stream.kind == Kind::PointCloud {
        // Their columns are points without an order, of which any may be missing.
        if seen.channels.rows > 0 && (0..stream.width()).all(|column| seen.channels.usable(column) == 0) {
            found.push(Finding::warning(&codes::NOT_FINITE, "expected points, all of them are NaN"));
        }
    } else if stream.dtype.is_some_and(DType::is_float) {
        found.extend(constant(stream, &seen.channels));
        found.extend(saturated(stream, &seen.channels));
    }
    let most_off = match stream.dtype {
        Some(DType::F16 | DType::BF16) => OFF_SPHERE_16_BITS,
        _ => OFF_SPHERE,
    };
    for (start, quaternion) in starts(stream).zip(&seen.quaternions) {
        let at = |place: Place| {
            let component = of_component(stream, start);
            format!("in sample {}{component} of episode {}", place.sample, place.episode)
        };
        if let Some(place) = quaternion.off_at.filter(|_| quaternion.off > most_off) {
            let text = format!("expected quaternions of length 1, off by up to {:.3e} {}", quaternion.off, at(place));
            found.push(Finding::warning(&codes::QUATERNION_NORM, text).episode(place.episode));
        }
        if let Some(place) = quaternion.flip_at {
            let text = format!("expected neighbours of one sign, {} flip; first {}", quaternion.flips, at(place));
            found.push(Finding::warning(&codes::QUATERNION_FLIP, text).episode(place.episode));
        }
    }
    found.into_iter().map(|finding| finding.stream(&stream.name)).collect()
}

fn constant(stream: &StreamInfo, channels: &Channels) -> Option<Finding> {
    let width = stream.width();
    let still = |&column: &usize| channels.usable(column) > 1 && channels.min[column] == channels.max[column];
    let still: Vec<usize> = (0..width).filter(still).collect();
    let listed = still.iter().map(|&column| format!("{}{}", equals(stream, column), shown(channels.min[column])));
    let listed = list(listed, still.len())?;
    let text = format!("expected values that change, {} of {width} never do: {listed}", still.len());
    Some(Finding::warning(&codes::CONSTANT, text))
}

fn saturated(stream: &StreamInfo, channels: &Channels) -> Option<Finding> {
    let smooth: Vec<&Span> = stream.method.iter().filter(|span| span.method == Interpolation::Linear).collect();
    let mut shown_ends = Vec::new();
    // What holds its value between samples, such as a gripper, is at its ends most of the time.
    for column in smooth.iter().flat_map(|span| span.start..span.end.min(channels.min.len())) {
        let usable = channels.usable(column);
        let (low, high) = (channels.at_min[column], channels.at_max[column]);
        // Two values only: a switch.
        let is_switch = low + high >= usable;
        if usable < SATURATED_SAMPLES || is_switch {
            continue;
        }
        for (count, end) in [(low, channels.min[column]), (high, channels.max[column])] {
            let share = count as f64 / usable as f64;
            if share > SATURATED_SHARE {
                shown_ends.push(format!("{}{} in {:.1} %", equals(stream, column), shown(end), share * 100.0));
            }
        }
    }
    let count = shown_ends.len();
    let listed = list(shown_ends.into_iter(), count)?;
    let text = format!(
        "expected the ends of a range in few samples, got more than {} % at: {listed}",
        SATURATED_SHARE * 100.0
    );
    Some(Finding::new(Level::Note, &codes::SATURATED, text))
}

/// The first columns of quaternions.
fn starts(stream: &StreamInfo) -> impl Iterator<Item = usize> {
    let slerp = stream.method.iter().filter(|span| span.method == Interpolation::Slerp);
    slerp.flat_map(|span| (span.start..span.end).step_by(4).filter(move |start| start + 4 <= span.end))
}

/// A component by its name, else by its number; none for the only one.
pub(crate) fn component(stream: &StreamInfo, column: usize) -> Option<String> {
    match stream.names.as_ref().and_then(|names| names.get(column)) {
        _ if stream.width() == 1 => None,
        Some(name) => Some(name.clone()),
        None => Some(format!("component {column}")),
    }
}

fn of_component(stream: &StreamInfo, column: usize) -> String {
    component(stream, column).map(|name| format!(", {name}")).unwrap_or_default()
}

fn equals(stream: &StreamInfo, column: usize) -> String {
    component(stream, column).map(|name| format!("{name} = ")).unwrap_or_default()
}

/// A number as people would write it: most streams hold 32 bits, which have fewer digits.
pub(crate) fn shown(number: f64) -> String {
    let (near, size) = (number as f32, number.abs());
    let is_long = number.is_finite() && size != 0.0 && !(1e-5..1e16).contains(&size);
    match (f64::from(near) == number, is_long) {
        (true, false) => near.to_string(),
        (true, true) => format!("{near:e}"),
        (false, false) => number.to_string(),
        (false, true) => format!("{number:e}"),
    }
}

/// Some of many; `None` of none.
fn list(all: impl Iterator<Item = String>, count: usize) -> Option<String> {
    let shown: Vec<String> = all.take(NAMED).collect();
    let more = count - shown.len().min(count);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| shown.join(", ") + &more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    fn stream(names: &[&str], spans: &[(Interpolation, usize, usize)]) -> StreamInfo {
        StreamInfo {
            name: "state".to_owned(),
            kind: Kind::Vector,
            dtype: Some(DType::F32),
            shape: vec![names.len()],
            names: Some(names.iter().map(|&name| name.to_owned()).collect()),
            rate: None,
            method: spans.iter().map(|&(method, start, end)| Span { method, start, end }).collect(),
        }
    }

    fn check(stream: &StreamInfo, episodes: &[Vec<f32>]) -> Vec<Finding> {
        let mut all: Option<Seen> = None;
        let mut found = Vec::new();
        for (episode, values) in episodes.iter().enumerate() {
            let rows = values.len() / stream.width();
            let tensor = Tensor::from_slice(values, &[rows, stream.width()]).unwrap();
            let part = Part { episode: episode as u64, rows: 0..rows };
            for look in look(stream, &tensor, &[part]).unwrap() {
                assert_eq!(errors(stream, &tensor, episode as u64).unwrap(), look.findings);
                found.extend(look.findings);
                match &mut all {
                    Some(all) => all.merge(&look.seen),
                    None => all = Some(look.seen),
                }
            }
        }
        found.extend(over_all(stream, &all.unwrap()));
        found
    }

    #[test]
    fn numbers_are_shown_as_they_are() {
        let texts = [0.0, 90.0, 0.1, f64::from(0.1f32), -2.5, 16_777_217.0, 1_700_000_000.125].map(shown);
        assert_eq!(texts, ["0", "90", "0.1", "0.1", "-2.5", "16777217", "1700000000.125"]);
        let texts = [1e300, -1e300, 1e-300, f64::from(1e30f32), f64::INFINITY, f64::NAN].map(shown);
        assert_eq!(texts, ["1e300", "-1e300", "1e-300", "1e30", "inf", "NaN"]);
    }

    #[test]
    fn still_and_clipped_components_are_named() {
        let stream =
            stream(&["a", "b", "c", "grip"], &[(Interpolation::Linear, 0, 3), (Interpolation::Previous, 3, 4)]);
        let row = |n: usize| [n as f32, 0.5, (n as f32).min(90.0), (n % 3) as f32];
        let found = check(&stream, &[(0..50).flat_map(row).collect(), (50..100).flat_map(row).collect()]);
        let texts: Vec<_> = found.iter().map(|finding| (finding.code, finding.message.as_str())).collect();
        assert_eq!(
            texts,
            [
                ("constant", "expected values that change, 1 of 4 never do: b = 0.5"),
                ("saturated", "expected the ends of a range in few samples, got more than 5 % at: c = 90 in 10.0 %"),
            ]
        );
        // Still in each episode, but not in all.
        let row = |n: usize| [n as f32, (n / 50) as f32, n as f32, 1.0];
        let found = check(&stream, &[(0..50).flat_map(row).collect(), (50..100).flat_map(row).collect()]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.ends_with("grip = 1"), "{found:?}");
    }

    #[test]
    fn what_is_not_finite_is_told_per_episode() {
        let stream = stream(&["a", "b"], &[(Interpolation::Linear, 0, 2)]);
        let found = check(&stream, &[vec![1.0, 2.0, 3.0, 1.0], vec![0.0, 1.0, 2.0, f32::NAN, f32::INFINITY, 2.0]]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].code, found[0].level, found[0].episode), ("not_finite", Level::Error, Some(1)));
        assert_eq!(found[0].message, "expected finite numbers, got 1 NaN and 1 infinite; first in sample 1, b");
    }

    #[test]
    fn quaternions_are_on_the_sphere() {
        let stream =
            stream(&["x", "qx", "qy", "qz", "qw"], &[(Interpolation::Linear, 0, 1), (Interpolation::Slerp, 1, 5)]);
        let turn = |n: usize, scale: f32| {
            let angle = n as f32 * 0.01;
            [n as f32, angle.sin() * scale, 0.1 * n as f32 * 0.0, 0.0, angle.cos() * scale]
        };
        let codes = |found: &[Finding]| found.iter().map(|finding| (finding.code, finding.level)).collect::<Vec<_>>();
        let of = |scale: &dyn Fn(usize) -> f32| check(&stream, &[(0..40).flat_map(|n| turn(n, scale(n))).collect()]);
        let still = ("constant", Level::Warning);
        assert_eq!(codes(&of(&|_| 1.0)), [still]);
        assert_eq!(codes(&of(&|n| if n == 7 { 1.01 } else { 1.0 })), [still, ("quaternion_norm", Level::Warning)]);
        assert_eq!(codes(&of(&|n| if n > 7 { -1.0 } else { 1.0 })), [still, ("quaternion_flip", Level::Warning)]);
        let zero = of(&|n| if n == 7 { 0.0 } else { 1.0 });
        assert_eq!(codes(&zero), [("quaternion_norm", Level::Error), still]);
        assert_eq!(zero[0].message, "expected quaternions of length 1, 1 are 0; first in sample 7, qx");
    }
}
