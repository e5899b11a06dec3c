//! The samples of an episode.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, StructArray};
use arrow_schema::DataType;
use robocache::{DType, Error, ErrorKind, Result};

use super::LeRobot;
use super::episodes::{has, integers, seconds, strings};
use super::info::Version;
use crate::frames::{DepthCode, Frames};
use crate::limits::corrupt;
use crate::model::{Kind, Samples, StreamInfo, Values};
use crate::parquet::ParquetFile;
use crate::video::VideoFile;

/// An episode's rows in its file.
pub(super) struct Rows<'a> {
    pub(super) path: &'a Path,
    pub(super) table: &'a ParquetFile,
    pub(super) range: Range<u64>,
}

impl LeRobot {
    pub(super) fn read_streams(&self, at: usize, streams: &[usize]) -> Result<Vec<Samples>> {
        let path = self.table_path(at)?;
        let table = self.table(at)?;
        let rows = Rows { path: &path, table: &table, range: self.rows(at, &path, &table)? };
        self.ensure_rows_are_the_episodes(at, &rows)?;
        let times: Arc<[i64]> = self.times(&rows)?.into();
        let read = |&stream: &usize| {
            let info = self.streams.get(stream).ok_or_else(|| Error::invalid("streams", "no such stream"))?;
            let values = self.values(at, info, &rows, &times).map_err(|error| error.argument(info.name.clone()))?;
            Ok(Samples { times: Arc::clone(&times), values })
        };
        streams.iter().map(read).collect()
    }

    /// Where an episode's rows are in its file.
    fn rows(&self, at: usize, path: &Path, table: &ParquetFile) -> Result<Range<u64>> {
        let length = self.episodes.length.get(at).copied().unwrap_or(0);
        let first = self.episodes.first_row.get(at).copied().unwrap_or(0);
        let end = first.saturating_add(length);
        if let Some((from, to)) = self.episodes.range.get(at)
            && to - from != length
        {
            let text =
                format!("the metadata gives the episode {length} samples and {} rows, {from} to {to}", to - from);
            return Err(corrupt(path, text));
        }
        let differs = match self.info.version {
            // Other episodes may follow in the same file.
            Version::V30 => end > table.rows(),
            _ => length != table.rows(),
        };
        if differs {
            let text = match self.info.version {
                Version::V30 => {
                    format!("expected rows {first} to {end} for this episode, the file has {}", table.rows())
                }
                _ => format!("expected {length} rows as the metadata says, the file has {}", table.rows()),
            };
            return Err(corrupt(path, text));
        }
        Ok(first..end)
    }

    /// Metadata that is off by a row would give the samples of another episode.
    fn ensure_rows_are_the_episodes(&self, at: usize, rows: &Rows<'_>) -> Result<()> {
        const COLUMN: &str = "episode_index";
        if !has(rows.table, COLUMN) {
            return Ok(());
        }
        let expected = self.episodes.index.get(at).copied().unwrap_or(0);
        let found = integers(rows.path, rows.table, COLUMN, rows.range.clone())?;
        match found.iter().position(|&found| u64::try_from(found) != Ok(expected)) {
            None => Ok(()),
            Some(place) => {
                let row = rows.range.start + place as u64;
                let other = found.get(place).copied().unwrap_or_default();
                Err(corrupt(rows.path, format!("row {row} belongs to episode {other}, the metadata says {expected}")))
            }
        }
    }

    /// The stamps, by the rule of [`stamps`].
    fn times(&self, rows: &Rows<'_>) -> Result<Vec<i64>> {
        let range = rows.range.clone();
        let count = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
        if has(rows.table, "frame_index") {
            let frames = integers(rows.path, rows.table, "frame_index", range)?;
            return stamps(Some(&frames), None, count, self.info.fps).map_err(|row| {
                let frame = frames.get(row).copied().unwrap_or_default();
                corrupt(rows.path, format!("\"frame_index\" is {frame} in row {row} of the episode: {OUT_OF_TIME}"))
            });
        }
        let recorded = recorded(rows)?;
        let times = stamps(None, recorded.as_deref(), count, self.info.fps);
        times.map_err(|bad| bad_stamp(rows, recorded.as_deref(), bad))
    }

