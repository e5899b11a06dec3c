//! What the index of a video says, against what the dataset says. Nothing is decoded.

use super::codes;
use crate::findings::Finding;
use crate::video::VideoFile;

/// Frames whose distance differs from the usual one by more than this part of it are uneven; a
/// container that counts milliseconds rounds by 3 % at 30 per second.
const UNEVEN: f64 = 0.1;
/// A rate that is off by more than this part, and by more than half a frame at the end, is another.
const RATE: f64 = 1e-3;

/// What a dataset says of a video.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared<'a> {
    pub(crate) codec: Option<&'a str>,
    /// `[height, width, channels]`.
    pub(crate) shape: &'a [usize],
    pub(crate) rate: f64,
}

/// Looks at a whole file. `samples` is how many the dataset has for it.
pub(crate) fn check_file(video: &VideoFile, declared: Declared<'_>, samples: u64) -> Vec<Finding> {
    let mut found = Vec::new();
    let codec = declared.codec.filter(|codec| !same_codec(codec, video.codec()));
    if let Some(codec) = codec {
        let text = format!("expected {codec} as declared, the file holds {}", video.codec());
        found.push(Finding::warning(&codes::CODEC_DIFFERS, text));
    }
    if let &[height, width, _] = declared.shape
        && [height, width] != [video.height(), video.width()]
    {
        let text =
            format!("expected {width} x {height} as declared, the video is {} x {}", video.width(), video.height());
        found.push(Finding::warning(&codes::SHAPE_DIFFERS, text));
    }
    if let Some(reason) = video.short() {
        let frame = video.first_missing().map(|frame| format!("; frame {frame} is the first without data"));
        let text = format!("expected what the index says, {reason}{}", frame.unwrap_or_default());
        found.push(Finding::error(&codes::VIDEO_SHORT, text));
    }
    let frames = video.frames() as u64;
    let text = || format!("expected {samples} frames, one per sample, the video has {frames}");
    if frames < samples {
        found.push(Finding::error(&codes::VIDEO_SHORT, text()));
    } else if frames > samples {
        found.push(Finding::note(&codes::VIDEO_LONG, text()));
    }
    found.extend(spacing(video.times(), declared.rate).map(|text| Finding::warning(&codes::VIDEO_RATE, text)));
    found
}

/// What is wrong with the distances between frames.
fn spacing(times: &[i64], rate: f64) -> Option<String> {
    let steps = || times.windows(2).filter_map(|pair| Some((pair.get(1)?.checked_sub(*pair.first()?)?) as f64));
    let mut sorted: Vec<f64> = steps().collect();
    let middle = sorted.len() / 2;
    let usual = if sorted.is_empty() { return None } else { *sorted.select_nth_unstable_by(middle, f64::total_cmp).1 };
    let is_uneven = |step: f64| (step - usual).abs() > usual * UNEVEN;
    let uneven = steps().filter(|&step| is_uneven(step)).count();
    if let Some(first) = steps().position(is_uneven) {
        let step = steps().nth(first).unwrap_or_default();
        return Some(format!(
            "expected frames {:.3} ms apart, {uneven} of {} steps differ; first after frame {first}: {:.3} ms",
            usual * 1e-6,
            sorted.len(),
            step * 1e-6
        ));
    }
    // The mean, which rounding to the container's units does not change.
    let whole: f64 = steps().sum();
    let found = sorted.len() as f64 * 1e9 / whole;
    let off = (found / rate - 1.0).abs();
    let is_other = off > RATE && off * times.len() as f64 > 0.5;
    is_other.then(|| format!("expected {rate} frames per second, the video has {found:.3}"))
}

/// Samples without a frame within half a period, where there are some. An episode starts at
/// `start` in the video.
pub(crate) fn check_frames(video: &VideoFile, times: &[i64], start: i64, period: f64) -> Option<Finding> {
    // As the reader decides it.
    let half = (period / 2.0) as u64 + 1;
    let wanted = |&time: &i64| start.saturating_add(time);
    let is_missing = |time: &i64| video.nearest(wanted(time)).1.unsigned_abs() > half;
    let missing = times.iter().filter(|time| is_missing(time)).count();
    let first = times.iter().position(is_missing)?;
    let time = times.get(first).map(wanted).unwrap_or_default();
    let text = format!(
        "expected a frame within {:.1} ms of each of {} samples, {missing} have none; the first is sample {first} at \
         {:.3} s of the video, whose nearest frame is {:.1} ms away",
        half as f64 * 1e-6,
        times.len(),
        time as f64 * 1e-9,
        video.nearest(time).1 as f64 * 1e-6
    );
    Some(Finding::error(&codes::VIDEO_NO_FRAME, text))
}

/// Whether a label stands for a codec, by any of the names that encoders, decoders and containers use.
fn same_codec(label: &str, codec: &str) -> bool {
    let label = label.to_lowercase();
    let known: &[(&str, &[&str])] = &[
        ("av1", &["av1", "av01", "dav1d", "aom"]),
        ("h264", &["264", "avc"]),
        ("hevc", &["hevc", "265", "hev1", "hvc1"]),
        ("mpeg4", &["mpeg4", "mp4v", "xvid"]),
        ("vp9", &["vp9", "vp09", "vpx-vp9"]),
    ];
    match known.iter().find(|(name, _)| *name == codec) {
        Some((_, parts)) => parts.iter().any(|part| label.contains(part)),
        None => label == codec,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_have_many_names() {
        for (label, codec) in [
            ("av1", "av1"),
            ("libdav1d", "av1"),
            ("libsvtav1", "av1"),
            ("avc1", "h264"),
            ("libx264", "h264"),
            ("H.264", "h264"),
            ("h265", "hevc"),
            ("mp4v", "mpeg4"),
            ("mjpeg", "mjpeg"),
        ] {
            assert!(same_codec(label, codec), "{label} {codec}");
        }
        assert!(!same_codec("h264", "mpeg4") && !same_codec("av1", "h264") && !same_codec("vp9", "vp8"));
    }

    #[test]
    fn spacing_is_even_and_of_the_rate() {
        let at = |count: i64, step: i64| (0..count).map(|n| n * step).collect::<Vec<i64>>();
        assert_eq!(spacing(&at(100, 33_333_333), 30.0), None);
        assert_eq!(spacing(&[0], 30.0), None);
        // As milliseconds.
        assert_eq!(spacing(&[0, 33_000_000, 67_000_000, 100_000_000], 30.0), None);
        assert!(spacing(&at(100, 40_000_000), 30.0).unwrap().contains("the video has 25.000"));
        let mut late = at(10, 33_333_333);
        late[4] += 10_000_000;
        let text = spacing(&late, 30.0).unwrap();
        assert_eq!(text, "expected frames 33.333 ms apart, 2 of 9 steps differ; first after frame 3: 43.333 ms");
    }
}
