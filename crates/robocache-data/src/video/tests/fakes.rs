//! Programs that only call themselves ffmpeg, and do what a bad day makes the real one do.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::build::Movie;
use super::*;

/// Pixels of one frame of the small movie.
const FRAME: usize = 64 * 48 * 3;

/// What the filter prints about the small movie's frames, and a frame.
const HELPERS: &str = r#"
base() { echo "[Parsed_showinfo_1 @ 0x1] [info] config in time_base: 1/1000, frame_rate: 10/1" >&2; }
line() { echo "[Parsed_showinfo_1 @ 0x1] [info] n:   0 pts:  $1 pts_time:0 fmt:yuv420p sar:1/1 s:64x48 i:P" >&2; }
pixels() { head -c 9216 /dev/zero; }
"#;

struct Fake {
    folder: Folder,
    ffmpeg: Ffmpeg,
    video: VideoFile,
}

impl Fake {
    fn new(script: &str) -> Self {
        Self::with_stall(script, Duration::from_secs(60))
    }

    fn with_stall(script: &str, max_stall: Duration) -> Self {
        let folder = Folder::new();
        let path = folder.file("a.mp4", &Movie::small().bytes());
        let limits = Limits { max_stall, ..Limits::default() };
        let video = VideoFile::open(&path, &limits).unwrap();
        let ffmpeg = program(&folder, script);
        Self { folder, ffmpeg, video }
    }

    fn decode(&self) -> Result<Vec<Vec<u8>>> {
        decode_all(&self.video, &self.ffmpeg, &[0, 1, 2, 3], PixelFormat::Rgb8)
    }

    /// The process of the fake is gone, and so is what it started.
    fn assert_gone(&self, name: &str) {
        let text = std::fs::read_to_string(self.folder.0.join("pids")).unwrap();
        for (index, pid) in text.split_whitespace().enumerate() {
            let start = Instant::now();
            // What it started belongs to the system once the fake is gone, which may take a moment to reap it.
            let alive = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
                Err(_) => false,
                Ok(stat) => index == 0 || !stat.contains(") Z "),
            };
            while alive() && index > 0 && start.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!alive(), "{name}: process {pid} is left");
        }
    }
}

/// Writes a program that says a version, notes its number, and runs `script`. A shell writes it: a
/// file that this process holds open for writing could not be started while another test forks.
fn program(folder: &Folder, script: &str) -> Ffmpeg {
    let path = folder.0.join("ffmpeg");
    let pids = folder.0.join("pids");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = -version ]; then echo 'ffmpeg version 7.1-fake'; exit; fi\necho $$ > '{}'\n{HELPERS}\n{script}\n",
        pids.display()
    );
    let draft = folder.file("draft", text.as_bytes());
    let copy = format!("cat '{}' > '{}' && chmod 755 '{}'", draft.display(), path.display(), path.display());
    assert!(Command::new("sh").args(["-c", &copy]).status().unwrap().success());
    Ffmpeg::at(&path).unwrap()
}

#[test]
fn a_good_program_is_believed() {
    let fake = Fake::new("base; for t in 100 200 300 400; do line $t; pixels; done; sleep 100");
    // It need not end: what was wanted came.
    assert_eq!(fake.decode().unwrap(), vec![vec![0; FRAME]; 4]);
    fake.assert_gone("good");
}