    /// The stamps as the file has them, whatever the numbers of the frames say.
    pub(super) fn read_recorded_times(&self, at: usize) -> Result<Option<Vec<i64>>> {
        let path = self.table_path(at)?;
        let table = self.table(at)?;
        let rows = Rows { path: &path, table: &table, range: self.rows(at, &path, &table)? };
        let Some(seconds) = recorded(&rows)? else { return Ok(None) };
        let times = stamps(None, Some(&seconds), seconds.len(), self.info.fps);
        times.map(Some).map_err(|bad| bad_stamp(&rows, Some(&seconds), bad))
    }

    fn values(&self, at: usize, stream: &StreamInfo, rows: &Rows<'_>, times: &[i64]) -> Result<Values> {
        match stream.kind {
            Kind::Scalar | Kind::Vector | Kind::PointCloud => self.numbers(stream, rows),
            Kind::Video => self.video_frames(at, stream, times, None),
            Kind::Image => self.images(stream, rows),
            // Distances are a video of codes, or pictures of 16 bits in the table.
            Kind::Depth => match self.info.features.iter().find(|feature| feature.name == stream.name) {
                Some(feature) if feature.dtype == "video" => self.video_frames(at, stream, times, feature.depth),
                _ => self.images(stream, rows),
            },
            Kind::Text => {
                let column = column(rows, &stream.name)?;
                let texts = strings(&column).ok_or_else(|| {
                    let text = format!("columns of {} are not read", column.data_type());
                    Error::new(ErrorKind::Unsupported, text).path(rows.path)
                })?;
                Ok(Values::Text(texts.map(str::to_owned).collect()))
            }
        }
    }

    fn numbers(&self, stream: &StreamInfo, rows: &Rows<'_>) -> Result<Values> {
        if !has(rows.table, &stream.name) {
            return Err(corrupt(rows.path, "the column is missing"));
        }
        let found = rows.table.number_type(&stream.name);
        if stream.dtype != found {
            let found = found.map_or("no numbers", |dtype| dtype.name());
            let expected = stream.dtype.map_or("numbers", |dtype| dtype.name());
            return Err(corrupt(rows.path, format!("expected {expected} as in other files, the file holds {found}")));
        }
        rows.table
            .numbers(&stream.name, rows.range.clone(), &stream.shape)
            .map(|tensor| Values::Numbers(Arc::new(tensor)))
    }

    fn images(&self, stream: &StreamInfo, rows: &Rows<'_>) -> Result<Values> {
        let column = column(rows, &stream.name)?;
        let &[height, width, channels] = stream.shape.as_slice() else {
            return Err(corrupt(
                &self.root.info(),
                format!("expected [height, width, channels], got {:?}", stream.shape),
            ));
        };
        let bytes = match column.data_type() {
            DataType::Binary => column.as_binary::<i32>().clone(),
            DataType::Struct(_) => self.picture_bytes(rows, column.as_struct())?,
            other => return Err(corrupt(rows.path, format!("expected pictures, the column holds {other}"))),
        };
        let dtype = stream.dtype.unwrap_or(DType::U8);
        Ok(Values::Frames(Box::new(Frames::encoded(
            rows.path,
            bytes,
            [height, width, channels],
            dtype,
            &self.root.limits,
        ))))
    }

    /// The bytes of pictures that are in the table, or in files that it names.
    fn picture_bytes(&self, rows: &Rows<'_>, pictures: &StructArray) -> Result<BinaryArray> {
        let bytes = pictures.column_by_name("bytes").filter(|bytes| bytes.data_type() == &DataType::Binary);
        let bytes = bytes.map(|bytes| bytes.as_binary::<i32>());
        if let Some(bytes) = bytes.filter(|bytes| bytes.null_count() == 0) {
            return Ok(bytes.clone());
        }
        let paths = pictures.column_by_name("path").and_then(strings).map(|paths| paths.collect::<Vec<_>>());
        let mut all = Vec::new();
        let mut total = 0u64;
        for row in 0..pictures.len() {
            if let Some(bytes) = bytes.filter(|bytes| !bytes.is_null(row)) {
                all.push(bytes.value(row).to_vec());
                continue;
            }
            let path = paths.as_ref().and_then(|paths| paths.get(row)).filter(|path| !path.is_empty());
            let path = path.ok_or_else(|| corrupt(rows.path, format!("row {row} has neither bytes nor a path")))?;
            let bytes = self.root.read(&self.root.join(path)?)?;
            total = total.saturating_add(bytes.len() as u64);
            if total > self.root.limits.max_alloc {
                return Err(crate::limits::exceeds(rows.path, "the pictures of one episode exceed max_alloc"));
            }
            all.push(bytes);
        }
        Ok(BinaryArray::from_iter_values(all))
    }

