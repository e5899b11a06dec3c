//! The ffmpeg program: where it is and which one it is.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use robocache::{Error, ErrorKind, Result, shown_path};

use super::child::Child;

/// Names a program that is used before all others.
const VARIABLE: &str = "ROBOCACHE_FFMPEG";

/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static FOUND: Mutex<Option<(Surroundings, Ffmpeg)>> = Mutex::new(None);

/// Also searches these folders for an `ffmpeg` program, after `PATH`: the `binaries` folder of the
/// Python package `imageio-ffmpeg`.
pub fn search_ffmpeg_in(folders: impl IntoIterator<Item = PathBuf>) {
    if let Ok(mut known) = FOLDERS.lock() {
        for folder in folders {
            if !known.contains(&folder) {
                known.push(folder);
            }
        }
    }
}

/// An ffmpeg program that answered when it was asked for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ffmpeg {
    program: PathBuf,
    version: String,
}

/// What the search depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// `ROBOCACHE_FFMPEG`.
    pub(super) chosen: Option<OsString>,
    /// `PATH`.
    pub(super) path: Option<OsString>,
    /// Those of [`search_ffmpeg_in`].
    pub(super) folders: Vec<PathBuf>,
}

impl Ffmpeg {
    /// Finds the program: `ROBOCACHE_FFMPEG`, else `PATH`, else the folders of [`search_ffmpeg_in`].
    ///
    /// Where there is none the error is `Unsupported` and says what was searched and how to get one.
    pub fn find() -> Result<Self> {
        let surroundings = Surroundings {
            chosen: std::env::var_os(VARIABLE).filter(|value| !value.is_empty()),
            path: std::env::var_os("PATH"),
            folders: FOLDERS.lock().map(|folders| folders.clone()).unwrap_or_default(),
        };
        if let Ok(found) = FOUND.lock()
            && let Some((before, ffmpeg)) = &*found
            && *before == surroundings
            && ffmpeg.is_there()
        {
            return Ok(ffmpeg.clone());
        }
        let ffmpeg = search(&surroundings)?;
        if let Ok(mut found) = FOUND.lock() {
            *found = Some((surroundings, ffmpeg.clone()));
        }
        Ok(ffmpeg)
    }

    /// Asks one program for its version.
    pub fn at(program: &Path) -> Result<Self> {
        match ask_version(program) {
            Ok(version) => Ok(Self { program: program.to_path_buf(), version }),
            Err(reason) => {
                Err(Error::new(ErrorKind::Unsupported, format!("cannot use ffmpeg: {reason}")).path(program))
            }
        }
    }

    /// Whether the program was not removed meanwhile. One without a folder is found anew each time it is started.
    fn is_there(&self) -> bool {
        self.program.components().count() == 1 || is_program(&self.program)
    }

    /// Where the program is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its version as it says it itself, like `7.0.2-static`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The option that keeps frames from being dropped or doubled, which was renamed in 5.1.
    pub(super) fn passthrough_option(&self) -> &'static str {
        let mut numbers = self.version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(..=4)), _) | (Some(Ok(5)), Some(Ok(0))) => "-vsync",
            _ => "-fps_mode",
        }
    }
}

pub(super) fn search(surroundings: &Surroundings) -> Result<Ffmpeg> {
    if let Some(chosen) = &surroundings.chosen {
        return Ffmpeg::at(Path::new(chosen)).map_err(|error| error.argument(VARIABLE));
    }
    let mut failures = Vec::new();
    let mut attempt = |program: &Path| match ask_version(program) {
        Ok(version) => Some(Ffmpeg { program: program.to_path_buf(), version }),
        Err(reason) => {
            failures.push(format!("{}: {reason}", shown_path(program)));
            None
        }
    };
    // A relative entry would run whatever lies in the current folder.
    let path = surroundings.path.iter().flat_map(std::env::split_paths).filter(|folder| folder.is_absolute());
    for program in path.map(|folder| folder.join("ffmpeg")).filter(|program| is_program(program)) {
        if let Some(ffmpeg) = attempt(&program) {
            return Ok(ffmpeg);
        }
    }
    for program in surroundings.folders.iter().flat_map(|folder| programs_in(folder)) {
        if let Some(ffmpeg) = attempt(&program) {
            return Ok(ffmpeg);
        }
    }
    let mut searched = vec![format!("{VARIABLE} is not set"), "no ffmpeg in PATH".to_owned()];
    if surroundings.folders.is_empty() {
        searched.push("the Python package imageio-ffmpeg was not seen".to_owned());
    }
    searched.extend(surroundings.folders.iter().map(|folder| format!("none in {}", shown_path(folder))));
    if !failures.is_empty() {
        searched.push(format!("unusable: {}", failures.join(", ")));
    }
    let text = format!(
        "decoding video needs the ffmpeg program ({}); get it by `pip install imageio-ffmpeg` or the \
         system's package ffmpeg, or set {VARIABLE} to one",
        searched.join("; ")
    );
    Err(Error::new(ErrorKind::Unsupported, text))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The wheel names its program after system and version: `ffmpeg-linux-x86_64-v7.0.2`.
fn programs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut programs: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            name == "ffmpeg" || name.as_encoded_bytes().starts_with(b"ffmpeg-")
        })
        .map(|entry| entry.path())
        .filter(|path| is_program(path))
        .collect();
    programs.sort();
    programs
}

fn ask_version(program: &Path) -> std::result::Result<String, String> {
    let mut command = Command::new(program);
    command.arg("-version").env_remove("FFREPORT");
    let mut child = Child::spawn(&mut command).map_err(|error| format!("cannot start it: {error}"))?;
    let start = Instant::now();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while !text.contains(&b'\n') && text.len() < 65_536 && !child.is_stdout_closed() {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(format!("it did not say its version within {} s", PATIENCE.as_secs()));
        }
        let ready = child.wait_readable(true, left).map_err(|error| error.to_string())?;
        if ready.stdout {
            let count = child.read_stdout(&mut buffer).map_err(|error| error.to_string())?;
            text.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
        if ready.stderr {
            child.read_stderr(&mut buffer).map_err(|error| error.to_string())?;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    match line.strip_prefix("ffmpeg version ").and_then(|rest| rest.split_whitespace().next()) {
        Some(version) => Ok(version.to_owned()),
        None => Err(format!("it does not say \"ffmpeg version\" but {:?}", line.chars().take(80).collect::<String>())),
    }
}