#[test]
fn programs_on_a_bad_day() {
    let rows: [(&str, &str, ErrorKind, &str); 16] = [
        (
            "exit 1",
            "echo '[error] Invalid data' >&2; exit 1",
            ErrorKind::CorruptData,
            "exit code 1; it said: [error] Invalid data",
        ),
        ("silent exit 0", "exit 0", ErrorKind::CorruptData, "no more frames before frame 0 (stored at 0.100000 s)"),
        (
            "short output",
            "base; line 100; pixels; line 200; head -c 100 /dev/zero",
            ErrorKind::CorruptData,
            "before frame 1",
        ),
        ("fewer frames", "base; line 100; pixels; line 200; pixels", ErrorKind::CorruptData, "before frame 2"),
        ("SIGKILL", "base; line 100; pixels; kill -9 $$", ErrorKind::FileError, "killed by signal 9 before frame 1"),
        ("SIGSEGV", "kill -11 $$", ErrorKind::FileError, "killed by signal 11"),
        ("no libraries", "echo 'libx.so: cannot open' >&2; exit 127", ErrorKind::FileError, "exit code 127"),
        ("no files", "echo '[error] Too many open files' >&2; exit 1", ErrorKind::FileError, "Too many open files"),
        (
            "wrong time",
            "base; line 100; pixels; line 201; pixels",
            ErrorKind::CorruptData,
            "frame 1 (stored at 0.200000 s) did not come out of the decoder, which gave one of 0.201000 s",
        ),
        ("a frame too few", "base; line 100; pixels; line 300; pixels", ErrorKind::CorruptData, "frame 1 (stored"),
        ("a frame twice", "base; line 100; pixels; line 100; pixels", ErrorKind::CorruptData, "frame 1 (stored"),
        ("no time", "base; line NOPTS; pixels", ErrorKind::CorruptData, "without a time"),
        ("no lines", "pixels; pixels", ErrorKind::CorruptData, "before frame 0"),
        ("no time base", "line 100; pixels", ErrorKind::CorruptData, "before frame 0"),
        (
            "time base 1/0",
            "echo '[Parsed_showinfo_1 @ 0x1] config in time_base: 1/0, x' >&2; line 100; pixels",
            ErrorKind::CorruptData,
            "did not come out",
        ),
        (
            "no decoder",
            "echo '[error] Decoding requested, but no decoder found for: av1' >&2; exit 1",
            ErrorKind::Unsupported,
            "this ffmpeg cannot decode h264 video",
        ),
    ];
    for (name, script, kind, text) in rows {
        let fake = Fake::new(script);
        let error = fake.decode().expect_err(name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        // An episode is left out for good only where its file may be to blame.
        let of_the_system = ["SIGKILL", "no libraries", "no files"].contains(&name);
        assert_eq!(crate::files::is_lasting(&error), !of_the_system, "{name}: {error}");
        assert!(error.to_string().contains(text), "{name}: {error}");
        assert_eq!(error.file(), Some(fake.video.path.as_path()), "{name}");
        fake.assert_gone(name);
    }
}

#[test]
fn errors_of_the_system_inside_the_program_are_no_faults_of_the_video() {
    use libc::{EACCES, EIO, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT};
    let said = |line: &str, code: i32| format!("base; line 100; pixels; echo '{line}' >&2; exit {code}");
    let mut rows: Vec<(String, Option<i32>)> = Vec::new();
    for number in [EACCES, EIO, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT] {
        let words = std::io::Error::from_raw_os_error(number).to_string();
        let words = words.split(" (os").next().unwrap();
        rows.push((said("[error] gone", 256 - number), Some(number)));
        rows.push((said(&format!("[in#0 @ 0x1] [error] Error opening input: {words}"), 1), Some(number)));
        rows.push((said(&format!("[mov @ 0x1] [error] Task finished with error code: -1 ({words})"), 0), Some(number)));
        // What the file says is no error of the system.
        rows.push((said(&format!("[info]     title           : [error] {words}"), 183), None));
        rows.push((said(&format!("[error] {words}: a name"), 183), None));
    }
    for line in ["moov atom not found", "stream 0, offset 0x4992: partial file", "corrupt input packet in stream 0"] {
        rows.push((said(&format!("[mov @ 0x1] [fatal] {line}"), 183), Some(EIO)));
    }
    for (script, number) in rows {
        let fake = Fake::new(&script);
        let error = fake.decode().expect_err(&script);
        assert_eq!(crate::files::is_lasting(&error), number.is_none(), "{script}: {error}");
        assert_eq!(crate::files::cause(&error), number, "{script}: {error}");
        assert_eq!(error.file(), Some(fake.video.path.as_path()), "{script}");
    }
}

#[test]
fn a_video_that_cannot_be_read_now_is_not_damaged() {
    use crate::files::faults::while_blocked;
    let fake = Fake::new("base; line 100; pixels; echo '[error] Invalid data' >&2; exit 183");
    for number in [libc::EIO, libc::ESTALE] {
        let error = while_blocked(&fake.video.path, crate::files::Operation::Read, number, || fake.decode());
        let error = error.unwrap_err();
        assert_eq!((crate::files::cause(&error), crate::files::is_lasting(&error)), (Some(number), false), "{error}");
        assert_eq!(error.file(), Some(fake.video.path.as_path()));
    }
    // What fails once only is decoded after all.
    let fake = Fake::new(
        "base; once=\"${0%/*}/once\"; if [ ! -e \"$once\" ]; then : > \"$once\"; line 100; pixels; exit 183; fi; \
         case \"$*\" in *'between(t,0.15'*) ;; *) line 100; pixels;; esac; for t in 200 300 400; do line $t; pixels; done",
    );
    let mut seen = Vec::new();
    let sink = &mut |frame: usize, _: Pixels<'_>| {
        seen.push(frame);
        Ok(())
    };
    let wish = Wish::alone(PixelFormat::Rgb8);
    fake.video.decode_with(&fake.ffmpeg, &[0, 1, 2, 3], wish, &Context::default(), sink).unwrap();
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn a_program_that_is_gone_is_no_fault_of_the_video() {
    let fake = Fake::new("base; for t in 100 200 300 400; do line $t; pixels; done");
    assert_eq!(fake.decode().unwrap().len(), 4);
    for gone in [true, false] {
        std::fs::remove_file(fake.ffmpeg.program()).unwrap();
        if !gone {
            std::fs::write(fake.ffmpeg.program(), "no program").unwrap();
        }
        let error = fake.decode().unwrap_err();
        let ends_the_run = error.kind() == ErrorKind::Unsupported || !crate::files::is_lasting(&error);
        assert!(ends_the_run && error.to_string().contains("cannot start ffmpeg"), "{error}");
        assert_eq!(error.file(), Some(fake.ffmpeg.program()));
        if gone {
            std::fs::write(fake.ffmpeg.program(), "").unwrap();
        }
    }
}

#[test]
fn a_size_that_changes_on_the_way_is_refused() {
    let small = "echo '[Parsed_showinfo_1 @ 0x1] [info] n:   0 pts:  200 fmt:yuv420p s:32x48' >&2; pixels";
    let fake = Fake::new(&format!("base; line 100; pixels; {small}"));
    let error = fake.decode().unwrap_err();
    assert!(error.to_string().contains("frame 1 (stored at 0.200000 s) is 32 x 48, the file says 64 x 48"), "{error}");
    fake.assert_gone("size");
}

#[test]
fn a_program_that_hangs_is_ended() {
    for (name, script) in [
        ("hangs", "exec sleep 1000"),
        ("hangs in a child", "sleep 1000 & echo $! >> \"${0%/*}/pids\"; wait"),
        ("hangs after a frame", "base; line 100; pixels; sleep 1000"),
        ("hangs inside a frame", "base; line 100; head -c 50 /dev/zero; sleep 1000"),
        ("talks for ever", "while :; do echo blah >&2; done"),
        ("closes its output and hangs", "exec 1>&-; sleep 1000"),
    ] {
        let fake = Fake::with_stall(script, Duration::from_millis(300));
        let start = Instant::now();
        let error = fake.decode().expect_err(name);
        assert!(start.elapsed() < Duration::from_secs(20), "{name}: {:?}", start.elapsed());
        if name.starts_with("closes") {
            assert!(error.to_string().contains("closed its output before frame 0"), "{name}: {error}");
        } else {
            assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{name}: {error}");
            assert!(error.to_string().contains("gave nothing for 0.3 s"), "{name}: {error}");
        }
        fake.assert_gone(name);
    }
}

#[test]
fn megabytes_of_complaints_are_drained() {
    let fake = Fake::new(
        "base; yes '[h264 @ 0x1] [error] error while decoding MB 1 1' | head -n 200000 >&2; head -c 5000000 /dev/zero >&2; \
         echo >&2; for t in 100 200 300 400; do line $t; pixels; done",
    );
    assert_eq!(fake.decode().unwrap().len(), 4);
    let fake = Fake::new("yes 'noise' | head -n 200000 >&2; echo '[fatal] the last word' >&2; exit 3");
    let error = fake.decode().unwrap_err().to_string();
    assert!(error.contains("exit code 3; it said: [fatal] the last word"), "{error}");
    assert!(error.len() < 2000, "{} bytes", error.len());
}

#[test]
fn the_sink_and_the_caller_can_stop_it() {
    let endless = "base; for t in 100 200 300 400; do line $t; pixels; done; exec sleep 1000";
    let fake = Fake::new(endless);
    let mut seen = 0;
    let error = fake
        .video
        .decode_with(&fake.ffmpeg, &[0, 1, 2, 3], Wish::alone(PixelFormat::Rgb8), &Context::default(), &mut |_, _| {
            seen += 1;
            if seen == 2 { Err(Error::new(ErrorKind::OutOfMemory, "enough")) } else { Ok(()) }
        })
        .unwrap_err();
    assert_eq!((error.kind(), seen), (ErrorKind::OutOfMemory, 2));
    fake.assert_gone("sink");

    let fake = Fake::new("exec sleep 1000");
    let start = Instant::now();
    let interrupt = || start.elapsed() > Duration::from_millis(200);
    let context = Context { interrupt: Some(&interrupt), ..Context::default() };
    let wish = Wish::alone(PixelFormat::Rgb8);
    let error = fake.video.decode_with(&fake.ffmpeg, &[0], wish, &context, &mut |_, _| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    fake.assert_gone("interrupt");
}

#[test]
fn a_program_that_does_not_tell_of_colours_gives_rgb() {
    // The first frame as planes, the others in colours that are told later, or never.
    let colours = "echo '[Parsed_showinfo_1 @ 0x1] [info] color_range:tv color_space:smpte170m' >&2";
    let other = "echo '[Parsed_showinfo_1 @ 0x1] [info] color_range:tv color_space:bt709' >&2";
    for (second, planes) in [("true", 1), (other, 1), (colours, 4)] {
        let rest = format!("for t in 200 300 400; do line $t; {second}; head -c 4608 /dev/zero; done");
        let all = "for t in 100 200 300 400; do case \"$*\" in *\"between(t,0.15\"*) [ $t = 100 ] && continue;; esac; line $t; pixels; done";
        let script = format!(
            "base; case \"$*\" in *yuv420p*) line 100; {colours}; head -c 4608 /dev/zero; {rest};; *) {all};; esac"
        );
        let fake = Fake::new(&script);
        let mut seen = Vec::new();
        let wish = Wish { format: PixelFormat::Yuv420, threads: 1 };
        let sink = &mut |frame: usize, pixels: Pixels<'_>| {
            seen.push((frame, matches!(pixels, Pixels::Planes(_, Levels::Limited))));
            Ok(())
        };
        fake.video.decode_with(&fake.ffmpeg, &[0, 1, 2, 3], wish, &Context::default(), sink).unwrap();
        let expected: Vec<(usize, bool)> = (0..4).map(|frame| (frame, frame < planes)).collect();
        assert_eq!(seen, expected, "{second}");
    }
}

#[test]
fn decoding_starts_again_from_the_start_where_seeking_fails() {
    let mut movie = Movie::small();
    movie.stss = Some(super::build::words(&[0, 2, 1, 4]));
    let folder = Folder::new();
    let video = open(&folder.file("a.mp4", &movie.bytes())).unwrap();
    assert_eq!(video.keyframes().collect::<Vec<_>>(), [true, false, true, false]);
    let tries = folder.0.join("tries");
    let script = format!(
        "echo x >> '{}'; base; case \"$*\" in *-ss*) line 400; pixels;; *) line 300; pixels; line 400; pixels;; esac",
        tries.display()
    );
    let ffmpeg = program(&folder, &script);
    assert_eq!(decode_all(&video, &ffmpeg, &[2, 3], PixelFormat::Rgb8).unwrap().len(), 2);
    assert_eq!(std::fs::read_to_string(&tries).unwrap(), "x\nx\n");
}

/// Runs a test's body in a process of its own, where no other test disturbs it.
fn alone(name: &str) -> Option<Command> {
    if std::env::var_os("ROBOCACHE_TEST_ALONE").is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("video::tests::fakes::{name}"), "--nocapture"]);
    command.env("ROBOCACHE_TEST_ALONE", "1");
    Some(command)
}