    fn video_frames(&self, at: usize, stream: &StreamInfo, times: &[i64], depth: Option<DepthCode>) -> Result<Values> {
        let (path, start) = self.video_path(at, &stream.name)?;
        let video = self.video(&path)?;
        let start = nanoseconds(start).ok_or_else(|| corrupt(&path, format!("the episode starts at {start} s")))?;
        let start = start.saturating_sub(self.shift(&video, times));
        let frames = find_frames(&video, times, start, self.info.fps).map_err(|error| error.path(&path))?;
        Ok(Values::Frames(Box::new(Frames::video(video, frames, depth, &self.root.limits))))
    }

    /// Version 2: some writers count an episode's stamps from one period on, its video from 0. Where
    /// the stamps reach past the video and fit it from their first one on, they are meant so.
    pub(super) fn shift(&self, video: &VideoFile, times: &[i64]) -> i64 {
        let (Some(&first), Some(&last), Some(&end)) = (times.first(), times.last(), video.times().last()) else {
            return 0;
        };
        let half = half_period(self.info.fps);
        let past_the_end = last > end.saturating_add(half);
        let fits = last.saturating_sub(first) <= end.saturating_add(half);
        if self.info.version != Version::V30 && past_the_end && fits { first } else { 0 }
    }
}

/// The frame nearest to each stamp; one that is further than half a period is missing.
fn find_frames(video: &VideoFile, times: &[i64], start: i64, fps: f64) -> Result<Vec<usize>> {
    let half = half_period(fps) + 1;
    let find = |(sample, &time): (usize, &i64)| {
        let wanted = start.saturating_add(time);
        let (frame, off) = video.nearest(wanted);
        if off.unsigned_abs() <= half.unsigned_abs() {
            return Ok(frame);
        }
        let text = format!(
            "no frame for sample {sample} at {:.3} s: the nearest of {} is {:.3} s away",
            wanted as f64 * 1e-9,
            video.frames(),
            off as f64 * 1e-9
        );
        Err(Error::new(ErrorKind::CorruptData, text))
    };
    times.iter().enumerate().map(find).collect()
}

fn column(rows: &Rows<'_>, name: &str) -> Result<ArrayRef> {
    let arrays = rows.table.read(&[name], rows.range.clone())?;
    arrays.into_iter().next().ok_or_else(|| corrupt(rows.path, "the column is missing"))
}

/// The seconds that a file has for each row, where it has them.
fn recorded(rows: &Rows<'_>) -> Result<Option<Vec<f64>>> {
    let read = || seconds(rows.path, rows.table, "timestamp", rows.range.clone());
    has(rows.table, "timestamp").then(read).transpose()
}

fn bad_stamp(rows: &Rows<'_>, seconds: Option<&[f64]>, row: usize) -> Error {
    let second = seconds.and_then(|seconds| seconds.get(row)).copied().unwrap_or(f64::NAN);
    corrupt(rows.path, format!("\"timestamp\" is {second} in row {row} of the episode"))
}

/// Why a number of a frame is no time.
pub(super) const OUT_OF_TIME: &str = "its time is further from 0 than 146 years, 2^62 ns";
/// Times are nearer to 0, so that 64 bits also hold the time between any two.
const FARTHEST: u64 = 1 << 62;

/// The stamps of some rows in nanoseconds: the number of the frame over the rate, else what the
/// file has, else even steps. A second or a frame that is no time is an error, with its row.
pub(super) fn stamps(
    frames: Option<&[i64]>,
    seconds: Option<&[f64]>,
    count: usize,
    fps: f64,
) -> std::result::Result<Vec<i64>, usize> {
    match (frames, seconds) {
        (Some(frames), _) => {
            let time = frame_times(fps);
            frames.iter().enumerate().map(|(row, &frame)| time(frame).ok_or(row)).collect()
        }
        (None, Some(seconds)) => {
            let time = |(row, &second): (usize, &f64)| nanoseconds(second).ok_or(row);
            seconds.iter().enumerate().map(time).collect()
        }
        (None, None) => {
            let time = frame_times(fps);
            (0..).take(count).enumerate().map(|(row, frame)| time(frame).ok_or(row)).collect()
        }
    }
}

