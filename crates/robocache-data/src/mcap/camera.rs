//! How cameras see and where they are: `CameraInfo` messages and transforms that never change.

use std::collections::BTreeMap;

use super::decoded::{Decoded, Field, slot};
use crate::model::{Camera, StreamInfo};

/// Changes of a camera or a transform that are kept; a calibration is not a signal.
const MOST: usize = 64;
/// Transforms between a camera and the frame that it is fixed to.
const MOST_LINKS: usize = 64;

/// Where the parts of a `CameraInfo` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CameraSlots {
    height: usize,
    width: usize,
    model: usize,
    distortion: usize,
    intrinsics: usize,
}

impl CameraSlots {
    pub(super) fn of(fields: &[Field]) -> Option<Self> {
        let find = |path: &str| slot(fields, path);
        Some(Self {
            height: find("height")?,
            width: find("width")?,
            model: find("distortion_model")?,
            distortion: find("d").or_else(|| find("D"))?,
            intrinsics: find("k").or_else(|| find("K"))?,
        })
    }
}

/// What a `CameraInfo` says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lens {
    size: [usize; 2],
    intrinsics: [f64; 9],
    model: String,
    distortion: Vec<f64>,
}

impl Lens {
    /// `None` where the message has no calibration.
    pub(super) fn read(slots: &CameraSlots, decoded: &Decoded, message: &[u8]) -> Option<Self> {
        let numbers = |slot: usize| -> Vec<f64> {
            decoded.numbers(slot).as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
        };
        let size = |slot: usize| decoded.u32(slot).map(|size| size as usize);
        let intrinsics: [f64; 9] = numbers(slots.intrinsics).try_into().ok()?;
        // An uncalibrated camera has 0 for its focal length.
        (intrinsics[0] != 0.0 && intrinsics.iter().all(|number| number.is_finite())).then_some(())?;
        let mut distortion = numbers(slots.distortion);
        distortion.truncate(MOST);
        if !distortion.iter().all(|number| number.is_finite()) {
            distortion.clear();
        }
        Some(Self {
            size: [size(slots.height)?, size(slots.width)?],
            intrinsics,
            model: decoded.text(slots.model, message).unwrap_or_default(),
            distortion,
        })
    }
}

/// Values that rarely change, each with the log time from which it holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Changes<T>(Vec<(i64, T)>);

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> Changes<T> {
    pub(super) fn add(&mut self, log: i64, value: T) {
        if self.0.len() < MOST && self.0.last().is_none_or(|(_, last)| *last != value) {
            self.0.push((log, value));
        }
    }

    pub(super) fn extend(&mut self, later: Self) {
        later.0.into_iter().for_each(|(log, value)| self.add(log, value));
    }

    /// What holds before a log time, else what came first.
    fn before(&self, end: i64) -> Option<&T> {
        let last = self.0.iter().filter(|(log, _)| *log < end).max_by_key(|(log, _)| *log);
        last.or_else(|| self.0.iter().min_by_key(|(log, _)| *log)).map(|(_, value)| value)
    }
}

/// A camera of a recording.
pub(super) struct Seen<'a> {
    /// Of its `CameraInfo`.
    pub(super) topic: &'a str,
    pub(super) frame: Option<&'a str>,
    pub(super) lenses: &'a Changes<Lens>,
}

/// Transforms from a frame to its parent, by the frame.
pub(super) type Links<'a> = BTreeMap<&'a str, (&'a str, &'a Changes<[f64; 7]>)>;

/// The cameras of an episode that ends at a log time, each with the stream of pictures beside its `CameraInfo`.
pub(super) fn cameras(streams: &[StreamInfo], seen: &[Seen<'_>], links: &Links<'_>, end: i64) -> Vec<Camera> {
    let mut cameras = Vec::new();
    for stream in streams.iter().filter(|stream| stream.kind.is_picture()) {
        // The longest name space that both are in.
        let space = |seen: &&Seen<'_>| {
            let space = seen.topic.rsplit_once('/').map_or("", |(space, _)| space);
            stream.name.strip_prefix(space).filter(|rest| rest.starts_with('/')).map(|_| space.len())
        };
        let found = seen.iter().filter(|seen| space(seen).is_some_and(|length| length > 0)).max_by_key(space);
        let Some((seen, lens)) = found.and_then(|seen| Some((seen, seen.lenses.before(end)?))) else { continue };
        let extrinsics = seen.frame.and_then(|frame| chain(frame, links, end));
        cameras.push(Camera {
            stream: stream.name.clone(),
            size: lens.size,
            intrinsics: lens.intrinsics,
            distortion_model: lens.model.clone(),
            distortion: lens.distortion.clone(),
            frame: seen.frame.unwrap_or_default().to_owned(),
            base: extrinsics.as_ref().map(|(base, _)| base.clone()),
            extrinsics: extrinsics.map(|(_, matrix)| matrix),
        });
    }
    cameras
}

/// From a frame to the last one that fixed transforms lead to, and the transform as a matrix, row by row.
fn chain(frame: &str, links: &Links<'_>, end: i64) -> Option<(String, [f64; 16])> {
    let mut matrix = None;
    let mut frame = frame.trim_start_matches('/');
    for _ in 0..MOST_LINKS {
        let Some((parent, pose)) = links.get(frame).and_then(|(parent, poses)| Some((parent, poses.before(end)?)))
        else {
            break;
        };
        let step = to_matrix(pose)?;
        matrix = Some(matrix.map_or(step, |so_far| product(&step, &so_far)));
        frame = parent;
    }
    matrix.map(|matrix| (frame.to_owned(), matrix))
}

/// A translation and a quaternion as a matrix; `None` where the quaternion is none.
fn to_matrix(pose: &[f64; 7]) -> Option<[f64; 16]> {
    let [tx, ty, tz, x, y, z, w] = *pose;
    let length = (x * x + y * y + z * z + w * w).sqrt();
    (pose.iter().all(|number| number.is_finite()) && length > 0.0).then_some(())?;
    let [x, y, z, w] = [x, y, z, w].map(|part| part / length);
    Some([
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - z * w),
        2.0 * (x * z + y * w),
        tx,
        2.0 * (x * y + z * w),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - x * w),
        ty,
        2.0 * (x * z - y * w),
        2.0 * (y * z + x * w),
        1.0 - 2.0 * (x * x + y * y),
        tz,
        0.0,
        0.0,
        0.0,
        1.0,
    ])
}

fn product(a: &[f64; 16], b: &[f64; 16]) -> [f64; 16] {
    std::array::from_fn(|at| (0..4).map(|k| a[at / 4 * 4 + k] * b[k * 4 + at % 4]).sum())
}