#[test]
fn no_pipe_or_process_is_left() {
    if let Some(mut command) = alone("no_pipe_or_process_is_left") {
        assert!(command.status().unwrap().success());
        return;
    }
    let open_files = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let good = Fake::new("base; for t in 100 200 300 400; do line $t; pixels; done");
    let bad = Fake::new("base; line 100; pixels; exit 1");
    let before = open_files();
    for _ in 0..20 {
        good.decode().unwrap();
        bad.decode().unwrap_err();
    }
    assert_eq!(open_files(), before);
    // SAFETY: the call only asks whether this process has a child that has ended.
    let left = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    assert_eq!(left, -1, "a child is left");
}

#[test]
#[cfg(target_os = "linux")]
fn the_program_dies_with_its_parent() {
    let Some(mut command) = alone("the_program_dies_with_its_parent") else {
        let fake = Fake::new("exec sleep 1000");
        println!("folder={}", fake.folder.0.display());
        let _ = fake.decode();
        return;
    };
    let mut parent = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(parent.stdout.take().unwrap()));
    let folder =
        lines.find_map(|line| line.unwrap().split_once("folder=").map(|(_, folder)| folder.to_owned())).unwrap();
    let wait_for = |what: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !what() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(what(), "in {folder}");
    };
    let pids = || std::fs::read_to_string(format!("{folder}/pids")).unwrap_or_default();
    wait_for(&|| pids().ends_with('\n'));
    let child = format!("/proc/{}/cmdline", pids().trim());
    wait_for(&|| std::fs::read(&child).is_ok_and(|text| text.starts_with(b"sleep")));
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for(&|| std::fs::read(&child).map_or(true, |text| text.is_empty()));
    let _ = std::fs::remove_dir_all(&folder);
}