fn half_period(fps: f64) -> i64 {
    frame_time(1, fps).unwrap_or(i64::MAX) / 2
}

/// When a frame is taken, in nanoseconds; `None` where that is too far from 0.
pub(super) fn frame_time(frame: i64, fps: f64) -> Option<i64> {
    let whole = fps as i64;
    if whole as f64 == fps && whole > 0 {
        // Exact, to the nearest; in 64 bits where they hold it, which is several times faster.
        const SMALL: i64 = 1 << 31;
        if (0..SMALL).contains(&frame) && whole < SMALL {
            return Some((frame * 2_000_000_000 + whole) / (whole * 2));
        }
        let doubled = i128::from(frame) * 2_000_000_000 + i128::from(whole);
        let time = i64::try_from(doubled.div_euclid(i128::from(whole) * 2)).ok();
        return time.filter(|time| time.unsigned_abs() < FARTHEST);
    }
    whole_nanoseconds(frame as f64 * 1e9 / fps)
}

/// [`frame_time`] for many frames: at the usual rates without a division of integers, which takes longer than
/// to read the number.
pub(super) fn frame_times(fps: f64) -> impl Fn(i64) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    let whole = fps as i64;
    let is_usual = whole as f64 == fps && (1..1 << 10).contains(&whole);
    // What is left of a second that is cut into periods of whole nanoseconds.
    let (period, rest) = if is_usual { (SECOND / whole, SECOND % whole) } else { (0, 0) };
    move |frame| {
        if !is_usual || !(0..1 << 31).contains(&frame) {
            return frame_time(frame, fps);
        }
        // Below 2^31 and, but for rounding to 53 bits, a multiple of 1/2046: cutting off gives the same.
        let share = (frame * rest * 2 + whole) as f64 / (whole * 2) as f64;
        Some(frame * period + share as i64)
    }
}

/// Seconds as nanoseconds, where they are a time.
pub(super) fn nanoseconds(seconds: f64) -> Option<i64> {
    whole_nanoseconds(seconds * 1e9)
}

fn whole_nanoseconds(nanoseconds: f64) -> Option<i64> {
    (nanoseconds.abs() < FARTHEST as f64).then_some(nanoseconds.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_at_exact_times_and_stay_in_order() {
        let times = [0, 33_333_333, 66_666_667, 100_000_000];
        assert_eq!([0, 1, 2, 3].map(|frame| frame_time(frame, 30.0)), times.map(Some));
        assert_eq!(frame_time(-3, 30.0), Some(-100_000_000));
        // The last whole second, and the next.
        let last = 4_611_686_018 * 30;
        assert_eq!(
            [-last, last].map(|frame| frame_time(frame, 30.0)),
            [-1, 1].map(|sign| Some(sign * last / 30 * 1_000_000_000))
        );
        assert_eq!([-last - 30, last + 30].map(|frame| frame_time(frame, 30.0)), [None; 2]);
        assert_eq!([-4.7e9, 4.6e9].map(nanoseconds), [None, Some(4_600_000_000_000_000_000)]);
        for fps in [30.0, 29.97] {
            for frame in [i64::MIN, -300_000_000_000, 300_000_000_000, i64::MAX] {
                assert_eq!(frame_time(frame, fps), None, "{frame} at {fps}");
            }
        }
    }

    #[test]
    fn many_frames_are_at_the_times_of_each() {
        let rates = (1..=1100).map(f64::from).chain([29.97, 0.5, 1e-3, 1e10, f64::INFINITY]);
        let last = i64::from(u32::MAX >> 1);
        for fps in rates {
            let of_many = frame_times(fps);
            let frames = (0..300).chain((0..300).map(|at| at * at * 7919)).chain(last - 300..last + 3);
            for frame in frames.chain([-1, -30, i64::MIN, i64::MAX]) {
                assert_eq!(of_many(frame), frame_time(frame, fps), "{frame} at {fps}");
            }
        }
    }
}
