//! Decoding by the `ffmpeg` program. Every frame that comes is matched with the index by its
//! timestamp, which the program's `showinfo` filter prints for each frame that it lets out.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use robocache::{Context, Error, ErrorKind, Result};

use super::child::Child;
use super::ffmpeg::Ffmpeg;
use super::plan::{Segment, segments};
use super::report::{Printed, Report};
use super::{Levels, PixelFormat, Pixels, VideoFile, Wish};
use crate::files::is_lasting;
use crate::limits::{corrupt, exceeds, file_error};

/// How often a caller that waits is asked whether to go on.
const POLL: Duration = Duration::from_millis(100);

/// How long a program that has closed its output may take to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Threads of one decoder: more of them wait for each other more than they help.
const MAX_THREADS: usize = 4;

type Sink<'a> = dyn FnMut(usize, Pixels<'_>) -> Result<()> + 'a;

impl Wish {
    /// A format, by a decoder that has the machine to itself.
    pub(crate) fn alone(format: PixelFormat) -> Self {
        Self { format, threads: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

impl VideoFile {
    /// [`VideoFile::decode`] by a given program.
    pub(super) fn decode_with(
        &self,
        ffmpeg: &Ffmpeg,
        frames: &[usize],
        wish: Wish,
        context: &Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let (mut done, mut refused) = (0, false);
        let mut watching = |frame: usize, pixels: Pixels<'_>| {
            sink(frame, pixels).inspect_err(|_| refused = true)?;
            done += 1;
            Ok(())
        };
        let outcome = self.decode_once(ffmpeg, frames, wish, context, &mut watching);
        let blames_the_file =
            |error: &Error| matches!(error.kind(), ErrorKind::CorruptData | ErrorKind::FileError) && is_lasting(error);
        if refused || !outcome.as_ref().is_err_and(blames_the_file) {
            return outcome;
        }
        // The program calls a file damaged of which the system gave it too little, too. The file is to blame only
        // if it can be read and fails again.
        self.ensure_readable()?;
        match self.decode_once(ffmpeg, frames.get(done..).unwrap_or_default(), wish, context, sink) {
            Err(error) if blames_the_file(&error) => outcome,
            again => again,
        }
    }

    fn decode_once(
        &self,
        ffmpeg: &Ffmpeg,
        frames: &[usize],
        wish: Wish,
        context: &Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut done = 0;
        let mut counting = |frame: usize, pixels: Pixels<'_>| {
            sink(frame, pixels)?;
            done += 1;
            Ok(())
        };
        let (outcome, has_planes) = self.decode_frames(ffmpeg, frames, wish, context, &mut counting);
        if has_planes {
            return outcome;
        }
        // What the program makes RGB of need not be what we know.
        let (rest, wish) = (frames.get(done..).unwrap_or_default(), Wish { format: PixelFormat::Rgb8, ..wish });
        self.decode_frames(ffmpeg, rest, wish, context, sink).0
    }

    /// Also whether all that came had the planes that were wanted.
    fn decode_frames(
        &self,
        ffmpeg: &Ffmpeg,
        frames: &[usize],
        wish: Wish,
        context: &Context<'_>,
        sink: &mut Sink<'_>,
    ) -> (Result<()>, bool) {
        let mut has_planes = true;
        let outcome = self.decode_segments(ffmpeg, frames, wish, context, sink, &mut has_planes);
        (outcome, has_planes)
    }

    fn decode_segments(
        &self,
        ffmpeg: &Ffmpeg,
        frames: &[usize],
        wish: Wish,
        context: &Context<'_>,
        sink: &mut Sink<'_>,
        has_planes: &mut bool,
    ) -> Result<()> {
        self.check_wanted(frames)?;
        self.check_unchanged()?;
        let mut buffer = self.frame_buffer(wish.format)?;
        for mut segment in segments(&self.samples, frames.iter().map(|frame| self.first + frame)) {
            let mut run = Run {
                video: self,
                wish,
                has_planes,
                context,
                frames,
                delivered: false,
                asked: Instant::now(),
                buffer: &mut buffer,
                sink,
            };
            let outcome = run.decode(ffmpeg, &segment);
            match outcome {
                // Streams without clean starts, or an old program's idea of where to seek to: from the
                // start of the file all frames can be had.
                Err(error) if error.kind() == ErrorKind::CorruptData && segment.start > 0 && !run.delivered => {
                    segment.start = 0;
                    run.decode(ffmpeg, &segment)?;
                }
                outcome => outcome?,
            }
        }
        // What was decoded may be of a file that was put in place of this one meanwhile.
        self.check_unchanged()
    }

    fn check_wanted(&self, frames: &[usize]) -> Result<()> {
        if let Some(pair) = frames.windows(2).find(|pair| pair.first() >= pair.last()) {
            return Err(Error::invalid("frames", format!("indices must ascend, but {pair:?} do not")).path(&self.path));
        }
        for &frame in frames {
            match self.shown_samples().get(frame) {
                None => {
                    let text = format!("frame {frame} of a video of {} frames", self.frames());
                    return Err(Error::invalid("frames", text).path(&self.path));
                }
                Some(sample) if !sample.whole => {
                    let place = self.place(self.first + frame);
                    return Err(corrupt(
                        &self.path,
                        format!("{place} lies past the end of the file, which is cut short"),
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn frame_buffer(&self, format: PixelFormat) -> Result<Vec<u8>> {
        let size = format.bytes(self.width, self.height);
        if size > self.limits.max_alloc {
            let text = format!("a decoded frame has {size} bytes, more than max_alloc = {}", self.limits.max_alloc);
            return Err(exceeds(&self.path, text));
        }
        let size = usize::try_from(size).map_err(|_| exceeds(&self.path, "a frame is larger than memory"))?;
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(size).map_err(|error| {
            Error::new(ErrorKind::OutOfMemory, format!("{size} bytes for a frame")).caused_by(error).path(&self.path)
        })?;
        buffer.resize(size, 0);
        Ok(buffer)
    }

    /// A coded frame in words.
    fn place(&self, sample: usize) -> String {
        let time = self.samples.get(sample).map_or(0, |sample| sample.time);
        let seconds = time as f64 / f64::from(self.timescale);
        match sample.checked_sub(self.first).filter(|&frame| frame < self.frames()) {
            Some(frame) => format!("frame {frame} (stored at {seconds:.6} s)"),
            None => format!("the frame stored at {seconds:.6} s"),
        }
    }

    fn command(&self, ffmpeg: &Ffmpeg, segment: &Segment, wish: Wish) -> Command {
        let threads = wish.threads.clamp(1, MAX_THREADS);
        let mut command = Command::new(ffmpeg.program());
        // FFREPORT would make it write files.
        command.env_remove("FFREPORT").env("AV_LOG_FORCE_NOCOLOR", "1");
        command.args(["-nostdin", "-hide_banner", "-nostats", "-loglevel", "repeat+level+info"]);
        if self.short.is_none() {
            // A damaged frame ends the run instead of being patched up, also where the decoder's threads hide what
            // went wrong in one of them. Not where the end is known to be cut off: reading ahead meets it before
            // the last whole frames are out.
            command.args(["-xerror", "-err_detect", "explode"]);
        }
        command.args(["-protocol_whitelist", "file,pipe", "-f", "mov"]);
        // The index knows the edits; the program gives the track as it is stored, so both mean the same frame.
        command.args(["-ignore_editlist", "1", "-copyts", "-noautorotate"]);
        command.args([
            "-threads",
            &threads.to_string(),
            "-max_pixels",
            &self.limits.max_pixels.min(i32::MAX as u64).to_string(),
        ]);
        if let Some(micros) = segment.seek(&self.samples, self.timescale) {
            let seconds = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
            command.args(["-noaccurate_seek", "-seek_timestamp", "1", "-ss", &seconds]);
        }
        // Keeps names that start with "-" or look like an address from being taken for such.
        let mut input = OsString::from("file:");
        input.push(&self.path);
        command.arg("-i").arg(input);
        let select = segment.filter(&self.samples, self.timescale);
        let filter = match wish.format {
            PixelFormat::Rgb8 => format!("select='{select}',showinfo=checksum=0,format=rgb24"),
            PixelFormat::Gray16 => format!("select='{select}',extractplanes=y,showinfo=checksum=0"),
            // What is neither of them is printed, and then not taken.
            PixelFormat::Yuv420 => format!("select='{select}',showinfo=checksum=0,format=yuv420p|yuvj420p"),
        };
        command.args(["-map", &format!("0:i:{}", self.track), "-filter_threads", "1", "-vf", &filter]);
        command.args([ffmpeg.passthrough_option(), "passthrough", "-frames:v", &segment.len().to_string()]);
        command.args(["-f", "rawvideo", "pipe:1"]);
        command
    }
}

/// One run of the program.
struct Run<'a, 's> {
    video: &'a VideoFile,
    wish: Wish,
    /// Cleared at a frame that is coded otherwise than was wanted.
    has_planes: &'a mut bool,
    context: &'a Context<'a>,
    /// The frames that the caller wants.
    frames: &'a [usize],
    /// Whether the sink got one.
    delivered: bool,
    /// When the caller was last asked whether to go on.
    asked: Instant,
    buffer: &'a mut [u8],
    sink: &'a mut Sink<'s>,
}

impl Run<'_, '_> {
    fn decode(&mut self, ffmpeg: &Ffmpeg, segment: &Segment) -> Result<()> {
        let path = &self.video.path;
        let mut child = Child::spawn(&mut self.video.command(ffmpeg, segment, self.wish))
            .map_err(|error| cannot_start(ffmpeg, error))?;
        let mut report = Report::default();
        let mut printed = VecDeque::new();
        let mut before = segment.start;
        for frame in segment.frames() {
            let patience = self.patience(frame - before.min(frame));
            self.fill(&mut child, &mut report, &mut printed, patience)
                .map_err(|stop| stop.into_error(self.video, frame, &report))?;
            let Some(one) = printed.pop_front() else {
                return Err(corrupt(path, format!("ffmpeg gave {} without its time", self.video.place(frame))));
            };
            self.check(frame, &one)?;
            let levels = levels(&one);
            if self.wish.format == PixelFormat::Yuv420 && levels.is_none() {
                *self.has_planes = false;
                let text = format!("{} has no planes as JPEG has them", self.video.place(frame));
                return Err(Error::new(ErrorKind::Unsupported, text).path(path));
            }
            self.deliver(frame, levels)?;
            before = frame;
        }
        // All that was wanted came; what the program would still say about other frames does not matter.
        Ok(())
    }

    /// The time without output that is still no hang: frames that are decoded to get further count.
    fn patience(&self, skipped: usize) -> Duration {
        let stall = self.video.limits.max_stall;
        let more = (stall / 1000).checked_mul(u32::try_from(skipped).unwrap_or(u32::MAX));
        more.and_then(|more| stall.checked_add(more)).unwrap_or(Duration::MAX)
    }

    /// Reads the next frame and the line that was printed about it.
    fn fill(
        &mut self,
        child: &mut Child,
        report: &mut Report,
        printed: &mut VecDeque<Printed>,
        patience: Duration,
    ) -> std::result::Result<(), Stop> {
        let mut filled = 0;
        let mut last = Instant::now();
        let mut noise = [0; 16_384];
        // Its colours come a line after the frame.
        let with_colours = self.wish.format == PixelFormat::Yuv420;
        let is_told = |printed: &VecDeque<Printed>| {
            printed.front().is_some_and(|one| !with_colours || one.colours.is_some() || printed.len() > 1)
        };
        while filled < self.buffer.len() || !is_told(printed) {
            if self.asked.elapsed() >= POLL {
                self.asked = Instant::now();
                if self.context.interrupt.is_some_and(|interrupt| interrupt()) {
                    return Err(Stop::Interrupted);
                }
            }
            let wants_pixels = filled < self.buffer.len();
            // The line comes before the pixels, so where it is missing at the end it will not come.
            let ended = if wants_pixels { child.is_stdout_closed() } else { child.is_stderr_closed() };
            if ended && !wants_pixels && !printed.is_empty() {
                // An old program that does not tell of colours.
                return Ok(());
            }
            if ended {
                return Err(Stop::ended(child, report, printed));
            }
            let left = patience.saturating_sub(last.elapsed());
            if left.is_zero() {
                return Err(Stop::Stalled(patience));
            }
            let ready = child.wait_readable(wants_pixels, left.min(POLL)).map_err(Stop::Broken)?;
            if ready.stdout {
                let room = self.buffer.get_mut(filled..).unwrap_or_default();
                let count = child.read_stdout(room).map_err(Stop::Broken)?;
                filled += count;
                if count > 0 {
                    last = Instant::now();
                }
            }
            if ready.stderr {
                let count = child.read_stderr(&mut noise).map_err(Stop::Broken)?;
                report.add(noise.get(..count).unwrap_or_default(), printed);
            }
        }
        Ok(())
    }

    /// Proves that a frame is the one that is meant.
    fn check(&self, frame: usize, printed: &Printed) -> Result<()> {
        let (video, path) = (self.video, &self.video.path);
        let expected = video.samples.get(frame).map_or(0, |sample| sample.time);
        let place = || video.place(frame);
        let Some(pts) = printed.pts else {
            return Err(corrupt(path, format!("{} was decoded without a time", place())));
        };
        let (num, den) = printed.time_base;
        let same =
            i128::from(pts) * i128::from(num) * i128::from(video.timescale) == i128::from(expected) * i128::from(den);
        if !same {
            let came = pts as f64 * f64::from(num) / f64::from(den.max(1));
            let text = format!("{} did not come out of the decoder, which gave one of {came:.6} s instead", place());
            return Err(corrupt(path, text));
        }
        if printed.size != (u32::from(video.width), u32::from(video.height)) {
            let (width, height) = printed.size;
            let text = format!("{} is {width} x {height}, the file says {} x {}", place(), video.width, video.height);
            return Err(corrupt(path, text));
        }
        if self.wish.format == PixelFormat::Gray16 && !is_gray16(&printed.format) {
            let text = format!("depth of 9 to 16 bits expected, but the video's luma is {:?}", printed.format);
            return Err(Error::new(ErrorKind::Unsupported, text).path(path));
        }
        Ok(())
    }

    fn deliver(&mut self, sample: usize, levels: Option<Levels>) -> Result<()> {
        let Some(frame) = sample.checked_sub(self.video.first) else { return Ok(()) };
        if self.frames.binary_search(&frame).is_ok() {
            self.delivered = true;
            let pixels = match (self.wish.format, levels) {
                (PixelFormat::Yuv420, Some(levels)) => Pixels::Planes(self.buffer, levels),
                _ => Pixels::Packed(self.buffer),
            };
            (self.sink)(frame, pixels)?;
        }
        Ok(())
    }
}

/// A program that is gone is no fault of the video.
fn cannot_start(ffmpeg: &Ffmpeg, error: io::Error) -> Error {
    let text = format!("cannot start ffmpeg: {error}");
    let error = file_error(ffmpeg.program(), "cannot start ffmpeg", error);
    if is_lasting(&error) { Error::new(ErrorKind::Unsupported, text).path(ffmpeg.program()) } else { error }
}

/// The levels of a frame whose planes are those of JPEG, or differ from them by nothing else. What is not
/// said is what the program takes for granted where it makes RGB.
fn levels(printed: &Printed) -> Option<Levels> {
    let (range, matrix) = printed.colours.as_ref()?;
    if !matches!(matrix.as_str(), "unknown" | "bt470bg" | "smpte170m") {
        return None;
    }
    match (printed.format.as_str(), range.as_str()) {
        ("yuvj420p", _) | ("yuv420p", "pc") => Some(Levels::Full),
        ("yuv420p", "tv" | "unknown") => Some(Levels::Limited),
        _ => None,
    }
}

fn is_gray16(format: &str) -> bool {
    matches!(format, "gray9le" | "gray10le" | "gray12le" | "gray14le" | "gray16le")
}

/// Why a frame did not come.
enum Stop {
    Interrupted,
    Stalled(Duration),
    Broken(io::Error),
    Ended(Option<ExitStatus>),
}

impl Stop {
    /// Hears the program out and asks how it ended.
    fn ended(child: &mut Child, report: &mut Report, printed: &mut VecDeque<Printed>) -> Self {
        let start = Instant::now();
        let mut noise = [0; 16_384];
        while !child.is_stderr_closed() && start.elapsed() < LAST_WORDS {
            let count = match child.wait_readable(false, POLL) {
                Ok(ready) if !ready.stderr => continue,
                Ok(_) => child.read_stderr(&mut noise).unwrap_or(0),
                Err(_) => break,
            };
            report.add(noise.get(..count).unwrap_or_default(), printed);
        }
        Self::Ended(child.exit(LAST_WORDS).ok().flatten())
    }

    fn into_error(self, video: &VideoFile, frame: usize, report: &Report) -> Error {
        let place = video.place(frame);
        let error = match self {
            Self::Interrupted => Error::new(ErrorKind::Interrupted, "interrupted"),
            Self::Stalled(patience) => {
                let (seconds, said) = (patience.as_secs_f64(), report.said());
                let text = format!("ffmpeg gave nothing for {seconds:.1} s before {place}{said}");
                Error::new(ErrorKind::LimitExceeded, text)
            }
            Self::Broken(error) => Error::new(ErrorKind::FileError, "cannot read from ffmpeg").caused_by(error),
            Self::Ended(status) => ended(status, video, &place, report),
        };
        error.path(&video.path)
    }
}

/// Why a program ended too early: the file, the program or the system may be to blame.
fn ended(status: Option<ExitStatus>, video: &VideoFile, place: &str, report: &Report) -> Error {
    let said = report.said();
    let of_the_system =
        |text, number| Error::new(ErrorKind::FileError, text).caused_by(io::Error::from_raw_os_error(number));
    if let Some(signal) = status.and_then(|status| status.signal()) {
        let text = format!("ffmpeg was killed by signal {signal} before {place}{said}");
        // Not the file's fault: most often the system was short of memory. A crash may be.
        let crashed = [libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL].contains(&signal);
        return if crashed { Error::new(ErrorKind::FileError, text) } else { of_the_system(text, libc::ENOMEM) };
    }
    let code = status.and_then(|status| status.code());
    let text = match code {
        None => format!("ffmpeg closed its output before {place}{said}"),
        Some(0) => format!("ffmpeg found no more frames before {place}{said}"),
        Some(_) if report.is_unable() => {
            let text = format!("this ffmpeg cannot decode {} video{said}", video.codec);
            return Error::new(ErrorKind::Unsupported, text);
        }
        Some(code) => format!("ffmpeg stopped before {place} with exit code {code}{said}"),
    };
    // The index says what the program must have been able to read.
    let number = match code {
        Some(126 | 127) => Some(libc::ENOEXEC),
        code => report.system_error(code, video.short.is_none()),
    };
    match number {
        Some(number) => of_the_system(text, number),
        None => Error::new(ErrorKind::CorruptData, text),
    }
}
