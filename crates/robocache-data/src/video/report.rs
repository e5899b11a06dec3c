//! What ffmpeg prints: a line per frame from its `showinfo` filter, and complaints.

use std::collections::VecDeque;

/// Bytes of one line that are looked at.
const MAX_LINE: usize = 4096;

/// Lines that are kept for the text of an error, and bytes of each.
const KEPT_LINES: usize = 4;
const KEPT_BYTES: usize = 200;

/// What a program says that was built without what this video needs. The spelling is its own.
const INABILITY: [&str; 5] = [
    "no decoder found",
    "Decoder not found",
    "Unknown decoder",
    "suppport hardware accelerated",
    "could not choose their formats",
];

/// What keeps a program from reading a file that may be fine.
const SYSTEM: [i32; 10] = [
    libc::EACCES,
    libc::EIO,
    libc::EMFILE,
    libc::ENFILE,
    libc::ENODEV,
    libc::ENOMEM,
    libc::ENOTCONN,
    libc::EPERM,
    libc::ESTALE,
    libc::ETIMEDOUT,
];

/// What a program says that got fewer bytes than the file has.
const CUT_OFF: [&str; 3] = ["moov atom not found", "partial file", "corrupt input packet in stream"];

/// What `showinfo` says of one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Printed {
    /// Its time in units of the time base.
    pub(super) pts: Option<i64>,
    /// Seconds per unit, as a fraction.
    pub(super) time_base: (u32, u32),
    /// Width and height.
    pub(super) size: (u32, u32),
    /// The pixel format.
    pub(super) format: String,
    /// The range of the numbers and the matrix of the colours, which come a line later.
    pub(super) colours: Option<(String, String)>,
}

/// Takes what is printed apart, line by line, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Report {
    line: Vec<u8>,
    time_base: Option<(u32, u32)>,
    complaints: VecDeque<String>,
    others: VecDeque<String>,
    unable: bool,
    system: Option<i32>,
    cut_off: bool,
}

impl Report {
    /// Takes more bytes; frames that they tell of are appended to `printed`.
    pub(super) fn add(&mut self, bytes: &[u8], printed: &mut VecDeque<Printed>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n' || byte == b'\r') {
            let room = MAX_LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
            if piece.ends_with(b"\n") || piece.ends_with(b"\r") {
                let line = std::mem::take(&mut self.line);
                self.take_line(String::from_utf8_lossy(&line).trim(), printed);
            }
        }
    }

    fn take_line(&mut self, line: &str, printed: &mut VecDeque<Printed>) {
        // Texts from the file are printed too, but never at the start of a line.
        if line.starts_with("[Parsed_showinfo_") {
            if let Some((_, rest)) = line.split_once(" config in time_base: ") {
                self.time_base = fraction(rest.split(',').next().unwrap_or_default(), '/');
            } else if let Some((_, rest)) = line.split_once(" n:")
                && let Some(time_base) = self.time_base
                && let Some(one) = frame_line(rest, time_base)
            {
                printed.push_back(one);
            } else if let Some(colours) = colours(line)
                && let Some(last) = printed.back_mut()
            {
                last.colours.get_or_insert(colours);
            }
            return;
        }
        if line.is_empty() {
            return;
        }
        if let Some(complaint) = complaint(line) {
            self.cut_off |= CUT_OFF.iter().any(|text| complaint.contains(text));
            self.system = self.system.or_else(|| SYSTEM.into_iter().find(|&number| ends_in(complaint, number)));
        }
        self.unable |= INABILITY.iter().any(|text| line.contains(text));
        let complains = ["[warning]", "[error]", "[fatal]", "[panic]"].iter().any(|level| line.contains(level));
        let kept = if complains { &mut self.complaints } else { &mut self.others };
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(line.chars().take(KEPT_BYTES).collect());
    }

    /// Whether the program says that it lacks what it needs, rather than that the file is bad.
    pub(super) fn is_unable(&self) -> bool {
        self.unable
    }

    /// The number of the system's error that ended the program with an exit code. Of a file that is known to be
    /// whole, the system also gave too little where the program calls it cut off.
    pub(super) fn system_error(&self, code: Option<i32>, is_whole: bool) -> Option<i32> {
        // It ends with the negative number, of which the system keeps eight bits; 255 says that it was asked to end.
        let by_code = || SYSTEM.into_iter().find(|number| code == Some(256 - number) && *number != libc::EPERM);
        self.system.or_else(by_code).or((is_whole && self.cut_off).then_some(libc::EIO))
    }

    /// The last complaints, or the last words, as the end of an error's text.
    pub(super) fn said(&self) -> String {
        let lines = if self.complaints.is_empty() { &self.others } else { &self.complaints };
        if lines.is_empty() {
            return String::new();
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        format!("; it said: {}", lines.join(" | "))
    }
}

/// `[mov @ 0x1] [error] text`: the text. Texts from the file are printed too, but never as errors.
fn complaint(line: &str) -> Option<&str> {
    let mut rest = line;
    while let Some((part, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        if ["error", "fatal", "panic"].contains(&part) {
            return Some(after);
        }
        rest = after;
    }
    None
}

/// Whether a complaint ends with the system's words for a number: `Task finished with error code: -5 (Input/output error)`.
fn ends_in(complaint: &str, number: i32) -> bool {
    let words = std::io::Error::from_raw_os_error(number).to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    complaint.trim_end_matches(')').ends_with(words)
}

/// `   0 pts:  31744 pts_time:2.06 ... fmt:yuv420p ... s:128x96 ...`
fn frame_line(rest: &str, time_base: (u32, u32)) -> Option<Printed> {
    let (_, after) = rest.split_once(" pts:")?;
    let pts = after.split_whitespace().next()?.parse().ok();
    let word = |key: &str| after.split_whitespace().find_map(|word| word.strip_prefix(key));
    Some(Printed { pts, time_base, size: fraction(word("s:")?, 'x')?, format: word("fmt:")?.to_owned(), colours: None })
}

/// `color_range:tv color_space:bt709 color_primaries:bt709 color_trc:bt709`
fn colours(line: &str) -> Option<(String, String)> {
    let word = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)).map(str::to_owned);
    Some((word("color_range:")?, word("color_space:")?))
}

fn fraction(text: &str, separator: char) -> Option<(u32, u32)> {
    let (a, b) = text.trim().split_once(separator)?;
    Some((a.parse().ok()?, b.parse().ok()?))
}
